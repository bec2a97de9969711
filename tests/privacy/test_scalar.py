"""A secret that is a number: what mechanisms can tell of it."""

import math

import numpy as np
import pytest

from dpmac.config import BadInput
from dpmac.privacy import scalar
from dpmac.privacy.loss import response_flip

EPSILONS = (1.0, 3.0, 5.0)
KNOWN = {"response": (0.280, 0.112, 0.034), "laplace": (0.313, 0.221, 0.144), "gaussian": (0.331, 0.317, 0.295)}
"""Worked out once, by another program."""


def test_mean_squared_errors_are_the_known_ones():
    found = {
        "response": [scalar.quantised_error(epsilon, scalar.best_symbols(epsilon)) for epsilon in EPSILONS],
        "laplace": [scalar.laplace_error(epsilon) for epsilon in EPSILONS],
        "gaussian": [scalar.gaussian_error(epsilon, 1e-4) for epsilon in EPSILONS],
    }
    for name, known in KNOWN.items():
        np.testing.assert_allclose(found[name], known, atol=0.0005 if name == "response" else 0.002, err_msg=name)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_best_cells_come_within_five_percent_of_what_no_mechanism_passes(epsilon):
    least, best = scalar.least_error(epsilon), scalar.error_of(scalar.best_quantiser(epsilon), epsilon)
    assert least < best <= scalar.quantised_error(epsilon, scalar.best_symbols(epsilon)) + 1e-12
    assert best < 1.05 * least


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_delta_lowers_the_bound_a_little_and_the_gaussian_mechanism_stays_above(epsilon):
    pure, wide = scalar.least_error(epsilon), scalar.least_error(epsilon, 1e-4)
    assert pure - 0.002 < wide < pure
    assert wide < scalar.gaussian_error(epsilon, 1e-4)


def test_spending_delta_on_the_secret_itself_stays_within_the_bound():
    """With probability δ the number leaves as it is, else its cell through randomised response."""
    delta, epsilon = 0.02, 3.0
    error = (1 - delta) * scalar.error_of(scalar.best_quantiser(epsilon), epsilon)
    assert scalar.least_error(epsilon, delta) < error


def test_errors_are_those_of_a_simulation():
    """Receivers who take the mean of what they have seen go with each symbol, and with what is near on a line."""
    rng, count, epsilon = np.random.default_rng(0), 400_000, 3.0
    secret = rng.uniform(-1, 1, count)
    borders = scalar.quantiser(epsilon, 3)
    symbol = np.searchsorted(borders, secret)
    flipped = rng.uniform(size=count) < response_flip(epsilon, 3)
    symbol = (symbol + flipped * rng.integers(1, 3, count)) % 3
    mean = np.array([secret[symbol == k].mean() for k in range(3)])
    assert np.mean((secret - mean[symbol]) ** 2) == pytest.approx(scalar.error_of(borders, epsilon), abs=0.001)
    heard = secret + rng.laplace(scale=2 / epsilon, size=count)
    order = np.argsort(heard)
    near = secret[order].reshape(-1, 1000)
    assert np.mean(near.var(1)) == pytest.approx(scalar.laplace_error(epsilon), abs=0.002)


def test_the_number_of_symbols_grows_with_the_budget_and_stops_at_the_values_of_the_secret():
    counts = [scalar.best_symbols(epsilon) for epsilon in np.geomspace(0.1, 12, 30)]
    assert counts == sorted(counts)
    assert counts[0] == 2
    assert scalar.best_symbols(12.0, most=4) == 4


def test_two_symbols_pay_up_to_where_the_limits_of_ccn_cross():
    """Two symbols and three are worth the same there near ε = 1.8."""
    assert [scalar.best_symbols(epsilon, 2, 3) for epsilon in (0.5, 1.0, 1.5, 2.0, 3.0)] == [2, 2, 2, 3, 3]


def test_free_messages_leave_the_error_of_the_cells():
    assert scalar.quantised_error(50.0, 4) == pytest.approx(1 / 48)
    assert scalar.kept(1.0, 2) == pytest.approx(math.tanh(0.5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scalar.best_symbols(0.0), "epsilon must lie in"),
        (lambda: scalar.best_symbols(1.0, most=1), "from 2 to 256"),
        (lambda: scalar.laplace_error(math.inf), "epsilon must lie in"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(BadInput, match=message):
        call()
