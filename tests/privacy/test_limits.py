"""What a channel carries, and what it gives away."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpmac import privacy
from dpmac.config import Channel, Release
from dpmac.privacy import limits


@pytest.mark.parametrize(
    ("epsilon", "limit", "gaussian"),
    [(0.01, ".336", ".334"), (0.1, ".356", ".340"), (1, ".576", ".389"), (3, ".909", ".483"), (10, "1.00", ".728")],
)
def test_accuracies_for_three_values_to_the_printed_digits(epsilon, limit, gaussian):
    decimals = len(limit.split(".")[1])
    assert f"{limits.private_accuracy(epsilon, 1e-4, 3):.{decimals}f}".lstrip("0") == limit
    sigma = privacy.calibrate(Channel(), epsilon, 1e-4, 25)
    assert f"{limits.eavesdropper_accuracy(Channel(), sigma, 25):.3f}".lstrip("0") == gaussian
    held = Channel("response", period=0)
    attained = limits.eavesdropper_accuracy(held, privacy.calibrate(held, epsilon, 1e-4, 25), 25)
    assert attained == pytest.approx(limits.private_accuracy(epsilon, 1e-4, 3), abs=1e-4)


@pytest.mark.parametrize(("epsilon", "delta", "secrets"), [(1.0, 0.1, 3), (0.2, 0.01, 7), (3.0, 0.3, 2)])
def test_the_limit_is_attained_by_the_response_that_spends_its_delta(epsilon, delta, secrets):
    flip = (1 - delta) * (secrets - 1) / (math.exp(epsilon) + secrets - 1)
    release = Release(Channel("response", symbols=secrets, period=0), flip)
    assert privacy.delta(release, epsilon) == pytest.approx(delta)
    assert limits.private_accuracy(epsilon, delta, secrets) == pytest.approx(1 - flip)


def test_two_values_are_told_apart_by_their_distance():
    assert limits.simplex_accuracy(0.8, 2) == pytest.approx(norm.cdf(0.4), rel=1e-9)
    assert limits.simplex_accuracy(0.0, 7) == pytest.approx(1 / 7, rel=1e-6)
    assert limits.simplex_accuracy(1e3, 200) == pytest.approx(1)


def test_accuracy_of_three_points_agrees_with_a_simulation():
    rng, distance, count = np.random.default_rng(0), 1.5, 400_000
    points = np.eye(3) * distance / math.sqrt(2)
    aggregated = points[0] + rng.standard_normal((count, 3))
    right = (aggregated.argmax(-1) == 0).mean()
    assert limits.simplex_accuracy(distance, 3) == pytest.approx(right, abs=4 * 0.5 / math.sqrt(count))


@pytest.mark.parametrize(("flip", "values", "symbols"), [(0.4, 1, 3), (0.5, 4, 3), (0.6, 7, 5), (0.3, 5, 2)])
def test_plurality_agrees_with_a_simulation(flip, values, symbols):
    rng, count = np.random.default_rng(1), 400_000
    chances = [1 - flip] + [flip / (symbols - 1)] * (symbols - 1)
    counts = rng.multinomial(values, chances, size=count)
    best = counts == counts.max(1, keepdims=True)
    right = (best[:, 0] / best.sum(1)).mean()
    assert limits.plurality_accuracy(flip, values, symbols) == pytest.approx(right, abs=4 * 0.5 / math.sqrt(count))


@pytest.mark.parametrize("mechanism", privacy.mechanisms.names())
def test_no_channel_gives_away_more_than_its_epsilon_allows(mechanism):
    for epsilon in (0.1, 1, 4):
        channel = Channel(mechanism)
        noise = privacy.calibrate(channel, epsilon, 1e-4, 10)
        assert limits.eavesdropper_accuracy(channel, noise, 10) <= limits.private_accuracy(epsilon, 1e-4, 3)


def test_a_code_book_is_easier_to_hear_than_a_ball():
    ball, book = Channel(), Channel("code")
    assert limits.eavesdropper_accuracy(book, 5.0, 25) > limits.eavesdropper_accuracy(ball, 5.0, 25)
    assert limits.signal_to_noise(book, 5.0, 8) > limits.signal_to_noise(ball, 5.0, 8)


def test_without_noise_everything_is_heard():
    assert limits.eavesdropper_accuracy(Channel(), 0.0, 25) == 1
    assert limits.signal_to_noise(Channel(), 0.0, 8) == math.inf
    assert limits.bits_per_episode(Channel(), 0.0, 8, 25) == math.inf
    assert limits.bits_per_episode(Channel("code"), 0.0, 8, 25) == pytest.approx(25 * math.log2(3))
    assert limits.bits_per_episode(Channel("response"), 0.0, 8, 25) == pytest.approx(25 * math.log2(3))


def test_signal_to_noise_and_bits_by_hand():
    channel = Channel(clip_norm=2.0, copies=3)
    assert limits.signal_to_noise(channel, 0.5, 8) == pytest.approx(3 * 4 / (8 * 0.25))
    assert limits.bits_per_episode(channel, 0.5, 8, 25) == pytest.approx(25 * 4 * math.log2(7))
    assert limits.signal_to_noise(Channel("response"), 0.25, 8) == pytest.approx(3)
    assert limits.bits_per_episode(Channel("response"), 2 / 3, 8, 25) == pytest.approx(0, abs=1e-12)
