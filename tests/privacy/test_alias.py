"""Tables of discrete Gaussian noise: their laws against sixty digits, and what the sum of two of them is."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpmac.privacy import alias, discrete

mp = mpmath.mp
WHOLE = 2 ** (alias.COLUMNS + alias.SHARE)


@pytest.fixture(autouse=True)
def _sixty_digits():
    with mp.workdps(60):
        yield


def law(table: alias.Table) -> list[int]:
    """The probability of each size, in units of 2^−95, by what a column keeps and what it gives away."""
    found = [0] * len(table.other)
    for column, (share, other) in enumerate(zip(zip(*table.share.tolist(), strict=True), table.other, strict=True)):
        own = share[0] << 64 | share[1] << 32 | share[2]
        found[column] += own
        found[other] += 2**alias.SHARE - own
    return found


@pytest.mark.parametrize(("variance", "most"), [(alias.FINE, 2.0**-80), (alias.COARSE, 2.0**-81)])
def test_a_table_has_the_law_of_the_discrete_gaussian(variance, most):
    found = law(alias.table(variance))
    assert sum(found) == WHOLE
    sizes = range(20 * int(variance**0.5))
    weights = [mp.exp(-mp.mpf(size * size) / (2 * variance)) * (2 if size else 1) for size in sizes]
    total = mp.fsum(weights)
    found += [0] * (len(weights) - len(found))
    distance = mp.fsum(abs(mp.mpf(mass) / WHOLE - weight / total) for mass, weight in zip(found, weights, strict=False))
    assert distance / 2 < most
    assert all(mass > 0 for mass in found[: 10 * int(variance**0.5)])


def test_a_table_with_a_wrong_deviation_is_seen():
    sizes = np.arange(12 * 2048)
    found = np.array([mass / WHOLE for mass in law(alias.table(alias.FINE))])[: len(sizes)]
    for variance, same in ((alias.FINE, True), (alias.FINE + 2, False)):
        weights = np.exp(-(sizes**2) / (2 * variance)) * np.where(sizes, 2, 1)
        assert (np.abs(found - weights / weights.sum()).sum() < 1e-12) == same


def test_the_sum_of_two_is_the_discrete_gaussian_with_the_sum_of_their_variances():
    """All pairs, at scales with the same fineness of the lattice as those of the tables or less."""
    fine, coarse, stride = 64, 13, 4
    assert 3 < spread(fine, coarse, stride) < spread(alias.FINE, alias.COARSE, alias.STRIDE)
    variance = fine + stride**2 * coarse
    ratios = []
    for value in range(8 * int(variance**0.5)):
        pairs = mp.fsum(
            mp.exp(-mp.mpf((value - stride * y) ** 2) / (2 * fine) - mp.mpf(y * y) / (2 * coarse))
            for y in range(-70, 71)
        )
        ratios.append(pairs / mp.exp(-mp.mpf(value * value) / (2 * variance)))
    assert max(ratios) / min(ratios) - 1 < discrete.RIPPLE
    assert max(ratios) > min(ratios)


def spread(fine: int, coarse: int, stride: int) -> float:
    """The variance of y where x + stride·y is known."""
    return float(1 / (Fraction(stride**2, fine) + Fraction(1, coarse)))


def test_the_sum_is_no_cheaper_than_the_deviation_that_is_claimed_and_slips_by_no_more():
    variance = alias.FINE + alias.STRIDE**2 * alias.COARSE
    assert alias.DEVIATION**2 <= variance - discrete.ROUNDING <= alias.DEVIATION**2 * (1 + 1e-6)
    assert alias.SLIP >= 2.0**-80 + 2.0**-81 + 4 * discrete.RIPPLE
    assert (alias.REACH + 1) * (alias.FINE**0.5 + alias.STRIDE * alias.COARSE**0.5) < 2**24
