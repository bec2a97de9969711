"""What private training costs a source: against dp-accounting, and against its own laws."""

import math
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld

from dpmac import privacy
from dpmac.config import BadInput, Channel, PrivateTraining, Release
from dpmac.privacy import training
from dpmac.privacy.training import Use

PLD = pld.privacy_loss_distribution
ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


def by_dp_accounting(event: Any, delta: float) -> float:
    return pld.PLDAccountant(ADD_OR_REMOVE).compose(event).get_epsilon(delta)


@pytest.mark.parametrize(("epsilon", "multiplier"), [(1.0, 3.73), (3.0, 1.39)])
def test_one_pass_needs_the_known_multipliers(epsilon, multiplier):
    found = training.calibrate(epsilon, 1e-5)
    assert round(found, 2) == multiplier
    assert epsilon * (1 - 1e-3) < training.epsilon(found, 1e-5) <= epsilon


@pytest.mark.parametrize(("multiplier", "epsilon"), [(1.0, 3.82), (2.0, 1.33)])
def test_an_episode_of_a_replay_costs_the_known_epsilon(multiplier, epsilon):
    assert round(training.epsilon(multiplier, 1e-5, Use(128 / 10_000, 2_500)), 2) == epsilon


@pytest.mark.parametrize("count", [9, pytest.param(50, marks=pytest.mark.large)])
def test_random_settings_are_those_of_dp_accounting(count):
    """One pass is exact here and rounded up there, on a grid; sampling is on the same grid in both."""
    draws, worst = np.random.default_rng(0), 0.0
    for index in range(count):
        use = Use() if index % 3 == 0 else Use(float(10 ** draws.uniform(-3, -0.5)), int(draws.integers(1, 300)))
        episodes = int(draws.integers(1, 4)) if index % 3 != 1 else 1
        multiplier, delta = episodes * float(draws.uniform(0.8, 8)), float(10 ** draws.uniform(-8, -3))
        ours = training.epsilon(multiplier, delta, use, episodes)
        theirs = by_dp_accounting(training.event(multiplier, use, episodes), delta)
        worst = max(worst, abs(ours - theirs))
        assert ours >= theirs - 1e-6
    assert worst < 1e-6


def test_the_event_says_what_happens():
    """Written down a second time, by hand."""
    gaussian = dp_accounting.GaussianDpEvent
    assert training.event(4.0, Use(), 2) == dp_accounting.SelfComposedDpEvent(gaussian(2.0), 1)
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, gaussian(4.0))
    assert training.event(4.0, Use(0.1, 7)) == dp_accounting.SelfComposedDpEvent(sampled, 7)
    both = dp_accounting.PoissonSampledDpEvent(pytest.approx(0.19), gaussian(2.0))  # type: ignore[arg-type]
    assert training.event(4.0, Use(0.1, 7), 2).event == both
    assert training.event(0.0) == dp_accounting.NonPrivateDpEvent()


def test_rounding_of_norms_is_counted_as_longer_gradients():
    """Sums of squares of float32 numbers, added up in the order that loses most, lose no more than is counted."""
    squares = np.full(40_000, 2.0**-24, np.float32)
    squares[0] = 1.0  # beside which all others are half an ulp, and lost one by one
    lost = math.sqrt(float(np.sum(squares, dtype=np.float64))) / math.sqrt(float(np.add.accumulate(squares)[-1]))
    assert 1 + 40_000 * 2.0**-26 < lost < Use(numbers=40_000).longest
    for use in (Use(), Use(0.05, 40)):
        rounded = training.calibrate(1.0, 1e-5, use._replace(numbers=40_000))
        assert rounded == pytest.approx(training.calibrate(1.0, 1e-5, use) * Use(numbers=40_000).longest, rel=1e-4)
        assert training.epsilon(rounded, 1e-5, use._replace(numbers=40_000)) <= 1.0


