"""Subset selection in compiled programs."""

import jax.numpy as jnp
from jax import Array

from dpmac.agents.mechanisms.base import NoiseScale, Symbols


class Subset(Symbols):
    """A random subset of the symbols that is likelier to hold the true one."""

    def slope(self, scale: NoiseScale) -> Array:
        return scale.parameters.slope

    def decode(self, released: Array, scale: NoiseScale) -> Array:
        """Posterior over symbols under a uniform prior, centred: members are 1/η times as likely as the others."""
        weights = released + (1 - released) * scale.value
        return weights / jnp.maximum(jnp.sum(weights, axis=-1, keepdims=True), 1e-6) - 1 / self.size
