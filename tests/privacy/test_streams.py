"""Streams: noise that is correlated over time, and what it costs under each reading."""

import math
from typing import Any, cast

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from dpmac.config import BadInput
from dpmac.privacy import audit, streams
from dpmac.privacy.streams import KINDS, Stream

DELTA = 1e-4
SLOW = Stream(0.98, 25)
STATIONARY = Stream(0.98, 25, cut=2.0, stationary=True)


def error(kind, reading, epsilon, stream=SLOW):
    sigma = streams.calibrate(kind, stream, reading, epsilon, DELTA)
    return streams.filtering_errors(kind, stream, sigma).mean()


@pytest.mark.parametrize(("epsilon", "root", "plain"), [(3.0, 0.58, 0.66), (10.0, 0.21, 0.29)])
def test_errors_are_those_of_another_program(epsilon, root, plain):
    """It took streams for stationary, and cut nothing."""
    assert error("root", "increment", epsilon, STATIONARY) == pytest.approx(root, abs=0.006)
    assert error("plain", "increment", epsilon, STATIONARY) == pytest.approx(plain, abs=0.006)


@pytest.mark.parametrize(("epsilon", "ahead"), [(3.0, 0.03), (10.0, 0.15)])
def test_correlated_noise_wins_where_neighbours_differ_in_an_increment(epsilon, ahead):
    assert error("root", "increment", epsilon) < (1 - ahead) * error("plain", "increment", epsilon)


@pytest.mark.parametrize("epsilon", [3.0, 10.0])
def test_where_neighbours_differ_in_the_whole_episode_there_is_little_to_win(epsilon):
    assert error("root", "episode", epsilon) > 0.95 * error("plain", "episode", epsilon)
    assert error("plain", "episode", epsilon) > 1.2 * error("plain", "increment", epsilon)


@pytest.mark.parametrize("kind", KINDS)
def test_factors_make_the_stream(kind):
    back, sent = streams.factors(kind, SLOW)
    steps = np.arange(SLOW.horizon)
    np.testing.assert_allclose(back @ sent, np.tril(0.98 ** np.maximum(steps[:, None] - steps, 0)), atol=1e-12)
    assert (sent >= 0).all()


@pytest.mark.parametrize("reading", ["increment", "episode"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_neighbours_lie_farther_apart_than_the_distance_and_some_do_as_far(kind, reading):
    rng, small = np.random.default_rng(0), Stream(0.9, 6)
    sent, far = streams.factors(kind, small)[1], streams.distance(kind, small, reading)
    found = []
    for _ in range(2000):
        change = rng.choice([-1.0, 1.0], small.horizon)
        if reading == "increment":
            change *= np.arange(small.horizon) == rng.integers(small.horizon)
        found.append(np.linalg.norm(sent @ change) * small.change)
    assert max(found) == pytest.approx(far)


@pytest.mark.parametrize("reading", ["increment", "episode"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_is_that_of_dp_accounting(kind, reading):
    sigma = streams.calibrate(kind, SLOW, reading, 3.0, DELTA)
    exact = streams.epsilon(kind, SLOW, reading, sigma, DELTA)
    assert exact == pytest.approx(3.0, abs=1e-4)
    assert exact <= 3.0
    accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-3)
    accountant.compose(streams.event(kind, SLOW, reading, sigma))
    assert accountant.get_epsilon(DELTA) == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_an_audit_of_two_streams_comes_close_and_stays_below(kind):
    """Two streams that differ in their first increment, by as much as the cut allows."""
    small = Stream(0.9, 6)
    sigma = streams.calibrate(kind, small, "increment", 2.0, DELTA)
    sent = streams.factors(kind, small)[1]
    one = np.zeros(small.horizon)
    one[0] = 10.0  # cut to C

    def sample(side, count, rng):
        increments = np.broadcast_to((1 - 2 * side) * one, (count, small.horizon))
        return streams.release(kind, small, increments, sigma, rng)

    bound = audit.audit_gaussian(sample, DELTA, 40_000, sigma, sent[:, 0])
    assert 1.9 < bound.epsilon <= 2.0


def test_an_audit_finds_a_stream_whose_increments_are_not_cut():
    small = Stream(0.9, 6)
    sigma = streams.calibrate("root", small, "increment", 2.0, DELTA)
    sent = streams.factors("root", small)[1]

    def sample(side, count, rng):
        mean = (0.75 - 1.5 * side) * small.change * sent[:, :1]
        return mean + sigma * rng.standard_normal((count, small.horizon, 1))

    assert audit.audit_gaussian(sample, DELTA, 40_000, sigma, sent[:, :1] * small.change).epsilon > 2.5


def test_filtering_errors_are_those_of_a_simulation():
    rng, small, count = np.random.default_rng(1), Stream(0.9, 5), 200_000
    sigma = 0.3
    increments = math.sqrt(1 - small.decay**2) * rng.standard_normal((count, small.horizon))
    back, sent = streams.factors("root", small)
    heard = streams.release("root", small, increments, sigma, rng)
    position = increments @ (back @ sent).T
    weights = np.linalg.lstsq(heard, position[:, -1], rcond=None)[0]
    left = np.mean((position[:, -1] - heard @ weights) ** 2)
    assert left == pytest.approx(streams.filtering_errors("root", small, sigma)[-1], abs=0.005)
    assert left < 0.7 * position[:, -1].var()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: streams.factors("plain", Stream(1.0)), "decay must lie"),
        (lambda: streams.factors("plain", Stream(horizon=0)), "horizon must be"),
        (lambda: streams.factors("plain", Stream(cut=0.0)), "cut must be"),
        (lambda: streams.factors("diagonal", SLOW), "plain, root"),
        (lambda: streams.distance("root", SLOW, cast(Any, "day")), "increment, episode"),
        (lambda: streams.epsilon("root", SLOW, "increment", 0.0, DELTA), "sigma must be"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(BadInput, match=message):
        call()