def test_what_drawn_noise_is_off_by_is_taken_from_delta():
    """At a large ε it is all of δ: such budgets are refused, and never claimed."""
    use = Use(0.1, 100, 10_000)
    assert use.slip(2.0, 3) == pytest.approx(10_000 * 2.0**-78 * 300 * (1 + math.exp(2)))
    assert training.epsilon(0.5, 1e-5, Use(numbers=10_000)) == pytest.approx(
        training.epsilon(0.5 / Use(numbers=10_000).longest, 1e-5), abs=1e-9
    )
    assert training.epsilon(1e-3, 1e-5, Use(numbers=10_000)) == math.inf
    assert training.epsilon(1.0, 1e-20, Use(numbers=10_000)) == math.inf
    with pytest.raises(BadInput, match="choose a smaller epsilon"):
        training.calibrate(50.0, 1e-5, use)
    with pytest.raises(BadInput, match="at most 4194304 numbers"):
        training.calibrate(1.0, 1e-5, Use(numbers=2**22 + 1))


@pytest.mark.parametrize(("updates", "multiplier", "delta"), [(2500, 50.0, 1e-10), (2500, 50.0, 1e-11)])
def test_what_transforms_lose_is_counted(updates, multiplier, delta):
    """A rate of nearly 1 costs what a rate of 1 does, which is known exactly."""
    exact = training.epsilon(multiplier, delta, Use(1.0, updates))
    assert exact <= training.epsilon(multiplier, delta, Use(1 - 1e-12, updates)) < exact * 1.1
    plain = PLD.from_gaussian_mechanism(multiplier, sampling_prob=1 - 1e-12, value_discretization_interval=1e-4)
    assert plain.self_compose(updates).get_epsilon_for_delta(delta) < exact


@pytest.mark.parametrize(("epsilon", "delta", "use"), [(1e-6, 1e-5, Use(0.125, 8)), (1.0, 0.99, Use(0.125, 8)),
    (1.0, 0.3, Use(0.001, 8)), (1.0, 1e-5, Use(1e-6, 1)), (1e6, 1e-5, Use(0.125, 8))])  # fmt: skip
def test_calibration_ends_at_extremes(epsilon, delta, use):
    assert training.epsilon(training.calibrate(epsilon, delta, use), delta, use) <= epsilon


def test_a_delta_that_transforms_cannot_count_is_refused():
    with pytest.raises(BadInput, match="or a larger delta"):
        training.calibrate(1.0, 1e-15, Use(0.125, 8))
    assert training.epsilon(5.0, 1e-15, Use(0.125, 8)) == math.inf


@pytest.mark.parametrize("use", [Use(), Use(0.05, 40), Use(1.0, 1, 10**6)])
def test_calibration_meets_its_budget_and_wastes_little(use):
    for episodes in (1, 3):
        found = training.calibrate(2.0, 1e-5, use, episodes)
        assert 2.0 * (1 - 5e-3) < training.epsilon(found, 1e-5, use, episodes) <= 2.0
    assert training.calibrate(math.inf, 1e-5, use) == 0.0
    assert training.epsilon(0.0, 1e-5, use) == math.inf


def test_calibration_finds_small_and_large_multipliers():
    for epsilon in (0.02, 8.0):
        found = training.calibrate(epsilon, 1e-5, Use(0.02, 10))
        assert training.epsilon(found, 1e-5, Use(0.02, 10)) <= epsilon


def test_a_budget_that_no_noise_meets_is_refused(monkeypatch):
    monkeypatch.setattr(training, "MOST_NOISE", 2.0)
    with pytest.raises(BadInput, match="no noise meets"):
        training.calibrate(0.03, 1e-6, Use(0.5, 10))


def test_episodes_of_a_source_cost_most_in_one_update():
    """R at once: sensitivity R·C. One by one: R Gaussian releases, which is less."""
    at_once = training.epsilon(6.0, 1e-5, Use(), 3)
    one_by_one = by_dp_accounting(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(6.0), 3), 1e-5)
    assert at_once == pytest.approx(training.epsilon(2.0, 1e-5), abs=1e-9)
    assert one_by_one < at_once


def test_episodes_of_a_source_in_a_replay_cost_most_when_they_live_together():
    together = training.epsilon(2.0, 1e-5, Use(0.05, 20), 3)
    apart = training.epsilon(2.0, 1e-5, Use(0.05, 60))
    assert apart < together


@pytest.mark.large
def test_the_bound_for_several_episodes_is_above_what_they_cost_exactly():
    """Which dp-accounting knows as a mixture of Gaussians, slowly."""
    exact = PLD.from_mixture_gaussian_mechanism(4.0, [0.0, 1.0, 2.0], [0.81, 0.18, 0.01])
    exact = exact.self_compose(5).get_epsilon_for_delta(1e-5)
    assert exact < training.epsilon(4.0, 1e-5, Use(0.1, 5), 2) < 2.5 * exact


