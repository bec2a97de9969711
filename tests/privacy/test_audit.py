"""Bounds that hold as often as they say, come close to the truth, and find what is wrong."""

import math
from dataclasses import replace

import numpy as np
import pytest
from faulty_channel import gaussian, response
from scipy.stats import beta, binom

from dpmac import privacy
from dpmac.config import BadInput, Channel, Release
from dpmac.privacy import audit, loss
from dpmac.privacy.audit import audit_channel, audit_gaussian, audit_response

DELTA = 1e-4


def shifted(mu):
    """A Gaussian channel whose transcripts are single numbers, mu standard deviations apart."""
    return lambda side, episodes, rng: rng.standard_normal(episodes) + (mu if side == 0 else 0.0)


def flipped(epsilon, symbols=3):
    """One held symbol under randomised response."""
    flip = loss.response_flip(epsilon, symbols)

    def sample(side, episodes, rng):
        moved = np.where(rng.random(episodes) < flip, rng.integers(1, symbols, episodes), 0)
        return ((side + moved) % symbols == 0).astype(float) - ((side + moved) % symbols == 1)

    return sample


def itself(transcripts):
    return transcripts


def transcripts(release: Release, fault=None, recipients=1, seed=0, size=8, noise=None):
    """Whole episodes of the reference channel at the worst-case inputs (episode, time, copy, feature)."""
    canary = privacy.canary(release, size, seed)
    noise = release.noise if noise is None else noise

    def sample(side, episodes, rng):
        messages = canary.second if side else canary.first
        if release.channel.mechanism == "response":
            symbols = np.broadcast_to(messages.argmax(-1)[None, :, None], (episodes, len(messages), 1))
            return response(symbols, release.channel, noise, rng, recipients, fault)[:, :, 0]
        means = np.broadcast_to(messages[None, :, None], (episodes, len(messages), 1, messages.shape[-1]))
        return gaussian(means, 0.0, release.channel, noise, rng, recipients, fault)[1][:, :, 0]

    return canary, sample


# The bounds themselves ------------------------------------------------------------------------------------------------


def test_bound_is_the_printed_formula():
    x, y, n, a = 700, 200, 1000, 0.05
    expected = math.log((beta.ppf(a / 2, x, n - x + 1) - DELTA) / beta.ppf(1 - a / 2, y + 1, n - y))
    assert float(audit.clopper_pearson(x, y, n, DELTA, 1 - a)) == pytest.approx(expected, rel=1e-12)


def test_nothing_seen_shows_nothing():
    assert audit.clopper_pearson(0, 0, 1000, DELTA, 0.95) == -math.inf
    assert audit.clopper_pearson(1000, 1000, 1000, DELTA, 0.95) < 0


REPETITIONS = 1000


@pytest.mark.parametrize(
    ("sample", "true"),
    [
        (shifted(loss.mu_of(1.0, DELTA)), 1.0),
        (shifted(loss.mu_of(3.0, DELTA)), 3.0),
        (shifted(0.0), 0.0),
        (flipped(1.0), 1.0),
        (flipped(3.0), 3.0),
        (flipped(1e-12), 0.0),
    ],
    ids=["gaussian-1", "gaussian-3", "gaussian-same", "response-1", "response-3", "response-same"],
)
def test_distribution_free_bound_exceeds_the_truth_no_more_often_than_stated(sample, true):
    exceeded = sum(
        audit_channel(sample, DELTA, 400, 0.9, itself, seed).epsilon > true + 1e-9 for seed in range(REPETITIONS)
    )
    assert exceeded <= binom.ppf(0.999, REPETITIONS, 0.1)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_gaussian_bound_exceeds_the_truth_no_more_often_than_stated(epsilon):
    mu = loss.mu_of(epsilon, DELTA) if epsilon else 0.0
    exceeded = sum(
        audit_gaussian(shifted(mu), DELTA, 400, 1.0, np.ones(1), 0.9, seed).epsilon > epsilon
        for seed in range(REPETITIONS)
    )
    assert exceeded <= binom.ppf(0.999, REPETITIONS, 0.1)
    if epsilon:  # exact, so it must exceed about as often as stated
        assert exceeded >= binom.ppf(0.001, REPETITIONS, 0.1)


