"""Gradients that may be published: clipped in each episode, added up, and noised.

A learner hands over a function that gives the joint gradient of everything it learns (actors, senders, receivers and
critics together) from one episode. Clipping is jax_privacy's, microbatches are optax's. Float32 noise takes only 2²³
values, so that a released number tells which gradient may lie beneath it. Therefore gradients are rounded inwards to a
public grid, sums are exact integers, and the noise is discrete Gaussian, from the tables of `privacy.alias`.
"""

import copy
import math
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from dpmac.config import BadInput, require
from dpmac.privacy import alias

FINEST = 20
"""log₂ of the most steps of the grid to a deviation of the noise, as many as the drawn noise has."""
LARGEST = 2.0**30
"""What a sum of gradients may come to, in steps; the noise beside it must also fit into 32 bits."""


def check_installed() -> None:
    """Bad input where the packages of private training are missing."""
    try:
        import jax_privacy.clipping  # noqa: F401
    except ImportError as error:
        raise BadInput(f"private training needs jax_privacy: pip install 'jax-privacy<3' ({error})") from None


def size_of(networks: Any) -> int:
    """How many numbers networks have."""
    return sum(leaf.size for leaf in jax.tree.leaves(networks))


def discrete_gaussian(key: Array, count: int) -> Array:
    """Noise (number,) of `privacy.alias`, with a deviation of 2^FINEST."""
    fine, coarse = jax.random.bits(key, (2, 3, count))
    return looked_up(alias.table(alias.FINE), fine) + alias.STRIDE * looked_up(alias.table(alias.COARSE), coarse)


def looked_up(table: alias.Table, words: Array) -> Array:
    """Integers (number,) from a table and random words (word, number): 15 bits are a column, one is the sign, and 80
    choose between the column's two sizes."""
    column, share = words[0] >> 17, jnp.asarray(table.share)
    first, second, third = (share[word, column] for word in range(3))
    start = words[0] & 0xFFFF
    rest = (words[1] < second) | (words[1] == second) & (words[2] < third)
    own = (start < first) | (start == first) & rest
    size = jnp.where(own, column.astype(jnp.int32), jnp.asarray(table.other)[column])
    return jnp.where((words[0] >> 16 & 1).astype(bool), -size, size)


class Private:
    """The noise of one iteration, inside a compiled program."""

    def __init__(
        self,
        clip: Array | float,
        multiplier: Array | float,
        key: Array,
        microbatch: int,
        numbers: int,
        measured: bool = False,
    ) -> None:
        """clip: C. multiplier: z. key: of noise and sampling, secret where a claim holds. microbatch: episodes whose
        gradients are held at once. numbers: the most that a release may have. measured: whether norms of gradients are
        reported, which nothing covers."""
        self.clip, self.multiplier, self.microbatch, self.measured = clip, multiplier, microbatch, measured
        self.numbers = numbers
        self.draw_key, self.noise_key = jax.random.split(key)

    def keyed(self, key: Array) -> Self:
        """The same with another key, for one update of several."""
        other = copy.copy(self)
        other.draw_key, other.noise_key = jax.random.split(key)
        return other

    def drawn(self, slots: int, rate: float) -> Array:
        """Which of the slots (slot,) an update takes: each by itself, with this probability or 2⁻³² less."""
        if rate == 1:
            return jnp.ones(slots, bool)
        return jax.random.bits(self.draw_key, (slots,)) < jnp.uint32(math.floor(rate * 2.0**32))

    def fineness(self, places: int) -> Array:
        """log₂ of the steps of the grid to a deviation of the noise: so many that a sum of so many gradients fits."""
        return jnp.clip(jnp.frexp(self.multiplier * (LARGEST / places))[1] - 1, 0, FINEST)

    def step(self, places: int) -> Array:
        """The step of the public grid for sums of so many gradients."""
        noisy = jnp.ldexp(self.clip * self.multiplier, -self.fineness(places))
        return jnp.where(self.multiplier > 0, noisy, self.clip * (places / LARGEST))

    def noise(self, values: int, places: int) -> Array:
        """Noise (value,) in steps. Where the grid is coarser than the drawn noise, the release on the finer grid is
        rounded, which moves no whole number of coarse steps."""
        coarser = FINEST - self.fineness(places)
        drawn = discrete_gaussian(self.noise_key, values) + ((1 << coarser) >> 1) >> coarser
        return jnp.where(self.multiplier > 0, drawn, 0)

    def release(
        self, gradient: Callable[[Any, Array], Any], networks: Any, taken: Array, size: int
    ) -> tuple[Any, dict[str, Array]]:
        """The noisy sum of clipped gradients over a constant `size`, and what to report.

        gradient(networks, place) is the joint gradient of the one episode at a place; taken (place,) says which
        episodes enter. What an episode that does not enter would give is never looked at.
        """
        total, norms, counted = self.clipped_sum(gradient, networks, taken)
        step, (flat, restored) = self.step(len(taken)), ravel_pytree(total)
        require(len(flat) <= self.numbers, f"the learner releases {len(flat)} numbers, and declares {self.numbers}")
        noisy = restored(flat + self.noise(len(flat), len(taken)))
        report = {}
        if self.measured:
            count = jnp.maximum(jnp.sum(counted), 1)
            report["gradient_norm"] = jnp.sum(jnp.where(counted, norms, 0.0)) / count
            report["share_gradients_clipped"] = jnp.sum(counted & (norms > self.clip)) / count
        return jax.tree.map(lambda x: x.astype(jnp.float32) * (step / size), noisy), report

    def clipped_sum(
        self, gradient: Callable[[Any, Array], Any], networks: Any, taken: Array
    ) -> tuple[Any, Array, Array]:
        """The sum of clipped gradients in steps, and norms (place,) with whether each counts.

        Both are in the order of computation: microbatches in which nothing is taken come last, and are left out.
        """
        from jax_privacy import clipping
        from optax import microbatching

        order, step = jnp.argsort(~taken), self.step(len(taken))
        size = min(self.microbatch, len(taken))
        missing = -len(taken) % size
        places, skipped = jnp.pad(order, (0, missing)), jnp.pad(~taken[order], (0, missing), constant_values=True)
        # The first of M microbatches of optax are the places 0, M, 2M, …, not the first places.
        places, skipped = (x.reshape(-1, size).T.ravel() for x in (places, skipped))

        def clipped(place: Array, skip: Array) -> tuple[Any, Array]:
            found, norm = clipping.clip_pytree(gradient(networks, place), self.clip, return_zero=skip)  # type: ignore[arg-type]
            return jax.tree.map(lambda x: (x / step).astype(jnp.int32), found), norm  # which rounds inwards

        total, norms = microbatching.micro_vmap(
            clipped,
            in_axes=(0, 0),
            microbatch_size=size,
            accumulator=(microbatching.AccumulationType.SUM, microbatching.AccumulationType.CONCAT),
            num_real_microbatches=-(-jnp.sum(taken) // size),
        )(places, skipped)
        return total, norms, ~skipped
