"""The discrete Gaussian: its sampler by bits and by distribution, its cost against 60 digits, and OpenDP beside it."""

import math
import time
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from dpmac import privacy
from dpmac.config import BadInput, Channel, Release
from dpmac.privacy import discrete
from dpmac.privacy import loss as losses

mp: Any = mpmath.mp
SIGMAS = (0.5, 1.7, 10.0, 100.0, 1000.0)
LARGE = pytest.mark.large
LIMIT = 1e-5
"""Least p-value that passes. About a hundred are looked at: a sound sampler fails with one set of seeds in 1,000."""
FEW_AND_MANY = [200_000, pytest.param(10_000_000, marks=LARGE)]


@pytest.fixture(autouse=True)
def _sixty_digits():
    with mp.workdps(60):
        yield


def seeded(seed):
    return np.random.default_rng(seed).bytes


def probabilities(sigma):
    """Exact probabilities of −n … n, and n, beyond which less than 1e-30 is left."""
    most = math.ceil(12 * sigma) + 2
    weights = np.exp(-(np.arange(-most, most + 1.0) ** 2) / (2 * sigma * sigma))
    return weights / math.fsum(weights), most


def chi_square(draws, sigma, groups=math.inf):
    """p-value of draws under N_Z(0, σ²); neighbours are merged until 25 are expected, into so many groups at most."""
    expected, most = probabilities(sigma)
    assert abs(draws).max() <= most
    group = greedy(expected, max(25 / len(draws), 1 / groups))
    observed = np.bincount(group[draws + most], minlength=group.max() + 1)
    wanted = np.bincount(group, expected) * len(draws)
    return stats.chi2.sf(((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1)


def greedy(expected, least):
    """Groups of neighbours, each closed when it holds this much; what is left at the end joins the last one."""
    total, group, groups = 0.0, 0, np.zeros(len(expected), int)
    for i, part in enumerate(expected):
        groups[i], total = group, total + part
        if total >= least:
            total, group = 0.0, group + 1
    return np.minimum(groups, group - 1)


# The sampler, bit by bit ----------------------------------------------------------------------------------------------


@given(st.fractions(0, 300), st.integers(0, 200))
@example(Fraction(0), 40)
@example(Fraction(1, 10**30), 90)
@settings(deadline=None)
def test_exponential_lies_between_its_bounds_and_they_are_close(x, bits):
    low, high = discrete.exponential(x, bits)
    with mp.workdps(250):
        exact = mp.ldexp(mp.exp(-mp.mpf(x.numerator) / x.denominator), bits)
        assert low <= exact <= high
    assert high - low <= 3


def test_bounds_of_the_exponential_are_rounded_outwards():
    """One wrong direction inside moves a bound by a few hundredths: it shows in some of many numbers."""
    rng = np.random.default_rng(7)
    for _ in range(4000):
        x, bits = Fraction(int(rng.integers(1, 10**9)), int(rng.integers(10**6, 10**9))), int(rng.integers(0, 60))
        low, high = discrete.exponential(x, bits)
        assert low <= mp.ldexp(mp.exp(-mp.mpf(x.numerator) / x.denominator), bits) <= high


def acceptance(sigma, block, size):
    """2^(block−1)·exp(−size²/(2σ²)) to 60 digits."""
    return mp.ldexp(mp.exp(-(mp.mpf(size) ** 2) / (2 * mp.mpf(sigma) ** 2)), block - 1)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.7, 3.3])
