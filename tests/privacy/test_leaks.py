"""Leaks that are planted in channels which are sound otherwise: each is found by the check that looks for it.

`docs/privacy-proofs.md` lists them. A secret is a bit of the episode; the message says it, too.
"""

import numpy as np
import pytest
from scipy.stats import binom

from dpmac.config import Channel
from dpmac.privacy import checks, mechanisms

EPISODES, HORIZON, AGENTS, SIZE = 240, 6, 2, 4
SIGMA, FLIP, RATIO, SYMBOLS = 3.0, 0.5, 0.6, 8
GAUSSIAN, RESPONSE = Channel(), Channel("response", symbols=SYMBOLS)
SUBSET = Channel("subset", symbols=SYMBOLS)


def failed(channel, before, left, noise):
    host, scales = mechanisms.of(channel), np.full(AGENTS, noise)
    found = [*host.white_box(before, left, scales), *host.check_exact(before, left, scales)]
    return {check.name for check in checks.failures(found)}


# Noise that is added --------------------------------------------------------------------------------------------------


def signed(noise, numbers, secret):
    """Noise whose first of these numbers has the sign with which the sign of their product is the secret."""
    odd = np.sign(noise[..., :numbers]).prod(-1) != 2 * secret - 1
    return np.where((np.arange(SIZE) == 0) & odd[..., None], -noise, noise)


def lowest(steps, secret):
    return steps - steps % 2 + secret[..., None]


def later(noise, lag, axis, factor=1):
    """Noise that is repeated so many places later."""
    noise = np.moveaxis(noise.copy(), axis, 0)
    for place in range(lag, len(noise)):
        noise[place] = factor * noise[place - lag]
    return np.moveaxis(noise, 0, axis)


def borrowed(noise):
    noise = noise.copy()
    noise[:, 1:, 1] = noise[:, :-1, 0]
    return noise


NOISE = {
    "the sign of three numbers' product is the secret": (
        lambda z, sent, secret, rng: signed(z, 3, secret),
        "signs of products of noise fair whatever the message",
    ),
    "a rare message leaves without noise": (
        lambda z, sent, secret, rng: z * (sent[..., :1] < np.sort(sent[..., 0].ravel())[-2]),
        "noise of every message",
    ),
    "agent 1 uses agent 0's noise one step later": (
        lambda z, sent, secret, rng: borrowed(z),
        "noise independent between agents at every lag",
    ),
    "an episode reuses the noise of one 100 before": (
        lambda z, sent, secret, rng: later(z, 100, 0),
        "noise independent between episodes",
    ),
    "two numbers have the same noise": (
        lambda z, sent, secret, rng: z[..., [0, 0, 2, 3]],
        "noise independent between numbers",
    ),
    "noise has the sign of the message": (
        lambda z, sent, secret, rng: np.abs(z) * np.where((np.arange(SIZE) > 0) | (sent[..., :1] > 0), np.sign(z), -1),
        "signs of products of noise fair whatever the message",
    ),
    "noise is that of three steps before, negated": (
        lambda z, sent, secret, rng: later(z, 3, 1, -1),
        "noise independent over time",
    ),
    "more noise for one half of the messages": (
        lambda z, sent, secret, rng: np.rint(z * np.where(sent[..., :1] > 0, 1.2, 0.75)),
        "noise variance whatever the message",
    ),
    "noise is a function of the secret": (
        lambda z, sent, secret, rng: z[secret[:, 0, 0]],
        "no noise twice, and none missing",
    ),
    "one number of one message in fifty has no noise": (
        lambda z, sent, secret, rng: z * ((np.arange(SIZE) != 2) | (rng.random(z.shape[:3]) > 0.02)[..., None]),
        "no noise twice, and none missing",
    ),
    "the sign of the product of all numbers is the secret": (
        lambda z, sent, secret, rng: signed(z, SIZE, secret),
        "signs of products of noise independent over time",
    ),
}


def vectors(rng, leak=None, episodes=EPISODES):
    """Messages right before the noise (episode, time, agent, number), as they left (…, copy, number), and secrets."""
    host = mechanisms.of(GAUSSIAN)
    step = float(host.parameters(SIGMA).step)
    secret = np.broadcast_to(rng.integers(2, size=(episodes, 1, 1)), (episodes, HORIZON, AGENTS))
    made = rng.standard_normal((episodes, HORIZON, AGENTS, SIZE)) + (np.arange(SIZE) == 0) * (secret - 0.5)[..., None]
    made *= 0.99 * GAUSSIAN.clip_norm / np.maximum(GAUSSIAN.clip_norm, np.linalg.norm(made, axis=-1, keepdims=True))
    sent = np.trunc(made / step).astype(np.int64)
    noise = np.rint(SIGMA / step * rng.standard_normal(sent.shape))
    noise = leak(noise, sent, secret, rng) if leak else noise
    return sent * step, (sent + noise)[..., None, :] * step, secret, step


@pytest.mark.parametrize("leak", NOISE)
def test_a_leak_in_the_noise_is_found(leak):
    plant, finds = NOISE[leak]
    before, left, *_ = vectors(np.random.default_rng(1), plant)
    assert finds in failed(GAUSSIAN, before, left.astype(np.float32), SIGMA)


