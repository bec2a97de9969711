"""A ring of whole episodes: pure functions on arrays."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dpmac.agents.mechanisms import NoiseScale


class Episode(NamedTuple):
    """What training keeps of an episode: no messages, they are recomputed with the current senders.

    The noise draws of the messages are kept, as the key that they were drawn from. With fresh noise, what an agent did
    after the message that it really received would reveal the secret a second time, in training but never in execution,
    and agents would learn to trust noisy messages too much.
    """

    observations: Array
    """(…, T + 1, agent, feature): the last one is only needed when the horizon is not terminal."""
    actions: Array
    """(…, T, agent) as `Policy.stored`."""
    rewards: Array
    """(…, T, agent)."""
    draws: Array
    """(…, 2) uint32, the data of the key of `Team.draws`."""
    scale: NoiseScale
    """(…, agent) the noise scales that it was played at. Replayed at those of a later time, messages would be flipped
    or noised otherwise than those that were acted upon."""
    available: Array | None = None
    """(…, T + 1, agent, action) which actions were allowed; None: all."""
    over: Array | None = None
    """(…, T + 1, agent) whether the episode had ended; None: never before the horizon."""
    world: Array | None = None
    """(…, T + 1, 1, feature) what value functions see beside the observations; None: nothing."""

    @property
    def live(self) -> Array | None:
        """(T, agent, episode) whether a step counts, in a batch whose axes are turned; None: all do."""
        return None if self.over is None else ~self.over[:-1]

    @property
    def choices(self) -> Array | None:
        """`available` at the T steps of a batch whose axes are turned."""
        return None if self.available is None else self.available[:-1]

    def at(self, places: Array) -> "Episode":
        """Some episodes of a batch whose axes are turned (see `by_time`)."""
        turned = jax.tree.map(lambda x: x[:, :, places], self._replace(draws=None, scale=None))
        draws, scale = jax.tree.map(lambda x: x[places], (self.draws, self.scale))
        return turned._replace(draws=draws, scale=scale)


def by_time(episodes: Episode) -> Episode:
    """Episodes with their axes turned from (episode, time, agent, …) to (time, agent, episode, …), as `Team.unroll`
    takes them; the keys of their noise draws and their noise scales stay (episode, …)."""
    turned = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), episodes._replace(draws=None, scale=None))
    return turned._replace(draws=episodes.draws, scale=episodes.scale)


class Ring(NamedTuple):
    """Episodes (slot, …) and how many were ever added."""

    episodes: Episode
    added: Array


def empty(slots: int, like: Episode) -> Ring:
    """A ring of so many slots for episodes like this one."""
    return Ring(jax.tree.map(lambda x: jnp.zeros((slots, *x.shape), x.dtype), like), jnp.zeros((), jnp.int32))


def add(ring: Ring, episodes: Episode) -> Ring:
    """Put episodes (episode, …) in; the oldest make room."""
    slots, count = ring.episodes.rewards.shape[0], episodes.rewards.shape[0]
    where = (ring.added + jnp.arange(count)) % slots
    stored = jax.tree.map(lambda old, new: old.at[where].set(new), ring.episodes, episodes)
    return Ring(stored, ring.added + count)


def sample(ring: Ring, key: Array, count: int) -> Episode:
    """Episodes (episode, …) drawn uniformly, with replacement, from those that are there."""
    slots = ring.episodes.rewards.shape[0]
    there = jnp.minimum(ring.added, slots)
    where = jnp.minimum((jax.random.uniform(key, (count,)) * there).astype(int), there - 1)
    return jax.tree.map(lambda x: x[where], ring.episodes)
