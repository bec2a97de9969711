"""Any task as a PettingZoo environment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test

from dpmac import tasks
from dpmac.config import BadInput
from dpmac.tasks.pettingzoo import ParallelTask


def episode(env, seed):
    rng = np.random.default_rng(0)
    observations, _ = env.reset(seed=seed)
    seen = [np.stack(list(observations.values()))]
    while env.agents:
        observations, *_ = env.step({agent: int(rng.integers(env.task.actions)) for agent in env.agents})
        seen.append(np.stack(list(observations.values())))
    return np.stack(seen)


@pytest.mark.parametrize("name", tasks.names())
def test_adapter_passes_pettingzoos_own_test(name):
    parallel_api_test(ParallelTask(name), num_cycles=200)


def test_seeds_decide_the_episode_and_zero_is_a_seed():
    env = ParallelTask("ccn")
    first, other, again = episode(env, 0), episode(env, 1), episode(env, 0)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(first, episode(ParallelTask("ccn"), 0))
    assert not np.array_equal(first, episode(env, None))


def test_the_horizon_truncates_after_exactly_so_many_steps():
    env = ParallelTask("pp", horizon=7)
    assert len(episode(env, 3)) == 8
    env.reset(seed=3)
    for step in range(7):
        _, _, ended, cut, _ = env.step(dict.fromkeys(env.agents, 0))
        assert not any(ended.values())
        assert all(cut.values()) == (step == 6)
    with pytest.raises(BadInput, match="reset"):
        env.step({})


def test_environment_agrees_with_the_task():
    env = ParallelTask("cn")
    env.reset(seed=5)
    _, reset_key = jax.random.split(jax.random.key(5))
    state = env.task.reset(reset_key)
    actions = [1, 2, 4]
    observations, rewards, *_ = env.step(dict(zip(env.agents, actions, strict=True)))
    state, known = env.task.step(state, jnp.array(actions))
    np.testing.assert_allclose(np.stack(list(observations.values())), env.task.observe(state), atol=1e-6)
    np.testing.assert_allclose(list(rewards.values()), known, rtol=1e-6)


@pytest.mark.parametrize("action", [5, -1, 1.5, "left", None])
def test_an_action_out_of_range_is_refused(action):
    env = ParallelTask("cn")
    env.reset(seed=0)
    with pytest.raises(BadInput, match="agent_1: an action must be a whole number from 0 to 4"):
        env.step({"agent_0": 0, "agent_1": action, "agent_2": 0})


def test_bad_use_is_refused_with_a_reason():
    env = ParallelTask("cn", render_mode="rgb_array")
    with pytest.raises(BadInput, match="before the first reset"):
        env.render()
    env.reset(seed=0)
    with pytest.raises(BadInput, match="agent_0, agent_1, agent_2"):
        env.step({"agent_0": 0})
    with pytest.raises(BadInput, match="seed"):
        env.reset(seed=-1)
    with pytest.raises(BadInput, match="rgb_array"):
        ParallelTask("cn", render_mode="human")


def test_render_gives_pictures_that_change():
    env = ParallelTask("cn", render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step(dict.fromkeys(env.agents, 2))
    env.step(dict.fromkeys(env.agents, 2))
    after = env.render()
    assert before is not None
    assert after is not None
    assert before.dtype == np.uint8
    assert before.shape == after.shape == (400, 400, 3)
    assert not np.array_equal(before, after)
