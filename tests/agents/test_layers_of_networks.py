"""Layers: the hand-written gradient of the recurrent unit, and whole episodes against single steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac.agents.layers import Actor, Critic, Gru, fill

TIME, EPISODES, WIDTH = 6, 3, 5


def plain(cell, xs):
    """`Gru.unroll` as a scan of single steps, whose gradient JAX derives."""

    def step(carry, x):
        carry = jax.vmap(cell)(x, carry)
        return carry, carry

    return jax.lax.scan(step, jnp.zeros((EPISODES, WIDTH)), xs)[1]


def test_hand_written_gradient_of_the_recurrent_unit_is_the_derived_one():
    cell_key, input_key, direction_key = jax.random.split(jax.random.key(0), 3)
    cell = jax.tree.map(lambda leaf: 3 * leaf + 0.1, fill(cell_key, Gru(4, WIDTH)))
    xs = jax.random.normal(input_key, (TIME, EPISODES, 4))
    direction = jax.random.normal(direction_key, (TIME, EPISODES, WIDTH))
    (written, ours), (derived, theirs) = (
        jax.jit(jax.value_and_grad(lambda *given, f=f: jnp.sum(f(*given) * direction), (0, 1)))(cell, xs)
        for f in (Gru.unroll, plain)
    )
    np.testing.assert_allclose(written, derived, rtol=1e-5)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_recurrent_unit_follows_its_equations():
    """h ← (1 − z)·n + z·h with r, z sigmoid and n = tanh(W x + r·(U h)): written out in NumPy."""
    cell = fill(jax.random.key(1), Gru(4, WIDTH))
    rng = np.random.default_rng(0)
    x, h = rng.standard_normal(4).astype(np.float32), rng.standard_normal(WIDTH).astype(np.float32)
    a, b = x @ cell.input.weight + cell.input.bias, h @ cell.hidden
    r, z = (1 / (1 + np.exp(-(a + b)[start : start + WIDTH])) for start in (0, WIDTH))
    n = np.tanh(a[2 * WIDTH :] + r * b[2 * WIDTH :])
    np.testing.assert_allclose(cell(jnp.asarray(x), jnp.asarray(h)), (1 - z) * n + z * h, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("recurrent", [True, False])
@pytest.mark.parametrize("more", [{}, {"products": 5}, {"products": 5, "layers": 1}, {"layers": 2, "normalised": True}])
def test_actor_gives_the_same_logits_step_by_step_and_all_at_once(recurrent, more):
    actor = fill(jax.random.key(2), Actor(2, 2, WIDTH, 3, recurrent, **more))
    inputs = jax.random.normal(jax.random.key(3), (TIME, EPISODES, 4))
    seen, aggregated = inputs[..., :2], inputs[..., 2:]
    carry, logits = jnp.zeros((EPISODES, WIDTH)), []
    for t in range(TIME):
        one, carry = jax.vmap(actor)(seen[t], aggregated[t], carry)
        logits.append(one)
    np.testing.assert_allclose(actor.unroll(seen, aggregated), np.stack(logits), rtol=1e-4, atol=1e-6)


def normalised(x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def test_normalised_networks_follow_the_release():
    """Inputs, two rectified layers and the recurrent one, each normalised; then the head. Written out in NumPy."""
    actor = fill(jax.random.key(7), Actor(2, 2, WIDTH, 3, True, layers=2, normalised=True))
    critic = fill(jax.random.key(7), Critic(4, WIDTH, True, layers=2, normalised=True))
    seen, state = jnp.array([0.3, -2.0, 5.0, 1.0]), jnp.zeros(WIDTH)

    def body(first, others, cell):
        x = normalised(np.asarray(seen))
        for layer in (first, *others):
            x = normalised(np.maximum(x @ layer.weight + layer.bias, 0))
        return normalised(np.asarray(cell(jnp.asarray(x), state)))

    logits, _ = actor(seen[:2], seen[2:], state)
    assert actor.entry is not None
    expected = body(actor.entry, actor.further, actor.cell) @ actor.head.weight + actor.head.bias
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    value = critic(seen[None, None], seen[None, None])[0, 0]
    expected = body(critic.joint, critic.further, critic.hidden) @ critic.value.weight + critic.value.bias
    np.testing.assert_allclose(value, expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("more", [{}, {"layers": 2, "normalised": True}])
@pytest.mark.parametrize("recurrent", [True, False])
def test_only_a_recurrent_critic_remembers_and_what_it_remembers_is_the_recorded_past(recurrent, more):
    critic = fill(jax.random.key(4), Critic(7, WIDTH, recurrent, **more))
    asked, recorded = jax.random.normal(jax.random.key(5), (2, TIME, 2, 7))
    values = critic(asked, recorded)
    present = np.any(np.asarray(critic(asked.at[2].add(jnp.arange(7.0)), recorded) != values), axis=1)
    np.testing.assert_array_equal(np.flatnonzero(present), [2])
    past = np.any(np.asarray(critic(asked, recorded.at[2].add(jnp.arange(7.0))) != values), axis=1)
    np.testing.assert_array_equal(np.flatnonzero(past), [3, 4, 5] if recurrent else [])
    np.testing.assert_allclose(critic(asked), critic(asked, asked), atol=1e-6)


def test_weights_are_drawn_within_their_bound_and_vectors_stay_zero():
    cell = fill(jax.random.key(6), Gru(100, 64))
    for weight, inputs in ((cell.input.weight, 100), (cell.hidden, 64)):
        assert 0.9 * inputs**-0.5 < float(jnp.abs(weight).max()) <= inputs**-0.5
        assert abs(float(weight.mean())) < 0.1 * inputs**-0.5
    assert not np.any(cell.input.bias)
    shared = cell.input.weight[:64] / cell.input.weight[0, 0] == cell.hidden / cell.hidden[0, 0]
    assert np.count_nonzero(shared) < 10
