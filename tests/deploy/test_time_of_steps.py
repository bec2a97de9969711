"""Time tells nothing: how long a whole step of a deployed agent takes does not tell what it saw."""

import dataclasses
import gc
import sys
import time
from typing import Any

import jax
import numpy as np
import pytest
from tiny import CONFIG

from dpmac.config import Budget, Channel
from dpmac.deploy import team as deploy
from dpmac.privacy import timing
from dpmac.runner import noise as scales
from dpmac.runner import population

AGENTS, HORIZON, CHANCE = 3, 5, 1e-5
CHANNELS = {"gaussian": Channel(), "response": Channel("response", symbols=4)}


class Tally:
    """An account in memory: that a charge makes the same system calls for every message is a test of its own."""

    def charge(self, releases):
        pass


def agent_of(channel):
    budget = Budget((3.0,))
    config = dataclasses.replace(CONFIG, task="probe-neighbour", channel=channel, budgets=(budget,))
    program = population.check(config)
    noise, team = scales.noise_scales(budget, channel, AGENTS, HORIZON), program.team(jax.random.key(1))
    account: Any = Tally
    (agent, *_) = deploy.DeployedTeam(program, team, scales.scale_of(config, program, budget), noise, account).agents()
    return agent


def timed(agent, count):
    """How long whole steps took (step,), from networks to the release, and which of two observations each saw."""
    rng = np.random.default_rng()
    sides = rng.integers(2, size=count)
    seen = 5 * np.random.default_rng(0).standard_normal((2, agent.observation_size)).astype(np.float32)
    seen[:, 0] = [-5.0, 5.0]
    spoken = np.eye(agent.channel.size, dtype=np.float32)[0] * (agent.channel.spec.mechanism == "response")
    received = dict.fromkeys(agent.others, spoken)
    times, carry = np.empty(count), agent.start()
    gc.disable()
    try:
        for place in range(-20 * HORIZON, count):
            step, side = place % HORIZON, sides[place]
            if step == 0:
                carry = agent.start()
            arrived, observation = received if step else {}, seen[side]
            before = time.perf_counter_ns()
            _, _, carry = agent.act(observation, arrived, carry)
            times[place] = time.perf_counter_ns() - before  # the first ones, which compile, are overwritten
    finally:
        gc.enable()
    return times, sides


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.large)])
@pytest.mark.parametrize("name", CHANNELS)
def test_the_time_of_a_step_does_not_tell_what_an_agent_saw(name, count, record_property):
    times, sides = timed(agent_of(CHANNELS[name]), count)
    told, median = timing.distinguish(times, sides), np.median(times) / 1e3
    line = f"{name}: {count} whole steps, median {median:.0f} µs, guessed {100 * told.accuracy:.2f} % right"
    record_property("counted", line)
    assert told.p_value > CHANCE


@pytest.mark.parametrize(("count", "work"), [(3_000, 5_000), pytest.param(100_000, 500, marks=pytest.mark.large)])
def test_a_planted_branch_of_a_step_is_found(count, work, monkeypatch, record_property):
    """The more timings, the less work it takes: a quarter of a millisecond, and a tenth of that."""
    agent = agent_of(CHANNELS["gaussian"])
    home = sys.modules[type(agent).__module__]
    sound = home.checked

    def branches(values, shape):
        if np.size(values) and np.ravel(values)[0] > 4:
            sum(number * number for number in range(work))
        return sound(values, shape)

    monkeypatch.setattr(home, "checked", branches)
    told = timing.distinguish(*timed(agent, count))
    record_property("counted", f"a planted branch: {count} whole steps, guessed {100 * told.accuracy:.2f} % right")
    assert told.p_value < CHANCE
