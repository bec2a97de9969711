"""Exact discrete Gaussian noise on a grid of integers, and what it costs.

N_Z(0, σ²) gives the integer z a probability proportional to exp(−z²/(2σ²)) (Canonne, Kamath and Steinke 2020). Here σ
is a rational number of grid steps, and every float is one. Proofs are in `docs/privacy-proofs.md`; in short:

**The sampler is exact.** A round proposes z = ±(k·s + j) with a block k of probability 2^−(k+1), an offset j that is
uniform below the power of two s, and a fair sign. It accepts with probability p = 2^(k−1)·exp(−z²/(2σ²)), which is at
most 1 because s² ≥ (ln 2/2)·σ² and k − 1 ≤ k²/4. The product of the two is exp(−z²/(2σ²))/(8s) in every block, so the
accepted z has the right distribution; zero has two signs, and one of them is refused. To accept is to ask whether a
uniform number U lies below p. The first 32 bits of U leave an interval for U, and a table made by integer arithmetic
leaves one for p. Where the two are apart, which is all but always, the answer is known, for all proposals at once.
Where they meet, further bits of U are read and p is computed more closely until they are apart. Nothing here is a
floating-point number.

**Its cost is that of the continuous Gaussian with variance σ² − 3**, up to a factor that is within 1e-25 of 1 for each
released integer: whoever sees the continuous release can turn it into the discrete one by random rounding.
"""

import functools
import math
import os
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, repeat
from typing import NamedTuple

import numpy as np
from scipy.special import erfcx

from dpmac.config import check_delta, positive, require, whole
from dpmac.privacy import loss as losses

PREFIX = 32
"""Bits of the uniform number that all proposals of a batch are compared by."""
NEAR = 16
"""Blocks that are compared in a batch; the others, one proposal in 65,536, are settled one by one."""
BATCH = 1 << 15
"""Proposals made at once."""
COARSEST = 2**28
"""The largest noise scale in grid steps: squares of what is compared in a batch fit into 64 bits."""
FINEST = 2**31
"""The largest clipping norm in grid steps: sums of squares fit into 63 bits."""
ROUNDING = 3
"""τ², the variance of the random rounding that makes the discrete release out of the continuous one."""
RIPPLE = 1e-25
"""Above log((1+ν)/(1−ν)), where ν = 2·Σ exp(−2π²τ²k²) over k ≥ 1 is how far random rounding is from exact."""
ULP = 2.0**-52

Read = Callable[[int], bytes]


# The sampler ----------------------------------------------------------------------------------------------------------


class Law(NamedTuple):
    """What the sampler of one noise scale needs."""

    rate: Fraction
    """1/(2σ²)."""
    bits: int
    """log₂ of the block length s."""
    tables: np.ndarray
    """Lower bounds (byte, 256) on 2^PREFIX·exp(−rate·d·256^byte), none more than 2 below it."""


def discrete_gaussian(sigma: float | Fraction, count: int, read: Read = os.urandom) -> np.ndarray:
    """Independent draws (count,) of N_Z(0, σ²) as int64, σ in grid steps, made of bytes from `read` and nothing else.

    The same bytes give the same draws. From σ = 1 on, an episode is one call of `read`; a draw takes 23 to 46 bytes.

    >>> draws = discrete_gaussian(1024.0, 1000)
    >>> draws.dtype.name, draws.shape, bool(abs(draws).max() < 8 * 1024)
    ('int64', (1000,), True)
    """
    require(whole(count, 0), f"count must be a whole number from 0, not {count}")
    law, kept, missing = law_of(rational(sigma), PREFIX), [np.zeros(0, np.int64)], count
    while missing > 0:
        kept.append(accepted(law, min(BATCH, 5 * missing + 64), read)[:missing])
        missing -= len(kept[-1])
    return np.concatenate(kept)