@pytest.mark.parametrize(("epsilon", "episodes"), [(1.0, 5400), (3.0, 840)])
def test_gaussian_bound_reaches_four_fifths_with_the_stated_episodes(epsilon, episodes):
    mu = loss.mu_of(epsilon, DELTA)
    bounds = [audit_gaussian(shifted(mu), DELTA, episodes, 1.0, np.ones(1), 0.95, seed).epsilon for seed in range(100)]
    assert np.mean(np.array(bounds) >= 0.8 * epsilon) >= 0.8


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_distribution_free_bound_reaches_four_fifths_of_a_gaussian_channel(epsilon):
    sample = shifted(loss.mu_of(epsilon, DELTA))
    assert audit_channel(sample, DELTA, 1_000_000, 0.95, itself).epsilon >= 0.8 * epsilon


@pytest.mark.parametrize(("epsilon", "episodes"), [(1.0, 5400), (3.0, 100_000)])
def test_bound_reaches_four_fifths_of_randomised_response(epsilon, episodes):
    bound = audit_channel(flipped(epsilon), DELTA, episodes, 0.95, itself)
    assert 0.8 * epsilon <= bound.epsilon <= epsilon * 1.1


def test_both_directions_are_tried():
    def one_sided(side, episodes, rng):
        return rng.random(episodes) < (0.9 if side else 0.999)  # only its absence tells

    forwards = audit_channel(one_sided, DELTA, 20_000, 0.95, itself).epsilon
    backwards = audit_channel(lambda side, n, rng: one_sided(1 - side, n, rng), DELTA, 20_000, 0.95, lambda x: ~x)
    assert forwards > 3
    assert backwards.epsilon == pytest.approx(forwards, rel=0.3)


# Whole transcripts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", [Channel(), Channel(copies=2), Channel("code")], ids=["gaussian", "copies", "code"])
def test_canary_shows_nearly_all_of_an_episodes_epsilon(channel):
    release = Release(channel, privacy.calibrate(channel, 3.0, DELTA, 10), 10)
    canary, sample = transcripts(release, recipients=channel.copies)
    if channel.mechanism == "code":
        points = math.sqrt(2) * channel.clip_norm
        sample = gaussian_code(canary, points, release.noise)
    bound = audit_gaussian(sample, DELTA, 20_000, release.noise, canary.direction, 0.95)
    assert bound.method == "Gaussian means"
    assert 0.9 * 3 <= bound.epsilon <= 3.2


def gaussian_code(canary, scale, sigma):
    def sample(side, episodes, rng):
        messages = scale * (canary.second if side else canary.first)[None, :, None]
        return messages + sigma * rng.standard_normal((episodes, *canary.direction.shape))

    return sample


def test_canary_shows_nearly_all_of_a_response_episodes_epsilon():
    channel = Channel("response")
    release = Release(channel, privacy.calibrate(channel, 1.0, DELTA, 10), 10)
    canary, sample = transcripts(release)
    bound = audit_channel(sample, DELTA, 200_000, 0.95, audit.matched(canary.direction))
    assert 0.5 <= bound.epsilon <= 1.05


@pytest.mark.parametrize(
    ("epsilon", "horizon", "episodes"), [(1.0, 25, 30_000), (10.0, 25, 10_000), (10.0, 1, 200_000)]
)
def test_counting_right_symbols_shows_four_fifths_of_epsilon(epsilon, horizon, episodes):
    channel = Channel("response")
    release = Release(channel, privacy.calibrate(channel, epsilon, DELTA, horizon), horizon)
    canary, sample = transcripts(release)
    bound = audit_response(sample, DELTA, episodes, canary.direction, 0.99)
    assert bound.method == "symbol counts"
    assert 0.8 * epsilon <= bound.epsilon <= epsilon


