"""Drift: following a stream that another agent sees."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmac.privacy.streams import Stream
from dpmac.tasks import abilities
from dpmac.tasks.drift import CUT, Drift, DriftState


def test_the_stream_is_the_one_that_is_accounted_for():
    task = Drift(horizon=6)
    paths = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), 20_000)).path
    stream = Stream(task.decay, task.horizon, CUT)
    increments = np.asarray(paths[:, 1:] - task.decay * paths[:, :-1])
    assert np.abs(increments).max() <= stream.change / 2 * (1 + 1e-5)
    assert 0.7 < paths[:, 0].var() < 1.0  # cut at two standard deviations


def test_a_stream_that_begins_at_0_is_the_one_that_can_be_followed():
    """Increments that are cut at two standard deviations have 0.92 of the variance."""
    task = Drift(horizon=6, start=0.0)
    paths = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), 20_000)).path
    assert not paths[:, 0].any()
    expected = 0.92 * Stream(task.decay, task.horizon).covariance
    np.testing.assert_allclose(np.cov(np.asarray(paths[:, 1:, 0]).T), expected, rtol=0.05)


def test_an_increment_is_seen_at_its_step_alone():
    task: Any = Drift(horizon=6)
    state = task.reset(jax.random.key(0))
    assert (abilities(task).increments, abilities(task).decay) == ((2,), 0.98)
    for time in range(6):
        seen = task.observe(state._replace(time=time))
        before = state.path[time - 1] if time else jnp.zeros(2)
        np.testing.assert_allclose(seen[:, 2], seen[:, 0] - task.decay * before, atol=1e-6)


def test_an_agent_follows_the_stream_of_the_one_before_it():
    task = Drift(horizon=2, spots=5)
    path = jnp.array([[1.0, -1.0], [0.5, 2.0], [0, 0]])
    state = DriftState(path, path, jnp.zeros((), jnp.int32), jnp.zeros(2))
    after, rewards = task.step(state, jnp.array([1, 3]))
    np.testing.assert_allclose(rewards, 0, atol=1e-6)
    np.testing.assert_allclose(task.observe(after)[:, 0], [0.5, 2.0])
    _, rewards = task.step(after, jax.nn.one_hot(jnp.array([4, 2]), 5))
    np.testing.assert_allclose(rewards, [0, -0.125])
    np.testing.assert_array_equal(task.scripted(after), [4, 2])


def test_an_agent_sees_its_own_stream_alone_and_nothing_ahead():
    task, state = Drift(), Drift().reset(jax.random.key(1))
    other = state._replace(path=state.path.at[0, 1].add(1.0).at[1:].add(1.0))
    before, after = task.observe(state), task.observe(other)
    np.testing.assert_array_equal(before[0], after[0])
    assert before[1, 0] != after[1, 0]
