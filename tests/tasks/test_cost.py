"""Work grows no faster than the number of pairs, memory no faster than the number of episodes; counted, not timed."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from dpmac import tasks


def compiled(agents: int, episodes: int):
    """The compiled program of one step with observations."""
    task = tasks.make("cn", agents=agents, landmarks=agents)

    def step(state, actions):
        state, rewards = task.step(state, actions)
        return state, task.observe(state), rewards

    states = jax.eval_shape(jax.vmap(task.reset), jax.random.split(jax.random.key(0), episodes))
    actions = jax.ShapeDtypeStruct((episodes, agents), jnp.int32)
    return jax.jit(jax.vmap(step)).lower(states, actions).compile()


def test_work_grows_no_faster_than_pairs_up_to_64_agents():
    work: list[Any] = [compiled(agents, 1).cost_analysis() for agents in (8, 16, 32, 64)]
    for key in ("flops", "transcendentals"):
        counts = [found[key] for found in work]
        assert all(2 * before < after <= 4.1 * before for before, after in pairwise(counts)), (key, counts)


def test_memory_is_linear_in_episodes():
    def used(episodes):
        found: Any = compiled(3, episodes).memory_analysis()
        return (found.temp_size_in_bytes + found.output_size_in_bytes + found.argument_size_in_bytes) / episodes

    each = [used(episodes) for episodes in (4096, 16384, 65536)]
    assert max(each) < 1.02 * min(each)
    assert max(each) < 512  # bytes an episode