def test_bounds_from_right_symbols_keep_their_confidence():
    channel = Channel("response")
    release = Release(channel, privacy.calibrate(channel, 1.0, DELTA, 5), 5)
    canary, sample = transcripts(release)
    bounds = [audit_response(sample, DELTA, 200, canary.direction, 0.5, seed).epsilon for seed in range(200)]
    assert np.mean([bound > 1.0 for bound in bounds]) <= 0.5
    assert max(bounds) > 0


def test_symbols_that_tell_nothing_show_nothing():
    def blind(side, episodes, rng):
        return np.eye(3)[rng.integers(3, size=(episodes, 4))]

    direction = np.eye(3)[[0, 1, 2, 0]] - np.eye(3)[[1, 2, 0, 2]]
    assert audit_response(blind, DELTA, 1000, direction).epsilon == 0


def test_symbols_that_are_always_right_show_as_much_as_their_number_can():
    def open_(side, episodes, rng):
        return np.repeat(np.eye(3)[None, [side]], episodes, axis=0)

    few, many = (audit_response(open_, DELTA, count, np.array([[1.0, -1.0, 0.0]])).epsilon for count in (100, 10_000))
    assert 3 < few < many - 4


def test_flips_that_come_together_fall_back_to_the_distribution_free_bound():
    def together(side, episodes, rng):
        kept = rng.random((episodes, 1)) < 0.7
        return np.eye(3)[np.where(kept, side, 1 - side) * np.ones((1, 6), int)]

    bound = audit_response(together, DELTA, 2000, np.tile([1.0, -1.0, 0.0], (6, 1)))
    assert bound.method == "distribution-free"
    assert 0.5 < bound.epsilon < math.log(0.7 / 0.3)


def test_sides_that_say_the_same_cannot_be_told_apart():
    with pytest.raises(BadInput, match="nothing to tell apart"):
        audit_response(lambda side, n, rng: np.zeros((n, 1, 3)), DELTA, 100, np.zeros((1, 3)))


def test_a_statistic_can_be_learnt():
    release = Release(Channel(), privacy.calibrate(Channel(), 5.0, DELTA, 4), 4)
    _, sample = transcripts(release, size=2)
    assert 2.5 <= audit_channel(sample, DELTA, 20_000, 0.95).epsilon <= 5.1


# Planted faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    ["no clipping", "noise for C instead of 2C", "sigma square-rooted"],
)
def test_audit_refutes_the_claim_of_a_faulty_gaussian_channel(fault):
    release = Release(Channel(), privacy.calibrate(Channel(), 1.0, DELTA, 5), 5)
    assert release.noise > 1
    canary, sample = transcripts(release, fault)
    bound = audit_gaussian(sample, DELTA, 50_000, release.noise, canary.direction, 0.99)
    assert audit.verdict(1.0, bound)["verdict"] == "refuted"


def test_audit_refutes_sigma_squared_where_that_is_less_noise():
    channel = Channel(clip_norm=0.05)
    release = Release(channel, privacy.calibrate(channel, 1.0, DELTA, 1), 1)
    assert release.noise < 1
    canary, sample = transcripts(release, "sigma squared")
    bound = audit_gaussian(sample, DELTA, 50_000, release.noise, canary.direction, 0.99)
    assert audit.verdict(1.0, bound)["verdict"] == "refuted"


@pytest.mark.parametrize("fault", ["the same noise at every step", "noise missing at the first step"])
def test_audit_that_learns_its_statistic_refutes_noise_that_can_be_removed(fault):
    release = Release(Channel(), privacy.calibrate(Channel(), 1.0, DELTA, 5), 5)
    _, sample = transcripts(release, fault, size=2)
    assert audit.verdict(1.0, audit_channel(sample, DELTA, 20_000, 0.99))["verdict"] == "refuted"


def test_audit_refutes_two_fresh_copies_that_were_counted_as_one():
    release = Release(Channel(), privacy.calibrate(Channel(), 1.0, DELTA, 5), 5)
    canary, sample = transcripts(release, "fresh noise for two copies counted as one", recipients=2)
    both = np.repeat(canary.direction, 2, axis=1)
    bound = audit_gaussian(sample, DELTA, 50_000, release.noise, both, 0.99)
    assert audit.verdict(1.0, bound)["verdict"] == "refuted"


