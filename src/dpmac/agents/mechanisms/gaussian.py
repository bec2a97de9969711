"""The Gaussian mechanism in compiled programs."""

import jax.numpy as jnp
from jax import Array

from dpmac.agents.mechanisms.base import Additive, NoiseScale, clip_to_norm, straight_through
from dpmac.privacy.mechanisms.base import finite


class Gaussian(Additive):
    """Clip the sampled message to norm C, last of all, put it on the grid and add N(0, σ²I)."""

    def release(self, message: Array, draws: Array, scale: NoiseScale) -> Array:
        """In the backward pass, clipping is smooth and there is no grid."""
        soft = jnp.where(scale.parameters.step > 0, self.clipped(message), finite(jnp, message))
        return straight_through(self.hard(message, draws, scale), soft)

    def decode(self, released: Array, scale: NoiseScale) -> Array:
        """The posterior mean under a prior of the largest variance that clipping allows, C²/d in each number."""
        prior = self.spec.clip_norm**2 / self.size
        return released * (prior / (prior + scale.value**2))

    def clipped(self, message: Array) -> Array:
        return clip_to_norm(message, self.spec.clip_norm)
