"""Gradients that may be published: clipped in each episode, added up, and noised.

A learner hands over a function that gives the joint gradient of everything it learns (actors, senders, receivers and
critics together) from one episode. Clipping is jax_privacy's, microbatches are optax's. Float32 noise takes only 2²³
values, so that a released number tells which gradient may lie beneath it. Therefore gradients are rounded inwards to a
public grid, sums are exact integers, and the noise is a whole number of steps, the sum of four draws.
"""

import copy
import math
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from dpmac.config import BadInput

FINEST = 2.0**-20
"""A step of the grid, in deviations of the noise."""
LARGEST = 2.0**30
"""What a sum of gradients may come to, in steps; the noise beside it must also fit into 32 bits."""
DRAWS = 4


def check_installed() -> None:
    """Bad input where the packages of private training are missing."""
    try:
        import jax_privacy.clipping  # noqa: F401
    except ImportError as error:
        raise BadInput(f"private training needs jax_privacy: pip install 'jax-privacy<3' ({error})") from None


class Private:
    """The noise of one iteration, inside a compiled program."""

    def __init__(
        self, clip: Array | float, multiplier: Array | float, key: Array, microbatch: int, measured: bool = False
    ) -> None:
        """clip: C. multiplier: z. key: of noise and sampling, secret where a claim holds. microbatch: episodes whose
        gradients are held at once. measured: whether norms of gradients are reported, which nothing covers."""
        self.clip, self.multiplier, self.microbatch, self.measured = clip, multiplier, microbatch, measured
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

    def step(self, places: int) -> Array:
        """The step of the public grid for sums of so many gradients."""
        return self.clip * jnp.maximum(self.multiplier * FINEST, places / LARGEST)

    def noise(self, values: int, step: Array) -> Array:
        """Noise (value,) in steps. Each of the four draws has half of the deviation."""
        draws = jax.random.normal(self.noise_key, (DRAWS, values)) * (self.multiplier * self.clip / step / DRAWS**0.5)
        return jnp.sum(jnp.round(draws).astype(jnp.int32), axis=0)

    def release(
        self, gradient: Callable[[Any, Array], Any], networks: Any, taken: Array, size: int
    ) -> tuple[Any, dict[str, Array]]:
        """The noisy sum of clipped gradients over a constant `size`, and what to report.

        gradient(networks, place) is the joint gradient of the one episode at a place; taken (place,) says which
        episodes enter. What an episode that does not enter would give is never looked at.
        """
        total, norms, counted = self.clipped_sum(gradient, networks, taken)
        step, (flat, restored) = self.step(len(taken)), ravel_pytree(total)
        noisy = restored(flat + self.noise(len(flat), step))
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