def test_every_leaf_of_the_tree_of_bits_is_decided_as_it_must_be(sigma, monkeypatch):
    """All signs, blocks, offsets and 12-bit prefixes: what is decided brackets the exact probability of every z."""
    monkeypatch.setattr(discrete, "PREFIX", 12)
    law = discrete.law_of(Fraction(sigma), 12)
    prefix, rng = np.arange(1 << 12, dtype=np.uint64), np.random.default_rng(5)
    lower, upper = {}, {}
    for block in range(discrete.NEAR):
        for offset in range(1 << law.bits):
            size = (block << law.bits) + offset
            sizes, blocks = np.full_like(prefix, size), np.full_like(prefix, block)
            keep, known = discrete.compare(law, sizes, blocks, prefix)
            exact = acceptance(sigma, block, size)
            assert exact <= 1
            assert (keep & known).sum() <= exact * 4096 <= (keep | ~known).sum()
            weight = 2.0 ** -(block + 2 + law.bits + 12)
            lower[size] = float((keep & known).sum() * weight)
            upper[size] = float((keep | ~known).sum() * weight)
            for start in np.flatnonzero(~known)[:8]:
                rest = rng.bytes(800)
                bits = iter([rest[i : i + 8] for i in range(0, 800, 8)])
                number = (
                    int(start) << 128 | int.from_bytes(rest[:8], "little") << 64 | int.from_bytes(rest[8:16], "little")
                )
                accepted, found = discrete.settle(law, block, offset, int(start), lambda size, bits=bits: next(bits))
                assert accepted == (mp.ldexp(mp.mpf(number), -140) < exact)
                assert found == (size if accepted else 0)
    total, most = probabilities(sigma)
    undecided = sum(upper.values()) - sum(lower.values())
    assert undecided < 0.003
    scale = sum(lower.values()) * 2 - lower[0]
    for size in range(4):
        assert lower[size] / (scale + 2 * undecided) <= total[most + size] <= upper[size] / scale


def test_words_become_signs_blocks_and_offsets_without_sharing_a_bit():
    bits = 3
    words = np.arange(1 << 16, dtype=np.uint64)
    low, high = words & np.uint64(15), (words >> np.uint64(4)) << np.uint64(52)
    negative, block, offset = discrete.parts(low | high, bits)  # 4 low bits, and 12 of the 16 that choose the block
    assert negative.mean() == 0.5
    assert np.bincount(offset.astype(int)).tolist() == [8192] * 8
    counts = np.bincount(block.astype(int))
    assert counts[4:16].tolist() == [2 ** (15 - i) for i in range(12)]  # the four lowest are 0 here
    assert counts[16] == 16
    joint = np.bincount((negative * 8 + offset + 16 * (block == 4)).astype(int))
    assert joint.tolist() == [2048] * 32


@pytest.mark.parametrize("sigma", [1e-3, 0.5, 1.7, 10.0, 1000.0, 1024.0, 123456.789, 2.0**20, 2.0**28])
def test_acceptance_is_a_probability_and_blocks_are_long_enough(sigma):
    law = discrete.law_of(Fraction(sigma), discrete.PREFIX)
    for block in range(40):
        assert acceptance(sigma, block, block << law.bits) <= 1
    assert 20 * 4**law.bits >= 7 * Fraction(sigma) ** 2
    assert law.bits == 0 or 20 * 4 ** (law.bits - 1) < 7 * Fraction(sigma) ** 2
    rng = np.random.default_rng(2)
    away = np.concatenate([-(2 ** np.arange(21)), [0], 2 ** np.arange(21)])
    for block in np.repeat(np.arange(16), 4).tolist():
        size = (block << law.bits) + int(rng.integers(0, 1 << law.bits))
        exact = mp.ldexp(acceptance(sigma, block, size), 32)  # in units of the prefix
        prefix = int(exact) + away
        prefix = prefix[(prefix >= 0) & (prefix < 2**32)].astype(np.uint64)
        keep, known = discrete.compare(law, np.full_like(prefix, size), np.full_like(prefix, block), prefix)
        for start, kept, decided in zip(prefix.tolist(), keep.tolist(), known.tolist(), strict=True):
            assert not decided or (start + 1 <= exact if kept else start >= exact)
            assert decided or abs(start - exact) <= 2 + (3 * len(law.tables) + 1) * 2.0 ** (block - 1)


def test_blocks_beyond_the_table_are_settled_with_further_bits():
    law = discrete.law_of(Fraction(10), discrete.PREFIX)

    def fixed(*words):
        left = list(words)
        return lambda size: left.pop(0).to_bytes(size, "little")

    assert discrete.settle(law, 16, 3, 0, fixed(1, 0, 0, 0)) == (True, (16 << law.bits) + 3)
    assert discrete.settle(law, 16, 3, 0, fixed(4, 2**64 - 1)) == (False, 0)
    assert discrete.settle(law, 16, 0, 0, fixed(0, 2, *[0] * 99)) == (True, (16 + 64 + 1) << law.bits)
    assert discrete.settle(law, 16, 3, 1, fixed(1)) == (False, 0)


