"""What a team earns on the common starts in the mean over all secrets, and over everything that it may release.

A plain score draws secrets and noise once for each start, and limits are means over both. Here secrets are enumerated,
and so are releases where each agent releases one of a few symbols once and there are not too many of both; other teams
keep one draw of noise for each start and secrets, and large ones have a few draws of both. What remains random is
shared by all teams: the starts.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac.agents.mechanisms import NoiseScale, aside
from dpmac.agents.team import Given, Team
from dpmac.learner.rollout import Trace, returns, rollout
from dpmac.runner import train
from dpmac.runner.population import Loaded
from dpmac.runner.train import Program
from dpmac.tasks import Task, abilities, advance

MOST_SECRETS, MOST_CASES = 200, 1024
"""Joint secrets of a team that are gone through at most, and these together with what it may release."""
DRAWS = 16
"""Draws of secrets and noise for each start, where there are more secrets."""


class Posed:
    """A task whose episodes begin with the secrets (agent,) that a function gives for the key of a start."""

    def __init__(self, task: Task, secrets: Callable[[Array], Array]) -> None:
        self.task, self.secrets_of = task, secrets

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def reset(self, key: Array) -> Any:
        pose = abilities(self.task).with_secrets
        assert pose is not None
        return pose(self.task.reset(key), self.secrets_of(key))


def applies(task: Task) -> bool:
    """Whether secrets can be set in a task."""
    return abilities(task).with_secrets is not None


def enumerated(task: Task) -> bool:
    """Whether they are few enough to go through."""
    return abilities(task).symbols ** task.agents <= MOST_SECRETS


def scored(task: Task) -> str:
    """What a score is the mean over, beside the starts."""
    return "all secrets" if enumerated(task) else f"{DRAWS} draws"


@partial(jax.jit, static_argnums=(0, 4))
def expected(program: Program, team: Team, scale: NoiseScale, key: Array, episodes: int) -> Array:
    """Returns (episode,) of greedy episodes, each the mean over all secrets and, where they are few, all releases; or
    over some draws of both."""
    known = abilities(program.task)
    if not enumerated(program.task):
        way = drawn
    else:
        way = apart if known.shares and (team.outcomes is not None or not team.channel.size) else together
    return way(program.task, team, scale, key, episodes)


def played(
    task: Task, team: Team, scale: NoiseScale, key: Array, episodes: int, secrets: Callable[[Array], Array], **more: Any
) -> Trace:
    """Greedy episodes that begin with these secrets."""
    posed: Any = Posed(task, secrets)
    return rollout(posed, team, scale, key, episodes, greedy=True, **more)


def together(task: Task, team: Team, scale: NoiseScale, key: Array, episodes: int) -> Array:
    """The mean over all secrets, and all releases where they are few, of the team: any task will do."""
    secrets = np.indices((abilities(task).symbols,) * team.agents).reshape(team.agents, -1).T

    def over_releases(own: Array) -> Array:
        play: Any = partial(played, task, team, scale, key, episodes, lambda _: own)
        if team.outcomes is None or len(team.outcomes) * len(secrets) > MOST_CASES:
            return returns(play().episode)
        trace = jax.vmap(lambda released: play(given=Given(released[None])))(team.outcomes)
        chosen = jnp.argmax(team.outcomes, axis=-1)
        weights = jnp.prod(law_of(team, scale, trace.raw[0])[:, jnp.arange(team.agents), chosen], axis=-1)
        return jnp.sum(weights.T * returns(trace.episode), axis=0)

    return jnp.mean(jax.lax.map(over_releases, jnp.asarray(secrets)), axis=0)


def apart(task: Task, team: Team, scale: NoiseScale, key: Array, episodes: int) -> Array:
    """The same for agents who neither see nor move each other (`Abilities.shares`), at a fraction of the cost.

    A walk follows from the agent's own secret and what it hears, so that all have the same secret in turn, and all that
    can be heard is released in turn. What a walk is worth follows from the posterior of the others' secrets.
    """
    size, agents, secrets = max(team.channel.size, 1), np.arange(team.agents), abilities(task).symbols
    shares: Any = abilities(task).shares
    some = np.indices((size,) * (team.agents - 1)).reshape(team.agents - 1, -1)
    heard = np.vstack([some, -some.sum(0) % size]).T  # each agent hears all that the others can say, each exactly once

    def walk(secret: Array, symbols: Array) -> Trace:
        given = Given(jax.nn.one_hot(symbols, team.channel.size)[None])
        own = jnp.broadcast_to(secret, team.agents)
        return played(task, team, scale, key, episodes, lambda _: own, given=given)

    def law(secret: Array) -> Array:
        return law_of(team, scale, walk(secret, jnp.zeros(team.agents, int)).raw)

    told = jnp.ones((secrets, episodes, team.agents, 1))
    told = jax.lax.map(law, jnp.arange(secrets)) if team.channel.size else told
    chance = jnp.mean(told, axis=0)  # (episode, agent, symbol)
    belief = jnp.moveaxis(told / jnp.maximum(jnp.sum(told, axis=0), 1e-30), 0, -1)  # (episode, agent, symbol, secret)

    def earned(case: tuple[Array, Array]) -> Array:
        trace = walk(*case)
        after, _ = jax.vmap(jax.vmap(partial(advance, task)))(trace.states, trace.episode.actions)
        worth = jax.vmap(jax.vmap(shares, in_axes=(0, None)))(after, belief[:, agents, case[1]])
        said = jnp.where(np.eye(team.agents), 1.0, chance[:, None, agents, case[1]])  # of the others alone
        return jnp.sum(jnp.sum(worth, axis=1) * jnp.prod(said, axis=-1), axis=-1)

    own, symbols = np.repeat(np.arange(secrets), len(heard)), np.tile(heard, (secrets, 1))
    return jnp.sum(jax.lax.map(earned, (jnp.asarray(own), jnp.asarray(symbols))), axis=0) / secrets


def drawn(task: Task, team: Team, scale: NoiseScale, key: Array, episodes: int) -> Array:
    """The mean over some draws of secrets and noise."""

    def one(index: Array) -> Array:
        def secrets(start: Array) -> Array:
            own = jax.random.fold_in(aside(start), index)
            return jax.random.randint(own, (team.agents,), 0, abilities(task).symbols)

        noise = jax.random.fold_in(aside(key), index)
        return returns(played(task, team, scale, key, episodes, secrets, draw_key=noise).episode)

    return jnp.mean(jax.lax.map(one, jnp.arange(DRAWS)), axis=0)


def law_of(team: Team, scale: NoiseScale, raw: Array) -> Array:
    """Probabilities (episode, agent, symbol) of what is released for the first of all messages (episode, time, …)."""
    law: Any = jax.vmap(jax.vmap(team.channel.law), in_axes=(0, None))
    return law(raw[:, 0], scale)


def returns_of(loaded: Loaded, episodes: int) -> list[dict[str, float] | None]:
    """For each run the mean over starts and its standard error; nothing where secrets cannot be set."""
    if not applies(loaded.program.task):
        return [None] * len(loaded.runs)
    found, key = [], jax.random.key(train.EVALUATION_SEED)
    for index in range(len(loaded.runs)):
        earned = np.asarray(expected(loaded.program, *loaded.one(index), key, episodes), float)
        error = float(earned.std(ddof=1) / np.sqrt(episodes))
        found.append({"return_mean": float(earned.mean()), "return_se": error})
    return found
