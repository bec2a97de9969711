"""The layers that networks are made of: arrays only, written for one input; `jax.vmap` makes them serve many.

Layers are built empty, and `fill` draws all weights of a network at once: that compiles in a tenth of the time that a
draw for each layer takes.
"""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

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
    """A gated recurrent unit; the two products of its three gates are one product each."""

    input: Linear
    hidden: Linear

    def __init__(self, inputs: int, width: int):
        self.input = Linear(inputs, 3 * width)
        self.hidden = Linear(width, 3 * width)

    def __call__(self, x: Array, memory: Array) -> Array:
        """x (inputs,), memory (width,) ↦ the next memory (width,)."""
        return gates(self.input(x), self.hidden(memory), memory)[0]

    def unroll(self, xs: Array) -> Array:
        """Memories (time, episode, width) after each of the inputs (time, episode, inputs), from an empty memory."""
        return recur(self.hidden.weight, self.hidden.bias, self.input(xs))


def gates(from_input: Array, from_memory: Array, memory: Array) -> tuple[Array, tuple[Array, ...]]:
    """The next memory (…, width), and what its gradient needs, from the pre-activations (…, 3 · width) of the gates."""
    x_reset, x_update, x_new = jnp.split(from_input, 3, axis=-1)
    h_reset, h_update, h_new = jnp.split(from_memory, 3, axis=-1)
    reset = jax.nn.sigmoid(x_reset + h_reset)
    update = jax.nn.sigmoid(x_update + h_update)
    new = jnp.tanh(x_new + reset * h_new)
    reset, update, new = settled((reset, update, new))
    return new + update * (memory - new), (reset, update, new, h_new)


@jax.custom_vjp
def recur(weight: Array, bias: Array, xs: Array) -> Array:
    """Memories (time, episode, width) of a gated recurrent unit for projected inputs (time, episode, 3 · width).

    Its gradient is written out because the one that JAX derives adds up the weight's gradient step by step; here it is
    one product over all steps and episodes, which more than halves the time of a whole update.
    """
    return recur_forward(weight, bias, xs)[0]


def settled(values: Any) -> Any:
    """Values as they are. On a CPU, XLA would fuse them into the loop's writes, unvectorised."""
    return jax.lax.optimization_barrier(values) if jax.default_backend() == "cpu" else values


def unrolled() -> int | bool:
    """Loops over time are unrolled on accelerators, where launching a step costs more than computing it."""
    return 1 if jax.default_backend() == "cpu" else True


def recur_forward(weight: Array, bias: Array, xs: Array) -> tuple[Array, tuple]:
    def step(memory: Array, x: Array) -> tuple[Array, tuple]:
        following, kept = gates(x, memory @ weight + bias, memory)
        return settled((following, (following, kept)))

    empty = jnp.zeros((*xs.shape[1:-1], weight.shape[0]), xs.dtype)
    _, (memories, kept) = jax.lax.scan(step, empty, xs, unroll=unrolled())
    return memories, (weight, memories, kept)


def recur_backward(residuals: tuple, gradient: Array) -> tuple[Array, Array, Array]:
    weight, memories, kept = residuals
    before = jnp.concatenate([jnp.zeros_like(memories[:1]), memories[:-1]])

    def step(later: Array, now: tuple) -> tuple[Array, tuple[Array, Array]]:
        (reset, update, new, h_new), memory, outer = now
        total = later + outer
        d_new = total * (1 - update) * (1 - new**2)
        d_update = total * (memory - new) * update * (1 - update)
        d_reset = d_new * h_new * reset * (1 - reset)
        from_memory = jnp.concatenate([d_reset, d_update, d_new * reset], axis=-1)
        return settled((total * update + from_memory @ weight.T, (from_memory, d_new)))

    start = jnp.zeros_like(memories[0])
    _, (from_memory, d_new) = jax.lax.scan(step, start, (kept, before, gradient), reverse=True, unroll=unrolled())
    width = weight.shape[0]
    from_input = jnp.concatenate([from_memory[..., : 2 * width], d_new], axis=-1)
    rows = from_memory.reshape(-1, 3 * width)
    return before.reshape(-1, width).T @ rows, jnp.sum(rows, axis=0), from_input


recur.defvjp(recur_forward, recur_backward)


class Actor(eqx.Module):
    """Logits over actions from what an agent sees, what it heard, and what it remembers."""

    cell: Gru | Linear
    head: Linear

    def __init__(self, inputs: int, width: int, actions: int, recurrent: bool):
        self.cell = (Gru if recurrent else Linear)(inputs, width)
        self.head = Linear(width, actions)

    def __call__(self, observation: Array, heard: Array, memory: Array) -> tuple[Array, Array]:
        """(logits (action,), next memory (width,)); a feed-forward actor's memory is its hidden layer, never read."""
        x = jnp.concatenate([observation, heard])
        memory = self.cell(x, memory) if isinstance(self.cell, Gru) else jax.nn.relu(self.cell(x))
        return self.head(memory), memory

    def unroll(self, observations: Array, heard: Array) -> Array:
        """Logits (time, episode, action) of whole episodes (time, episode, …): `__call__` step after step."""
        xs = jnp.concatenate([observations, heard], axis=-1)
        memories = self.cell.unroll(xs) if isinstance(self.cell, Gru) else jax.nn.relu(self.cell(xs))
        return self.head(memories)


class Critic(eqx.Module):
    """Q(o, a) of one agent from everybody's observations and actions."""

    observation: Linear
    action: Linear
    hidden: Linear | Gru
    value: Linear

    def __init__(self, observations: int, actions: int, width: int, recurrent: bool):
        self.observation = Linear(observations, width)
        self.action = Linear(actions, width)
        self.hidden = (Gru if recurrent else Linear)(width, width)
        self.value = Linear(width, 1)

    def __call__(self, observations: Array, actions: Array) -> Array:
        """Q (time, episode) from joint observations (time, episode, agent · feature) and one-hot actions likewise."""
        x = jax.nn.relu(self.observation(observations) + self.action(actions))
        x = self.hidden.unroll(x) if isinstance(self.hidden, Gru) else jax.nn.relu(self.hidden(x))
        return self.value(x)[..., 0]