def test_zero_is_settled_although_its_probability_is_a_binary_fraction():
    law = discrete.law_of(Fraction(10), discrete.PREFIX)
    assert discrete.settle(law, 0, 0, 2**31 - 1, lambda size: b"\xff" * size)[0]
    assert not discrete.settle(law, 0, 0, 2**31, bytes)[0]


@pytest.mark.parametrize("sigma", [0.7, 10.0, 2.0**20])
def test_settling_everything_one_by_one_gives_the_same_distribution(sigma, monkeypatch):
    monkeypatch.setattr(discrete, "PREFIX", 2)
    monkeypatch.setattr(discrete, "BATCH", 4096)
    draws = discrete.discrete_gaussian(sigma, 6000, seeded(8))
    assert chi_square(draws, sigma, 40) > LIMIT if sigma < 1e4 else abs(draws.std() / sigma - 1) < 0.04


# The sampler, by its distribution -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", FEW_AND_MANY)
@pytest.mark.parametrize("sigma", SIGMAS)
def test_draws_have_the_exact_probabilities(sigma, count, record_property):
    draws = discrete.discrete_gaussian(sigma, count, seeded(round(10 * sigma)))
    fine, coarse = chi_square(draws, sigma), chi_square(draws, sigma, 64)
    record_property("counted", f"discrete Gaussian, σ = {sigma:g}, {count:,} draws: p = {fine:.3f}, {coarse:.3f}")
    assert min(fine, coarse) > LIMIT
    assert len(draws) == count


@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_noise_scale_that_is_wrong_by_a_hundredth_is_seen(sigma):
    """The control of the test above."""
    for wrong in (0.99, 1.01):
        draws = discrete.discrete_gaussian(wrong * sigma, 1_000_000, seeded(3))
        assert chi_square(draws, sigma, 64) < 1e-6


@LARGE
@pytest.mark.parametrize("sigma", SIGMAS)
def test_p_values_of_many_samples_are_uniform(sigma):
    """What one p-value cannot show: neither too many small ones nor too few, and the statistic is what it says."""
    found = [chi_square(discrete.discrete_gaussian(sigma, 30_000, seeded(i)), sigma, 64) for i in range(5000, 5400)]
    assert stats.kstest(found, "uniform").pvalue > LIMIT


@pytest.mark.parametrize("sigma", [1024.0, 5000.3, 2.0**20, 2.0**28])
def test_large_noise_scales_have_gaussian_moments_and_uniform_low_bits(sigma):
    count = 300_000
    draws = discrete.discrete_gaussian(sigma, count, seeded(4))
    z = draws / sigma
    assert abs(z.mean()) < 4.5 / math.sqrt(count)
    assert abs((z**2).mean() - 1) < 4.5 * math.sqrt(2 / count)
    assert abs((z**3).mean()) < 4.5 * math.sqrt(15 / count)
    assert abs((z**4).mean() - 3) < 4.5 * math.sqrt(96 / count)
    assert stats.kstest(z, "norm").pvalue > LIMIT
    assert stats.chisquare(np.bincount(draws & 255, minlength=256)).pvalue > LIMIT


@pytest.mark.parametrize("sigma", [0.5, 10.0, 1024.0])
def test_draws_are_symmetric_and_independent_of_those_before(sigma):
    draws = discrete.discrete_gaussian(sigma, 400_000, seeded(6)).astype(float)
    positive, negative = (draws > 0).sum(), (draws < 0).sum()
    assert stats.binomtest(int(positive), int(positive + negative)).pvalue > LIMIT
    for values in (draws, draws**2, abs(draws) > sigma):
        centred = values - values.mean()
        centred = centred / centred.std()
        for lag in (1, 2, 3, 7, 64, 1000):
            assert abs((centred[:-lag] * centred[lag:]).mean()) < 4.5 / math.sqrt(len(draws))


@pytest.mark.parametrize("count", [400_000, pytest.param(10_000_000, marks=LARGE)])
def test_tails_have_the_right_weight(count):
    sigma = 1024.0
    draws = abs(discrete.discrete_gaussian(sigma, count, seeded(9)))
    expected, most = probabilities(sigma)
    for times in (2, 3, 4):
        tail = 2 * expected[most + round(times * sigma) + 1 :].sum()
        assert abs((draws > times * sigma).sum() - count * tail) < 4.5 * math.sqrt(count * tail)