def test_audit_refutes_a_flip_probability_that_is_too_small():
    channel = Channel("response", period=0)
    release = Release(channel, privacy.calibrate(channel, 1.0, DELTA), 1)
    canary, sample = transcripts(release, "flip probability times (k-1)/k")
    for bound in (
        audit_channel(sample, DELTA, 100_000, 0.99, audit.matched(canary.direction)),
        audit_response(sample, DELTA, 100_000, canary.direction, 0.99),
    ):
        assert audit.verdict(1.0, bound)["verdict"] == "refuted"


def test_audit_refutes_epsilon_of_a_message_claimed_for_an_episode():
    release = Release(Channel(), privacy.calibrate(Channel(), 1.0, DELTA, 25, "message"), 25)
    canary, sample = transcripts(release)
    bound = audit_gaussian(sample, DELTA, 5_000, release.noise, canary.direction, 0.99)
    assert audit.verdict(1.0, bound)["verdict"] == "refuted"


def test_audit_leaves_a_sound_channel_alone():
    release = Release(Channel(), privacy.calibrate(Channel(), 1.0, DELTA, 5), 5)
    canary, sample = transcripts(release)
    bound = audit_gaussian(sample, DELTA, 20_000, release.noise, canary.direction, 0.99)
    assert audit.verdict(1.0, bound) == {
        "claimed_epsilon": 1.0,
        "lower_bound": bound.epsilon,
        "delta": DELTA,
        "confidence": 0.99,
        "episodes": 20_000,
        "method": "Gaussian means",
        "verdict": "consistent",
    }


def test_noise_of_another_form_falls_back_to_the_distribution_free_bound():
    def laplace(side, episodes, rng):
        return rng.laplace(scale=1 / math.sqrt(2), size=episodes) + (1.0 - side)

    bound = audit_gaussian(laplace, DELTA, 5_000, 1.0, np.ones(1))
    assert bound.method == "distribution-free"


def test_many_verdicts_hold_together():
    assert audit.family_confidence(1) == 0.99
    assert audit.family_confidence(50) == pytest.approx(0.9998)


def test_family_of_many_sound_runs_is_rarely_accused():
    runs, families, accused = 20, 100, 0
    each = audit.family_confidence(runs)
    sample = shifted(loss.mu_of(1.0, DELTA))
    for family in range(families):
        bounds = [
            audit_gaussian(sample, DELTA, 100, 1.0, np.ones(1), each, runs * family + run).epsilon
            for run in range(runs)
        ]
        accused += max(bounds) > 1.0
    assert accused <= binom.ppf(0.999, families, 0.01)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: audit_channel(shifted(1.0), 0.0, 100), "delta"),
        (lambda: audit_channel(shifted(1.0), DELTA, 10), "episodes"),
        (lambda: audit_channel(shifted(1.0), DELTA, 100, 1.0), "confidence"),
        (lambda: audit_gaussian(shifted(1.0), DELTA, 100, 0.0, np.ones(1)), "sigma"),
        (lambda: audit.family_confidence(0), "verdicts"),
        (lambda: privacy.canary(Release(Channel(sample_rate=0.01), 1.0, 25)), "nothing is released"),
    ],
)
def test_nonsense_is_refused_with_a_message(call, message):
    with pytest.raises(BadInput, match=message):
        call()


def test_canary_is_as_far_apart_as_the_channel_lets_it_be():
    release = Release(Channel(clip_norm=0.7), 1.0, 6)
    canary = privacy.canary(release)
    assert canary.direction.shape == (6, 1, 8)
    assert (np.linalg.norm(canary.first, axis=-1) > 0.7).all()
    assert np.allclose(canary.first, -canary.second)
    letters = privacy.canary(replace(release, channel=Channel("response"), noise=0.5))
    assert (letters.first.argmax(-1) != letters.second.argmax(-1)).all()