def accepted(law: Law, proposals: int, read: Read) -> np.ndarray:
    """Draws made by so many proposals, in their order."""
    found = exactly(read, 12 * proposals)
    negative, block, offset = parts(np.frombuffer(found, "<u8", proposals), law.bits)
    prefix = np.frombuffer(found, "<u4", proposals, 8 * proposals).astype(np.uint64) >> np.uint64(32 - PREFIX)
    size = (block << np.uint64(law.bits)) + offset
    keep, known = compare(law, size, block, prefix)
    for i in np.flatnonzero(~known):
        keep[i], size[i] = settle(law, int(block[i]), int(offset[i]), int(prefix[i]), read)
    keep &= ~(negative & (size == 0))
    signed = size.astype(np.int64)
    return np.where(negative, -signed, signed)[keep]


def parts(word: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sign, block and offset from disjoint bits of uniform words; the block NEAR stands for itself and all beyond."""
    one = np.uint64(1)
    field = word >> np.uint64(64 - NEAR) | one << np.uint64(NEAR)
    block = np.bitwise_count((field & (~field + one)) - one).astype(np.uint64)  # zeros below the lowest 1
    return (word & one).astype(bool), block, word >> one & (one << np.uint64(bits)) - one


def compare(law: Law, size: np.ndarray, block: np.ndarray, prefix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether U, which begins with this prefix, lies below 2^(block−1)·exp(−rate·size²), and whether that is known.

    Factors are lower bounds: the first is 1 unit of 2^−PREFIX low, each of the n others less than 2. Each product is
    rounded down by less than 1. As no factor exceeds 1, the last product is less than 3n + 1 units low.
    """
    square, eight = size * size, np.uint64(8)
    low = np.full(size.shape, (1 << PREFIX) - 1, np.uint64)
    for table in law.tables:
        low = low * table[square & np.uint64(255)] >> np.uint64(PREFIX)
        square = square >> eight
    high = low + np.uint64(3 * len(law.tables) + 1)
    below = prefix + prefix + np.uint64(2) <= low << block
    above = prefix + prefix >= high << block
    return below, (below | above) & (block < NEAR)


def settle(law: Law, block: int, offset: int, prefix: int, read: Read) -> tuple[bool, int]:
    """Whether one proposal is accepted, and its size: the same question with as many bits as it takes."""
    if block == NEAR:
        while (word := integer(read)) == 0:
            block += 64
        block += (word & -word).bit_length() - 1
    size, bits = (block << law.bits) + offset, PREFIX
    while True:
        low, high = exponential(law.rate * size * size, bits + block)
        if 2 * prefix + 2 <= low:
            return True, size
        if 2 * prefix >= high:
            return False, 0
        prefix, bits = prefix << 64 | integer(read), bits + 64


@functools.lru_cache(maxsize=64)
def law_of(sigma: Fraction, prefix: int) -> Law:
    """The least power of two with 20·s² ≥ 7·σ², and the tables for sizes below NEAR·s."""
    rate, bits, work = 1 / (2 * sigma * sigma), 0, prefix + 64
    while 20 * 4**bits < 7 * sigma * sigma:
        bits += 1
    tables = []
    for byte in range(1 + -(-2 * bits // 8)):
        one, _ = exponential(rate * 256**byte, work)
        powers = accumulate(repeat(one, 255), lambda left, right: left * right >> work, initial=1 << work)
        tables.append([min(power >> 64, (1 << prefix) - 1) for power in powers])
    return Law(rate, bits, np.array(tables, np.uint64))


def exponential(x: Fraction, bits: int) -> tuple[int, int]:
    """Integers with low ≤ 2^bits·exp(−x) ≤ high for x ≥ 0, a few units apart: a series for x/2^h ≤ 1, squared h times.

    >>> exponential(Fraction(1), 20), round(2**20 / math.e)
    ((385749, 385750), 385750)
    """
    halvings = math.ceil(x).bit_length()
    work = bits + halvings + 8
    top, bottom = x.numerator << work, x.denominator << halvings
    least = most = low = high = 1 << work
    index = 0
    while most > 1:
        index += 1
        least = least * (top // bottom) // (index << work)
        most = -(-most * -(-top // bottom) // (index << work))
        low, high = (low - most, high - least) if index % 2 else (low + least, high + most)
    low, high = max(low - most, 0), high + most  # the terms alternate and shrink: the rest is below the last one
    for _ in range(halvings):
        low, high = low * low >> work, -(-high * high >> work)
    return low >> work - bits, -(-high >> work - bits)


def exactly(read: Read, size: int) -> bytes:
    found = read(size)
    require(len(found) == size, f"the source of randomness gave {len(found)} bytes where {size} were asked for")
    return found


def integer(read: Read) -> int:
    """A uniform 64-bit integer."""
    return int.from_bytes(exactly(read, 8), "little")


# Messages -------------------------------------------------------------------------------------------------------------


def on_grid(message: np.ndarray, clip_norm: float, step: float) -> np.ndarray:
    """A message (number,) clipped to L2 norm `clip_norm` and truncated towards zero to whole grid steps (number,).

    The squares of the result add up to at most (clip_norm/step)², checked in integers: two messages are never further
    apart than 2·clip_norm/step grid steps. A message that holds NaN or infinity becomes zero.

    >>> on_grid(np.array([3.0, 4.0]), clip_norm=1.0, step=2.0**-10).tolist()
    [614, 819]
    """
    require(positive(clip_norm), f"clip_norm must be a finite number above 0, not {clip_norm}")
    require(
        positive(step) and step >= 1e-290 and clip_norm / step <= FINEST,
        f"step must lie between clip_norm/2^31 and the largest finite number, and above 1e-290, not {step}",
    )
    message = np.asarray(message, np.float64)
    message = np.where(np.isfinite(message).all(), message, 0.0)
    norm = math.hypot(*message.tolist())
    clipped = message / max(norm, clip_norm) * clip_norm  # in this order: clip_norm/norm may be too small for a float
    steps = np.trunc(np.where(norm > clip_norm, clipped, message) / step).astype(np.int64)
    most = math.floor((Fraction(clip_norm) / Fraction(step)) ** 2)
    return steps - np.sign(steps) * (int(steps @ steps) > most)  # floats may end a few ulp outside; one step is plenty


# What it costs --------------------------------------------------------------------------------------------------------


def comparable(sigma: float | Fraction) -> float:
    """√(σ² − 3), in grid steps: a continuous Gaussian with this noise scale is no more private than N_Z(0, σ²).

    Put it in the place of σ wherever the cost of a continuous Gaussian is computed, for shifts in any direction and any
    number of uses. What it leaves out is RIPPLE in ε and as a share of δ, for each integer that is released.

    >>> comparable(2.0**20) / 2**20 > 1 - 1.4e-12
    True
    """
    return math.sqrt(rational(sigma, least=3) ** 2 - ROUNDING) * (1 - 2 * ULP)


def delta(sigma: float | Fraction, shift: float, epsilon: float, numbers: int = 1) -> float:
    """Upper bound on δ(ε) of releasing so many integers, each with noise N_Z(0, σ²) of its own.

    `shift` is the L2 distance in grid steps between what neighbours release in the unit: Δ·√T for T uses of sensitivity
    Δ, chosen adaptively or not. `numbers` counts integers: coordinates times uses. The bound covers its own rounding.

    >>> f"{delta(1024.0, 1024 * 0.3139, 1.0):.4e} {losses.gaussian_delta(1.0, 0.3139):.4e}"
    '9.9992e-05 9.9990e-05'
    """
    require(epsilon >= 0 and math.isfinite(epsilon), f"epsilon must be finite and at least 0, not {epsilon}")
    return delta_above(epsilon, shift_of(sigma, shift, numbers), numbers)


def epsilon(sigma: float | Fraction, shift: float, delta: float, numbers: int = 1) -> float:
    """Upper bound on ε(δ) of the same release: the least that `delta` allows, rounded up in the twelfth digit.

    >>> round(epsilon(1024.0, 1024 * 0.3139, 1e-4), 4)
    1.0
    """
    check_delta(delta)
    mu = shift_of(sigma, shift, numbers)
    if delta_above(0.0, mu, numbers) <= delta:
        return 0.0
    top = 1 + losses.gaussian_bound(mu, delta / 2)
    return losses.solve(lambda epsilon: delta_above(epsilon, mu, numbers) - delta, 0.0, top) * (1 + 1e-12)


def slack(sigma: float | Fraction, shift: float, epsilon: float, numbers: int = 1) -> float:
    """What `delta` adds to δ(ε) of the continuous Gaussian with the same σ.

    >>> slack(2.0**20, 2**20 * 0.3139, 1.0) / 1e-4 < 1e-10
    True
    """
    above = delta(sigma, shift, epsilon, numbers)
    return max(0.0, above - float(losses.gaussian_delta(epsilon, shift / float(sigma))))


def delta_above(epsilon: float, mu: float, numbers: int) -> float:
    """δ_μ(ε) from above: rounding by random kernels for so many integers, and all rounding of floats, are added.

    δ_μ(ε) = φ(t)·(M(t) − M(t + μ)) with t = ε/μ − μ/2 and Mills' ratio M. Both M are known to a few units in the last
    place. t is known to a few units in the last place of ε/μ + μ/2, which moves φ(t) and the difference by no more than
    that times 2·(1 + ε/μ + μ/2), as shares of them.
    """
    if mu == 0:
        return 0.0
    epsilon -= numbers * RIPPLE
    start, size = epsilon / mu - mu / 2, 1 + abs(epsilon) / mu + mu / 2
    if start < -30:
        return 1.0
    difference = mills(start) * (1 + 8 * ULP) - mills(start + mu) * (1 - 8 * ULP)
    density = math.exp(-start * start / 2) / math.sqrt(2 * math.pi)
    return min(1.0, density * difference * (1 + 32 * ULP * size * size + numbers * RIPPLE) + 1e-300)


def shift_of(sigma: float | Fraction, shift: float, numbers: int) -> float:
    """μ: the shift in standard deviations of the continuous Gaussian that stands for the discrete one."""
    require(shift >= 0 and math.isfinite(shift), f"shift must be a finite number of grid steps from 0, not {shift}")
    require(whole(numbers, 1), f"numbers must be a whole number from 1, not {numbers}")
    return shift / comparable(sigma)


def exact_delta(sigma: float | Fraction, shift: int, epsilon: float) -> float:
    """δ(ε) of one integer that moves by `shift` steps, by adding up its terms: the discrete Gaussian itself, no bound.

    Terms are added from where the loss passes ε to 14 σ further. What is left is at most (1 + 2σ)·exp(−x²/(2σ²)) at the
    first x that is left out, before it is normalised, and is added.

    >>> f"{exact_delta(1024.0, 321, 1.0):.6e}"
    '9.828099e-05'
    """
    require(whole(shift, 1), f"shift must be a whole number of grid steps from 1, not {shift}")
    require(epsilon >= 0 and math.isfinite(epsilon), f"epsilon must be finite and at least 0, not {epsilon}")
    variance, width = rational(sigma, most=2**20) ** 2, float(sigma)
    start = Fraction(epsilon) * variance / shift - Fraction(shift, 2)
    if start < -14 * width:
        return 1.0
    first = math.floor(start) + 1
    steps = np.arange(max(0, -first) + math.ceil(14 * width) + 20.0)
    x, beyond = first + steps, float(first - start) + steps
    terms = np.exp(-(x * x) / (2 * width * width)) * -np.expm1(-beyond * (shift / float(variance)))
    rest = (1 + 2 * width) * math.exp(-((x[-1] + 1) ** 2) / (2 * width * width))
    return min(1.0, (math.fsum(terms) + rest) / normaliser(width))


def normaliser(sigma: float) -> float:
    """Σ exp(−n²/(2σ²)) over all integers n: as it stands, or by Poisson's summation where that has fewer terms."""
    squares = np.arange(1.0, 40.0) ** 2
    if sigma < 1:
        return 1 + 2 * math.fsum(np.exp(-squares / (2 * sigma * sigma)))
    return math.sqrt(2 * math.pi) * sigma * (1 + 2 * math.fsum(np.exp(-2 * (math.pi * sigma) ** 2 * squares)))


def mills(x: float) -> float:
    """M(x) = (1 − Φ(x))/φ(x)."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def rational(sigma: float | Fraction, least: int = 0, most: int = COARSEST) -> Fraction:
    """A noise scale in grid steps, exactly as it was given."""
    number = isinstance(sigma, int | Fraction) or (isinstance(sigma, float) and math.isfinite(sigma))
    require(
        number and sigma > 0 and least <= sigma <= most,
        f"sigma must be a number of grid steps above 0, at least {least} and at most {most}, not {sigma}",
    )
    return Fraction(sigma)