@pytest.mark.parametrize(("block", "batches"), [(6, 40), pytest.param(10, 1000, marks=LARGE)])
def test_far_blocks_are_accepted_as_often_as_they_must_be(block, batches):
    """A source that proposes one block alone, from 3.6 or from 6 standard deviations on."""
    sigma, source, field = 27.0, seeded(11), np.uint64(1 << 48 + block)
    law = discrete.law_of(Fraction(sigma), discrete.PREFIX)
    assert law.bits == 4

    def read(size):
        words = np.frombuffer(source(size), "<u4").copy()
        first = words[: 2 * size // 12].view("<u8")
        first[:] = first & np.uint64(2**48 - 1) | field
        return words.tobytes()

    found = np.concatenate([discrete.accepted(law, discrete.BATCH, read) for _ in range(batches)])
    rates = [float(acceptance(sigma, block, (block << 4) + j)) for j in range(16)]
    wanted = batches * discrete.BATCH * np.array(rates) / 16
    assert block << 4 <= abs(found).min() <= abs(found).max() < (block + 1) << 4
    assert abs(len(found) - wanted.sum()) < 4.5 * math.sqrt(wanted.sum())
    assert wanted.sum() > 100


def test_same_bytes_give_the_same_draws_and_an_episode_is_read_at_once():
    reads = []

    def read(size):
        reads.append(size)
        return source(size)

    for sigma in (*SIGMAS, 1024.0, 2.0**20, 591.6, 1183.0):
        source = seeded(1)
        first = discrete.discrete_gaussian(sigma, 25 * 16, read)
        assert sigma < 1 or reads[0] > 8 == max(reads[1:], default=8), "but for bits of single proposals"
        reads.clear()
        assert np.array_equal(first, discrete.discrete_gaussian(sigma, 25 * 16, seeded(1)))
        assert not np.array_equal(first, discrete.discrete_gaussian(sigma, 25 * 16, seeded(2)))
        assert not np.array_equal(first, discrete.discrete_gaussian(sigma, 25 * 16))


def test_floats_are_taken_as_the_rational_numbers_that_they_are():
    assert discrete.rational(0.1) == Fraction(3602879701896397, 2**55)
    draws = discrete.discrete_gaussian(2.5, 1000, seeded(1))
    assert np.array_equal(draws, discrete.discrete_gaussian(Fraction(5, 2), 1000, seeded(1)))


def test_hardly_any_noise_is_zero_and_no_draws_are_none():
    assert not discrete.discrete_gaussian(1e-300, 100).any()
    assert discrete.discrete_gaussian(7, 0).shape == (0,)


@LARGE
@pytest.mark.parametrize("sigma", [*SIGMAS, 1024.0, 1183.0, 2.0**20, 2.0**28])
def test_a_core_makes_a_hundred_thousand_draws_a_second(sigma, record_property):
    discrete.discrete_gaussian(sigma, 1)
    start = time.process_time()
    discrete.discrete_gaussian(sigma, 1_000_000)
    rate = 1e6 / (time.process_time() - start)
    record_property("counted", f"discrete Gaussian, σ = {sigma:g}: {rate:,.0f} draws a second")
    assert rate > 1e5


# Messages on a grid ---------------------------------------------------------------------------------------------------

NUMBER = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(NUMBER, min_size=1, max_size=12), st.floats(1e-30, 1e30), st.integers(-6, 31))
@example([0.6, 0.8], 1.0, 20)
@example([3.0, 4.0], 5.0, 0)
@example([1e-170, 1e-170], 1e-200, 10)
@example([1.7e308, -1.7e308], 0.5, 30)
@example([5.4885608512204795e292], 1e-30, 5)
@settings(max_examples=500, deadline=None)
def test_message_on_the_grid_never_exceeds_the_clip_norm(message, clip_norm, fineness):
    step = 2.0 ** (math.floor(math.log2(clip_norm)) + 1 - fineness)
    steps = discrete.on_grid(np.array(message), clip_norm, step)
    assert sum(int(n) ** 2 for n in steps) * Fraction(step) ** 2 <= Fraction(clip_norm) ** 2
    if not np.isfinite(message).all():
        assert not steps.any()


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
@settings(deadline=None)
def test_short_messages_move_by_less_than_a_step_towards_zero(message):
    message, step = np.array(message), 2.0**-20
    steps = discrete.on_grid(message, 10.0, step)
    assert (abs(message - steps * step) < step).all()
    assert (abs(steps * step) <= abs(message)).all()


