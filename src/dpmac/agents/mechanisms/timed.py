"""Randomised response on the moment in compiled programs."""

import jax
import jax.numpy as jnp
from jax import Array

from dpmac.agents.mechanisms.base import NoiseScale, Symbols, choose, straight_through
from dpmac.privacy.mechanisms.timed import Timed as Host


class Timed(Symbols):
    """One word an episode, when the sender wants, or with some probability another word at another time."""

    @property
    def host(self) -> Host:
        return super().host  # type: ignore[return-value]

    def draw(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Shape is (slot, …): all slots of an episode share their randomness."""
        words = jax.random.bits(key, (*shape[1:], self.host.words, 2), jnp.uint32)
        return self.host.slots(jnp, words, shape[0])

    def release(self, message: Array, draws: Array, scale: NoiseScale) -> Array:
        hard = self.host.released(jnp, jax.lax.stop_gradient(message), draws, scale.parameters)
        soft = choose(self.host.scores(jnp, message))
        return straight_through(hard, soft * self.slope(scale))

    def slope(self, scale: NoiseScale) -> Array:
        return 1 - scale.value

    def decode(self, released: Array, scale: NoiseScale) -> Array:
        """How far a word is to be believed; nothing for silence."""
        return (released * self.slope(scale)).at[0].set(0.0)
