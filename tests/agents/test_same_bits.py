"""Given the same random draws, a deployed agent and a compiled program release the same bits."""

import os
import subprocess
import sys
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmac.agents.mechanisms import mechanism, noise_scale
from dpmac.config import BadInput, Channel
from dpmac.privacy import Entropy
from dpmac.privacy import mechanisms as hosts
from dpmac.privacy.mechanisms import additive

SIZE = 8
CHANNELS = {
    "gaussian": [Channel(clip_norm=norm) for norm in (0.5, 1e-19, 3e4)],
    "code": [Channel("code", clip_norm=norm, symbols=5) for norm in (0.5, 1e-19)],
    "response": [Channel("response", symbols=k) for k in (2, 3, 256)],
    "subset": [Channel("subset", symbols=k) for k in (2, 3, 8, 41)],
    "timed": [Channel("timed", symbols=k) for k in (2, 5)],
    "correlated": [Channel("correlated", norm, stream_decay=0.98) for norm in (0.5, 1e-17)],
    "sums": [Channel("sums", norm, stream_decay=0.9) for norm in (0.5, 3e4)],
}
STEPS = 7
"""Of an episode, for mechanisms that remember."""
ODD = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e30, -3.4e38, 1e-30, 1e-40, -1e-45)


def messages(rng, count, size):
    """Messages of every length, some of them with numbers that are odd, and scores that are all alike."""
    made = rng.standard_normal((count, size)) * 10.0 ** rng.uniform(-25, 25, (count, 1))
    made[::3] = rng.standard_normal(made[::3].shape) * rng.uniform(0, 2, (len(made[::3]), 1))
    made[1::7, rng.integers(size)] = rng.choice(ODD, len(made[1::7]))
    made[2::50] = 1.0
    with np.errstate(over="ignore"):
        return made.astype(np.float32)