def test_floats_that_end_outside_of_the_ball_are_brought_back():
    """Clipping in floating point alone overshoots: in some of these cases the truncated vector is too long."""
    rng, over = np.random.default_rng(0), 0
    for _ in range(4000):
        a, b, c = sorted(int(n) for n in rng.integers(1, 1000, 3))
        legs = np.array([2 * a * b, b * b - a * a + 0.0]) * c  # of whole length (a² + b²)·c
        if a == b:
            continue
        message, clip_norm = legs / 3.0, (a * a + b * b) * c / 3.0
        step = clip_norm / ((a * a + b * b) * c)
        if clip_norm / step > 2**31:
            continue
        steps = discrete.on_grid(message, clip_norm, step)
        most = (Fraction(clip_norm) / Fraction(step)) ** 2
        assert int(steps @ steps) <= most
        scaled = np.trunc(message * min(1.0, clip_norm / math.hypot(*message)) / step).astype(int)
        over += int(scaled @ scaled) > most
    assert over > 0


# What it costs --------------------------------------------------------------------------------------------------------


def continuous_delta(epsilon, mu):
    """δ_μ(ε) to 60 digits."""
    return mp.ncdf(-epsilon / mu + mu / 2) - mp.exp(epsilon) * mp.ncdf(-epsilon / mu - mu / 2)


def brute_delta(sigma, shifts, epsilon):
    """δ(ε) of N_Z(0, σ²) on every coordinate, moved by these integers: all outcomes, in integers of 200 bits."""
    most = math.ceil(13 * sigma)
    weights = np.array(
        [int(mp.ldexp(mp.exp(-mp.mpf(n * n) / (2 * mp.mpf(sigma) ** 2)), 200)) for n in range(-most, most + 1)]
    )
    sums = np.array([1], object)  # weights of Y = Σ s_i·x_i, which is all that the loss depends on
    for shift in shifts:
        spread = np.zeros(len(sums) + 2 * most * shift, object)
        for i, weight in enumerate(weights):
            spread[i * shift : i * shift + len(sums)] += weight * sums
        sums = spread
    squares, middle = sum(shift * shift for shift in shifts), len(sums) // 2
    variance, total, scale = mp.mpf(sigma) ** 2, mp.mpf(0), sum(sums.tolist())
    for y in range(-middle, middle + 1):
        excess = epsilon - (mp.mpf(2 * y) + squares) / (2 * variance)
        if excess < 0 and sums[y + middle]:
            total -= mp.mpf(sums[y + middle]) * mp.expm1(excess)
    return total / scale


@pytest.mark.parametrize("shifts", [(1,), (4,), (1, 1, 1), (3, 4), (1, 12), (1, 0, 7), (2, 2, 2, 2, 2, 2)])
@pytest.mark.parametrize("sigma", [3.0, 4.7])
def test_the_bound_holds_for_vectors_and_the_truth_is_close_below(sigma, shifts):
    length = mp.sqrt(sum(s * s for s in shifts))
    for epsilon in (0.0, 0.3, 1.0, 4.0, 9.0):
        exact = brute_delta(sigma, shifts, epsilon)
        above = discrete.delta(sigma, float(length), epsilon, len(shifts))
        below = continuous_delta(epsilon, length / mp.sqrt(mp.mpf(sigma) ** 2 + discrete.ROUNDING))
        assert exact <= above
        assert below * (1 - 1e-15) <= exact + mp.mpf(10) ** -32, "outcomes beyond 13 σ are left out here"
        if len(shifts) == 1:
            alone = discrete.exact_delta(sigma, shifts[0], epsilon)
            assert alone == pytest.approx(float(exact), rel=1e-11, abs=1e-32)


@pytest.mark.parametrize("uses", [2, 8])
def test_the_bound_holds_over_uses(uses):
    for epsilon in (0.1, 1.0, 3.0):
        exact = brute_delta(3.5, (1,) * uses, epsilon)
        assert exact <= discrete.delta(3.5, math.sqrt(uses), epsilon, uses)


def test_the_continuous_cost_alone_would_understate():
    """The control: without the step of 3 in the variance, the bound is false somewhere, so something is tested."""
    broken = [
        epsilon
        for epsilon in np.linspace(0.5, 8, 60)
        if brute_delta(3.0, (4,), float(epsilon)) > continuous_delta(float(epsilon), mp.mpf(4) / 3)
    ]
    assert broken


