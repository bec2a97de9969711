"""What a team earns on the common starts in the mean over all secrets, and over everything that it may release.

A plain score draws secrets and noise once for each start, and limits are means over both. Here secrets are enumerated,
and so are releases where each agent releases one of a few symbols once and there are not too many of both; other teams
keep one draw of noise for each start and secrets. What remains random is shared by all teams: the starts.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.team import Given, Team
from dpmac.learner.rollout import returns, rollout
from dpmac.runner import train
from dpmac.runner.population import Loaded
from dpmac.runner.train import Program
from dpmac.tasks import Task, abilities

MOST_SECRETS = 1024
"""Joint secrets of a team that are gone through at most, and these together with what it may release."""


class Posed:
    """A task whose episodes begin with these secrets (agent,), which may be traced."""

    def __init__(self, task: Task, secrets: Array) -> None:
        self.task, self.secrets = task, secrets

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def reset(self, key: Array) -> Any:
        pose = abilities(self.task).with_secrets
        assert pose is not None
        return pose(self.task.reset(key), self.secrets)


def applies(task: Task) -> bool:
    """Whether a task's secrets can be gone through."""
    known = abilities(task)
    return known.with_secrets is not None and known.symbols**task.agents <= MOST_SECRETS


@partial(jax.jit, static_argnums=(0, 4))
def expected(program: Program, team: Team, scale: NoiseScale, key: Array, episodes: int) -> Array:
    """Returns (episode,) of greedy episodes, each the mean over all secrets and, where they are few, all releases."""
    secrets = np.indices((abilities(program.task).symbols,) * team.agents).reshape(team.agents, -1).T

    def over_releases(own: Array) -> Array:
        task: Any = Posed(program.task, own)
        play: Any = partial(rollout, task, team, scale, key, episodes, greedy=True)
        if team.outcomes is None or len(team.outcomes) * len(secrets) > MOST_SECRETS:
            return returns(play().episode)
        trace = jax.vmap(lambda released: play(given=Given(released[None])))(team.outcomes)
        law: Any = jax.vmap(jax.vmap(team.channel.law), in_axes=(0, None))(trace.raw[0, :, 0], scale)
        chosen = jnp.argmax(team.outcomes, axis=-1)
        weights = jnp.prod(law[:, jnp.arange(team.agents), chosen], axis=-1)
        return jnp.sum(weights.T * returns(trace.episode), axis=0)

    return jnp.mean(jax.lax.map(over_releases, jnp.asarray(secrets)), axis=0)


def returns_of(loaded: Loaded, episodes: int) -> list[dict[str, float] | None]:
    """For each run the mean over starts and its standard error; nothing where a task's secrets cannot be enumerated."""
    if not applies(loaded.program.task):
        return [None] * len(loaded.runs)
    found, key = [], jax.random.key(train.EVALUATION_SEED)
    for index in range(len(loaded.runs)):
        earned = np.asarray(expected(loaded.program, *loaded.one(index), key, episodes), float)
        error = float(earned.std(ddof=1) / np.sqrt(episodes))
        found.append({"return_mean": float(earned.mean()), "return_se": error})
    return found
