"""CommNet (Sukhbaatar, Szlam, Fergus, NIPS 2016): everybody hears the mean of the others' messages."""

import jax
import jax.numpy as jnp

from dpmac.agents.layers import Linear
from dpmac.agents.protocol import Protocol


class CommNet(Protocol):
    hidden: Linear
    message: Linear

    @classmethod
    def create(cls, sizes):
        width = sizes.networks.message_hidden
        return cls(hidden=Linear(sizes.observation, width), message=Linear(width, sizes.message))

    @property
    def aggregated_size(self):
        return self.message.weight.shape[-1]

    def send(self, observation, action, hidden, draws):
        return self.message(jax.nn.relu(self.hidden(observation)))

    def receive(self, inbox, mask, observation, hidden):
        return mask @ inbox / jnp.maximum(jnp.sum(mask), 1)