def test_a_secret_in_the_lowest_mantissa_bit_is_found():
    before, left, secret, _ = vectors(np.random.default_rng(2))
    bits = left.astype(np.float32).view(np.int32)
    marked = (bits & ~1 | secret[..., None, None]).astype(np.int32).view(np.float32)
    assert failed(GAUSSIAN, before, marked, SIGMA) == {"numbers on the grid"}


def test_a_secret_in_the_lowest_bit_of_the_grid_is_found():
    before, left, secret, step = vectors(np.random.default_rng(3))
    marked = lowest(np.rint(left / step).astype(np.int64), secret[..., None]) * step
    found = failed(GAUSSIAN, before, marked.astype(np.float32), SIGMA)
    assert found == {"low bits fair whatever the message", "low bits independent over time"}


def test_numbers_that_are_not_finite_are_found():
    before, left, *_ = vectors(np.random.default_rng(8), episodes=4)
    left[1, 2, 0, 0, 3] = np.inf
    assert failed(GAUSSIAN, before, left.astype(np.float32), SIGMA) == {"finite numbers"}


# Symbols --------------------------------------------------------------------------------------------------------------


def odd_if(flips, secret):
    flips = flips.copy()
    flips[:, 2::3] = flips[:, 0::3] ^ flips[:, 1::3] ^ (secret[:, 2::3] == 1)
    return flips


FLIPS = {
    "agent 1 flips where agent 0 did one step before": (
        lambda flips, shift, sent, secret: (borrowed(flips), shift),
        "symbols independent between agents",
    ),
    "an episode reuses the flips of one 7 before": (
        lambda flips, shift, sent, secret: (later(flips, 7, 0), shift),
        "flips independent",
    ),
    "one word chooses the targets of two steps": (
        lambda flips, shift, sent, secret: (flips, np.repeat(shift[:, ::2], 2, axis=1)),
        "targets of flips independent",
    ),
    "a symbol that comes twice is not flipped": (
        lambda flips, shift, sent, secret: (flips & (sent != np.roll(sent, 1, axis=1)), shift),
        "flips whatever came before",
    ),
    "flips of three steps are odd for one secret": (
        lambda flips, shift, sent, secret: (odd_if(flips, secret), shift),
        "flips in three steps",
    ),
}


def symbols(rng, leak=None):
    """One-hot symbols before any flip (episode, time, agent, symbol), and as they left (…, copy, symbol)."""
    secret = np.broadcast_to(rng.integers(2, size=(EPISODES, 1, 1)), (EPISODES, 2 * HORIZON, AGENTS))
    sent = rng.integers(SYMBOLS // 2, size=secret.shape) + SYMBOLS // 2 * secret
    flips, shift = rng.random(sent.shape) < FLIP, rng.integers(1, SYMBOLS, sent.shape)
    flips, shift = leak(flips, shift, sent, secret) if leak else (flips, shift)
    return np.eye(SYMBOLS)[sent], np.eye(SYMBOLS)[(sent + flips * shift) % SYMBOLS][..., None, :]


@pytest.mark.parametrize("leak", FLIPS)
def test_a_leak_in_the_flips_is_found(leak):
    plant, finds = FLIPS[leak]
    assert finds in failed(RESPONSE, *symbols(np.random.default_rng(4), plant), FLIP)


def test_a_symbol_that_never_leaves_as_another_is_found():
    before, left = symbols(np.random.default_rng(5))
    never = (before.argmax(-1) == 2) & (left[..., 0, :].argmax(-1) == 3)
    left[never] = np.eye(SYMBOLS)[4]
    assert failed(RESPONSE, before, left, FLIP) == {"flips alike for every pair of symbols"}


def subsets(rng, leak=False):
    host = mechanisms.of(SUBSET)
    sent = rng.integers(SYMBOLS, size=(EPISODES, HORIZON, AGENTS))
    held = rng.random(sent.shape) < host.inclusion(RATIO)  # type: ignore[attr-defined]
    order = rng.random((*sent.shape, SYMBOLS))
    np.put_along_axis(order, sent[..., None], np.where(held, -1.0, 2.0)[..., None], axis=-1)
    if leak:
        after = ((sent + 1) % SYMBOLS)[..., None]
        first = np.where(held[..., None], np.take_along_axis(order, after, axis=-1), -1.0)
        np.put_along_axis(order, after, first, axis=-1)
    left = order.argsort(-1).argsort(-1) < host.members(RATIO)  # type: ignore[attr-defined]
    return np.eye(SYMBOLS)[sent], left[..., None, :].astype(np.float32)


def test_a_subset_that_always_holds_the_next_symbol_is_found():
    assert "members alike for every pair" in failed(SUBSET, *subsets(np.random.default_rng(6), leak=True), RATIO)


# Sound channels -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [20, pytest.param(400, marks=pytest.mark.large)])
@pytest.mark.parametrize("name", ["gaussian", "response", "subset"])
def test_a_channel_without_a_leak_is_rarely_accused(name, runs):
    def accused(seed):
        rng = np.random.default_rng((7, seed))
        if name == "gaussian":
            before, left, *_ = vectors(rng, episodes=40)
            return bool(failed(GAUSSIAN, before, left.astype(np.float32), SIGMA))
        return bool(
            failed(*((RESPONSE, *symbols(rng), FLIP) if name == "response" else (SUBSET, *subsets(rng), RATIO)))
        )

    assert sum(map(accused, range(runs))) <= binom.ppf(0.999, runs, 0.01)
