"""What a method is: how an agent makes a message, and what it makes of the messages of others.

A protocol is one agent's part, written for one step. It knows neither the channel, which stands between its two halves,
nor the learner. Adding one takes a subclass here or in a user's own package, and a line in `BUILT_IN` or the name
`package.module:Class` on the command line.
"""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dpmac import plugins
from dpmac.agents.layers import Linear
from dpmac.config import RENAMED_METHODS, Channel, NetworkConfig, Place, require


class ProtocolShape(NamedTuple):
    """What a protocol needs to know to build its networks."""

    agents: int
    observation: int
    actions: int
    message: int
    """Numbers in a message: what `send` must return and what each row of an inbox holds."""
    networks: NetworkConfig
    place: Place = "sender"
    """Where the channel stands. At the sender a claim covers everything that leaves an agent, so whom a message goes to
    and when must not depend on data."""


class Protocol(eqx.Module):
    """One agent's sender and receiver."""

    speaks: ClassVar[bool] = True
    """Whether anything is sent at all; a budget makes no sense otherwise."""
    sequential: ClassVar[bool] = False
    """Whether messages depend on the actor's hidden, so that an episode must be replayed step by step."""
    ponders: ClassVar[bool] = False
    """Whether a sequential protocol has `ponder`, and so can exchange messages in several rounds before each step."""
    needs_values: ClassVar[bool] = False
    """Whether `auxiliary` reads action values, which a learner without a joint critic cannot give."""
    private_at: ClassVar[Place] = "sender"
    """Where the paper puts this protocol's noise."""

    @property
    def past(self) -> int:
        """Numbers of an observation that a sender keeps of every step: where it is private, a message is made from one
        of them, drawn uniformly, and the current action. 0: it sends what it observes now."""
        return 0

    @property
    def rescales(self) -> bool:
        """Whether messages of private senders are scaled to the clip norm, where others are only clipped to it."""
        return False

    @property
    def deployable(self) -> bool:
        """Whether agents can be deployed: not with what only simulations know how to do."""
        return not (self.past or self.rescales)

    @classmethod
    def create(cls, sizes: ProtocolShape, **options: Any) -> Self:
        """A protocol whose layers are still empty (`layers.fill` draws them); unknown options are a `TypeError`."""
        raise NotImplementedError

    @classmethod
    def message_size(cls, networks: NetworkConfig, **options: Any) -> int:
        """Numbers in a message where the channel leaves that to the protocol."""
        return networks.message_size

    @property
    def aggregated_size(self) -> int:
        """Width of what `receive` hands to the actor."""
        raise NotImplementedError

    @property
    def projection(self) -> Linear | None:
        """A layer over the actor's hidden, the output of which `send`, `receive` and `describe` are given instead of
        the hidden. It is part of the actor's own product, which makes it cheap."""
        return None

    def project(self, hidden: Array) -> Array:
        """What `send`, `receive` and `describe` are given of the actor's hidden (width,)."""
        return hidden if self.projection is None else self.projection(hidden)

    def draw(self, key: Array, shape: tuple[int, ...]) -> Any:
        """The sender's own draws for messages of this shape (…), the last axis of which is the agents'."""
        return jnp.zeros((*shape, 0))

    def send(self, observation: Array, action: Array, hidden: Array, draws: Any) -> Array:
        """A message (message,) from an observation, a one-hot action and the actor's hidden after it."""
        raise NotImplementedError

    def receive(self, inbox: Array, mask: Array, observation: Array, hidden: Array) -> Array:
        """The aggregated message (aggregated,) that enters the actor, from the others' (other, message); the mask says
        which arrived."""
        raise NotImplementedError

    def ponder(self, aggregated: Array, hidden: Array) -> Array:
        """The hidden (width,) from which the next round is spoken and read, after what this one brought."""
        raise NotImplementedError

    @staticmethod
    def auxiliary(
        members: Any, episode: Any, logits: Array, values: Callable, key: Array
    ) -> tuple[Array, dict[str, Array]]:
        """A loss of the protocol's own for a batch, and what to report of it.

        members (agent, …); episode and logits (time, agent, episode, …). values(observations, actions) gives Q (time,
        agent, episode) by every agent's critic, of actions (time, agent, episode, action) or for each critic its own
        (critic, time, agent, episode, action). Only a protocol that `needs_values` may rely on it.
        """
        return jnp.zeros(()), {}

    def describe(self, observation: Array, action: Array, hidden: Array) -> dict[str, Array]:
        """Numbers worth watching in training, besides those of the channel."""
        return {}


def inner(left: Array, right: Array) -> Array:
    """Products (i, j) of the rows of left (i, d) and right (j, d).

    Accelerators are slow at many small matrix products. On CPUs XLA crashes over the sum, for one run of three agents.
    """
    return left @ right.T if jax.default_backend() == "cpu" else jnp.sum(left[:, None] * right, axis=-1)


def masked_softmax(scores: Array, mask: Array) -> Array:
    """Soft-max over the last axis of those not masked; all zero, not NaN, where everything is masked."""
    top = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True)
    weights = jnp.where(mask, jnp.exp(jnp.where(mask, scores - jnp.where(jnp.isfinite(top), top, 0.0), 0.0)), 0.0)
    return weights / jnp.maximum(jnp.sum(weights, axis=-1, keepdims=True), 1e-30)


class Silent(Protocol):
    """No messages: what a learner does by itself."""

    speaks = False

    @classmethod
    def create(cls, sizes: ProtocolShape) -> Self:
        return cls()

    @classmethod
    def message_size(cls, networks: NetworkConfig) -> int:
        return 0

    @property
    def aggregated_size(self) -> int:
        return 0

    def send(self, observation: Array, action: Array, hidden: Array, draws: Any) -> Array:
        return jnp.zeros(0)

    def receive(self, inbox: Array, mask: Array, observation: Array, hidden: Array) -> Array:
        return jnp.zeros(0)


BUILT_IN = {
    "dpmac": "dpmac.agents.dpmac:Dpmac",
    "silent": "dpmac.agents.protocol:Silent",
    "tarmac": "dpmac.agents.tarmac:Tarmac",
    "i2c": "dpmac.agents.i2c:I2C",
    "commnet": "dpmac.agents.commnet:CommNet",
}
"""Names of methods, each a protocol for any learner; imported when asked for."""


def find(name: str) -> type[Protocol]:
    """The protocol of a built-in name or of `package.module:Class`."""
    name = RENAMED_METHODS.get(name, name)
    return plugins.load("method", name, BUILT_IN, plugins.subclass_of(Protocol), "a dpmac.agents.protocol.Protocol")


def read_options(kind: type[Protocol], name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a method by the parameters of its `create`, numbers and truth values checked; others are refused."""
    parameters = list(inspect.signature(kind.create).parameters.values())[1:]
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return options
    kinds = {each.name: each.annotation for each in parameters}
    for option in options:
        allowed = ", ".join(kinds) or "none"
        require(option in kinds, f"method {name} has no option {option!r}; allowed are {allowed}")
    return {option: plugins.read(f"{name}: {option}", value, kinds[option]) for option, value in options.items()}


def channel_of(name: str, channel: Channel) -> Channel:
    """The channel as this protocol uses it; a silent one has none worth speaking of."""
    return channel if find(name).speaks else Channel()
