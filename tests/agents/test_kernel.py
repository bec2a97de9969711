"""The kernel for NVIDIA devices, interpreted: the same steps as the scan's, and it compiles for CUDA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac.agents import kernel, recurrent

TIME, EPISODES, WIDTH = 5, 128, 16
sizes = pytest.mark.parametrize("size", [9, kernel.WIDEST], ids=["narrow", "wide"])


@pytest.fixture(params=[jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
def by_kernel(request, monkeypatch):
    """`recur` by the interpreted kernel, whose weights have this kind of number; and how far it may be off."""
    monkeypatch.setattr(kernel, "SHORT", request.param)
    monkeypatch.setattr(kernel, "fits", lambda *_: True)
    for name in ("forward", "backward"):
        plain = getattr(kernel, name)
        monkeypatch.setattr(kernel, name, lambda *given, f=plain, **named: f(*given, **named, interpret=True))
    return recurrent.recur, 1e-5 if request.param == jnp.float32 else 3e-2


def inputs(size):
    keys = jax.random.split(jax.random.key(0), 5)
    shapes = ((size, 3 * WIDTH), (3 * WIDTH,), (WIDTH, 3 * WIDTH), (TIME, EPISODES, size))
    weights = [0.5 * jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=False)]
    weights[0] = weights[0] * (9 / size) ** 0.5
    return weights, jax.random.normal(keys[4], (TIME, EPISODES, WIDTH))


@sizes
def test_kernel_and_scan_give_the_same_hidden_states(by_kernel, size):
    recur, off = by_kernel
    given, _ = inputs(size)
    states, _ = recurrent.scan_forward(given[2], given[3] @ given[0] + given[1], keep=False)
    assert float(jnp.max(jnp.abs(states))) > 0.5
    np.testing.assert_allclose(recur(*given), states, atol=off)


@sizes
def test_kernel_and_scan_give_the_same_gradients(by_kernel, size, monkeypatch):
    recur, off = by_kernel
    given, direction = inputs(size)
    slope = jax.grad(lambda *given: jnp.sum(recur(*given) * direction), argnums=(0, 1, 2, 3))
    ours = slope(*given)
    monkeypatch.setattr(kernel, "fits", lambda *_: False)
    for one, other in zip(ours, slope(*given), strict=True):
        np.testing.assert_allclose(one, other, atol=off * float(jnp.max(jnp.abs(other))))


@sizes
def test_kernel_lowers_for_cuda_under_two_vmaps(size):
    given, direction = inputs(size)
    many = [jnp.broadcast_to(x, (2, 3, *x.shape)) for x in (*given[:3], kernel.extend(given[3]), direction)]

    def both(weight, bias, hidden, xs, gradient):
        _, before, gates = kernel.forward(weight, bias, hidden, xs, keep=True)
        return kernel.backward(hidden, before, gates, gradient)

    lowered = jax.jit(jax.vmap(jax.vmap(both))).trace(*many).lower(lowering_platforms=("cuda",))
    assert lowered.as_text().count("triton") >= 2


def test_kernel_is_for_nvidia_devices_and_shapes_that_it_can_take(monkeypatch):
    weight, _, hidden, xs = inputs(kernel.WIDEST)[0]
    assert kernel.fits(weight, hidden, xs) == (jax.default_backend() == "gpu")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert kernel.fits(weight, hidden, xs)
    assert not kernel.fits(weight, hidden, xs[:, 1:])
    assert not kernel.fits(jnp.zeros((kernel.WIDEST + 1, 3 * WIDTH)), hidden, xs)
