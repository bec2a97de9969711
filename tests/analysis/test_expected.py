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
from dpmac.tasks.midway import Midway

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

    count, task = 20_000, cast(Any, Drawn(program.task, lambda _: jnp.zeros(2)))
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


def both_ways(program, way):
    """Means (start,) by walks of each agent for itself, and by whole teams for all secrets and releases."""
    team = jax.tree.map(lambda leaf: 3 * leaf, program.team(jax.random.key(3)))
    noise = (0.3, 0.2, 0.1)[: team.agents]
    scale = noise_scale(program.channel, noise) if team.channel.size else team.free
    given = (program.task, team, scale, jax.random.key(5), STARTS)
    return (np.asarray(jax.jit(each, static_argnums=(0, 4))(*given)) for each in (way, expected.together))


@pytest.mark.parametrize("symbols", [0, 2, 3])
@pytest.mark.parametrize(
    ("task", "options"), [("ccn", {}), ("ccn", {"convention": "mpe2"}), ("midway", {}), ("midway", {"order": "spread"})]
)
def test_walks_of_each_agent_for_itself_give_the_mean_over_all_secrets_and_releases(task, options, symbols):
    channel = dataclasses.replace(CONFIG.channel, symbols=symbols or 3)
    silent = {} if symbols else {"method": "silent", "budgets": (Budget((float("inf"),)),)}
    settled = {"task": task, "task_options": {"horizon": 3, **options}, "channel": channel}
    program = Program.of(dataclasses.replace(CONFIG, **settled, **silent))
    one, other = both_ways(program, expected.apart)
    np.testing.assert_allclose(one, other, rtol=3e-6)


@dataclasses.dataclass(frozen=True)
class Watched(Midway):
    """Everybody sees how fast the next agent moves, so that what it declares is false."""

    def observe(self, state):
        seen = super().observe(state)
        return seen.at[:, :2].set(jnp.roll(seen[:, :2], 1, axis=0))


def test_a_task_that_declares_shares_falsely_is_found_out():
    settled = {"task_options": {"horizon": 3}, "channel": dataclasses.replace(CONFIG.channel, symbols=3)}
    program = Program.of(dataclasses.replace(CONFIG, task="midway", **settled))
    one, other = both_ways(dataclasses.replace(program, task=Watched(horizon=3)), expected.apart)
    assert np.abs(one - other).max() > 0.01


@pytest.mark.parametrize("task", [tasks.make("ccn"), tasks.make("ccn", convention="mpe2"), tasks.make("midway")])
def test_shares_add_up_to_the_return_of_a_step_whose_secrets_are_known(task):
    state = task.reset(jax.random.key(1))
    (secrets,) = task.secrets(state).values()
    after, rewards = task.step(state, jnp.arange(task.agents) + 1)
    shares = task.shares(after, jax.nn.one_hot(secrets, task.symbols))
    assert float(jnp.sum(shares)) == pytest.approx(float(jnp.mean(rewards)), rel=1e-5)


def test_large_teams_are_scored_by_draws_that_differ(monkeypatch):
    monkeypatch.setattr(expected, "DRAWS", 3000)
    settled = {"task": "midway", "channel": dataclasses.replace(CONFIG.channel, symbols=3)}
    drawn, exact = both_ways(Program.of(dataclasses.replace(CONFIG, **settled)), expected.drawn)
    np.testing.assert_allclose(drawn, exact, atol=0.25)
    assert expected.scored(tasks.make("midway")) == "all secrets"
    assert expected.scored(tasks.make("midway", agents=12)) == "3000 draws"


def test_tasks_without_a_way_to_set_secrets_are_left_out():
    assert expected.applies(tasks.make("midway", agents=12))
    assert not expected.applies(tasks.make("binary-sums"))
