"""The recurrent unit's steps as one kernel for NVIDIA devices, forwards and backwards.

A scan spends its time there on launching steps and on stacking what they leave. Here each program takes a tile of
episodes through all steps: the state stays in registers, the weights stay in shared memory, for which they must be
bfloat16; sums are float32. Gates are kept for the backward pass, also as bfloat16, for which the device's own tanh,
right to eleven bits, is good enough. It is not for sigmoids, whose small values must keep a slope: where large noise
closes the gates, learning has to open them again.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

TILE = 32
"""Episodes that a program takes at once; with 16 or 64 it is slower."""
WIDEST = 128
"""Inputs and units at most: both matrices of such a unit fill shared memory."""
SHORT = jnp.bfloat16


def fits(weight: Array, hidden: Array, xs: Array) -> bool:
    """Whether the kernel can take these shapes on this machine: powers of two, and small enough for shared memory."""
    width, episodes = hidden.shape[0], xs.shape[1]
    sizes = width in (16, 32, 64, WIDEST) and len(weight) <= WIDEST and episodes % TILE == 0
    return jax.default_backend() == "gpu" and sizes


def extend(xs: Array) -> Array:
    """Inputs (…, inputs) up to a power of two by a 1 for the bias, and zeros; as many as fit stay as they are."""
    inputs = xs.shape[-1]
    if inputs == WIDEST:
        return xs
    rest = jnp.zeros(max(16, pl.next_power_of_2(inputs + 1)) - inputs, xs.dtype).at[0].set(1)
    return jnp.concatenate([xs, jnp.broadcast_to(rest, (*xs.shape[:-1], len(rest)))], axis=-1)


def forward(
    weight: Array, bias: Array, hidden: Array, xs: Array, keep: bool, interpret: bool = False
) -> tuple[Array, ...]:
    """Hidden states (time, episode, width) for extended inputs (time, episode, inputs).

    With them, if that is to be kept for the backward pass, the states before each step, and the gates (time, episode,
    4 · width): reset, update, new, and the state's part in new.
    """
    time, episodes, inputs = xs.shape
    width = hidden.shape[0]
    apart = bias if len(weight) == inputs else None
    if apart is None:  # the bias is a row of the weight, for the 1 in the inputs
        empty = jnp.zeros((inputs, weight.shape[1]), weight.dtype)
        weight = empty.at[: len(weight)].set(weight).at[len(weight)].set(bias)
    kinds = ((width, xs.dtype), (width, SHORT), (4 * width, SHORT))[: 3 if keep else 1]
    return pl.pallas_call(
        partial(walk_forward, time=time, tanh=jnp.tanh if interpret else triton.approx_tanh),
        grid=(episodes // TILE,),
        in_specs=[rows(time, inputs), whole(weight), whole(hidden), whole(apart)],
        out_specs=tuple(rows(time, features) for features, _ in kinds),
        out_shape=tuple(jax.ShapeDtypeStruct((time, episodes, features), kind) for features, kind in kinds),
        compiler_params=parameters(4 if inputs < WIDEST else 8),
        interpret=interpret,
    )(xs.astype(SHORT), weight.astype(SHORT), hidden.astype(SHORT), apart)


def backward(hidden: Array, before: Array, gates: Array, gradient: Array, interpret: bool = False) -> Array:
    """Gradients (time, episode, 4 · width) at the pre-activations: reset, update, the state's part in new, and new."""
    time, episodes, width = before.shape
    turned = hidden.T.astype(SHORT)
    return pl.pallas_call(
        partial(walk_backward, time=time),
        grid=(episodes // TILE,),
        in_specs=[*(rows(time, features) for features in (width, 4 * width, width)), whole(turned)],
        out_specs=rows(time, 4 * width),
        out_shape=jax.ShapeDtypeStruct((time, episodes, 4 * width), SHORT),
        compiler_params=parameters(4),
        interpret=interpret,
    )(before, gates, gradient, turned)


def parameters(warps: int) -> triton.CompilerParams:
    """So many groups of 32 threads for a tile. Wide inputs need eight: with four, registers overflow."""
    return triton.CompilerParams(num_warps=warps, num_stages=1)


def rows(time: int, features: int) -> pl.BlockSpec:
    """All steps of a tile of episodes."""
    return pl.BlockSpec((time, TILE, features), lambda index: (0, index, 0))


def whole(given: Array | None) -> pl.BlockSpec | None:
    """The same matrix or vector for every tile."""
    return None if given is None else pl.BlockSpec(given.shape, lambda index: (0,) * given.ndim)


def block(index: int, width: int) -> Any:
    """Where one of several things side by side stands."""
    return pl.ds(index * width, width)


def walk_forward(xs: Any, weight: Any, hidden: Any, bias: Any, states: Any, *kept: Any, time: int, tanh: Any) -> None:
    tile, width = states.shape[1:]
    w_reset, w_update, w_new = (weight[:, block(gate, width)] for gate in range(3))
    h_reset, h_update, h_new = (hidden[:, block(gate, width)] for gate in range(3))
    b_reset, b_update, b_new = (0.0 if bias is None else bias[block(gate, width)][None] for gate in range(3))

    def step(t: Array, state: Array) -> Array:
        x, before = xs[t], state.astype(SHORT)
        reset = jax.nn.sigmoid(triton.dot(x, w_reset) + triton.dot(before, h_reset) + b_reset)
        update = jax.nn.sigmoid(triton.dot(x, w_update) + triton.dot(before, h_update) + b_update)
        part = triton.dot(before, h_new)
        new = tanh(triton.dot(x, w_new) + b_new + reset * part)
        state = new + update * (state - new)
        states[t] = state
        if kept:
            kept[0][t] = before
            for index, gate in enumerate((reset, update, new, part)):
                kept[1][t, :, block(index, width)] = gate.astype(SHORT)
        return state

    jax.lax.fori_loop(0, time, step, jnp.zeros((tile, width), jnp.float32))


def walk_backward(before: Any, gates: Any, outer: Any, turned: Any, deltas: Any, *, time: int) -> None:
    tile, width = before.shape[1:]
    back = [turned[block(gate, width), :] for gate in range(3)]

    def step(index: Array, later: Array) -> Array:
        t = time - 1 - index
        reset, update, new, part = (gates[t, :, block(i, width)].astype(jnp.float32) for i in range(4))
        total = later + outer[t]
        d_new = total * (1 - update) * (1 - new * new)
        d_update = total * (before[t] - new) * update * (1 - update)
        later = total * update
        for i, delta in enumerate((d_new * part * reset * (1 - reset), d_update, d_new * reset, d_new)):
            deltas[t, :, block(i, width)] = delta.astype(SHORT)
            later = later + triton.dot(delta.astype(SHORT), back[i]) if i < 3 else later
        return later

    jax.lax.fori_loop(0, time, step, jnp.zeros((tile, width), jnp.float32))
