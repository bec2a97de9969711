"""Gradients that may be published: clipped in each episode, added up, and noised.

A learner hands over a function that gives the joint gradient of everything it learns (actors, senders, receivers and
critics together) from one episode. Clipping in microbatches and noise are jax_privacy's. Its batch selection works on
the host, where compiled programs cannot call it, so episodes are drawn here.
"""

import copy
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array

from dpmac.config import BadInput


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
        """Which of the slots (slot,) an update takes: each by itself, with this probability."""
        return jax.random.bernoulli(self.draw_key, rate, (slots,))

    def release(
        self, gradient: Callable[[Any, Array], Any], networks: Any, taken: Array, size: int
    ) -> tuple[Any, dict[str, Array]]:
        """The noisy sum of clipped gradients over a constant `size`, and what to report.

        gradient(networks, place) is the joint gradient of the one episode at a place; taken (place,) says which
        episodes enter. What an episode that does not enter would give is never looked at.
        """
        from jax_privacy import noise_addition

        total, norms, counted = self.clipped_sum(gradient, networks, taken)
        add = noise_addition.gaussian_privatizer(stddev=self.multiplier * self.clip, prng_key=self.noise_key)  # type: ignore[arg-type]
        noisy, _ = add.update(total, add.init(total))
        report = {}
        if self.measured:
            count = jnp.maximum(jnp.sum(counted), 1)
            report["gradient_norm"] = jnp.sum(jnp.where(counted, norms, 0.0)) / count
            report["share_gradients_clipped"] = jnp.sum(counted & (norms > self.clip)) / count
        return jax.tree.map(lambda x: x / size, noisy), report

    def clipped_sum(
        self, gradient: Callable[[Any, Array], Any], networks: Any, taken: Array
    ) -> tuple[Any, Array, Array]:
        """The sum of clipped gradients, and norms (place,) with whether each counts, those that are taken first."""
        from jax_privacy import clipping

        order = jnp.argsort(~taken)  # microbatches in which nothing is taken are left out
        size = min(self.microbatch, len(taken))
        missing = -len(taken) % size
        places, skipped = jnp.pad(order, (0, missing)), jnp.pad(~taken[order], (0, missing), constant_values=True)
        clipped = clipping.clipped_fun(
            lambda place: gradient(networks, place),
            keep_batch_dim=False,
            l2_clip_norm=self.clip,  # type: ignore[arg-type]
            return_norms=True,
            microbatch_size=size,
        )
        total, measured = clipped(places, is_padding_example=skipped)
        (norms,) = jax.tree.leaves(measured)  # beside nothing, in version 2.0 of jax_privacy
        return total, norms, ~skipped
