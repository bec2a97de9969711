"""Composition of losses of different kinds."""

import math
import time
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmac.privacy import loss as losses
from dpmac.privacy.loss import Loss

PLD = pld.privacy_loss_distribution


@given(st.floats(0.05, 3), st.floats(0.05, 1.5), st.integers(2, 6), st.integers(1, 20), st.floats(1e-8, 1e-2))
@settings(max_examples=40, deadline=None)
def test_gaussian_and_response_together_agree_with_dp_accounting(mu, each, symbols, uses, delta):
    flip = losses.response_flip(each, symbols)
    exact = losses.epsilon_of(losses.compose([Loss(mu), losses.response(flip, symbols, uses)]), delta)
    bounds = []
    for pessimistic in (False, True):
        one = PLD.from_randomized_response(flip * symbols / (symbols - 1), symbols, pessimistic, 2e-3)
        gaussian = PLD.from_gaussian_mechanism(1 / mu, 1, pessimistic, 2e-3, use_connect_dots=False)
        bounds.append(one.self_compose(uses).compose(gaussian).get_epsilon_for_delta(delta))
    assert bounds[0] - 1e-6 <= exact <= bounds[1] + 1e-6


@given(st.lists(st.floats(0.01, 3), min_size=1, max_size=6), st.floats(0, 10))
@settings(deadline=None)
def test_squared_shifts_add(shifts, epsilon):
    whole = losses.compose([Loss(mu) for mu in shifts])
    assert losses.delta_of(whole, epsilon) == pytest.approx(
        losses.delta_of(Loss(math.sqrt(sum(mu * mu for mu in shifts))), epsilon), rel=1e-9
    )


@given(st.integers(1, 30), st.integers(1, 30), st.floats(0, 10))
@settings(deadline=None)
def test_uses_of_response_add(first, second, epsilon):
    parts = losses.compose([losses.response(0.4, 3, first), losses.response(0.4, 3, second)])
    whole = losses.response(0.4, 3, first + second)
    assert losses.delta_of(parts, epsilon) == pytest.approx(losses.delta_of(whole, epsilon), rel=1e-9, abs=1e-300)


def test_rounding_many_different_losses_up_never_understates(monkeypatch):
    parts = [losses.response(flip, 3, 20) for flip in (0.5, 0.55, 0.6)]
    exact = losses.compose(parts)
    monkeypatch.setattr(losses, "MOST_ATOMS", 1 << 15)
    rounded = losses.compose(parts)
    assert len(rounded.values) <= 1 << 15 < len(exact.values)
    for epsilon in np.linspace(0, 20, 30):
        assert losses.delta_of(rounded, epsilon) >= losses.delta_of(exact, epsilon) * (1 - 1e-12)
    assert losses.epsilon_of(rounded, 1e-6) == pytest.approx(losses.epsilon_of(exact, 1e-6), rel=0.02)


def test_transforms_agree_with_direct_sums(monkeypatch):
    direct = losses.response(0.5, 3, 600)
    monkeypatch.setattr(losses, "DIRECT", 50)
    fast = losses.response(0.5, 3, 600)
    assert fast.infinite > direct.infinite == 0
    place = np.searchsorted(direct.values, fast.values - 1e-9)
    np.testing.assert_allclose(fast.values, direct.values[place])
    left_out = np.delete(direct.probabilities, place)
    assert np.abs(fast.probabilities - direct.probabilities[place]).max() < 1e-15
    assert left_out.sum() < 1e-15
    assert losses.epsilon_of(fast, 1e-10) == pytest.approx(losses.epsilon_of(direct, 1e-10), rel=1e-6)
    assert losses.epsilon_of(fast, 1e-10) >= losses.epsilon_of(direct, 1e-10) * (1 - 1e-9)


@pytest.mark.parametrize("uses", [2049, 4096, 6000, 1_000_003])
def test_sums_without_their_ends_keep_mean_spread_and_all_but_nothing_of_their_probability(uses):
    """A million uses take a fraction of a second."""
    lattice = losses.response_lattice(losses.response_flip(0.01, 3), 3)
    start = time.process_time()
    loss = lattice.loss(uses)
    assert losses.epsilon_of(loss, 1e-4) > 0
    assert time.process_time() - start < 2
    low, _, high = lattice.probabilities
    mean, spread = uses * (high - low), uses * (high + low - (high - low) ** 2)
    steps = np.rint(loss.values / lattice.step)
    assert loss.probabilities.sum() == pytest.approx(1, abs=1e-7)
    assert loss.probabilities @ steps == pytest.approx(mean, rel=1e-7)
    assert loss.probabilities @ (steps - mean) ** 2 == pytest.approx(spread, rel=1e-6)
    assert len(steps) < 4096 + 50 * math.sqrt(uses)


