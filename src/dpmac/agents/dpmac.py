"""DPMAC: a stochastic sender that learns its own spread, and a receiver that attends to what arrives."""

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dpmac.agents.layers import Linear, with_bias
from dpmac.agents.protocol import Protocol, ProtocolShape, inner, masked_softmax

MIN_LOG_DEVIATION, MAX_LOG_DEVIATION = -5.0, 2.0


class Dpmac(Protocol):
    """p = μ(o, a) + σ̃(o, a) ⊙ ξ on one side; self-attention over the messages of the others, averaged, on the other."""

    shared: Linear
    mean: Linear
    log_deviation: Linear
    key: Linear
    query: Linear
    value: Linear
    merge: Linear | None
    """What is attended to by each message, side by side, to what enters the actor; None: the mean enters."""
    deterministic: bool = eqx.field(static=True)
    bounded: bool = eqx.field(static=True)
    remembered: int = eqx.field(static=True)
    rescale: bool = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        sizes: ProtocolShape,
        deterministic: bool = False,
        bounded: bool = False,
        past: bool = False,
        rescale: bool = False,
        merge: bool = False,
    ) -> Self:
        """deterministic: a sender without spread. The others are as in the paper's release. bounded: the logarithm of
        the deviation is a tanh, so that σ̃ lies in [1/e, e]. past: private messages are made from one past observation,
        drawn uniformly, and the current action. rescale: private messages are scaled to the clip norm. merge: a
        receiver puts what its messages attend to side by side and makes as many numbers of it as a message has."""
        width, message = sizes.networks.message_hidden, sizes.message
        return cls(
            shared=Linear(sizes.observation + sizes.actions, width),
            mean=Linear(width, message),
            log_deviation=Linear(width, message),
            key=Linear(message, width),
            query=Linear(message, width),
            value=Linear(message, width),
            merge=Linear((sizes.agents - 1) * width, message) if merge else None,
            deterministic=deterministic,
            bounded=bounded,
            remembered=sizes.observation if past else 0,
            rescale=rescale,
        )

    @property
    def aggregated_size(self) -> int:
        return (self.value if self.merge is None else self.merge).weight.shape[-1]

    @property
    def past(self) -> int:
        return self.remembered

    @property
    def rescales(self) -> bool:
        return self.rescale

    def draw(self, key: Array, shape: tuple[int, ...]) -> Array:
        """ξ, standard normal (…, message)."""
        return jax.random.normal(key, (*shape, self.mean.weight.shape[-1]))

    def distribution(self, observation: Array, action: Array) -> tuple[Array, Array]:
        """Mean and standard deviation (message,) of the message before it is sampled."""
        one = jnp.ones(1)
        hidden = jax.nn.relu(jnp.concatenate([observation, action, one]) @ with_bias(self.shared))
        both = jnp.concatenate([with_bias(self.mean), with_bias(self.log_deviation)], axis=-1)
        mean, log_deviation = jnp.split(jnp.concatenate([hidden, one]) @ both, 2)
        if self.bounded:
            return mean, jnp.exp(jnp.tanh(log_deviation))
        return mean, jnp.exp(jnp.clip(log_deviation, MIN_LOG_DEVIATION, MAX_LOG_DEVIATION))

    def send(self, observation: Array, action: Array, hidden: Array, draws: Array) -> Array:
        mean, deviation = self.distribution(observation, action)
        return mean if self.deterministic else mean + deviation * draws

    def receive(self, inbox: Array, mask: Array, observation: Array, hidden: Array) -> Array:
        """The mean over queries of Σ_j softmax_j(q·k_j/√width) v_j, or what `merge` makes of all of them.

        A message is far narrower than its key, query and value, so that products are taken in its own space: q_i·k_j is
        a bilinear form of messages i and j, and values are mixed before they are made.
        """
        form = with_bias(self.query) @ with_bias(self.key).T / jnp.sqrt(self.value.weight.shape[-1])
        extended = jnp.concatenate([inbox, jnp.ones_like(inbox[:, :1])], axis=-1)
        scores = inner(extended @ form, extended)
        arrived = jnp.where(mask, 1.0, 0.0)[:, None]
        attention = arrived * masked_softmax(scores, mask)
        if self.merge is not None:
            return self.merge(jnp.concatenate(inner(attention, extended.T) @ with_bias(self.value)))
        weights = jnp.sum(attention, axis=0) / jnp.maximum(jnp.sum(arrived), 1.0)
        return jnp.sum(weights[:, None] * extended, axis=0) @ with_bias(self.value)

    def describe(self, observation: Array, action: Array, hidden: Array) -> dict[str, Array]:
        return {"learned_deviation": jnp.mean(self.distribution(observation, action)[1])}
