"""Families of collaborative games, two of them with all best responses and equilibria in closed form."""

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

from dpmac.games import require
from dpmac.games.cgp import PLAYERS, ClosedForm, Game, Point, Segment


def clip(value: float, low: float = 0.0, high: float = 1.0) -> float:
    return min(max(value, low), high)


def ratios(B: Point, C: Point) -> Point:
    """r_n = C_n/B_n."""
    require(min(B) > 0, f"B must be above 0 for both players, not {B}: without it C/B means nothing")
    r = (C[0] / B[0], C[1] / B[1])
    require(all(map(math.isfinite, r)), f"C/B must be finite for both players, not {r}")
    return r


def same(r: Point) -> bool:
    """r₁ = r₂ up to the rounding of C/B."""
    return abs(r[0] - r[1]) <= 2 * sys.float_info.epsilon * max(abs(r[0]), abs(r[1]))


def gap(alone: float, value: float) -> float:
    """b = V^M − V, the paper's benefit in its theorem on binary sums; negative once p₁ + p₂ > 1."""
    return value - alone


def clipped_gap(alone: float, value: float) -> float:
    """b = max(0, V^M − V), as its definition of a benefit demands."""
    return max(0.0, value - alone)


def binary_sums(B: Point = (1.0, 1.0), C: Point = (0.6, 0.4), clipped: bool = False) -> Game:
    """Single-round binary sums: V_n = −½, V_n^M = −½(p₁ + p₂)², c = 1 − p."""
    r = ratios(B, C)
    closed_form = (
        ClosedForm(lambda n, other: clipped_responses(r[n], other), clipped_equilibria(r))
        if clipped
        else ClosedForm(lambda n, other: (clip(r[n] - other),), unclipped_equilibria(r))
    )
    value = lambda p1, p2: -((p1 + p2) ** 2) / 2  # noqa: E731
    benefit = clipped_gap if clipped else gap
    return Game((-0.5, -0.5), (value, value), benefit, lambda p: 1 - p, B, C, closed_form)


def unclipped_equilibria(r: Point) -> tuple[Segment, ...]:
    """Equal r ∈ [0, 2]: the segment p₁ + p₂ = r. Otherwise the greater r alone keeps its secret first."""
    if same(r):
        low, high = clip(r[0] - 1), clip(r[0])
        return (Segment((low, clip(r[0] - low)), (high, clip(r[0] - high))),)
    first = clip(max(r))
    second = clip(min(r) - first)
    point = (first, second) if r[0] > r[1] else (second, first)
    return (Segment(point, point),)


def sharing_limit(r: float) -> float:
    """The other's largest p to which a player with 0 < r ≤ 1 still answers below 1 when the benefit is clipped."""
    return math.sqrt(1 - 2 * r) if r <= math.sqrt(2) - 1 else (1 - r) ** 2 / (2 * r)


def clipped_responses(r: float, other: float) -> tuple[float, ...]:
    """Either as without clipping, or p = 1: give up the benefit, keep the secret."""
    if r < 0:
        return (0.0,)
    if r == 0:
        return (0.0, 1.0) if other == 1 else (0.0,)
    if r > 1 or other > sharing_limit(r):
        return (1.0,)
    share = clip(r - other)
    return (share,) if share == 1 or other < sharing_limit(r) else (share, 1.0)


def clipped_equilibria(r: Point) -> tuple[Segment, ...]:
    """All of them: those that share, (1, 1), and those where one player does not mind and the other is silent."""
    return (*sharing_equilibria(r), *silent_equilibria(r))


def sharing_equilibria(r: Point) -> tuple[Segment, ...]:
    """Those where both answer as without clipping, so that p₁ + p₂ ≤ 1."""
    low, high = min(r), max(r)
    if same(r) and low > 0:
        if low > 0.5:
            return ()
        end = min(low, max(sharing_limit(low), low / 2))  # low/2: at r = ½ both ends meet, up to rounding
        return (Segment((low - end, end), (end, low - end)),)
    if high > 1 or (low >= 0 and (high == 1 or 2 * low > 1 - high**2)):
        return ()
    point = (clip(high), 0.0) if r[0] > r[1] else (0.0, clip(high))
    return (Segment(point, point),)


def silent_equilibria(r: Point) -> tuple[Segment, ...]:
    """Those where somebody is silent (p = 1) and there is no benefit."""
    nobody = Segment((1.0, 1.0), (1.0, 1.0))
    for n in PLAYERS:
        own, other = r[n], r[1 - n]
        if own < 0:  # it pays to tell; the other is silent all the same where its r is above 1
            point = (0.0, 1.0) if n == 0 else (1.0, 0.0)
            return (Segment(point, point),) if other > 1 else ()
        if own == 0 and other > 0:  # its own privacy costs nothing, and nothing that it says is answered
            least = 0.0 if other > 1 else sharing_limit(other)
            return (Segment((least, 1.0) if n == 0 else (1.0, least), nobody.end),)
    return (nobody,)


