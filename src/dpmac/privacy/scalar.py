"""A secret that is a number: how well it can be told at a budget, and by how many symbols.

The secret is uniform on [−1, 1], and any two values are neighbours. A receiver who knows the mechanism takes the mean
of its posterior; what counts is its mean squared error, which is 1/3 without a message. A quantiser cuts the interval
into cells and sends the cell through randomised response. With cells of probability p_i and mean m_i, and a slope
s = (e^ε − 1)/(e^ε + k − 1) by which the response keeps the symbol, the error is

    1/3 − Σ_i (s·p_i·m_i)² / (s·p_i + (1 − s)/k).
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from dpmac.config import require
from dpmac.privacy import loss, staircase

PRIOR = 1 / 3
"""The error without a message: the variance of the prior."""
MOST_SYMBOLS = 256
GRID = 2000
"""Points of the prior in numerical integrals."""


def kept(epsilon: float, symbols: int) -> float:
    """The slope of k-ary randomised response: how much of the symbol is in the mean of what is released."""
    return -math.expm1(-epsilon) / (1 + (symbols - 1) * math.exp(-epsilon))


def best_symbols(epsilon: float, dimensions: int = 1, most: int = MOST_SYMBOLS) -> int:
    """How many symbols tell a place best at ε: few where each is often flipped, more as ε grows.

    m cells of equal content keep 1 − m^(−2/d) of the variance of a place in d dimensions, and a response keeps the
    square of its slope of that. A secret of k values has k cells at most.

    >>> [best_symbols(epsilon) for epsilon in (1.0, 3.0, 5.0)]
    [2, 3, 5]
    >>> [best_symbols(epsilon, dimensions=2, most=3) for epsilon in (0.5, 1.5, 2.0, 10.0)]
    [2, 2, 3, 3]
    """
    check(epsilon)
    require(2 <= most <= MOST_SYMBOLS, f"most must be a whole number from 2 to {MOST_SYMBOLS}, not {most}")
    return max(range(2, most + 1), key=lambda m: (1 - m ** (-2 / dimensions)) * kept(epsilon, m) ** 2)


def quantised_error(epsilon: float, symbols: int) -> float:
    """The error of equal cells.

    >>> [round(quantised_error(epsilon, best_symbols(epsilon)), 3) for epsilon in (1.0, 3.0, 5.0)]
    [0.28, 0.112, 0.034]
    """
    return error_of(np.linspace(-1, 1, symbols + 1)[1:-1], epsilon)


def error_of(borders: np.ndarray, epsilon: float) -> float:
    """The error of cells between these borders (symbols − 1,)."""
    check(epsilon)
    ends = np.concatenate([[-1.0], np.sort(np.clip(borders, -1, 1)), [1.0]])
    share, mean, k = np.diff(ends) / 2, (ends[1:] + ends[:-1]) / 2, len(ends) - 1
    slope = kept(epsilon, k)
    sent = np.maximum(slope * share + (1 - slope) / k, 1e-300)  # of an empty cell nothing, where nothing is flipped
    return float(PRIOR - np.sum((slope * share * mean) ** 2 / sent))


def quantiser(epsilon: float, symbols: int) -> np.ndarray:
    """Borders (symbols − 1,) of the best cells, by a direct search that begins at equal ones."""
    equal = np.linspace(-1, 1, symbols + 1)[1:-1]
    found = minimize(error_of, equal, (epsilon,), "Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12})
    return np.sort(found.x)


def best_quantiser(epsilon: float) -> np.ndarray:
    """Borders of the best cells of any number near `best_symbols`; outer cells are wider, so there may be one more."""
    count = best_symbols(epsilon)
    return min((quantiser(epsilon, k) for k in (count, count + 1)), key=lambda borders: error_of(borders, epsilon))


def laplace_error(epsilon: float) -> float:
    """The error of the number itself plus Laplace noise of scale 2/ε, at δ = 0.

    >>> [round(laplace_error(epsilon), 3) for epsilon in (1.0, 3.0, 5.0)]
    [0.312, 0.221, 0.144]
    """
    check(epsilon)
    return additive_error(lambda apart: np.exp(-np.abs(apart) * epsilon / 2), 60 / epsilon)


def gaussian_error(epsilon: float, delta: float) -> float:
    """The error of the number itself plus Gaussian noise, calibrated exactly.

    >>> [round(gaussian_error(epsilon, 1e-4), 3) for epsilon in (1.0, 3.0, 5.0)]
    [0.331, 0.316, 0.294]
    """
    check(epsilon)
    sigma = 2 / loss.mu_of(epsilon, delta)
    return additive_error(lambda apart: np.exp(-0.5 * (apart / sigma) ** 2), 9 * sigma)


def additive_error(density: Callable[[np.ndarray], np.ndarray], reach: float) -> float:
    """The error of a number plus noise of this density, up to a factor, whose tails beyond `reach` are nothing."""
    secret = (np.arange(GRID) + 0.5) / GRID * 2 - 1
    heard = np.linspace(0, 1 + reach, 2 * GRID + 1)[:, None]  # the other half is its mirror image
    likelihood = density(heard - secret)
    mass, moment = likelihood.sum(1), likelihood @ secret
    weights = np.ones(len(heard))
    weights[[0, -1]] = 0.5
    told = weights @ (moment**2 / np.maximum(mass, 1e-300)) / (weights @ mass)
    return float(PRIOR - told)


def least_error(epsilon: float, delta: float = 0.0, values: int = 12) -> float:
    """A lower bound on the error of every (ε, δ)-DP mechanism, from the program of a secret with so many values.

    The secret is the middle of one of so many equal cells plus where in its cell it lies. Tell the receiver the second
    part: what is left is a secret of so many values, shifted by a known number. So no mechanism has a smaller error
    than the best code of these values.

    With δ the bound is that of `staircase.cut`.

    >>> [round(least_error(epsilon), 4) for epsilon in (1.0, 3.0, 5.0)]
    [0.2776, 0.1098, 0.0318]
    """
    check(epsilon)
    middle = (np.arange(values) + 0.5) / values * 2 - 1
    program = staircase.program(epsilon, values)
    mass = program.directions / values
    told = (mass @ middle) ** 2 / mass.sum(1)
    found = staircase.solve(told, program)
    bound = staircase.cut(found, middle**2 / values, (values - 1) * delta)
    return max(0.0, float(np.mean(middle**2) - bound))


def check(epsilon: float) -> None:
    require(0 < epsilon <= staircase.LARGEST, f"epsilon must lie in (0, {staircase.LARGEST}], not {epsilon}")