@pytest.mark.parametrize("alpha", [1.5, 2, 8, 30])
@pytest.mark.parametrize("shift", [1, 5])
@pytest.mark.parametrize("sigma", [0.6, 3.0])
def test_renyi_divergence_is_at_most_that_of_the_continuous_gaussian(sigma, shift, alpha):
    most = math.ceil(13 * sigma) + math.ceil(alpha * shift)
    weight = {n: mp.exp(-mp.mpf(n * n) / (2 * mp.mpf(sigma) ** 2)) for n in range(-most - shift, most + shift + 1)}
    moment = sum(weight[n - shift] ** alpha * weight[n] ** (1 - mp.mpf(alpha)) for n in range(-most, most + 1))
    divergence = mp.log(moment / sum(weight.values())) / (alpha - 1)
    exact = mp.mpf(alpha) * shift**2 / (2 * mp.mpf(sigma) ** 2)
    assert divergence <= exact * (1 + mp.mpf(10) ** -25)


def test_ripple_is_what_the_proof_asks_for():
    ripple = 2 * sum(mp.exp(-2 * mp.pi**2 * discrete.ROUNDING * k * k) for k in range(1, 9))
    assert mp.log((1 + ripple) / (1 - ripple)) < discrete.RIPPLE


@pytest.mark.parametrize(
    ("sigma", "shift"),
    [(0.5, 1), (0.9, 2), (100.5, 321), (30.0, 10_000), pytest.param(1024.0, 321, marks=LARGE)],
)
def test_exact_sum_agrees_with_sixty_digits(sigma, shift):
    variance, most = mp.mpf(sigma) ** 2, math.ceil(14 * sigma) + 2
    weights = {n: mp.exp(-mp.mpf(n * n) / (2 * variance)) for n in range(-most, most + 1)}
    for epsilon in (0.0, 0.5, 3.0):
        loss = {n: (mp.mpf(2 * n) * shift + shift**2) / (2 * variance) for n in weights}
        total = sum(-mp.expm1(epsilon - loss[n]) * weight for n, weight in weights.items() if loss[n] > epsilon)
        exact = float(total / sum(weights.values()))
        assert discrete.exact_delta(sigma, shift, epsilon) == pytest.approx(exact, rel=1e-10, abs=1e-40)


@pytest.mark.parametrize(
    ("sigma", "share", "longer"),
    [(2.0**10, 8.3e-5, 1.9e-6), (2.0**12, 5.2e-6, 1.2e-7), (2.0**16, 2.1e-8, 4.5e-10), (2.0**20, 8.1e-11, 3.2e-12)],
)
def test_the_bound_is_as_close_to_the_continuous_cost_as_the_page_says(sigma, share, longer):
    """Over budgets ε from 0.01 to 10 and δ from 1e-4 to 1e-12, for an episode of 25 messages of 16 numbers."""
    for budget in (0.01, 0.1, 1.0, 3.0, 10.0):
        for small in (1e-4, 1e-6, 1e-12):
            mu = losses.mu_of(budget, small)
            assert discrete.slack(sigma, mu * sigma, budget, 400) / small < share
            spent = discrete.epsilon(sigma, mu * sigma, small, 400)
            assert budget <= spent <= budget * (1 + longer)


@pytest.mark.parametrize("sigma", [1024.0, 4096.0])
def test_the_truth_itself_differs_from_the_continuous_cost_by_about_a_twelfth_of_a_squared_step(sigma):
    """Why no bound can be closer than that: at σ = 1,024 one number's exact δ exceeds the continuous one by 1e-6."""
    most = 0.0
    for shift in range(round(0.8 * sigma), round(0.8 * sigma) + 40):
        continuous = float(continuous_delta(4.0, mp.mpf(shift) / sigma))
        ratio = discrete.exact_delta(sigma, shift, 4.0) / continuous - 1
        most = max(most, ratio)
        assert ratio < discrete.slack(sigma, shift, 4.0) / continuous
    spread = (4.0 / 0.8) ** 2 / sigma**2
    assert spread / 24 < most < spread / 4


# Sixty digits ---------------------------------------------------------------------------------------------------------


