"""The layers that networks are made of: arrays only, written for one input; `jax.vmap` makes them serve many.

Layers are built empty, and `fill` draws all weights of a network at once: that compiles in a tenth of the time that a
draw for each layer takes.
"""

from collections.abc import Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac.agents.recurrent import gates, recur

T = TypeVar("T")


class Linear(eqx.Module):
    """x ↦ x·W + b."""

    weight: Array
    bias: Array

    def __init__(self, inputs: int, outputs: int):
        self.weight = jnp.zeros((inputs, outputs))
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


def with_bias(layer: Linear) -> Array:
    """The layer as one matrix (inputs + 1, outputs) for inputs that end in a 1: the bias's gradient is then part of a
    product, and no sum over all rows, at which accelerators are slow where outputs are few."""
    return jnp.concatenate([layer.weight, layer.bias[None]])


def fill(key: Array, network: T) -> T:
    """The network with every matrix (inputs, outputs) drawn uniformly within 1/√inputs; vectors stay as they are."""
    leaves, structure = jax.tree.flatten(network)
    matrices = [leaf for leaf in leaves if leaf.ndim == 2]
    numbers = iter(
        jnp.split(
            jax.random.uniform(key, (sum(leaf.size for leaf in matrices),), minval=-1.0),
            np.cumsum([leaf.size for leaf in matrices])[:-1],
        )
    )
    return jax.tree.unflatten(
        structure,
        [
            next(numbers).reshape(leaf.shape) * max(leaf.shape[0], 1) ** -0.5 if leaf.ndim == 2 else leaf
            for leaf in leaves
        ],
    )


class Gru(eqx.Module):
    """A gated recurrent unit; the two products of its three gates are one product each, and share one bias."""

    input: Linear
    hidden: Array

    def __init__(self, inputs: int, width: int):
        self.input = Linear(inputs, 3 * width)
        self.hidden = jnp.zeros((width, 3 * width))

    def __call__(self, x: Array, state: Array, recalled: Array | None = None) -> Array:
        """x (inputs,), state (width,) ↦ the next state (width,); recalled is state·hidden, where that is known."""
        _, update, new, _ = gates(self.input(x), state @ self.hidden if recalled is None else recalled)
        return new + update * (state - new)

    def unroll(self, xs: Array) -> Array:
        """Hidden states (time, episode, width) after each of the inputs (time, episode, inputs), from zeros."""
        return recur(self.input.weight, self.input.bias, self.hidden, xs)


class LayerNorm(eqx.Module):
    """x ↦ (x - mean) / deviation, over the last axis, then scaled and shifted."""

    scale: Array
    shift: Array

    def __init__(self, width: int):
        self.scale, self.shift = jnp.ones(width), jnp.zeros(width)

    def __call__(self, x: Array) -> Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        deviation = jnp.sqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-5)
        return self.scale * centred / deviation + self.shift


class Norms(eqx.Module):
    """Normalisation of a network's inputs, of every layer before its cell, and of what its cell gives."""

    inputs: LayerNorm
    layers: tuple[LayerNorm, ...]
    outputs: LayerNorm

    def __init__(self, inputs: int, layers: int, width: int):
        self.inputs, self.outputs = LayerNorm(inputs), LayerNorm(width)
        self.layers = tuple(LayerNorm(width) for _ in range(layers))


