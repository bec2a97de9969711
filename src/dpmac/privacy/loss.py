"""Privacy loss of a channel as a distribution, and the two questions asked of it: δ(ε) and ε(δ).

A `Loss` describes a pair of distributions that dominates every pair of neighbours: a Gaussian shift of `mu`
(standard deviations) composed with finitely many discrete losses. Then

    δ(ε) = infinite + Σ_j probability_j · δ_μ(ε − value_j),    δ_μ(ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2)

exactly. Gaussian channels have no discrete part, randomised response no shift, and a ledger that holds both has both.
"""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from dpmac.config import require

MOST_ATOMS = 1 << 17
"""Discrete losses kept apart; beyond that they are rounded up onto a grid, which never understates δ."""
GRID = 3000
"""Grid points of one sampled release's loss, on the positive side."""
MOST_SAMPLED = 100
"""Sampled releases that are added up; each has a rate and a transform of its own."""
DIRECT = 2048
"""Uses of randomised response that are added up directly, with full relative precision; more of them by transforms."""
TRANSFORM_ERROR = 1e-15
"""What Fourier transforms and the ends that they leave out may have lost, added to δ."""
ENDS = 1e-21
"""Probability of the ends of a sum that are left out before it is added to another one."""
HUGE = 2.0**20
"""Shift above which ε is its simple bound, for rounding leaves no digits of δ; the two differ by a share of 1e-5."""
ULP = 2.0**-52


class Loss(NamedTuple):
    mu: float = 0.0
    """Shift of the Gaussian part in standard deviations."""
    values: np.ndarray = np.zeros(1)
    """Discrete losses (atom,)."""
    probabilities: np.ndarray = np.ones(1)
    """Their probabilities (atom,) under the first of the two neighbours."""
    infinite: float = 0.0
    """Probability of an outcome that is impossible under the other neighbour."""


class Pool(Protocol):
    """What like releases add up in before they have one loss; hashable."""

    def loss(self, amount: Any, /) -> Loss:
        """The loss of so much of it."""
        ...

    def pure(self, amount: Any, /) -> float:
        """Its ε at δ = 0."""
        ...

    def squared(self, amount: Any, /) -> float:
        """The square of a shift that dominates it, charged in whatever portions; infinite where there is none."""
        ...


class Shift(NamedTuple):
    """Gaussian releases: the squares of their shifts add up."""

    def loss(self, squared: float) -> Loss:
        return Loss(math.sqrt(squared)) if math.isfinite(squared) else Loss(infinite=1.0)

    def pure(self, squared: float) -> float:
        return math.inf if squared else 0.0

    def squared(self, squared: float) -> float:
        return squared


class Lattice(NamedTuple):
    """Uses whose loss is −step, 0 or +step."""

    step: float
    probabilities: tuple[float, float, float]
    """Of the three losses, under the first of the two neighbours."""

    def loss(self, uses: int) -> Loss:
        """Products of so many probabilities are off by a share of at most 32 units in the last place for each."""
        one = np.array(self.probabilities)
        first, probabilities = (-uses, power(one, uses)) if uses <= DIRECT else power_within(one, uses)
        lost = TRANSFORM_ERROR if uses > DIRECT else 0.0
        values = self.step * (first + np.arange(len(probabilities)))
        return Loss(0.0, values, probabilities * (1 + 32 * ULP * uses), lost)

    def pure(self, uses: int) -> float:
        return uses * self.step

    def squared(self, uses: int) -> float:
        """n·(Φ⁻¹(p₊) − Φ⁻¹(p₋))², the least for each use (`docs/privacy-proofs.md`), rounded up.

        Rounding moves a quantile x by no more than a few units in the last place of 1 + |x|, once p ≤ 1/2.
        """
        minus, _, plus = self.probabilities
        plus += 4 * ULP
        high = ndtri(plus) if plus < 0.5 else -ndtri(max(minus, 1 - plus))
        low = ndtri(minus)
        return float(uses * (high - low + 64 * ULP * (1 + abs(high) + abs(low))) ** 2)