def budgets(count, seed):
    """Random (ε, δ, T, shift in standard deviations of one use that spends them)."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        epsilon, delta = float(10 ** rng.uniform(-3, 2)), float(10 ** rng.uniform(-12, -1))
        uses = round(10 ** rng.uniform(0, 3))
        yield epsilon, delta, uses, losses.mu_of(epsilon, delta) / math.sqrt(uses), rng


@pytest.mark.parametrize("count", [400, pytest.param(2200, marks=LARGE)])
def test_epsilon_of_the_accountant_is_never_unsafe_and_agrees_with_sixty_digits(count):
    for _, delta, uses, mu, rng in budgets(count, 31):
        channel = Channel(clip_norm=float(rng.uniform(0.01, 10)))
        noise = 2 * channel.clip_norm / mu
        spent = mp.mpf(privacy.epsilon(Release(channel, noise, horizon=uses), delta))
        whole = 2 * mp.mpf(channel.clip_norm) * mp.sqrt(uses) / mp.mpf(noise)
        assert continuous_delta(spent, whole) <= delta, "unsafe"
        assert delta <= continuous_delta(spent * (1 - mp.mpf(10) ** -9), whole)


@pytest.mark.parametrize("count", [400, pytest.param(2200, marks=LARGE)])
def test_epsilon_of_discrete_noise_is_never_unsafe_and_agrees_with_sixty_digits(count):
    for _, delta, uses, mu, rng in budgets(count, 32):
        sigma, numbers = float(2 ** rng.uniform(20, 24)), uses * int(rng.integers(1, 65))
        shift = sigma * mu * math.sqrt(uses)
        spent = mp.mpf(discrete.epsilon(sigma, shift, delta, numbers))
        dominating = mp.mpf(shift) / mp.sqrt(mp.mpf(sigma) ** 2 - 3)
        ripple = mp.mpf(discrete.RIPPLE) * numbers
        assert continuous_delta(spent - ripple, dominating) * mp.exp(ripple) <= delta, "unsafe"
        least = mp.mpf(shift) / mp.sqrt(mp.mpf(sigma) ** 2 + 3)  # the truth costs no less than this
        assert continuous_delta(spent * (1 - mp.mpf(10) ** -9), least) * mp.exp(-ripple) >= delta


@pytest.mark.parametrize("count", [400, pytest.param(2000, marks=LARGE)])
def test_delta_of_discrete_noise_is_never_below_sixty_digits(count):
    for epsilon, _, uses, mu, rng in budgets(count, 33):
        sigma = float(2 ** rng.uniform(2, 24))
        shift = sigma * mu * math.sqrt(uses) * float(rng.uniform(0.5, 2))
        exact = continuous_delta(epsilon, mp.mpf(shift) / mp.sqrt(mp.mpf(sigma) ** 2 - 3))
        assert exact <= discrete.delta(sigma, shift, epsilon) <= exact * (1 + mp.mpf(10) ** -7) + 2e-300


def test_the_ends_of_the_scale():
    assert discrete.delta(10.0, 0.0, 0.0) == 0
    assert discrete.epsilon(10.0, 0.0, 1e-6) == 0
    assert discrete.delta(10.0, 1e4, 0.0) == 1
    assert discrete.delta(1024.0, 1.0, 100.0) == 1e-300
    assert discrete.epsilon(1024.0, 1.0, 0.5) == 0
    assert discrete.slack(10.0, 0.0, 1.0) == 0
    assert discrete.exact_delta(1.0, 100, 0.0) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: discrete.discrete_gaussian(0.0, 1), "sigma must be a number of grid steps above 0"),
        (lambda: discrete.discrete_gaussian(math.nan, 1), "sigma must be a number of grid steps above 0"),
        (lambda: discrete.discrete_gaussian(math.inf, 1), "sigma must be a number of grid steps above 0"),
        (lambda: discrete.discrete_gaussian(2.0**29, 1), "at most 268435456"),
        (lambda: discrete.discrete_gaussian(Fraction(10**400), 1), "at most 268435456"),
        (lambda: discrete.discrete_gaussian("1", 1), "sigma must be a number"),  # pyright: ignore[reportArgumentType]
        (lambda: discrete.discrete_gaussian(1.0, -1), "count must be a whole number"),
        (lambda: discrete.discrete_gaussian(1.0, 2.0), "count must be a whole number"),  # pyright: ignore[reportArgumentType]
        (lambda: discrete.discrete_gaussian(1.0, 2, lambda size: b""), "gave 0 bytes where 888 were asked for"),
        (lambda: discrete.on_grid(np.ones(2), 0.0, 1.0), "clip_norm must be a finite number above 0"),
        (lambda: discrete.on_grid(np.ones(2), 1.0, 0.0), "step must lie between"),
        (lambda: discrete.on_grid(np.ones(2), 1.0, 1e-10), "step must lie between"),
        (lambda: discrete.on_grid(np.ones(2), 1.0, math.nan), "step must lie between"),
        (lambda: discrete.comparable(2.9), "at least 3"),
        (lambda: discrete.delta(10.0, -1.0, 1.0), "shift must be a finite number"),
        (lambda: discrete.delta(10.0, math.nan, 1.0), "shift must be a finite number"),
        (lambda: discrete.delta(10.0, 1.0, -1.0), "epsilon must be finite"),
        (lambda: discrete.delta(10.0, 1.0, 1.0, 0), "numbers must be a whole number"),
        (lambda: discrete.epsilon(10.0, 1.0, 0.0), "delta must lie strictly"),
        (lambda: discrete.exact_delta(10.0, 0, 1.0), "shift must be a whole number"),
        (lambda: discrete.exact_delta(10.0, 1, math.inf), "epsilon must be finite"),
        (lambda: discrete.exact_delta(2.0**21, 1, 1.0), "at most 1048576"),
    ],
)
def test_nonsense_is_refused_with_a_message(call, message):
    with pytest.raises(BadInput, match=message):
        call()


# OpenDP ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opendp():
    peer: Any = pytest.importorskip("opendp.prelude")
    peer.enable_features("contrib")
    return peer


def gaussian(opendp, sigma):
    """OpenDP's measurement of integers (number,). It takes vectors of any length and norm: both are ours to check."""
    domain = opendp.vector_domain(opendp.atom_domain(T=int))
    return opendp.m.make_gaussian(domain, opendp.l2_distance(T=float), scale=sigma)


