"""TarMAC (Das et al., ICML 2019): messages that say what they are about, and receivers that look for what they need."""

from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from dpmac.agents.layers import Linear
from dpmac.agents.protocol import Protocol, ProtocolShape, inner, masked_softmax


class Tarmac(Protocol):
    """A message is [k, v], signature and value, from the hidden state h. A receiver's query q, from its own h, weighs
    the values of all agents, its own among them, by α = softmax(q·k / √|k|); what it hears is c = Σ α·v."""

    said: Linear
    """h ↦ [k, v, q], the message and the query."""
    ponderer: Linear
    signature: int = eqx.field(static=True)
    """Numbers of a message that are its signature; the rest is its value."""

    sequential = True
    ponders = True
    private_at = "receiver"

    @classmethod
    def create(cls, sizes: ProtocolShape, signature: int = 0) -> Self:
        """Signatures of so many numbers; 0: half of the message."""
        width, signature = sizes.networks.hidden, signature or sizes.message // 2
        if not 0 <= signature < sizes.message:
            raise TypeError(f"signature must leave room for a value in {sizes.message} numbers, not {signature}")
        return cls(
            said=Linear(width, sizes.message + signature),
            ponderer=Linear(sizes.message - signature + width, width),
            signature=signature,
        )

    @classmethod
    def message_size(cls, networks, signature: int = 0) -> int:
        return networks.message_size

    @property
    def aggregated_size(self) -> int:
        return self.said.bias.shape[-1] - 2 * self.signature

    @property
    def projection(self) -> Linear:
        return self.said

    def send(self, observation: Array, action: Array, hidden: Array, draws: Array) -> Array:
        return hidden[: self.aggregated_size + self.signature]

    def receive(self, inbox: Array, mask: Array, observation: Array, hidden: Array) -> Array:
        # One's own message needs no channel, so it is neither late nor noisy.
        own, query = jnp.split(hidden, [self.aggregated_size + self.signature])
        everybody = jnp.concatenate([own[None], inbox])
        arrived = jnp.concatenate([jnp.ones(1, bool), mask])
        signatures, values = everybody[:, : self.signature], everybody[:, self.signature :]
        scores = inner(signatures, query[None])[:, 0] / jnp.sqrt(max(self.signature, 1))
        return inner(values.T, masked_softmax(scores, arrived)[None])[:, 0]

    def ponder(self, aggregated: Array, hidden: Array) -> Array:
        """h′ = tanh(W·[c, h]), from which the next round of the same step is spoken and aggregated."""
        return jnp.tanh(self.ponderer(jnp.concatenate([aggregated, hidden])))