def quadratic(B: Point = (1.0, 1.0), C: Point = (0.6, 0.4), coupling: float = 0.5) -> Game:
    """V_n^M = 4 − ½p₁² − ½p₂² − coupling·p₁p₂, V_n = 3.5, b = V^M − V, c = 1 − p: binary sums at coupling 1."""
    require(math.isfinite(coupling) and coupling >= 0, f"coupling must be finite and at least 0, not {coupling}")
    r = ratios(B, C)
    value = lambda p1, p2: 4 - p1**2 / 2 - p2**2 / 2 - coupling * p1 * p2  # noqa: E731
    closed_form = ClosedForm(lambda n, other: (clip(r[n] - coupling * other),), linear_equilibria(r, coupling))
    return Game((3.5, 3.5), (value, value), gap, lambda p: 1 - p, B, C, closed_form)


def linear_equilibria(r: Point, coupling: float) -> tuple[Segment, ...]:
    """All solutions of p_n = clip(r_n − h·p_m, 0, 1): each player at 0, at 1 or in between, where that fits."""
    if same(r):
        if coupling == 1:
            return unclipped_equilibria(r)
        r = (r[0], r[0])
    r1, r2, h = map(Fraction, (*r, coupling))  # next to coupling 1 all would be lost to rounding

    def best(own: Fraction, other: Fraction | int) -> Fraction | int:
        return min(max(own - h * other, 0), 1)

    candidates = {(p1, best(r2, p1)) for p1 in (0, 1)} | {(best(r1, p2), p2) for p2 in (0, 1)}
    fixed = [(float(p1), float(p2)) for p1, p2 in candidates if p1 == best(r1, p2) and p2 == best(r2, p1)]
    if h != 1:
        inner = (r1 - h * r2) / (1 - h * h), (r2 - h * r1) / (1 - h * h)
        if all(-1e-12 <= p <= 1 + 1e-12 for p in inner):  # rounding of C/B must not lose one that lies on the border
            fixed.append((clip(float(inner[0])), clip(float(inner[1]))))
    distinct = [p for i, p in enumerate(fixed) if all(math.dist(p, q) > 1e-9 for q in fixed[:i])]
    return tuple(Segment(p, p) for p in sorted(distinct))


Utility = Literal["error", "bias"]
"""What a guess is worth: minus its expected absolute error, or minus its absolute bias, as the paper has it."""


def guesses(B: Point = (1.0, 1.0), C: Point = (0.2, 0.2), utility: Utility = "error") -> Game:
    """Binary sums of two agents with fair bits as they are told, each with the best receiver for its utility.

    V_n^M depends on the other's p alone: −½p for the error (of the naive guess), 0 below p = 1 for the bias (of the
    corrected guess). V_n = −½ in either case: half a bit is the error, and the bias, of guessing ½.
    """
    miss = {"error": lambda p: p / 2, "bias": lambda p: 0.5 if p == 1 else 0.0}[utility]
    value = (lambda p1, p2: -miss(p2), lambda p1, p2: -miss(p1))
    return Game((-0.5, -0.5), value, gap, lambda p: 1 - p, B, C)


def counterexample(B: Point = (1.0, 1.0), C: Point = (0.1, 0.1)) -> Game:
    """V₁^M = 3 − p₁ − ½p₂, V₂^M = 5 − 2p₁ − p₂, b = max(0, V^M − V)³: meets the paper's theorem, has no potential.

    V₁ = 2.5 and V₂ = 4.2 keep to every definition of the paper; ∂_{p₁}V₁ = ∂_{p₂}V₂ = −1 and second derivatives vanish.
    It refutes the paper's proof for all C. It refutes the theorem itself where (1, 1) is the only equilibrium: for
    C₁ > 0.125 and C₂ > 0, or C₁ > 0 and C₂ > 0.512, because b₁ ≤ 0.125·(1 − p₁) and b₂ ≤ 0.512·(1 − p₂).
    """
    value = (lambda p1, p2: 3 - p1 - p2 / 2, lambda p1, p2: 5 - 2 * p1 - p2)
    return Game((2.5, 4.2), value, lambda alone, value: max(0.0, value - alone) ** 3, lambda p: 1 - p, B, C)


FAMILIES: dict[str, Callable[..., Game]] = {
    "binary-sums": binary_sums,
    "guesses": guesses,
    "quadratic": quadratic,
    "counterexample": counterexample,
}