def test_epsilon_of_symbols_is_never_below_that_of_whole_numbers():
    """δ(ε) of randomised response by fractions of whole numbers, at the ε that was found."""
    for uses, keep in ((1, 3), (7, 5), (60, 2)):
        flip = 2 / (keep + 2)  # a symbol is kept `keep` times as often as it becomes another one of the two
        lattice = losses.response_lattice(flip, 3)
        for delta in (1e-2, 1e-6, 1e-12):
            found = losses.epsilon_of(lattice.loss(uses), delta)
            total = Fraction(0)
            for plus in range(uses + 1):
                for minus in range(uses + 1 - plus):
                    ways = math.comb(uses, plus) * math.comb(uses - plus, minus)
                    weight = Fraction(ways * keep**plus, (keep + 2) ** uses)
                    ratio = Fraction(keep) ** (minus - plus)  # e^-loss
                    total += weight * max(Fraction(0), 1 - above(found) * ratio)
            assert total <= delta


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 7.0, 44.0])
@pytest.mark.parametrize("symbols", [2, 3, 256, 65_281])
def test_epsilon_of_a_use_of_symbols_is_never_below_sixty_digits_and_hardly_above(epsilon, symbols):
    """For flips around those that this ε has, as they are drawn."""
    flip = losses.response_flip(epsilon, symbols)
    with mp.workdps(60):
        for near in (flip, *(flip * (1 - share) for share in (1e-15, 1e-13, 1e-7, 0.3))):
            exact = mp.log((1 - mp.mpf(near)) * (symbols - 1) / mp.mpf(near))
            assert exact <= losses.response_epsilon(near, symbols) <= exact * (1 + 1e-14)


def test_flips_at_the_ends_cost_nothing_and_everything():
    assert losses.response_epsilon(0.5, 2) == 0
    assert losses.response_epsilon(0.0, 3) == losses.response_epsilon(5e-324, 3) == math.inf


def above(epsilon):
    """A fraction not below e^ε by more than its rounding."""
    with mp.workdps(50):
        return Fraction(str(mp.exp(mp.mpf(epsilon))))


@pytest.mark.parametrize(("epsilon", "above"), [(1e-6, 1e-6), (0.03, 1e-6), (1.0, 1e-6), (20.0, 1e-6), (40.0, 0.05)])
@pytest.mark.parametrize("symbols", [2, 3, 50, 65_000])
def test_a_use_of_symbols_is_dominated_by_its_shift_and_by_no_smaller_one(epsilon, above, symbols):
    """By trade-off functions, which agree at one corner, and by δ at every ε."""
    lattice = losses.response_lattice(losses.response_flip(epsilon, symbols), symbols)
    shift = math.sqrt(lattice.squared(1))
    with mp.workdps(60):
        flip = (symbols - 1) / (mp.exp(epsilon) + symbols - 1)
        low, high = flip / (symbols - 1), 1 - flip
        least = mp.sqrt(2) * (mp.erfinv(2 * high - 1) - mp.erfinv(2 * low - 1))
        assert least <= shift <= least * (1 + above) + 1e-10
        for error in [low, *(mp.mpf(place) / 40 for place in range(1, 40))]:
            curve = max(1 - mp.exp(epsilon) * error, 1 - high + low - error, mp.exp(-epsilon) * (1 - error))
            assert mp.ncdf(mp.sqrt(2) * mp.erfinv(1 - 2 * error) - shift) <= curve
    one = lattice.loss(1)
    for at in np.linspace(-1.2 * epsilon, 1.2 * epsilon, 41):
        exact = one.probabilities @ np.maximum(-np.expm1(at - one.values), 0)
        assert exact <= losses.delta_of(Loss(shift), at) + 1e-14
    assert lattice.squared(1000) == pytest.approx(1000 * lattice.squared(1))


def test_infinite_losses_add_up_and_make_epsilon_infinite():
    whole = losses.compose([Loss(infinite=0.1), Loss(infinite=0.1)])
    assert whole.infinite == pytest.approx(0.19)
    assert losses.epsilon_of(whole, 0.1) == math.inf
    assert losses.epsilon_of(whole, 0.2) == 0


@pytest.mark.parametrize("mu", [1e6, 1e9, 1e12, 1e100, 1e160])
def test_a_huge_shift_has_an_epsilon_that_is_not_understated(mu):
    found = losses.epsilon_of(Loss(mu), 1e-4)
    assert found >= mu * mu / 2
    assert found <= mu * mu * 1.01 or math.isinf(mu * mu)


def test_no_loss_costs_nothing():
    assert losses.epsilon_of(Loss(), 1e-12) == 0
    assert losses.delta_of(losses.compose([]), 0.0) == 0


@given(st.floats(1e-3, 60), st.floats(1e-3, 1))
@settings(deadline=None)
def test_amplification_has_its_inverse(epsilon, rate):
    assert float(losses.unamplified(losses.amplified(epsilon, rate), rate)) == pytest.approx(epsilon, rel=1e-6)
    assert losses.amplified(epsilon, rate) <= epsilon * (1 + 1e-12)


@given(st.floats(1e-3, 100), st.floats(1e-12, 0.4))
@settings(deadline=None)
def test_shift_of_a_budget_has_exactly_that_delta(epsilon, delta):
    assert float(losses.gaussian_delta(epsilon, losses.mu_of(epsilon, delta))) == pytest.approx(delta, rel=1e-6)


def test_unlikely_budgets_have_a_shift_too():
    assert losses.mu_of(1e-6, 0.9) > 3