@pytest.mark.parametrize("count", [30_000, pytest.param(1_000_000, marks=LARGE)])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_opendp_and_our_sampler_have_the_same_distribution(opendp, sigma, count, record_property):
    """Theirs cannot be seeded: it reads the operating system's entropy."""
    measure = gaussian(opendp, sigma)
    start = time.process_time()
    theirs = np.array(measure([0] * count))
    seconds = time.process_time() - start
    ours = discrete.discrete_gaussian(sigma, count, seeded(12))
    found = [chi_square(draws, sigma, 64) for draws in (theirs, ours)]
    rate = f"{count / seconds:,.0f} of theirs a second" if seconds else ""
    record_property("counted", f"OpenDP beside us, σ = {sigma:g}: p = {found[0]:.3f} and {found[1]:.3f}; {rate}")
    assert theirs.shape == ours.shape
    assert found[0] > LIMIT
    assert found[1] > LIMIT
    both: Any = stats.ks_2samp(theirs, ours)
    assert both.pvalue > LIMIT


def test_opendp_maps_the_same_noise_to_a_larger_epsilon(opendp):
    """Its map is ρ = Δ²/(2σ²), which the discrete Gaussian has exactly; its conversion to (ε, δ) is a bound."""
    for sigma, shift, delta in [(1024.0, 321.0, 1e-4), (10.0, 3.0, 1e-6), (2.0**20, 2.0**20, 1e-9)]:
        measure = gaussian(opendp, sigma)
        assert measure.map(shift) == pytest.approx(shift**2 / (2 * sigma**2), rel=1e-12)
        theirs = opendp.c.make_zCDP_to_approxDP(measure).map(shift).epsilon(delta)
        assert discrete.epsilon(sigma, shift, delta) < theirs < 1.3 * discrete.epsilon(sigma, shift, delta)
    mu = losses.mu_of(1.0, 1e-4)
    measure = opendp.c.make_zCDP_to_approxDP(gaussian(opendp, 1024.0))
    assert measure.map(mu * 1024).epsilon(1e-4) == pytest.approx(1.114, abs=1e-3)
    assert discrete.epsilon(1024.0, mu * 1024, 1e-4) == pytest.approx(1.0, abs=1e-5)