def test_sampling_by_chance_is_cheaper_than_taking_everything():
    assert training.epsilon(2.0, 1e-5, Use(0.1, 10)) < training.epsilon(2.0, 1e-5, Use(1.0, 10))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((1.0, 0.0), "delta must lie"),
        ((-1.0, 1e-5), "multiplier must be"),
        ((1.0, 1e-5, Use(0.0, 1)), "rate must lie"),
        ((1.0, 1e-5, Use(0.5, 0)), "updates must be"),
        ((1.0, 1e-5, Use(), 0), "episodes must be"),
    ],
)
def test_bad_input_is_named(given, said):
    with pytest.raises(BadInput, match=said):
        training.epsilon(*given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"train_epsilon": 0.0}, "epsilon must lie"),
        ({"train_delta": 1.0}, "train_delta must lie"),
        ({"train_clip": 0.0}, "train_clip must be"),
        ({"train_clip": 1e-7}, "train_clip must be a number from 1e-6"),
        ({"episodes_per_source": 0}, "episodes_per_source must be"),
        ({"train_noise": "clock"}, "train_noise must be one of system, seed"),
        ({"train_microbatch": 0}, "train_microbatch must be"),
    ],
)
def test_bad_settings_are_named(given, said):
    with pytest.raises(BadInput, match=said):
        PrivateTraining(**given)


def test_a_claim_is_valid_only_with_noise_that_nobody_can_repeat():
    said = training.claim(PrivateTraining(1.0, episodes_per_source=2), Use(), 64)
    assert (said["valid"], said["warnings"]) == (True, [])
    assert "at most 2 training episodes" in said["neighbours"]
    seeded = training.claim(PrivateTraining(1.0, train_noise="seed"), Use(0.05, 40), 64)
    assert (seeded["valid"], seeded["warnings"], seeded["sampling"]) == (False, [training.FROM_SEED], "poisson")
    free = training.claim(PrivateTraining(math.inf), Use(), 64)
    assert (free["valid"], free["warnings"], free["exact_epsilon"]) == (False, [training.NO_NOISE], math.inf)


@pytest.mark.parametrize("use", [Use(), Use(0.05, 40)])
def test_a_folder_of_many_runs_says_what_a_source_in_all_of_them_gives_away(use):
    alone, many = (training.claim(PrivateTraining(1.0), use, 64, runs) for runs in (1, 6))
    assert alone["exact_epsilon_of_all_runs"] == alone["exact_epsilon"] == many["exact_epsilon"]
    event = dp_accounting.SelfComposedDpEvent(training.event(many["noise_multiplier"], use), 6)
    assert many["exact_epsilon_of_all_runs"] == pytest.approx(by_dp_accounting(event, 1e-5), rel=1e-3)
    assert alone["warnings"] == []
    assert "each of the 6 runs is a release of its own" in many["warnings"][0]


def test_training_and_messages_together_cost_what_they_cost_composed():
    """Gaussian training and Gaussian messages of two agents: squares of shifts add up."""
    private, sigma = PrivateTraining(1.0), 20.0
    message = Release(Channel(clip_norm=0.5), sigma, horizon=25)
    found = training.joint(private, Use(), {message: 2}, 1e-4)
    shifts = [1 / training.multiplier(private, Use())] + [1 / sigma] * 50
    event = dp_accounting.GaussianDpEvent(1 / math.hypot(*shifts))
    assert found["delta"] == pytest.approx(1.1e-4)
    assert found["epsilon"] == pytest.approx(by_dp_accounting(event, 1.1e-4), abs=1e-4)


def test_sampled_training_and_messages_add_up():
    private, use = PrivateTraining(1.0), Use(0.05, 40)
    message = Release(Channel(clip_norm=0.5), 20.0, horizon=25)
    alone = training.joint(private, use, {}, 1e-4)
    assert (alone["epsilon"], alone["delta"]) == (training.claim(private, use, 4)["exact_epsilon"], 1e-5)
    both = training.joint(private, use, {message: 1}, 1e-4)
    assert both["epsilon"] == pytest.approx(alone["epsilon"] + privacy.epsilon(message, 1e-4))
    assert training.joint(PrivateTraining(math.inf), use, {message: 1}, 1e-4)["epsilon"] == math.inf
