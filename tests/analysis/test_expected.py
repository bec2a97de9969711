"""Returns over all secrets and releases."""

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import tasks
from dpmac.agents.mechanisms import noise_scale
from dpmac.analysis import expected
from dpmac.config import Budget, Channel, NetworkConfig, RunConfig, Training
from dpmac.learner.rollout import returns, rollout
from dpmac.runner.train import Program

CONFIG = RunConfig(
    "ccn",
    learner="pathwise",
    task_options={"horizon": 3},
    channel=Channel("response", period=0, symbols=2),
    budgets=(Budget((1.0,)),),
    networks=NetworkConfig(hidden=8, message_hidden=8, aware=True),
    training=Training(steps=12),
)
STARTS = 4


@pytest.mark.parametrize("mechanism", ["response", "gaussian"])
def test_the_mean_over_secrets_and_releases_is_that_of_many_draws(mechanism):
    """Starts that differ in nothing but secrets and noise draws are played over and over."""
    channel = dataclasses.replace(CONFIG.channel, mechanism=mechanism)
    program = Program.of(dataclasses.replace(CONFIG, channel=channel))
    team, key = program.team(jax.random.key(3)), jax.random.key(5)
    team = jax.tree.map(lambda leaf: 3 * leaf, team)  # so that messages matter from the start
    scale = noise_scale(program.channel, (0.3, 0.2))
    exact = np.asarray(expected.expected(program, team, scale, key, STARTS))
    start_key, *_ = jax.random.split(key, 4)
    starts = jax.vmap(program.task.reset)(jax.random.split(start_key, STARTS))

    class Drawn(expected.Posed):
        def reset(self, key):
            where, what = jax.random.split(key)
            state = jax.tree.map(lambda leaf: leaf[jax.random.randint(where, (), 0, STARTS)], starts)
            return cast(Any, self.task).with_secrets(state, jax.random.randint(what, (2,), 0, 3))

    count, task = 20_000, cast(Any, Drawn(program.task, jnp.zeros(2)))
    play = jax.jit(lambda key: returns(rollout(task, team, scale, key, count, greedy=True).episode))
    sample = np.asarray(play(jax.random.key(9)))
    assert exact.mean() == pytest.approx(
        sample.mean(), abs=4 * sample.std() / np.sqrt(count) + (mechanism != "response") * 0.05
    )


@pytest.mark.parametrize("task", [tasks.make("ccn"), tasks.make("midway")])
def test_secrets_are_put_where_they_are_read(task):
    secrets = jnp.arange(task.agents) % 3
    (found,) = task.secrets(task.with_secrets(task.reset(jax.random.key(0)), secrets)).values()
    np.testing.assert_array_equal(found, secrets)


def test_tasks_without_a_way_to_set_secrets_and_too_many_agents_are_left_out():
    assert expected.applies(tasks.make("ccn"))
    assert not expected.applies(tasks.make("midway", agents=12))
    assert not expected.applies(tasks.make("binary-sums"))