class Actor(eqx.Module):
    """Logits over actions from what an agent sees, what it aggregated, and what it remembers."""

    observed: Linear | None
    """With `received`, the factors of products of what is seen with what was aggregated."""
    received: Linear | None
    entry: Linear | None
    """A layer before the recurrent one."""
    further: tuple[Linear, ...]
    """More of them."""
    norms: Norms | None
    cell: Gru | Linear
    head: Linear

    def __init__(
        self,
        observation: int,
        aggregated: int,
        width: int,
        actions: int,
        recurrent: bool,
        products: int = 0,
        layers: int = 0,
        normalised: bool = False,
    ):
        products = products if aggregated else 0
        self.observed = Linear(observation, products) if products else None
        self.received = Linear(aggregated, products) if products else None
        inputs = observation + aggregated + products
        self.entry = Linear(inputs, width) if layers else None
        self.further = tuple(Linear(width, width) for _ in range(layers - 1))
        self.norms = Norms(inputs, layers, width) if normalised else None
        self.cell = (Gru if recurrent else Linear)(width if layers else inputs, width)
        self.head = Linear(width, actions)

    def features(self, observation: Array, aggregated: Array) -> Array:
        """What enters the cell (…, inputs): [o, h, (o·A + a) ∘ (h·B + b)], through the layers before it.

        What an agent should do often depends on a product: belief in each landmark times where that landmark is.
        """
        parts = [observation, aggregated]
        if self.observed is not None and self.received is not None:
            parts.append(self.observed(observation) * self.received(aggregated))
        return through(
            () if self.entry is None else (self.entry, *self.further), self.norms, jnp.concatenate(parts, -1)
        )

    def __call__(
        self, observation: Array, aggregated: Array, state: Array, recalled: Array | None = None
    ) -> tuple[Array, Array]:
        """(logits (action,), next state (width,)); a feed-forward actor's state is its hidden layer, never read."""
        x = self.features(observation, aggregated)
        state = self.cell(x, state, recalled) if isinstance(self.cell, Gru) else jax.nn.relu(self.cell(x))
        return self.logits(state), state

    def logits(self, states: Array) -> Array:
        """Logits (…, action) of hidden states (…, width)."""
        return self.head(states if self.norms is None else self.norms.outputs(states))

    def unroll(self, observations: Array, aggregated: Array) -> Array:
        """Logits (time, episode, action) of whole episodes (time, episode, …): `__call__` step after step."""
        xs = self.features(observations, aggregated)
        states = self.cell.unroll(xs) if isinstance(self.cell, Gru) else jax.nn.relu(self.cell(xs))
        return self.logits(states)


def through(layers: Sequence[Linear], norms: Norms | None, x: Array, shift: Array | float = 0.0) -> Array:
    """What layers before a cell make of x (…, width): each is rectified and, where there are norms, then normalised;
    the shift is added to what the first gives."""
    x = x if norms is None else norms.inputs(x)
    for place, layer in enumerate(layers):
        x = jax.nn.relu(layer(x) if place else layer(x) + shift)
        x = x if norms is None else norms.layers[place](x)
    return x


class Critic(eqx.Module):
    """Q(o, a) of one agent from everybody's observations and actions; a recurrent one knows what was before, too."""

    joint: Linear
    further: tuple[Linear, ...]
    """More layers before the hidden one."""
    norms: Norms | None
    hidden: Linear | Gru
    value: Linear
    clock: Array | None
    horizon: int = eqx.field(static=True)

    def __init__(
        self, inputs: int, width: int, recurrent: bool, horizon: int = 0, layers: int = 1, normalised: bool = False
    ):
        """A critic that is given a horizon is told the time."""
        self.joint = Linear(inputs, width)
        self.further = tuple(Linear(width, width) for _ in range(layers - 1))
        self.norms = Norms(inputs, layers, width) if normalised else None
        self.clock = jnp.zeros(width) if horizon else None
        self.horizon = horizon
        self.hidden = (Gru if recurrent else Linear)(width, width)
        self.value = Linear(width, 1)

    def __call__(self, joint: Array, recorded: Array | None = None) -> Array:
        """Q (time, episode) from all observations and one-hot actions (time, episode, agent · (feature + action)).

        At each step the past is what was recorded, whatever is asked about the present; by default this was recorded.
        """
        x = self.enter(joint)
        if not isinstance(self.hidden, Gru):
            x = jax.nn.relu(self.hidden(x))
        elif recorded is None:
            x = self.hidden.unroll(x)
        else:
            states = self.hidden.unroll(self.enter(recorded))
            x = self.hidden(x, jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]]))
        return self.value(x if self.norms is None else self.norms.outputs(x))[..., 0]

    def enter(self, joint: Array) -> Array:
        """What enters the hidden layer (time, episode, width); the clock runs from 0 to 1."""
        time = 0.0
        if self.clock is not None:
            time = (jnp.arange(len(joint)) / self.horizon)[:, None, None] * self.clock
        return through((self.joint, *self.further), self.norms, joint, time)
