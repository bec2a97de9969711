"""Code points plus Gaussian noise in compiled programs."""

import jax
import jax.numpy as jnp
from jax import Array

from dpmac.agents.mechanisms.base import Additive, NoiseScale, choose, straight_through


class Code(Additive):
    """One of k points at distance Δ = 2C from each other, on the grid, plus N(0, σ²I)."""

    def release(self, message: Array, draws: Array, scale: NoiseScale) -> Array:
        return straight_through(self.hard(message, draws, scale), self.scale * choose(message))

    @property
    def scale(self) -> float:
        """The norm of the points."""
        return 2**0.5 * self.spec.clip_norm

    def decode(self, released: Array, scale: NoiseScale) -> Array:
        """Posterior over symbols under a uniform prior, centred; scores are ⟨y, c⟩/σ², all points being as long."""
        # With no noise the posterior is certain; a floor keeps that finite.
        posterior = jax.nn.softmax(released * self.scale / jnp.maximum(scale.value**2, 1e-3 * self.scale**2))
        return posterior - 1 / self.size
