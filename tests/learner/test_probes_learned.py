"""On probes, whose values are known, critics find them, and messages are learned where they are needed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac.config import NetworkConfig, RunConfig, Training
from dpmac.learner import maddpg
from dpmac.learner.rollout import returns, rollout
from dpmac.runner import population
from dpmac.runner.noise import scales_of, tables_of

DISCOUNT = 0.99


def learned(task, method, iterations, recurrent_critic) -> Any:
    """The task and the networks after so many iterations."""
    options = {
        "batch": 32,
        "explore_steps": 10 * iterations,
        "learning_rate": 3e-3,
        "tau": 0.03,
        "standardise": False,  # values are compared in the task's own units
        "recurrent_critic": recurrent_critic,
    }
    training = Training(steps=20 * iterations)
    config = RunConfig(task, method, learner_options=options, networks=NetworkConfig(16, 16, 4), training=training)
    program = population.check(config)
    scale, tables = scales_of(config, program, config.budgets), tables_of(config, program, config.budgets, 0.0)
    runs = population.runs_of(config)
    states, settings = population.start(program, population.keys_of(runs)), population.settings_of(program, runs)
    states, _ = population.advance(program, states, tables, scale, settings, jnp.asarray(iterations))
    return program.task, *(jax.tree.map(lambda leaf: leaf[0], tree) for tree in (states.learner.networks, scale))


def played(task, networks, scale):
    """Mean return of greedy episodes, and Q (time, agent, episode) in them."""
    episode = rollout(task, networks.team, scale, jax.random.key(1), 64, greedy=True).episode
    batch = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 2), episode._replace(draws=None, scale=None))
    q = maddpg.values(networks.critics, batch.observations[:-1], jax.nn.one_hot(batch.actions, task.actions))
    return float(jnp.mean(returns(episode))), np.asarray(q)


def test_critics_find_the_discounted_sum_of_a_constant_reward():
    task, networks, scale = learned("probe-value", "silent", 600, recurrent_critic=False)
    _, q = played(task, networks, scale)
    wanted = [task.value(t, DISCOUNT) for t in range(task.horizon)]
    np.testing.assert_allclose(q, np.broadcast_to(np.reshape(wanted, (-1, 1, 1)), q.shape), atol=0.1)


def answered(horizon):
    """Values (time, 1, 1) of right answers in all steps but the first."""
    return np.array([sum(DISCOUNT**k for k in range(max(1 - t, 0), horizon - t)) for t in range(horizon)]).reshape(
        -1, 1, 1
    )


@pytest.mark.parametrize(
    ("task", "method"), [("probe-listen", "dpmac"), pytest.param("probe-memory", "silent", marks=pytest.mark.large)]
)
def test_recurrent_critics_and_actors_find_the_best_policy_and_its_values(task, method):
    """What an agent was shown or told earlier is worth nothing to a critic without carry."""
    task, networks, scale = learned(task, method, 800, recurrent_critic=True)
    score, q = played(task, networks, scale)
    assert score == pytest.approx(task.optimal_return, abs=0.1)
    np.testing.assert_allclose(q, np.broadcast_to(answered(task.horizon), q.shape), atol=0.25)


def test_without_messages_the_listener_can_only_guess():
    task, networks, scale = learned("probe-listen", "silent", 200, recurrent_critic=False)
    score, _ = played(task, networks, scale)
    assert score == pytest.approx(task.silent_return, abs=0.6)
