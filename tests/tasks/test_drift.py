"""Drift: following a stream that another agent sees."""

import jax
import jax.numpy as jnp
import numpy as np

from dpmac.privacy.streams import Stream
from dpmac.tasks.drift import CUT, Drift, DriftState


def test_the_stream_is_the_one_that_is_accounted_for():
    task = Drift(horizon=6)
    paths = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), 20_000)).path
    stream = Stream(task.decay, task.horizon, CUT)
    increments = np.asarray(paths[:, 1:] - task.decay * paths[:, :-1])
    assert np.abs(increments).max() <= stream.change / 2 * (1 + 1e-5)
    np.testing.assert_allclose(np.cov(np.asarray(paths[:, 1:, 0]).T), stream.covariance, atol=0.35)
    assert 0.7 < paths[:, 0].var() < 1.0  # cut at two standard deviations


def test_an_agent_follows_the_stream_of_the_one_before_it():
    task = Drift(horizon=2, spots=5)
    state = DriftState(jnp.array([[1.0, -1.0], [0.5, 2.0], [0, 0]]), jnp.zeros((), jnp.int32), jnp.zeros(2))
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
