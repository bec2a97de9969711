"""Statistics over few seeds say what they claim."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from dpmac.config import BadInput
from dpmac.results import stats


def mean(scores, axis):
    return np.mean(scores, axis=axis)


def test_interquartile_mean_ignores_the_outer_quarters():
    assert stats.iqm(np.array([-1e9, 1.0, 2.0, 3.0, 1e9])) == 2.0
    assert stats.iqm(np.arange(8.0)) == pytest.approx(np.mean([2, 3, 4, 5]))


def test_intervals_are_the_same_every_time_and_hold_the_estimate():
    scores = [np.random.default_rng(3).normal(size=5), np.random.default_rng(4).normal(size=5)]
    first, second = stats.bootstrap(scores), stats.bootstrap(scores)
    assert first == second
    assert first.low <= first.value <= first.high
    assert stats.bootstrap(scores, seed=1) != first


def test_bootstrap_is_stratified_so_that_differences_between_tasks_are_no_uncertainty():
    apart = [np.full(5, 0.0), np.full(5, 1000.0)]
    assert stats.bootstrap(apart, mean) == (500.0, 500.0, 500.0)


def test_verdict_intervals_cover_at_five_seeds_and_percentile_intervals_do_not():
    chance = np.random.default_rng(0)
    trials, welch, percentile = 1500, 0, 0
    for _ in range(trials):
        a, b = chance.normal(1.0, 1.0, 5), chance.normal(0.0, 2.0, 5)
        found = stats.difference(a, b)
        welch += found.low <= 1.0 <= found.high
        drawn = stats.bootstrap([a], mean, count=200)
        percentile += drawn.low <= 1.0 <= drawn.high
    assert 0.93 < welch / trials < 0.985
    assert percentile / trials < 0.90


def test_one_seed_says_nothing_about_the_spread():
    assert stats.difference([1.0], [0.0, 0.1]) == (pytest.approx(0.95), -np.inf, np.inf)


def test_equal_scores_differ_by_exactly_their_difference():
    assert stats.difference([2.0, 2.0], [1.5, 1.5]) == (0.5, 0.5, 0.5)


def test_students_interval_covers_at_five_seeds_and_knows_nothing_of_one():
    chance = np.random.default_rng(1)
    found = [stats.interval(chance.normal(size=5)) for _ in range(2000)]
    covered = np.mean([one.low < 0 < one.high for one in found])
    assert 0.935 < covered < 0.965
    assert stats.interval([3.0]) == (3.0, -np.inf, np.inf)


def test_probability_of_improvement_is_the_rank_statistic_averaged_over_tasks():
    chance = np.random.default_rng(1)
    x, y = [chance.normal(0.3, 1, 5), chance.normal(0, 1, 5)], [chance.normal(0, 1, 5), chance.normal(0.2, 1, 5)]
    ranks = [mannwhitneyu(a, b).statistic / 25 for a, b in zip(x, y, strict=True)]
    found = stats.probability_of_improvement(x, y)
    assert found.value == pytest.approx(np.mean(ranks))
    assert found.low <= found.value <= found.high
    assert stats.probability_of_improvement(y, x).value == pytest.approx(1 - found.value)


def test_performance_profile_counts_runs_above_a_threshold_with_tasks_of_equal_weight():
    profile = stats.performance_profile([[0.1, 0.9], [0.5, 0.5, 0.5, 0.5]], [0.0, 0.2, 0.6, 1.0])
    np.testing.assert_allclose(profile, [1.0, 0.75, 0.25, 0.0])


def test_curve_bands_hold_the_middle_and_follow_whole_curves():
    curves = np.arange(5.0)[:, None] + np.zeros(7)
    middle, low, high = stats.curve(curves)
    assert np.all(low <= middle)
    assert np.all(middle <= high)
    assert np.ptp(low) == np.ptp(high) == 0  # whole curves are drawn, so parallel ones have a parallel band


def test_normalised_scores_put_the_reference_policies_at_0_and_1():
    reference = {"returns": {"random": [-68.0, 0.1], "scripted": [-9.0, 0.1]}}
    np.testing.assert_allclose(stats.normalised([-68.0, -9.0], reference), [0, 1])


def test_no_scores_are_bad_input():
    with pytest.raises(BadInput):
        stats.bootstrap([])
