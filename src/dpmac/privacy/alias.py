"""Tables for exact discrete Gaussian noise where there are no wide integers, as in compiled programs.

The noise is x + m·y with independent x from N_Z(0, s²) and y from N_Z(0, t²). That is N_Z(0, s² + m²t²) up to a factor
within 1e-25 of 1, because the lattice of pairs (x, y) with the same sum is fine enough (docs/privacy-proofs.md). Sizes
|x| and |y| come from Walker's alias method: a random column of a table holds two sizes, and 80 further random bits
choose between them. Tables are made by integer arithmetic, so that each size has its probability up to 2⁻⁹⁵.
"""

import functools
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpmac.privacy import discrete

COLUMNS = 15
"""log₂ of the columns of a table."""
SHARE = 80
"""Bits that choose between the two sizes of a column."""
REACH = 12
"""Deviations to which a table goes. What lies beyond has a probability below 1e-30."""
WORK = 256
"""Bits of the weights that probabilities are made of."""
FINE, COARSE, STRIDE = 2**22, 2**20 - 3, 2**10
"""s², t² and m. The sum has a variance of 2⁴⁰ + 2²⁰."""
DEVIATION = 2**20
"""Deviation of the continuous Gaussian noise that the sum costs no more than: √(variance − 3), or less."""
SLIP = 2.0**-78
"""Above the total variation between a drawn number and that noise, rounded at random to a whole number."""


class Table(NamedTuple):
    """Each column keeps its own size with probability share/2^SHARE, and else gives the size `other`."""

    share: np.ndarray
    """(word, column) as uint32: 16, 32 and 32 bits."""
    other: np.ndarray
    """(column,) as int32."""


def probabilities(variance: int) -> list[int]:
    """The law of |x| for x from N_Z(0, variance), in units of 2^−(COLUMNS + SHARE) that add up to 1.

    >>> sum(probabilities(FINE)) == 2 ** (COLUMNS + SHARE)
    True
    """
    one, whole = 1 << WORK, 1 << COLUMNS + SHARE
    ratio, _ = discrete.exponential(Fraction(1, 2 * variance), WORK)  # of weights 0 and 1
    weights, weight, square = [one], one, ratio * ratio >> WORK
    while len(weights) ** 2 <= REACH**2 * variance:
        weight, ratio = weight * ratio >> WORK, ratio * square >> WORK
        weights.append(2 * weight)  # of both signs
    total = sum(weights)
    found = [weight * whole // total for weight in weights]
    return [found[0] + whole - sum(found), *found[1:]]


@functools.cache
def table(variance: int) -> Table:
    """The alias table of `probabilities`, which it gives without any error of its own."""
    full = 1 << SHARE
    left = probabilities(variance)
    left += [0] * ((1 << COLUMNS) - len(left))
    share, other = list(left), list(range(len(left)))
    small = [column for column, mass in enumerate(left) if mass < full]
    large = [column for column, mass in enumerate(left) if mass >= full]
    while small and large:
        low, high = small.pop(), large[-1]
        share[low], other[low] = left[low], high
        left[high] -= full - left[low]
        if left[high] < full:
            small.append(large.pop())
    # What is left over is full to the last unit: whichever size is chosen, it is the column's own.
    share = [0 if other[column] == column else mass for column, mass in enumerate(share)]
    words = [[mass >> shift & 0xFFFFFFFF for mass in share] for shift in (64, 32, 0)]
    return Table(np.array(words, np.uint32), np.array(other, np.int32))
