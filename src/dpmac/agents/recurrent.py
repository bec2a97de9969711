"""A gated recurrent unit over whole episodes, with a gradient of its own.

The one that JAX derives adds up the weights' gradients step by step; here each is one product over all steps and
episodes.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dpmac.agents import kernel


def gates(from_input: Array, from_state: Array) -> tuple[Array, Array, Array, Array]:
    """Reset, update and new (…, width), and the state's part in new, from pre-activations (…, 3 · width)."""
    width = from_input.shape[-1] // 3
    both, part = from_input[..., : 2 * width] + from_state[..., : 2 * width], from_state[..., 2 * width :]
    reset, update = jnp.split(settled(0.5 * jnp.tanh(0.5 * both) + 0.5), 2, axis=-1)  # sigmoids, faster on CPUs
    new = settled(jnp.tanh(from_input[..., 2 * width :] + reset * part))
    return reset, update, new, part


def settled(values: Any) -> Any:
    """Values as they are. On a CPU, XLA would fuse them into the loop's writes, unvectorised."""
    return jax.lax.optimization_barrier(values) if jax.default_backend() == "cpu" else values


def unrolled() -> bool:
    """Whether loops over time are unrolled: on accelerators, where launching a step costs more than computing it."""
    return jax.default_backend() != "cpu"


@jax.custom_vjp
def recur(weight: Array, bias: Array, hidden: Array, xs: Array) -> Array:
    """Hidden states (time, episode, width) of a gated recurrent unit for inputs (time, episode, inputs)."""
    if kernel.fits(weight, hidden, xs):
        return kernel.forward(weight, bias, hidden, kernel.extend(xs), keep=False)[0]
    return scan_forward(hidden, xs @ weight + bias, keep=False)[0]


def recur_forward(weight: Array, bias: Array, hidden: Array, xs: Array) -> tuple[Array, tuple[Any, ...]]:
    if kernel.fits(weight, hidden, xs):
        extended = kernel.extend(xs)
        states, before, kept = kernel.forward(weight, bias, hidden, extended, keep=True)
    else:
        extended = jnp.concatenate([xs, jnp.ones_like(xs[..., :1])], axis=-1)
        states, kept = scan_forward(hidden, xs @ weight + bias, keep=True)
        before = jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]])
    return states, (weight, hidden, extended, before, kept)


def recur_backward(residuals: tuple[Any, ...], gradient: Array) -> tuple[Array, Array, Array, Array]:
    weight, hidden, extended, before, kept = residuals
    inputs, width = len(weight), len(hidden)
    by_kernel = kernel.fits(weight, hidden, extended)
    deltas = (kernel.backward if by_kernel else scan_backward)(hidden, before, kept, gradient)
    # Both of the unit's products have the same part for reset and update; only that for new differs.
    d_input = product(extended, deltas)[: inputs + 1]  # a 1 in the inputs makes the bias's gradient
    if len(d_input) == inputs:  # there was no room for it
        d_input = jnp.concatenate([d_input, jnp.sum(deltas, (0, 1), jnp.float32)[None]])
    d_input = jnp.concatenate([d_input[:, : 2 * width], d_input[:, 3 * width :]], axis=-1)
    turned = jnp.concatenate([weight[:, : 2 * width], jnp.zeros((inputs, width)), weight[:, 2 * width :]], axis=-1).T
    d_xs = jnp.matmul(deltas, turned.astype(deltas.dtype), preferred_element_type=weight.dtype)
    return d_input[:-1], d_input[-1], product(before, deltas)[:, : 3 * width], d_xs


def scan_forward(hidden: Array, projected: Array, keep: bool) -> tuple[Array, tuple[Array, ...]]:
    """Hidden states (time, episode, width) from projected inputs (time, episode, 3 · width), and on demand the
    gates behind them."""

    def step(state: Array, now: Array) -> tuple[Array, tuple[Array, tuple[Array, ...]]]:
        kept = gates(now, state @ hidden)
        _, update, new, _ = kept
        following = settled(new + update * (state - new))
        return following, (following, kept if keep else ())

    empty = jnp.zeros((*projected.shape[1:-1], hidden.shape[0]), projected.dtype)
    return jax.lax.scan(step, empty, projected, unroll=unrolled())[1]


def scan_backward(hidden: Array, before: Array, kept: tuple[Array, ...], gradient: Array) -> Array:
    """Gradients (time, episode, 4 · width) at the pre-activations: reset, update, the state's part in new, and new."""

    def step(later: Array, now: tuple[Any, ...]) -> tuple[Array, Array]:
        (reset, update, new, part), state, outer = now
        total = later + outer
        d_new = total * (1 - update) * (1 - new**2)
        d_update = total * (state - new) * update * (1 - update)
        d_reset = d_new * part * reset * (1 - reset)
        deltas = settled(jnp.concatenate([d_reset, d_update, d_new * reset, d_new], axis=-1))
        return settled(total * update + deltas[..., : 3 * len(hidden)] @ hidden.T), deltas

    inputs = (kept, before, gradient)
    return jax.lax.scan(step, jnp.zeros_like(before[0]), inputs, reverse=True, unroll=unrolled())[1]


def product(left: Array, right: Array) -> Array:
    """Σ over time and episodes of left ⊗ right (time, episode, …), in float32 of whatever they are."""
    return jnp.einsum("tei,tej->ij", left.astype(right.dtype), right, preferred_element_type=jnp.float32)


recur.defvjp(recur_forward, recur_backward)
