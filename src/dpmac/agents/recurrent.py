"""A gated recurrent unit over whole episodes, with a gradient of its own.

The one that JAX derives keeps every gate of every step and adds up the weights' gradients step by step. Here only the
memories are kept, gates are computed anew on the way back, and each weight's gradient is one product over all steps and
episodes.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dpmac.agents import kernel


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
    """Memories (time, episode, width) of a gated recurrent unit for inputs (time, episode, inputs)."""
    if kernel.fits(weight, hidden, xs):
        return kernel.forward(kernel.extend_weight(weight, bias), hidden, kernel.extend(xs), keep=False)[0]
    return scan_forward(hidden, xs @ weight + bias)


def recur_forward(weight: Array, bias: Array, hidden: Array, xs: Array) -> tuple[Array, tuple[Array, ...]]:
    if kernel.fits(weight, hidden, xs):
        extended = kernel.extend(xs)
        memories, before, kept = kernel.forward(kernel.extend_weight(weight, bias), hidden, extended, keep=True)
    else:
        extended = jnp.concatenate([xs, jnp.ones_like(xs[..., :1])], axis=-1)
        kept = xs @ weight + bias
        memories = scan_forward(hidden, kept)
        before = jnp.concatenate([jnp.zeros_like(memories[:1]), memories[:-1]])
    return memories, (weight, hidden, extended, before, kept)


def recur_backward(residuals: tuple[Array, ...], gradient: Array) -> tuple[Array, Array, Array, Array]:
    weight, hidden, extended, before, kept = residuals
    inputs, width = len(weight), len(hidden)
    by_kernel = kernel.fits(weight, hidden, extended)
    deltas = (kernel.backward if by_kernel else scan_backward)(hidden, before, kept, gradient)
    # Both of the unit's products have the same part for reset and update; only that for new differs.
    d_input = product(extended, deltas)[: inputs + 1]  # the 1 in the inputs makes the bias's gradient
    d_input = jnp.concatenate([d_input[:, : 2 * width], d_input[:, 3 * width :]], axis=-1)
    turned = jnp.concatenate([weight[:, : 2 * width], jnp.zeros((inputs, width)), weight[:, 2 * width :]], axis=-1).T
    d_xs = jnp.matmul(deltas, turned.astype(deltas.dtype), preferred_element_type=weight.dtype)
    return d_input[:-1], d_input[-1], product(before, deltas)[:, : 3 * width], d_xs


def scan_forward(hidden: Array, projected: Array) -> Array:
    """Memories (time, episode, width) from projected inputs (time, episode, 3 · width)."""

    def step(memory: Array, now: Array) -> tuple[Array, Array]:
        _, update, new, _ = gates(now, memory @ hidden)
        following = settled(new + update * (memory - new))
        return following, following

    empty = jnp.zeros((*projected.shape[1:-1], hidden.shape[0]), projected.dtype)
    return jax.lax.scan(step, empty, projected, unroll=unrolled())[1]


def scan_backward(hidden: Array, before: Array, projected: Array, gradient: Array) -> Array:
    """Gradients (time, episode, 4 · width) at the pre-activations: reset, update, the memory's part in new, and new."""

    def step(later: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
        from_input, from_memory, memory, outer = now
        reset, update, new, h_new = gates(from_input, from_memory)
        total = later + outer
        d_new = total * (1 - update) * (1 - new**2)
        d_update = total * (memory - new) * update * (1 - update)
        d_reset = d_new * h_new * reset * (1 - reset)
        deltas = settled(jnp.concatenate([d_reset, d_update, d_new * reset, d_new], axis=-1))
        return settled(total * update + deltas[..., : 3 * len(hidden)] @ hidden.T), deltas

    inputs = (projected, before @ hidden, before, gradient)
    return jax.lax.scan(step, jnp.zeros_like(before[0]), inputs, reverse=True, unroll=unrolled())[1]


def product(left: Array, right: Array) -> Array:
    """Σ over time and episodes of left ⊗ right (time, episode, …), in float32 of whatever they are."""
    return jnp.einsum("tei,tej->ij", left.astype(right.dtype), right, preferred_element_type=jnp.float32)


recur.defvjp(recur_forward, recur_backward)
