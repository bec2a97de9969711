"""The private channel does what the accountant counts."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from dpmac import privacy
from dpmac.agents.mechanisms import NoiseScale, clip_to_norm, draw_rows, mechanism, noise_scale
from dpmac.agents.team import TaskShape, make_team
from dpmac.config import BadInput, Channel, NetworkConfig
from dpmac.privacy import mechanisms as hosts

clip = jax.jit(clip_to_norm)


def messages(numbers):
    """Lists of one, five and sixteen of these numbers: every length is compiled anew."""
    return st.sampled_from([1, 5, 16]).flatmap(lambda size: st.lists(numbers, min_size=size, max_size=size))


def scale_of(spec, noise):
    """The scale of a single agent."""
    return jax.tree.map(lambda leaf: leaf[0], noise_scale(spec, (noise,)))


@given(messages(st.floats(-(2.0**60), 2.0**60, width=32)), st.floats(2.0**-10, 2.0**10, width=32))
@settings(deadline=None, max_examples=200)
def test_message_never_exceeds_clip_norm(message, clip_norm):
    clipped = np.asarray(clip(jnp.array(message, jnp.float32), clip_norm), float)
    assert np.linalg.norm(clipped) <= clip_norm * (1 + 1e-6)


@given(messages(st.floats(-1, 1, width=32)), st.floats(0.01, 4))
@settings(deadline=None, max_examples=200)
def test_clipping_keeps_directions_and_leaves_short_messages_alone(message, clip_norm):
    message = np.array(message, np.float32)
    scale = min(1.0, clip_norm / max(np.linalg.norm(message.astype(float)), 1e-30))
    np.testing.assert_allclose(clip(jnp.asarray(message), clip_norm), scale * message, rtol=2e-6, atol=1e-37)


def test_clipping_has_a_finite_gradient_everywhere():
    for message in (jnp.zeros(3), jnp.full(3, 1e-30), jnp.array([0.5, 0.0, 0.0]), jnp.full(3, 1e15)):
        jacobian = jax.jacobian(lambda x: clip_to_norm(x, 0.5))(message)
        assert np.isfinite(jacobian).all()


def test_the_sampled_message_is_clipped_last_before_the_noise():
    channel = mechanism(Channel(clip_norm=0.5), 4)
    released = channel.release(jnp.array([30.0, 0, 0, 0]), jnp.array([0.0, 1, 0, -2]), scale_of(channel.spec, 3.0))
    np.testing.assert_allclose(released, [0.5, 3.0, 0.0, -6.0], atol=2.0**-11)  # a step of the grid


def test_free_messages_are_neither_clipped_nor_noised():
    channel = mechanism(Channel(clip_norm=0.5), 3)
    message, draws = jnp.array([17.3, -1e-8, 4.0]), jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(channel.release(message, draws, scale_of(channel.spec, 0.0)), message)


def test_agents_of_one_team_have_their_own_levels():
    spec = Channel(clip_norm=0.5)
    scale = noise_scale(spec, (0.0, 2.0))
    messages, draws = jnp.full((2, 4), 5.0), jnp.ones((2, 4))
    free, private = jax.vmap(mechanism(spec, 4).release)(messages, draws, scale)
    np.testing.assert_array_equal(free, messages[0])
    np.testing.assert_allclose(private, 0.25 + 2.0, atol=2.0**-11)


@pytest.mark.parametrize("k", [2, 3, 4, 9])
def test_code_points_are_as_far_apart_as_the_sensitivity_and_never_farther(k):
    spec = Channel("code", clip_norm=0.7, symbols=k)
    channel, quiet = mechanism(spec, 8), jnp.zeros(k)
    points = np.stack([channel.release(score, quiet, scale_of(spec, 1.0)) for score in jnp.eye(k)])
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)[~np.eye(k, dtype=bool)]
    assert np.all(apart <= spec.sensitivity)
    np.testing.assert_allclose(apart, spec.sensitivity, rtol=2e-3)  # rounded inwards to the grid


# Randomised response --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 7])
def test_response_releases_exactly_k_bit_patterns(k):
    spec, count = Channel("response", symbols=k), 2000
    channel = mechanism(spec, 8)
    scores_key, draw_key = jax.random.split(jax.random.key(0))
    scores, draws = 5 * jax.random.normal(scores_key, (count, k)), channel.draw(draw_key, (count,))
    release = jax.jit(jax.vmap(channel.release, in_axes=(0, 0, None)))
    released = np.asarray(release(scores, draws, scale_of(spec, 0.4)))
    patterns = np.unique(released.view(np.uint32), axis=0)
    np.testing.assert_array_equal(patterns, np.unique(np.eye(k, dtype=np.float32).view(np.uint32), axis=0))


@pytest.mark.parametrize(("k", "flip"), [(2, 0.3), (3, 0.4), (8, 0.05)])
def test_response_flips_at_its_rate_and_to_all_others_alike(k, flip):
    spec, count = Channel("response", symbols=k), 60_000
    channel = mechanism(spec, 8)
    draws = channel.draw(jax.random.key(k), (count,))
    released = jax.jit(jax.vmap(channel.release, in_axes=(None, 0, None)))(jnp.eye(k)[1], draws, scale_of(spec, flip))
    counts = np.bincount((np.asarray(released).argmax(-1) - 1) % k, minlength=k)
    low, high = binom.ppf([5e-4, 1 - 5e-4], count, flip)
    assert low <= counts[1:].sum() <= high
    assert k == 2 or chisquare(counts[1:]).pvalue > 1e-3


@pytest.mark.parametrize("flip", [0.5, 0.1, 1e-3, 1e-9, 1e-15, 2.0**-64])
def test_flips_are_decided_at_exactly_their_probability_times_two_to_the_64(flip):
    spec = Channel("response")
    channel, scale = mechanism(spec, 8), scale_of(spec, flip)
    threshold = math.ceil(flip * 2**64)  # rounded up, to the side of more privacy
    assert 0 <= threshold / 2**64 - flip <= 2.0**-64

    def flips(bits):
        keep = jnp.array([bits >> 32, bits & 0xFFFFFFFF], jnp.uint32)
        draws = jnp.stack([keep, jnp.array([0, 0], jnp.uint32)])
        return int(jnp.argmax(channel.release(jnp.eye(3)[0], draws, scale))) != 0

    assert flips(threshold - 1)
    assert not flips(threshold)
    assert flips(0)
    assert not flips(2**64 - 1)


def test_the_choice_among_the_others_uses_all_64_bits():
    """(high · 2³² + low) mod (k − 1), the exact integer, whatever the words are."""
    rng, k = np.random.default_rng(0), 8
    channel, scale = mechanism(Channel("response", symbols=k), 8), scale_of(Channel("response", symbols=k), 0.8)
    words = rng.integers(2**32, size=(500, 2), dtype=np.uint32)
    draws = jnp.stack([jnp.zeros((500, 2), jnp.uint32), jnp.asarray(words)], axis=1)
    released = jax.vmap(channel.release, in_axes=(None, 0, None))(jnp.eye(k)[0], draws, scale)
    wanted = [1 + (int(high) * 2**32 + int(low)) % (k - 1) for high, low in words]
    np.testing.assert_array_equal(np.asarray(released).argmax(-1), wanted)


def test_a_flip_probability_that_cannot_be_drawn_is_refused():
    with pytest.raises(BadInput, match="2\\^-64"):
        noise_scale(Channel("response"), (1e-20,))


def test_response_without_noise_is_the_symbol_itself():
    spec = Channel("response", symbols=4)
    channel = mechanism(spec, 8)
    draws = channel.draw(jax.random.key(1), (200,))
    released = jax.vmap(channel.release, in_axes=(None, 0, None))(
        jnp.array([0.1, 3.0, 2.9, -1]), draws, scale_of(spec, 0)
    )
    np.testing.assert_array_equal(released, np.tile([0.0, 1, 0, 0], (200, 1)))


def test_gradient_through_flips_is_that_of_the_mean():
    """E[released] = (1 − flip·k/(k − 1))·symbol + a constant: its slope, not that of one flip, reaches the sender."""
    spec, flip = Channel("response", symbols=3), 0.4
    channel, scores = mechanism(spec, 8), jnp.array([0.3, -0.2, 0.1])
    draws = jax.tree.map(lambda leaf: leaf[0], channel.draw(jax.random.key(0), (1,)))
    slope = jax.jacobian(lambda x: channel.release(x, draws, scale_of(spec, flip)))(scores)
    np.testing.assert_allclose(slope, (1 - flip * 3 / 2) * jax.jacobian(jax.nn.softmax)(scores), rtol=1e-5, atol=1e-7)


# Reading and levels ---------------------------------------------------------------------------------------------------


def test_what_a_receiver_reads_fades_with_the_noise():
    for spec in (Channel(), Channel("code"), Channel("response"), Channel("subset")):
        channel = mechanism(spec, 3)
        released = jnp.array([1.0, 0.0, 0.0])
        spans = [float(jnp.ptp(channel.decode(released, scale_of(spec, noise)))) for noise in (0.01, 0.3, 0.66)]
        assert spans[0] > spans[1] > spans[2] > 0


def test_levels_are_drawn_from_all_rows_of_a_table():
    table = NoiseScale(jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), jnp.zeros((3, 2, 2), jnp.uint32))
    keys = jax.random.split(jax.random.key(0), 3000)
    drawn = np.asarray(draw_rows(table, keys).value)
    assert drawn.shape == (3000, 2)
    assert chisquare([(drawn[:, 0] == value).sum() for value in (1, 3, 5)]).pvalue > 1e-3
    np.testing.assert_array_equal(drawn[:, 1], drawn[:, 0] + 1)
    single = draw_rows(jax.tree.map(lambda leaf: leaf[:1], table), keys)
    np.testing.assert_array_equal(single.value, [1.0, 2.0])


def test_the_row_of_an_episode_tells_nothing_of_its_noise():
    """Else receivers learn, of one sender, when its noisiest messages are true."""
    team = make_team(jax.random.key(0), TaskShape(2, 4, 3, 5), "dpmac", {}, Channel(), NetworkConfig(4, 4, 4))
    table = NoiseScale(jnp.arange(16.0).reshape(8, 2), jnp.zeros((8, 2, 2), jnp.uint32))
    keys = jax.random.split(jax.random.key(1), 4000)
    rows = np.asarray(draw_rows(table, keys).value)[:, 0]
    draws = jax.vmap(team.noise_draws)(keys)
    for drawn in (draws.channel, draws.sender):
        first = np.asarray(drawn).reshape(4000, -1)[:, :16]  # what was drawn first, of each agent and step
        for number in first.T:
            assert abs(np.corrcoef(rows, number)[0, 1]) < 0.08
            assert abs(np.corrcoef(rows, np.square(number))[0, 1]) < 0.08


def test_simulated_noise_has_gaps_that_tell_two_inputs_apart():
    """Every number that the generator can give is enumerated: most messages are impossible under the other input."""
    spec = Channel()
    host: Any = hosts.of(spec)
    grid = host.parameters(privacy.calibrate(spec, 1.0, 1e-4, 25))
    least = np.nextafter(np.float32(-1), np.float32(0))
    uniform = (np.arange(2**23, dtype=np.uint32) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
    normal = np.float32(np.sqrt(2)) * jax.lax.erf_inv(jnp.maximum(least, uniform * (1 - least) + least))
    steps = np.rint(np.asarray(grid.deviation * normal)).astype(np.int64)
    farthest = np.abs(steps).max()
    reached = np.zeros(2 * farthest + 3, bool)  # and a place on either side for all that is out of reach
    reached[steps + farthest + 1] = True

    def possible(noise):
        return reached[np.clip(noise, -farthest - 1, farthest + 1) + farthest + 1]

    made = np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32)
    first, second = (np.stack([host.steps(np, sign * one, grid) for one in made]) for sign in (1, -1))
    drawn = np.rint(grid.deviation * np.asarray(jax.random.normal(jax.random.key(1), made.shape))).astype(np.int64)
    assert possible(drawn).all()
    told = ~possible(first + drawn - second).all(axis=-1)
    assert 0.6 < told.mean() < 0.8


@pytest.mark.parametrize("clip_norm", [1e-19, 1e-25, 1e-30])
def test_messages_of_a_tiny_clip_norm_are_finite(clip_norm):
    for message in ([1.0, -2.0, 3.0], [1e15] * 3, [3e38, 1e-38, 0.0], [np.nan, 1.0, 0.0]):
        clipped = np.asarray(clip_to_norm(jnp.array(message, jnp.float32), clip_norm), float)
        assert np.linalg.norm(clipped) <= clip_norm * (1 + 1e-6)
