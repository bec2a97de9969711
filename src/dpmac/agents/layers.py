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
    """A gated recurrent unit; the two products of its three gates are one product each, and share one bias."""

    input: Linear
    hidden: Array

    def __init__(self, inputs: int, width: int):
        self.input = Linear(inputs, 3 * width)
        self.hidden = jnp.zeros((width, 3 * width))

    def __call__(self, x: Array, memory: Array) -> Array:
        """x (inputs,), memory (width,) ↦ the next memory (width,)."""
        _, update, new, _ = gates(self.input(x), memory @ self.hidden)
        return new + update * (memory - new)

    def unroll(self, xs: Array) -> Array:
        """Memories (time, episode, width) after each of the inputs (time, episode, inputs), from an empty memory."""
        return recur(self.input.weight, self.input.bias, self.hidden, xs)


def gates(from_input: Array, from_memory: Array) -> tuple[Array, Array, Array, Array]:
    """Reset, update and new (…, width), and the memory's part in new, from pre-activations (…, 3 · width)."""
    x_reset, x_update, x_new = jnp.split(from_input, 3, axis=-1)
    h_reset, h_update, h_new = jnp.split(from_memory, 3, axis=-1)
    reset = jax.nn.sigmoid(x_reset + h_reset)
    update = jax.nn.sigmoid(x_update + h_update)
    new = jnp.tanh(x_new + reset * h_new)
    return (*settled((reset, update, new)), h_new)


def settled(values: Any) -> Any:
    """Values as they are. On a CPU, XLA would fuse them into the loop's writes, unvectorised."""
    return jax.lax.optimization_barrier(values) if jax.default_backend() == "cpu" else values


def unrolled(steps: int | bool = True) -> int | bool:
    """So many steps of a loop over time (all of them: True) are unrolled on accelerators, where launching a step costs
    more than computing it."""
    return 1 if jax.default_backend() == "cpu" else steps


@jax.custom_vjp
def recur(weight: Array, bias: Array, hidden: Array, xs: Array) -> Array:
    """Memories (time, episode, width) of a gated recurrent unit for inputs (time, episode, inputs).

    Its gradient is written out because the one that JAX derives keeps every gate of every step and adds up the weights'
    gradients step by step. Here only the memories are kept, the gates are computed anew, all steps at once, and each
    weight's gradient is one product over all steps and episodes.
    """
    return recur_forward(weight, bias, hidden, xs)[0]


def recur_forward(weight: Array, bias: Array, hidden: Array, xs: Array) -> tuple[Array, tuple[Array, ...]]:
    projected = xs @ weight + bias

    def step(memory: Array, now: Array) -> tuple[Array, Array]:
        _, update, new, _ = gates(now, memory @ hidden)
        following = settled(new + update * (memory - new))
        return following, following

    empty = jnp.zeros((*xs.shape[1:-1], hidden.shape[0]), xs.dtype)
    _, memories = jax.lax.scan(step, empty, projected, unroll=unrolled())
    return memories, (weight, hidden, xs, projected, memories)


def recur_backward(residuals: tuple[Array, ...], gradient: Array) -> tuple[Array, Array, Array, Array]:
    weight, hidden, xs, projected, memories = residuals
    width = hidden.shape[0]
    before = jnp.concatenate([jnp.zeros_like(memories[:1]), memories[:-1]])

    def step(later: Array, now: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        from_input, from_memory, memory, outer = now
        reset, update, new, h_new = gates(from_input, from_memory)
        total = later + outer
        d_new = total * (1 - update) * (1 - new**2)
        d_update = total * (memory - new) * update * (1 - update)
        d_reset = d_new * h_new * reset * (1 - reset)
        d_memory = settled(jnp.concatenate([d_reset, d_update, d_new * reset], axis=-1))
        return settled(total * update + d_memory @ hidden.T), (d_memory, settled(d_new))

    inputs = (projected, before @ hidden, before, gradient)
    _, (d_memory, d_new) = jax.lax.scan(step, jnp.zeros_like(memories[0]), inputs, reverse=True, unroll=unrolled())
    # Both products have the same part for reset and update; only that for new differs.
    both = d_memory[..., : 2 * width]
    with_one = jnp.concatenate([xs, jnp.ones_like(xs[..., :1])], axis=-1)  # the row of ones makes the bias's gradient
    d_input = jnp.concatenate([product(with_one, both), product(with_one, d_new)], axis=-1)
    d_xs = both @ weight[:, : 2 * width].T + d_new @ weight[:, 2 * width :].T
    return d_input[:-1], d_input[-1], product(before, d_memory), d_xs


def product(left: Array, right: Array) -> Array:
    """Σ over time and episodes of left ⊗ right (time, episode, …)."""
    return jnp.einsum("tei,tej->ij", left, right)


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
    """Q(o, a) of one agent from everybody's observations and actions; a recurrent one knows what was before, too."""

    joint: Linear
    hidden: Linear | Gru
    value: Linear

    def __init__(self, inputs: int, width: int, recurrent: bool):
        self.joint = Linear(inputs, width)
        self.hidden = (Gru if recurrent else Linear)(width, width)
        self.value = Linear(width, 1)

    def __call__(self, joint: Array, recorded: Array) -> Array:
        """Q (time, episode) from all observations and one-hot actions (time, episode, agent · (feature + action)).

        At each step the past is what was recorded, whatever is asked about the present.
        """
        x = jax.nn.relu(self.joint(joint))
        if isinstance(self.hidden, Gru):
            memories = self.hidden.unroll(jax.nn.relu(self.joint(recorded)))
            x = self.hidden(x, jnp.concatenate([jnp.zeros_like(memories[:1]), memories[:-1]]))
        else:
            x = jax.nn.relu(self.hidden(x))
        return self.value(x)[..., 0]
