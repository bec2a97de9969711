"""The recurrent unit's steps as one kernel for NVIDIA devices, forwards and backwards.

A scan spends its time there on launching steps and on stacking what they leave. Here each program takes a tile of
episodes through all steps: the state stays in registers, the weights stay in shared state, for which they must be
bfloat16; sums are float32. Gates are kept for the way back, also as bfloat16, for which the device's own tanh, right to
eleven bits, is good enough. It is not for sigmoids, whose small values must keep a slope: where large noise closes
the gates, learning has to open them again.
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
SHORT = jnp.bfloat16


def fits(weight: Array, hidden: Array, xs: Array) -> bool:
    """Whether the kernel can take these shapes on this machine: powers of two, and small enough for shared state."""
    width, episodes = hidden.shape[0], xs.shape[1]
    sizes = width in (16, 32, 64, 128) and padded(len(weight)) <= 64 and episodes % TILE == 0
    return jax.default_backend() == "gpu" and sizes


def padded(inputs: int) -> int:
    """Inputs and a 1 for the bias, up to a power of two."""
    return max(16, pl.next_power_of_2(inputs + 1))


def extend(xs: Array) -> Array:
    """Inputs (…, inputs) with a 1 for the bias, and zeros up to a power of two."""
    inputs = xs.shape[-1]
    rest = jnp.zeros(padded(inputs) - inputs, xs.dtype).at[0].set(1)
    return jnp.concatenate([xs, jnp.broadcast_to(rest, (*xs.shape[:-1], len(rest)))], axis=-1)


def extend_weight(weight: Array, bias: Array) -> Array:
    """The weight (inputs, …) for such inputs: the bias as a row, and rows of zeros."""
    inputs, outputs = weight.shape
    return jnp.zeros((padded(inputs), outputs), weight.dtype).at[:inputs].set(weight).at[inputs].set(bias)


def forward(weight: Array, hidden: Array, xs: Array, keep: bool, interpret: bool = False) -> tuple[Array, ...]:
    """Hidden states (time, episode, width) for extended inputs (time, episode, inputs).

    With them, if that is to be kept for the way back, the states before each step, and the gates (time, episode,
    4 · width): reset, update, new, and the state's part in new.
    """
    time, episodes, inputs = xs.shape
    width = hidden.shape[0]
    kinds = ((width, xs.dtype), (width, SHORT), (4 * width, SHORT))[: 3 if keep else 1]
    return pl.pallas_call(
        partial(walk_forward, time=time, tanh=jnp.tanh if interpret else triton.approx_tanh),
        grid=(episodes // TILE,),
        in_specs=[rows(time, inputs), whole(weight.shape), whole(hidden.shape)],
        out_specs=tuple(rows(time, features) for features, _ in kinds),
        out_shape=tuple(jax.ShapeDtypeStruct((time, episodes, features), kind) for features, kind in kinds),
        compiler_params=PARAMETERS,
        interpret=interpret,
    )(xs.astype(SHORT), weight.astype(SHORT), hidden.astype(SHORT))


def backward(hidden: Array, before: Array, gates: Array, gradient: Array, interpret: bool = False) -> Array:
    """Gradients (time, episode, 4 · width) at the pre-activations: reset, update, the state's part in new, and new."""
    time, episodes, width = before.shape
    return pl.pallas_call(
        partial(walk_backward, time=time),
        grid=(episodes // TILE,),
        in_specs=[*(rows(time, features) for features in (width, 4 * width, width)), whole((3 * width, width))],
        out_specs=rows(time, 4 * width),
        out_shape=jax.ShapeDtypeStruct((time, episodes, 4 * width), SHORT),
        compiler_params=PARAMETERS,
        interpret=interpret,
    )(before, gates, gradient, hidden.T.astype(SHORT))


PARAMETERS = triton.CompilerParams(num_warps=4, num_stages=1)


def rows(time: int, features: int) -> pl.BlockSpec:
    """All steps of a tile of episodes."""
    return pl.BlockSpec((time, TILE, features), lambda index: (0, index, 0))


def whole(shape: tuple[int, ...]) -> pl.BlockSpec:
    """The same matrix for every tile."""
    return pl.BlockSpec(shape, lambda index: (0, 0))


def block(index: int, width: int) -> Any:
    """Where one of several things side by side stands."""
    return pl.ds(index * width, width)


def walk_forward(xs: Any, weight: Any, hidden: Any, states: Any, *kept: Any, time: int, tanh: Any) -> None:
    tile, width = states.shape[1:]
    w_reset, w_update, w_new = (weight[:, block(gate, width)] for gate in range(3))
    h_reset, h_update, h_new = (hidden[:, block(gate, width)] for gate in range(3))

    def step(t: Array, state: Array) -> Array:
        x, before = xs[t], state.astype(SHORT)
        reset = jax.nn.sigmoid(triton.dot(x, w_reset) + triton.dot(before, h_reset))
        update = jax.nn.sigmoid(triton.dot(x, w_update) + triton.dot(before, h_update))
        part = triton.dot(before, h_new)
        new = tanh(triton.dot(x, w_new) + reset * part)
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
