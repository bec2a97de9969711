"""Episodes of a team in a task."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dpmac.agents.mechanisms import Level, draw_levels
from dpmac.agents.team import Team
from dpmac.learner.replay import Episode
from dpmac.tasks import Task, each_episode


class Trace(NamedTuple):
    """An episode with everything that was said."""

    episode: Episode
    states: Any
    """(T, …) of the task, before each step."""
    released: Array
    """(T, agent, …) what had left each agent after each step."""
    logits: Array
    """(T, agent, action)."""


def rollout(
    task: Task, team: Team, table: Level, key: Array, episodes: int, explore: Array | float = 0.0, greedy: bool = False
) -> Trace:
    """Play episodes (episode, …) from fresh starts.

    Actions are Gumbel samples of the logits, or uniform with probability `explore`; greedy ones are neither. The noise
    level is (agent,), or drawn for each episode from a table (row, agent).
    """
    start_key, chance_key, gumbel_key, explore_key = jax.random.split(key, 4)
    shape = (episodes, task.horizon, task.agents)
    keys, starts = jax.random.split(chance_key, episodes), jax.random.split(start_key, episodes)
    level = draw_levels(table, keys) if table.amount.ndim == 2 else table
    gumbel = jnp.zeros((*shape, 0)) if greedy else jax.random.gumbel(gumbel_key, (*shape, task.actions))
    lots = jnp.zeros((*shape, 0)) if greedy else jax.random.uniform(explore_key, (*shape, 2))
    wander, uniform = (lots[..., 0] < explore, (lots[..., 1] * task.actions).astype(int)) if not greedy else (lots,) * 2
    given = (starts, jax.random.key_data(keys), gumbel, wander, uniform)
    if level.amount.ndim == 2:
        return each_episode(task, partial(play, task, team, greedy), level, *given)
    return each_episode(task, partial(play, task, team, greedy, level), *given)


def play(
    task: Task,
    team: Team,
    greedy: bool,
    level: Level,
    start: Array,
    chance_data: Array,
    gumbel: Array,
    wander: Array,
    uniform: Array,
) -> Trace:
    """One episode, given everything random about it but the messages, whose chance comes from the data of a key."""
    chance = team.chance(jax.random.wrap_key_data(chance_data))

    def step(carry: tuple[Any, Any], now: tuple[Array, Array, Array]):
        state, memory = carry
        gumbel, wander, uniform = now
        observations = task.observe(state)
        logits, memory = team.listen(memory, observations, chance, level)
        if greedy:
            actions = jnp.argmax(logits, axis=-1)
        else:
            actions = jnp.where(wander, uniform, jnp.argmax(logits + gumbel, axis=-1))
        memory = team.speak(memory, observations, actions, chance, level)
        next_state, rewards = task.step(state, actions)
        record = (observations, actions.astype(jnp.int8), rewards, state, memory.released, logits)
        return (next_state, memory), record

    carry = (task.reset(start), team.start())
    (last, _), (observations, actions, rewards, states, released, logits) = jax.lax.scan(
        step, carry, (gumbel, wander, uniform)
    )
    observations = jnp.concatenate([observations, task.observe(last)[None]])
    episode = Episode(observations, actions, rewards, chance_data)
    return Trace(episode, states, released, logits)


def returns(episode: Episode) -> Array:
    """Return (…) of episodes: rewards summed over time, averaged over agents (a team's reward is each agent's)."""
    return jnp.mean(jnp.sum(episode.rewards, axis=-2), axis=-1)
