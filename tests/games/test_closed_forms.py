"""Closed forms of binary sums as a collaborative game against brute force in whole numbers, so without rounding."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpmac.games import GameError, families
from dpmac.games.cgp import Segment, regret

# r = R/M and p = k/M: all best responses lie on the grid, so its equilibria are those of the continuous game on it.
M = 12
RATIOS = range(-6, 31)  # r from −0.5 to 2.5


def grid_equilibria(R1, R2, m, clipped):
    """Index pairs (k₁, k₂) of all pure equilibria among p = k/m, by comparing whole numbers."""
    k = np.arange(m + 1, dtype=np.int64)
    gap = m * m - (k[:, None] + k[None, :]) ** 2  # 2m²·(V^M − V)
    benefit = np.maximum(gap, 0) if clipped else gap
    u1, u2 = benefit + 2 * R1 * k[:, None], benefit + 2 * R2 * k[None, :]
    best = (u1 == u1.max(axis=0, keepdims=True)) & (u2 == u2.max(axis=1, keepdims=True))
    return {(int(i), int(j)) for i, j in np.argwhere(best)}


def on(segment: Segment, point, slack=1e-12):
    """Whether a point lies on a segment."""
    start, end, point = np.array(segment.start), np.array(segment.end), np.array(point)
    direction = end - start
    length = float(direction @ direction)
    s = np.clip((point - start) @ direction / length, 0, 1) if length > 0 else 0.0
    return bool(np.all(np.abs(start + s * direction - point) <= slack))


@pytest.mark.parametrize("clipped", [False, True])
def test_equilibria_equal_brute_force_on_a_grid_of_ratios(clipped):
    for R1 in RATIOS:
        for R2 in RATIOS:
            game = families.binary_sums((1.0, 1.0), (R1 / M, R2 / M), clipped)
            assert game.closed_form is not None
            segments = game.closed_form.equilibria
            stated = {
                (i, j) for i in range(M + 1) for j in range(M + 1) if any(on(s, (i / M, j / M)) for s in segments)
            }
            assert stated == grid_equilibria(R1, R2, M, clipped), (R1, R2)


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("R", [100, 400, 414, 415, 499, 500, 501, 900, 999, 1000])
@pytest.mark.parametrize("difference", [-1, 0, 1])
def test_equilibria_equal_brute_force_for_nearly_equal_ratios(clipped, R, difference):
    m = 1000
    r = (R / m, (R + difference) / m)
    game = families.binary_sums((1.0, 1.0), r, clipped)
    assert game.closed_form is not None
    brute = grid_equilibria(R, R + difference, m, clipped)
    for segment in game.closed_form.equilibria:
        if segment.is_point:
            i, j = (round(m * p) for p in segment.start)
            assert (i, j) in brute
            brute.remove((i, j))
        else:
            mine = {(i, j) for i, j in brute if on(segment, (i / m, j / m))}
            assert mine
            brute -= mine
    assert not brute


def exact_equilibria(r1: Fraction, r2: Fraction, h: Fraction):
    """Solutions of p_n = clip(r_n − h·p_m) as a set, by trying all nine combinations of 0, 1 and in between."""
    found = set()
    if h != 1:
        inner = ((r1 - h * r2) / (1 - h * h), (r2 - h * r1) / (1 - h * h))
        found.add(inner)
    for p in (Fraction(0), Fraction(1)):
        found |= {(p, q) for q in (Fraction(0), Fraction(1), r2 - h * p)}
        found |= {(q, p) for q in (Fraction(0), Fraction(1), r1 - h * p)}

    def clip(value):
        return min(max(value, Fraction(0)), Fraction(1))

    return {(p1, p2) for p1, p2 in found if p1 == clip(r1 - h * p2) and p2 == clip(r2 - h * p1)}


def test_a_difference_of_a_billionth_leaves_one_equilibrium():
    for r in (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(3, 2)):
        for other in (r + Fraction(1, 2**30), r - Fraction(1, 2**30)):  # exact in binary
            segments = families.unclipped_equilibria((float(r), float(other)))
            expected = exact_equilibria(r, other, Fraction(1))
            assert len(segments) == len(expected) == 1
            assert segments[0].is_point
            (p1, p2) = expected.pop()
            assert segments[0].start == (float(p1), float(p2))


def test_ratios_equal_but_for_rounding_count_as_equal():
    assert 0.07 / 0.1 != 0.7
    game = families.binary_sums((0.1, 1.0), (0.07, 0.7))
    assert game.closed_form is not None
    assert not game.closed_form.equilibria[0].is_point


@pytest.mark.parametrize("h", [0, Fraction(1, 2), Fraction(3, 4), Fraction(5, 4), 2])
def test_quadratic_equilibria_equal_all_nine_cases(h):
    h = Fraction(h)
    for R1 in RATIOS:
        for R2 in RATIOS:
            expected = exact_equilibria(Fraction(R1, M), Fraction(R2, M), h)
            found = families.linear_equilibria((R1 / M, R2 / M), float(h))
            assert len(found) == len(expected), (R1, R2)
            for segment, point in zip(found, sorted(expected), strict=True):
                np.testing.assert_allclose(segment.start, [float(p) for p in point], atol=1e-12)


@pytest.mark.parametrize("h", [1 - 2**-53, 1 - 2**-40, 1 + 2**-52, 1 + 2**-40])
def test_quadratic_equilibria_are_right_next_to_coupling_one(h):
    for R1, R2 in itertools.product(range(-4, 21), repeat=2):  # r = R/8 is exact in binary
        expected = exact_equilibria(Fraction(R1, 8), Fraction(R2, 8), Fraction(h))
        found = [segment.start for segment in families.linear_equilibria((R1 / 8, R2 / 8), h)]
        assert all(min(math.dist(p, (float(q[0]), float(q[1]))) for q in expected) < 1e-9 for p in found), (R1, R2)
        assert all(min(math.dist(p, (float(q[0]), float(q[1]))) for p in found) < 1e-9 for q in expected), (R1, R2)


def test_huge_ratios_next_to_coupling_one_keep_everything_secret():
    assert families.linear_equilibria((1e308, 1e307), 1 - 2**-53) == (Segment((1.0, 1.0), (1.0, 1.0)),)


def test_ratios_equal_but_for_rounding_count_as_equal_next_to_coupling_one():
    (found,) = families.linear_equilibria((0.07 / 0.1, 0.7), 1 - 2**-53)
    assert found.start == pytest.approx((0.35, 0.35))


def test_quadratic_at_coupling_one_is_binary_sums():
    for R1 in RATIOS:
        for R2 in RATIOS:
            r = (R1 / M, R2 / M)
            ours, theirs = families.linear_equilibria(r, 1.0), families.unclipped_equilibria(r)
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("clipped", [False, True])
def test_every_stated_equilibrium_has_no_regret_with_unequal_weights(clipped):
    rng = np.random.default_rng(3)
    for _ in range(300):
        B, C = tuple(rng.uniform(0.2, 3, 2).tolist()), tuple(rng.uniform(-0.5, 3, 2).tolist())
        game = families.binary_sums(B, C, clipped)
        free = families.Game(game.alone, game.value, game.benefit, game.loss, B, C)  # without the closed form
        assert game.closed_form is not None
        for segment in game.closed_form.equilibria:
            assert max(regret(game, *segment.start)) <= 1e-12
            assert max(regret(free, *segment.start)) <= 1e-12


def test_silence_is_an_equilibrium_of_clipped_sums_and_sharing_needs_small_ratios():
    for r in (0.1, 0.4, 0.5, 0.501, 0.9, 3.0):
        segments = families.clipped_equilibria((r, r))
        assert Segment((1.0, 1.0), (1.0, 1.0)) in segments
        assert any(not s.trivial for s in segments) == (r <= 0.5)
    for high, low in ((0.8, 0.17), (0.8, 0.19), (1.0, 0.01), (1.1, 0.01)):
        nontrivial = [s for s in families.clipped_equilibria((high, low)) if not s.trivial]
        assert bool(nontrivial) == (high <= 1 and low <= (1 - high**2) / 2)


def test_no_weight_on_the_benefit_is_refused():
    for B in ((0.0, 1.0), (1.0, -2.0)):
        with pytest.raises(GameError, match="B must be above 0"):
            families.binary_sums(B, (1.0, 1.0))


def test_a_ratio_that_is_not_finite_is_refused():
    for family in (families.binary_sums, families.quadratic):
        with pytest.raises(GameError, match="C/B must be finite for both players"):
            family(B=(1e-300, 1.0), C=(1e10, 0.4))
