"""Running sums with Gaussian noise in compiled programs."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac.agents.mechanisms.base import Additive, NoiseScale, clip_to_norm, straight_through
from dpmac.privacy.mechanisms.correlated import Correlated as Host


class Correlated(Additive):
    """Sums of clipped messages, weighted by how long ago they were sent, on the grid, plus N(0, σ²I)."""

    @property
    def host(self) -> Host:
        return super().host  # type: ignore[return-value]

    def release(self, message: Array, draws: Array, scale: NoiseScale) -> Array:
        """What leaves (size,) for all messages so far (time, size), newest first."""
        window = message.reshape(-1, self.size)
        weights = jnp.asarray(self.host.weights(len(window)), jnp.float32)
        soft = weights @ clip_to_norm(window, self.spec.clip_norm)
        return straight_through(self.hard(window, draws, scale), soft)

    def decode(self, released: Array, scale: NoiseScale) -> Array:
        """The running sum with its noise from all releases so far (time, size), newest first.

        It is scaled as the posterior mean at the end of an episode would be, under a prior of the largest variance that
        clipping allows.
        """
        window = released.reshape(-1, self.size)
        back = self.host.back(len(window))
        prior = (
            self.spec.clip_norm**2 / self.size * float(np.sum(self.spec.stream_decay ** (2 * np.arange(len(window)))))
        )
        share = prior / (prior + scale.value**2 * float(np.sum(back**2)))
        return share * (jnp.asarray(back, jnp.float32) @ window)
