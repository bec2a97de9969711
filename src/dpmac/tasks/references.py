"""Reference policies and what they earn: the two lines that a learning curve lies between."""

import dataclasses
from functools import partial
from typing import Any, Literal, TypeGuard, cast

import jax
import jax.numpy as jnp
import numpy as np

from dpmac.config import require
from dpmac.tasks.base import Informed, State, Task, abilities, advance, allowed, each_episode

Policy = Literal["random", "scripted"]
MANY = 1 << 30
"""Random numbers below this are as good as uniform over the few actions that are allowed."""


@partial(jax.jit, static_argnums=(0, 1))
def play(task: Task, policy: Policy, key: jax.Array) -> tuple[State, jax.Array]:
    """One episode of a uniformly random policy, or of the task's script, which knows the secrets: its states
    (time + 1, …), the start included, and its rewards (time, agent)."""
    reset_key, act_key = jax.random.split(key)
    start = task.reset(reset_key)

    def step(state, guess):
        script, available = abilities(task).scripted, allowed(task, state)
        if available is not None:  # the guess-th of those that are allowed, round and round
            place = guess % jnp.sum(available, axis=-1)
            guess = jnp.argmax(jnp.cumsum(available, axis=-1) > place[:, None], axis=-1)
        state, rewards = advance(task, state, guess if policy == "random" or script is None else script(state))
        return state, (state, rewards)

    shape = (task.horizon, task.agents)
    if abilities(task).continuous:
        guesses = jax.random.uniform(act_key, (*shape, task.actions), minval=-1.0)
    else:
        most = task.actions if abilities(task).available is None else MANY
        guesses = jax.random.randint(act_key, shape, 0, most)
    _, (states, rewards) = jax.lax.scan(step, start, guesses)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states), rewards


@partial(jax.jit, static_argnums=(0, 1, 3))
def returns(task: Task, policy: Policy, key: jax.Array, episodes: int) -> jax.Array:
    """Returns (episode,): summed over time, averaged over agents (a shared reward is the team's)."""

    def episode(key):
        return jnp.sum(jnp.mean(play(task, policy, key)[1], axis=-1))

    return each_episode(task, episode, jax.random.split(key, episodes))


def policies(task: Task) -> tuple[Policy, ...]:
    """Reference policies that a task has; an environment from outside has no script."""
    return ("random", "scripted") if abilities(task).scripted else ("random",)


def reference_returns(task: Task, key: jax.Array, episodes: int = 1000) -> dict[str, tuple[float, float]]:
    """Mean and standard error of the return under each reference policy, on the same starts; in `task.reward_unit`.

    An environment from outside plays fewer episodes.
    """
    require(episodes >= 2, f"a standard error needs at least 2 episodes, not {episodes}")
    found, episodes = {}, min(episodes, abilities(task).reference_episodes or episodes)
    for policy in policies(task):
        sample = np.asarray(returns(task, policy, key, episodes), np.float64)
        found[policy] = (float(sample.mean()), float(sample.std(ddof=1) / np.sqrt(episodes)))
    return found


def described(task: Task, seed: int, episodes: int) -> dict[str, Any]:
    """A task as plain data: sizes, reward unit, what reference policies earn over so many episodes, and options."""
    earned = reference_returns(task, jax.random.key(seed), episodes)
    sizes = ("agents", "actions", "observation_size", "horizon", "reward_unit")
    returns = {policy: {"return_mean": mean, "return_se": error} for policy, (mean, error) in earned.items()}
    count = min(episodes, abilities(task).reference_episodes or episodes)
    settings = dataclasses.asdict(cast(Any, task))
    return {key: getattr(task, key) for key in sizes} | returns | {"episodes": count, "options": settings}


def is_informed(task: Task) -> TypeGuard[Informed]:
    """Whether a task says what its agents can make of what they are told (see `Informed`)."""
    return abilities(task).informed is not None


@partial(jax.jit, static_argnums=(0, 3))
def informed_returns(task: Informed, flip: jax.Array | float, key: jax.Array, episodes: int) -> jax.Array:
    """Returns (episode,) of agents who all get each other's secrets once, right after the first step, through k-ary
    randomised response with this flip probability, and believe what follows from it.

    That is what the mechanism is worth when nothing is lost in learning. A flip probability of 1 - 1/k tells nothing,
    one of 0 everything.
    """
    k = task.symbols
    uniform = jnp.full((task.agents, k), 1 / k)

    def episode(start_key: jax.Array, chance_key: jax.Array) -> jax.Array:
        flip_key, other_key = jax.random.split(chance_key)
        start = task.reset(start_key)
        (secret,) = task.secrets(start).values()
        flipped = jax.random.uniform(flip_key, (task.agents,)) < flip
        heard = (secret + flipped * jax.random.randint(other_key, (task.agents,), 1, k)) % k
        belief = flip / (k - 1) + (1 - flip * k / (k - 1)) * jax.nn.one_hot(heard, k)

        def step(state: State, time: jax.Array) -> tuple[State, jax.Array]:
            state, rewards = advance(task, state, task.informed(state, jnp.where(time > 0, belief, uniform)))
            return state, jnp.mean(rewards)

        return jnp.sum(jax.lax.scan(step, start, jnp.arange(task.horizon))[1])

    start_key, chance_key, *_ = jax.random.split(key, 4)  # a team's episodes of this key begin at the same starts
    return jax.vmap(episode)(jax.random.split(start_key, episodes), jax.random.split(chance_key, episodes))


def states_of(states: State) -> list[State]:
    """The states of an episode one by one."""
    return [jax.tree.map(lambda leaf, t=t: leaf[t], states) for t in range(len(jax.tree.leaves(states)[0]))]