def gaussian_delta(epsilon: Any, mu: float) -> Any:
    """δ_μ(ε) for any real ε, to full relative precision.

    >>> round(float(gaussian_delta(1.0, 0.3139)), 6)
    0.0001
    """
    epsilon = np.asarray(epsilon, float)
    if mu == 0:
        return -np.expm1(np.minimum(epsilon, 0))
    upper = log_ndtr(-epsilon / mu + mu / 2)
    lower = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return -np.exp(upper) * np.expm1(np.minimum(lower - upper, 0))


def delta_above(epsilon: Any, mu: float) -> Any:
    """δ_μ(ε) with what the rounding of floating-point numbers may have taken off it: never below the truth.

    Logarithms are right to a few units in the last place of themselves, and their arguments of |ε|/μ + μ/2.
    """
    epsilon = np.asarray(epsilon, float)
    if mu == 0:
        return gaussian_delta(epsilon, mu)
    upper = log_ndtr(-epsilon / mu + mu / 2)
    lower = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    off = (
        8 * ULP * (1 + np.abs(epsilon) + np.abs(upper) + np.abs(lower - epsilon) + (np.abs(epsilon) / mu + mu / 2) ** 2)
    )
    return np.minimum(1.0, np.exp(upper) * (1 + off) * (off - np.expm1(np.minimum(lower - upper, 0))))


def delta_of(loss: Loss, epsilon: float) -> float:
    """δ(ε) of a loss, rounded up."""
    return min(1.0, loss.infinite + float(loss.probabilities @ delta_above(epsilon - loss.values, loss.mu)))


def epsilon_of(loss: Loss, delta: float) -> float:
    """The smallest ε ≥ 0 with δ(ε) ≤ δ, rounded up; infinite where an impossible outcome is likelier than δ."""
    if loss.infinite >= delta:
        return math.inf
    most = float(loss.values.max())
    if loss.mu > HUGE:
        return (most + gaussian_bound(loss.mu, delta - loss.infinite)) * (1 + 1e-12)
    if delta_of(loss, 0.0) <= delta:
        return 0.0
    top = 1e-9 + most + gaussian_bound(loss.mu, (delta - loss.infinite) / 2)
    found = solve(lambda epsilon: delta_of(loss, epsilon) - delta, 0.0, top) * (1 + 1e-12)
    return found if loss.mu or loss.infinite else min(found, most)


def gaussian_bound(mu: float, delta: float) -> float:
    """μ²/2 + μ·√(2·log(1/δ)): an ε that a shift of μ never exceeds at δ."""
    return mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))


def mu_of(epsilon: float, delta: float) -> float:
    """The shift with exactly (ε, δ): the inverse of `gaussian_delta` in μ.

    >>> round(mu_of(1.0, 1e-4), 4)
    0.3139
    """
    root = math.sqrt(2 * math.log(1 / delta))
    low = 2 * epsilon / (root + math.sqrt(root * root + 2 * epsilon))
    high = 2 * low
    while gaussian_delta(epsilon, high) < delta:
        high *= 2
    return solve(lambda mu: float(gaussian_delta(epsilon, mu)) - delta, low, high)