def noise_scales(rng, spec, count):
    """Noise scales (message,) over their whole range, and none."""
    host = hosts.of(spec)
    if host.share:
        most = 1 - 1 / spec.symbols if host.one_symbol else 1.0
        found = most * np.concatenate([rng.uniform(size=count // 2), 10.0 ** rng.uniform(-15, 0, count - count // 2)])
    else:
        found = spec.clip_norm * 10.0 ** rng.uniform(-4, 7, count)
    found[::20] = 0.0
    return tuple(map(float, found))


def differing(spec, count=400, seed=0):
    """How many of so many random releases differ in any bit between the two sides."""
    rng, twin, host = np.random.default_rng(seed), mechanism(spec, SIZE), hosts.of(spec)
    made, noise = messages(rng, STEPS * count if host.remembers else count, twin.size), noise_scales(rng, spec, count)
    made = made.reshape(count, STEPS, -1) if host.remembers else made
    drawn = twin.draw(jax.random.key(seed), (count,))
    if host.share:
        draws = np.asarray(drawn)
    else:
        deviations = np.array([host.parameters(one).deviation for one in noise])[:, None]
        draws = np.rint(deviations * np.asarray(drawn)).astype(np.int32)
    compiled = jax.jit(jax.vmap(twin.release))(jnp.asarray(made), drawn, noise_scale(spec, noise))
    deployed = np.stack([host.release(*each) for each in zip(made, draws, noise, strict=True)])
    assert deployed.dtype == np.float32
    noisy = np.array(noise) > 0
    assert np.isfinite(deployed[noisy]).all()
    same = np.asarray(compiled).view(np.uint32) == deployed.view(np.uint32)
    # Without noise a vector leaves as it is: -0 and NaN have more than one pattern, and programs flush subnormals.
    free = (np.asarray(compiled) == deployed) | ~np.isfinite(deployed) | (np.abs(deployed) < 2.0**-126)
    return int((~np.where(noisy[:, None], same, free)).any(-1).sum())


@pytest.mark.parametrize("spec", [spec for specs in CHANNELS.values() for spec in specs], ids=str)
def test_both_sides_release_the_same_bits(spec):
    assert differing(spec) == 0


def test_every_mechanism_is_compared():
    assert set(CHANNELS) == set(hosts.names())


def test_programs_that_were_compiled_with_all_optimisations_release_the_same_bits():
    """Tests compile without them; fused products and sums in another order come with them."""
    code = "from test_same_bits import *; print([differing(s, 4000) for c in CHANNELS.values() for s in c])"
    environment = {**os.environ, "XLA_FLAGS": "", "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    said = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
    assert set(eval(said)) == {0}


@pytest.mark.parametrize("name", [name for name in hosts.names() if hosts.find(name).share])
def test_words_of_the_operating_system_are_drawn_in_the_same_number_whatever_is_sent(name):
    read = []
    source = Entropy(lambda count: read.append(count) or os.urandom(count))
    host = hosts.of(Channel(name, symbols=4))
    for noise in (0.0, 1e-3, 0.5):
        host.release(np.eye(4)[1], host.draw(source, noise, 4), noise)
    assert len(set(read)) == 1


# What the same bits are -----------------------------------------------------------------------------------------------

numbers = st.floats(width=32)


@given(st.lists(numbers, min_size=1, max_size=12), st.floats(1e-19, 1e6), st.floats(1e-3, 1e6))
@settings(deadline=None, max_examples=300)
def test_a_message_on_the_grid_is_never_longer_than_the_clip_norm(message, clip_norm, ratio):
    grid = hosts.of(Channel(clip_norm=clip_norm)).parameters(clip_norm * ratio)
    with np.errstate(over="ignore"):
        steps = additive.clipped_steps(np, np.array(message, np.float32), grid)
    most = Fraction(clip_norm) / Fraction(float(grid.step))
    assert sum(int(step) ** 2 for step in steps) <= most**2


def test_the_longest_message_is_clipped_and_a_longer_one_refused_on_both_sides():
    """With a number more, the sum of squares is 2³¹ units, which int32 has not."""
    host: Any = hosts.of(Channel())
    grid = host.parameters(4.0)
    most = (Fraction(0.5) / Fraction(float(grid.step))) ** 2
    for value in (1.0, np.nextafter(np.float32(2), np.float32(0))):
        steps = additive.clipped_steps(np, np.full(additive.LONGEST, value, np.float32), grid)
        norm = sum(int(step) ** 2 for step in steps)
        assert 0.99 * most < norm <= most
    longer = np.ones(additive.LONGEST + 1, np.float32)
    with pytest.raises(BadInput, match="at most 8191 numbers"):
        host.release(longer, np.zeros(len(longer), np.int32), 4.0)
    with pytest.raises(BadInput, match="at most 8191 numbers"):
        jax.eval_shape(lambda message: additive.clipped_steps(jnp, message, grid), longer)


@given(
    st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=6), st.sampled_from(["correlated", "sums"])
)
@settings(deadline=None, max_examples=200)
def test_what_a_step_adds_to_later_sums_is_never_longer_than_the_accountant_says(window, name):
    """One message among silence, however long ago, in whole steps of the grid."""
    host: Any = hosts.of(Channel(name, stream_decay=0.98))
    grid, weights = host.parameters(0.7), host.weights(len(window))
    most = Fraction(0.5) / Fraction(float(grid.step))
    for place, weight in enumerate(weights):
        alone = np.zeros((len(window), 3), np.float32)
        alone[place] = window[place]
        with np.errstate(over="ignore"):
            steps = host.steps(np, alone, grid)
        assert sum(int(step) ** 2 for step in steps) <= (Fraction(weight) * most) ** 2


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=12), st.floats(-20, 25))
@settings(deadline=None, max_examples=300)
def test_a_message_on_the_grid_is_the_clipped_one_to_a_step(message, magnitude):
    message = np.array(message, np.float32) * np.float32(10.0**magnitude)
    grid = hosts.of(Channel()).parameters(4.0)
    exact = message.astype(float)
    exact = exact * min(1.0, 0.5 / max(np.linalg.norm(exact), 1e-300)) / float(grid.step)
    with np.errstate(over="ignore"):
        steps = additive.clipped_steps(np, message, grid)
    assert np.all(np.abs(steps) <= np.abs(exact))
    assert np.all(np.abs(steps - exact) <= 1 + 5e-4 * np.abs(exact))


def test_the_grid_is_public_and_fine_enough():
    for clip_norm, sigma in ((0.5, 15.93), (0.5, 0.66), (1e-19, 1e-18), (30.0, 0.1), (1.0, 1e7)):
        step = 2.0 ** additive.grid_exponent(clip_norm, sigma)
        assert sigma / step < 2**21
        assert step <= sigma / 2**10
        assert step <= max(clip_norm / 2**10, sigma / 2**20)
    for clip_norm, sigma in ((1.0, 1e-9), (1e-37, 1e-36)):
        with pytest.raises(BadInput, match="sigma must be at least"):
            additive.grid_exponent(clip_norm, sigma)


def test_code_points_on_the_grid_are_never_farther_apart_than_the_sensitivity():
    rng = np.random.default_rng(0)
    for clip_norm, ratio in zip(10.0 ** rng.uniform(-15, 5, 200), 10.0 ** rng.uniform(-3, 5, 200), strict=True):
        host = hosts.of(Channel("code", clip_norm=clip_norm))
        grid = host.parameters(clip_norm * ratio)
        point = int(host.steps(np, np.eye(3, dtype=np.float32)[1], grid)[1])  # type: ignore[attr-defined]
        assert 2 * point**2 <= (2 * Fraction(clip_norm) / Fraction(float(grid.step))) ** 2


@pytest.mark.parametrize("name", hosts.names())
def test_scores_that_are_no_numbers_are_symbol_0_and_never_leave(name):
    spec = Channel(name, symbols=4)
    twin = mechanism(spec, 4)
    scale = jax.tree.map(lambda leaf: leaf[0], noise_scale(spec, (0.5,)))
    draws = jax.tree.map(lambda leaf: leaf[0], twin.draw(jax.random.key(0), (1,)))
    zero = twin.release(jnp.zeros(4), draws, scale)
    for bad in (np.nan, np.inf, -np.inf):
        message = jnp.array([0.1, 0.2, bad, 0.9])
        np.testing.assert_array_equal(twin.release(message, draws, scale), zero)
        slope = jax.jacobian(lambda x: twin.release(x, draws, scale))(message)
        assert np.isfinite(slope).all()
