"""Mechanisms inside compiled programs: the array twins of `privacy.mechanisms`, which release the same bits.

The host class of a mechanism names its twin. Randomness is drawn in advance (`draw`) and handed in, so that `release`
is a plain function: experiments draw from a key, and tests from whatever they plant.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpmac import plugins
from dpmac.agents.mechanisms.base import Mechanism, NoiseScale, aside, clip_to_norm, draw_rows, straight_through
from dpmac.config import Channel
from dpmac.privacy import mechanisms as hosts

__all__ = [
    "Mechanism",
    "NoiseScale",
    "aside",
    "clip_to_norm",
    "draw_rows",
    "mechanism",
    "noise_scale",
    "straight_through",
]


def mechanism(spec: Channel, message_size: int) -> Mechanism:
    """The mechanism of a channel, for senders that would send so many numbers; symbols are as wide as an alphabet."""
    host = hosts.of(spec)
    fits, wanted = plugins.subclass_of(Mechanism), "a dpmac.agents.mechanisms.Mechanism"
    twin = plugins.load("traced mechanism", host.traced, {}, fits, wanted)
    return twin(spec, host.size(message_size))


def noise_scale(spec: Channel, noise: tuple[float, ...]) -> NoiseScale:
    """Levels (agent,) of the noise that the privacy package calibrated for each agent."""
    parameters = [hosts.of(spec).parameters(amount) for amount in noise]
    stacked = jax.tree.map(lambda *values: jnp.asarray(np.stack(values)), *parameters)
    return NoiseScale(jnp.asarray(noise, jnp.float32), stacked)