def solve(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where a monotone function changes its sign, to 13 digits; it may jump there, for which brentq halves often."""
    found: Any = brentq(excess, low, high, xtol=1e-300, rtol=np.float64(1e-13), maxiter=2000)
    return float(found)


def response(flip: float, symbols: int, uses: int) -> Loss:
    """k-ary randomised response used n times: each loss is +ε₀, 0 or −ε₀, the sum lies on a lattice.

    >>> round(epsilon_of(response(2 / (math.e + 2), 3, 1), 1e-12), 6)
    1.0
    """
    return response_lattice(flip, symbols).loss(uses)


def response_lattice(flip: float | Fraction, symbols: int) -> Lattice:
    """One use of k-ary randomised response."""
    exact = Fraction(flip)
    others = exact / (symbols - 1)
    return Lattice(response_epsilon(flip, symbols), (float(others), float(others * (symbols - 2)), float(1 - exact)))


def response_epsilon(flip: float | Fraction, symbols: int) -> float:
    """ε₀ = log((1−f)(k−1)/f): what one use of randomised response costs, at δ = 0, rounded up.

    It is log(1 + r) of an exact r = (k−1−k·f)/f, since 1 − f and the quotient would lose digits where ε₀ is small. The
    logarithm is off by a few units in the last place at most.
    """
    exact = Fraction(flip)
    rest = symbols - 1 - symbols * exact
    if exact * 2**1000 < 1:
        return math.inf
    return math.log1p(float(rest / exact)) * (1 + 4 * ULP) if rest > 0 else 0.0


def response_flip(epsilon: float, symbols: int) -> float:
    """f = (k−1)/(e^ε + k − 1): the inverse of `response_epsilon`."""
    rest = (symbols - 1) * math.exp(-epsilon)
    return rest / (1 + rest)


def sampled(mu: float, rates: Iterable[float], delta: float) -> Loss:
    """Upper bound on the loss about one transition when release t draws it with probability rates[t], all added up.

    For one release the profile under replacement is at most h(ε) = γ·δ_μ(log(1 + (e^ε − 1)/γ)) for ε ≥ 0 and, by
    symmetry, e^ε·h(−ε) + 1 − e^ε below (Balle, Barthe and Gaboardi 2018). In e^ε both branches are convex, and where
    they meet the slope rises, by (1−γ)(2Φ(μ/2) − 1). A convex profile belongs to a pair of distributions, which
    dominates under composition (Zhu, Dong and Wang 2022); on a grid the dots of h are connected, above it everywhere.
    `delta` sets the scale of what may be ignored: a thousandth of it goes into `infinite`.
    """
    rates = list(rates)
    require(len(rates) <= MOST_SAMPLED, f"a sender that samples is accounted for up to {MOST_SAMPLED} releases at once")
    ignored = delta / (1000 * len(rates))
    tops = [amplified(gaussian_bound(mu, ignored / rate), rate) for rate in rates]
    gap = max(tops) / GRID
    length = 1 << (2 * GRID * len(rates)).bit_length()
    transform, infinite = np.ones(length // 2 + 1, complex), 0.0
    for rate in sorted(set(rates)):
        count = rates.count(rate)
        positive, beyond = connect_dots(mu, rate, gap)
        losses = gap * np.arange(GRID + 1)
        negative = (positive * np.exp(-losses))[:0:-1]
        transform *= np.fft.rfft(np.concatenate([negative, positive]), length) ** count
        infinite += count * beyond
    probabilities = np.maximum(np.fft.irfft(transform, length)[: 2 * GRID * len(rates) + 1], 0)
    values = gap * (np.arange(len(probabilities)) - GRID * len(rates))
    return Loss(0.0, values, probabilities, infinite + TRANSFORM_ERROR)


def amplified(epsilon: float, rate: float) -> float:
    """log(1 + γ(e^ε − 1)): ε of the sampled release whose unsampled one has this ε."""
    return (
        epsilon + math.log(rate - (rate - 1) * math.exp(-epsilon))
        if epsilon > 1
        else math.log1p(rate * math.expm1(epsilon))
    )


def unamplified(epsilon: Any, rate: float) -> Any:
    """log(1 + (e^ε − 1)/γ): the inverse of `amplified`."""
    epsilon = np.asarray(epsilon, float)
    return np.where(
        epsilon > 1,
        epsilon - math.log(rate) + np.log1p((rate - 1) * np.exp(-epsilon)),
        np.log1p(np.expm1(np.minimum(epsilon, 1)) / rate),
    )


def connect_dots(mu: float, rate: float, gap: float) -> tuple[np.ndarray, float]:
    """Probabilities (GRID + 1,) at losses 0, gap, 2·gap, …, and beyond, that have the profile h at these losses.

    The pair is symmetric: the probability of the loss −ℓ is e^{−ℓ} times that of ℓ.
    """
    losses = gap * np.arange(GRID + 1)
    profile = rate * gaussian_delta(unamplified(losses, rate), mu)
    slopes = np.diff(profile) / np.expm1(gap)
    probabilities = np.zeros(GRID + 1)
    probabilities[1:-1] = np.maximum(slopes[1:] - slopes[:-1] * math.exp(gap), 0)
    probabilities[-1] = -slopes[-1] * math.exp(gap)
    beyond = float(profile[-1])
    probabilities[0] = max(0.0, 1 - beyond - float(probabilities @ (1 + np.exp(-losses))))
    return probabilities, beyond


def compose(losses: Iterable[Loss]) -> Loss:
    """The loss of releases whose numbers are fixed in advance, in any order: μ² adds, discrete losses convolve.

    Inputs and order may be chosen from what was released before, but which kind comes how often may not: the account of
    a ledger that allows this is composed by `accounting.composed(account, adaptive=True)`.
    """
    total = Loss()
    for loss in losses:
        values = np.add.outer(total.values, loss.values).ravel()
        probabilities = np.multiply.outer(total.probabilities, loss.probabilities).ravel()
        if len(values) > MOST_ATOMS:
            values, probabilities = round_up(values, probabilities)
        infinite = 1 - (1 - total.infinite) * (1 - loss.infinite)
        total = Loss(math.hypot(total.mu, loss.mu), values, probabilities, infinite)
    return total


def round_up(values: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same losses on a grid of MOST_ATOMS/16 points, each rounded up."""
    grid = np.linspace(values.min(), values.max(), MOST_ATOMS // 16)
    place = np.minimum(np.searchsorted(grid, values), len(grid) - 1)
    return grid, np.bincount(place, probabilities, len(grid))


def power(one: np.ndarray, times: int) -> np.ndarray:
    """The distribution of the sum of so many independent lattice variables, by repeated squaring."""
    total, square = np.ones(1), one
    while times:
        if times & 1:
            total = convolve(total, square)
        times >>= 1
        square = convolve(square, square) if times else square
    return total


def power_within(one: np.ndarray, times: int) -> tuple[int, np.ndarray]:
    """The same for many variables of values −1, 0 and 1, without its ends: the first value, and probabilities.

    A sum of m of them is further than √(2m·log(2/p)) from its mean with probability p at most (Hoeffding 1963). Ends of
    probability `ENDS` are left out of each sum on the way to the whole, of which there are fewer than 2·times.
    """
    mean, rest = float(one @ [-1.0, 0.0, 1.0]), times % DIRECT
    start, total = -rest, power(one, rest)
    count, first, square, left = DIRECT, -DIRECT, power(one, DIRECT), times // DIRECT
    while left:
        reach = math.sqrt(2 * count * math.log(2 / ENDS))
        low, high = max(first, math.floor(count * mean - reach)), math.ceil(count * mean + reach)
        first, square = low, square[low - first : high + 1 - first]
        if left & 1:
            start, total = start + first, convolve(total, square)
        count, first, square, left = 2 * count, 2 * first, convolve(square, square) if left > 1 else square, left >> 1
    return start, total


def convolve(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Direct where that is quick, because sums of products of probabilities keep their relative precision."""
    if min(len(left), len(right)) <= 2 * DIRECT + 1:
        return np.convolve(left, right)
    length = len(left) + len(right) - 1
    padded = 1 << (length - 1).bit_length()
    return np.maximum(np.fft.irfft(np.fft.rfft(left, padded) * np.fft.rfft(right, padded), padded)[:length], 0)
