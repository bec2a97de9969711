"""The paper's definitions and the condition of its theorem, checked on a grid; what fails is named, with a place.

Derivatives are finite differences, verified: every one is taken with two steps, and their difference bounds its error.
A grid can refute a condition, except that a smooth function may be too steep for it; that it finds nothing is evidence,
no proof.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from dpmac.games.cgp import PLAYERS, Array, Game, Samples
from dpmac.games.statements import Condition

ROUNDING = 1e-9
"""Differences below this, relative to the size of a function, are rounding."""
CELLS = 160
"""Steps along a line on which a function is looked at closely."""


class Derivative(NamedTuple):
    """A derivative on every other grid point, with a bound on its error there."""

    value: Array
    error: Array


def check(game: Game, samples: Samples) -> list[Condition]:
    """All conditions of the paper's definitions and of its theorem, in its order."""
    return [
        *privacy_loss(game, samples),
        *benefit(game, samples),
        *value_function(game, samples),
        *theorem(samples),
    ]


def privacy_loss(game: Game, samples: Samples) -> list[Condition]:
    of, c, p = "def: privacy loss function", samples.loss, samples.p
    return [
        *smooth(of, "c", c, p, game.loss_of),
        pointwise(of, "c maps [0, 1] to [0, 1]", np.maximum(-c, c - 1), 0, p),
        pointwise(of, "c(0) = 1", np.abs(c[:1] - 1), 0, p[:1]),
        pointwise(of, "c(1) = 0", np.abs(c[-1:]), 0, p[-1:]),
        negative(of, "∂c < 0", derivative(c, p, 0), p, strict=True),
    ]


def benefit(game: Game, samples: Samples) -> list[Condition]:
    of, p, conditions = "def: benefit function", samples.p, []
    for n in PLAYERS:
        alone, value, b, player = game.alone[n], samples.value[n], samples.benefit[n], f"player {n + 1}"
        without = np.where(alone >= value, np.abs(b), 0)
        conditions += [
            pointwise(of, f"V > 0 ({player})", np.array([-alone]), 0, p[:1], strict=True, place=f"V = {alone:g}"),
            pointwise(of, f"V^M > 0 ({player})", -value, 0, p, strict=True),
            pointwise(of, f"b ≥ 0 ({player})", -b, 0, p),
            pointwise(of, f"b = 0 where V ≥ V^M ({player})", without, 0, p),
            *smooth(of, f"b ({player})", b, p, partial(game.benefit_of, n)),
            negative(of, f"∂b/∂p_n ≤ 0 ({player})", derivative(b, p, n), p, strict=False),
        ]
    return conditions


def value_function(game: Game, samples: Samples) -> list[Condition]:
    of, p, conditions = "def: value function in CGP", samples.p, []
    for n in PLAYERS:
        alone, value, player = game.alone[n], samples.value[n], f"player {n + 1}"
        silent = np.full_like(value, -np.inf)  # only where somebody protects its privacy entirely
        silent[-1, :], silent[:, -1] = value[-1, :] - alone, value[:, -1] - alone
        conditions += [
            *smooth(of, f"V^M ({player})", value, p, partial(game.value_of, n)),
            pointwise(of, f"V^M ≤ V where some p = 1 ({player})", silent, 0, p),
            *(
                negative(of, f"∂V^M/∂p_{m + 1} < 0 ({player})", derivative(value, p, m), p, strict=True)
                for m in PLAYERS
            ),
            pointwise(of, f"V < V^M(0, 0) ({player})", alone - value[:1, :1], 0, p[:1], strict=True),
        ]
    return conditions


def theorem(samples: Samples) -> list[Condition]:
    """∂^i_{p₁}V₁ = ∂^i_{p₂}V₂ for i = 1, 2, which the paper's theorem asks for; V_n is read as V_n^M."""
    of, p = "theorem: NE in CGP", samples.p
    first = [derivative(samples.value[n], p, n) for n in PLAYERS]
    second = [curvature(samples.value[n], p, n) for n in PLAYERS]
    return [
        equal(of, "∂V₁/∂p₁ = ∂V₂/∂p₂", first[0], first[1], p),
        equal(of, "∂²V₁/∂p₁² = ∂²V₂/∂p₂²", second[0], second[1], p),
    ]


def derivative(f: Array, p: Array, axis: int) -> Derivative:
    """First derivative along an axis, extrapolated from two steps."""
    fine = on_shared_points(np.gradient(f, p, axis=axis, edge_order=2))
    coarse = np.gradient(on_shared_points(f), p[::2], axis=axis, edge_order=2)
    return Derivative((4 * fine - coarse) / 3, np.abs(fine - coarse))


def curvature(f: Array, p: Array, axis: int) -> Derivative:
    """Second derivative along an axis, by differentiating twice with either step."""
    fine, coarse, p2 = f, on_shared_points(f), p[::2]
    for _ in range(2):
        fine = np.gradient(fine, p, axis=axis, edge_order=2)
        coarse = np.gradient(coarse, p2, axis=axis, edge_order=2)
    fine = on_shared_points(fine)
    return Derivative(fine, np.abs(fine - coarse) + ROUNDING * np.max(np.abs(f)) * len(p))


def on_shared_points(f: Array) -> Array:
    """Every other point along every axis."""
    return f[(slice(None, None, 2),) * f.ndim]


def worst(excess: Array, p: Array) -> tuple[float, str]:
    """The largest entry of an array over grid points, and where it stands."""
    index = tuple(map(int, np.unravel_index(np.argmax(excess), excess.shape)))
    return float(excess[index]), at(index, p)


def at(index: tuple[int, ...], p: Array) -> str:
    """A grid point in words."""
    place = ", ".join(f"{p[i]:.4g}" for i in index)
    return f"at p = ({place})" if len(index) > 1 else f"at p = {place}"


def pointwise(
    of: str, name: str, excess: Array, most: float, p: Array, strict: bool = False, place: str = ""
) -> Condition:
    """Holds where an excess stays at most (strictly: below) a bound everywhere."""
    value, where = worst(excess, p)
    holds = value < most if strict else value <= most + ROUNDING
    return Condition(of, name, "holds" if holds else "fails", "" if holds else place or where)


def negative(of: str, name: str, slope: Derivative, p: Array, strict: bool) -> Condition:
    """Whether a derivative is below 0 everywhere (not strictly: not above)."""
    value, error = slope
    rounding = ROUNDING * max(1.0, float(np.max(np.abs(value))))
    positive = value - error > rounding
    zero = (np.abs(value) <= rounding) & (error <= rounding)
    if np.any(positive | zero if strict else positive):
        return Condition(of, name, "fails", worst(value - error, p[::2])[1])
    if strict and np.any(value + error >= -rounding):
        return Condition(of, name, "undecided", f"not told from 0 {worst(value + error, p[::2])[1]}")
    return Condition(of, name, "holds")


def equal(of: str, name: str, one: Derivative, two: Derivative, p: Array) -> Condition:
    """Whether two derivatives agree everywhere, to within their errors."""
    size = max(1.0, float(np.max(np.abs(one.value))), float(np.max(np.abs(two.value))))
    value, where = worst(np.abs(one.value - two.value) - one.error - two.error, p[::2])
    return Condition(of, name, "fails", where) if value > ROUNDING * size else Condition(of, name, "holds")


def smooth(of: str, name: str, f: Array, p: Array, function: Callable[..., float]) -> list[Condition]:
    """Whether a function, of which f are samples on the grid, is continuous, and twice differentiable.

    Differences must settle down as the step shrinks eightfold. The largest change of f from one point to the next falls
    to ⅛ with a Lipschitz function and stays with a jump. That of its second difference quotient falls to ⅛ with a
    smooth function, stays with a jump in the second derivative, and grows with a kink (8-fold).
    """
    return [
        settles(of, f"{name} is continuous", f, p, function, order=1),
        settles(of, f"{name} is twice differentiable", f, p, function, order=3),
    ]


def settles(of: str, name: str, f: Array, p: Array, function: Callable[..., float], order: int) -> Condition:
    """Whether the largest change of the (order − 1)-th difference quotient falls with the step, along every axis."""
    for axis in range(f.ndim):
        place = rough(f, order, axis)
        if place is not None:
            line = partial(on_line, function, p[list(place)].tolist(), axis)
            if stays_rough(line, p, line(p), order) is not None:
                return Condition(of, name, "fails", at(place, p))
    return Condition(of, name, "holds")


def on_line(function: Callable[..., float], point: list[float], axis: int, own: Array) -> Array:
    """A function's values where one coordinate of a point is replaced by each of these."""
    return np.array([function(*point[:axis], x, *point[axis + 1 :]) for x in own.tolist()])


def stays_rough(function: Callable[[Array], Array], points: Array, values: Array, order: int) -> float | None:
    """Where a function on [0, 1] looks rough on these points, and from nearer by as well.

    Such a place is looked at twice more, each time eight times closer: a part of the function that is too short for the
    steps looks rough, too, and no longer does so from near by.
    """
    looks = 0
    while (broken := rough(values, order)) is not None:
        middle, half, looks = float(points[broken[0] + 1]), (points[-1] - points[0]) / 16, looks + 1
        if looks == 3:
            return middle
        points = np.linspace(max(0.0, middle - half), min(1.0, middle + half), CELLS + 1)
        values = function(points)
    return None


def rough(f: Array, order: int, axis: int = 0) -> tuple[int, ...] | None:
    """The grid point where the (order − 1)-th difference quotient changes most, unless that falls with the step."""
    rounding = 1e-13 * max(1.0, float(np.max(np.abs(f))))
    fine = np.abs(np.diff(f, order, axis=axis))
    coarse = np.abs(np.diff(f[:, ::8] if axis else f[::8], order, axis=axis)) / 8 ** (order - 1)
    place = np.unravel_index(np.argmax(fine), fine.shape)
    if fine[place] > 0.45 * np.max(coarse) and fine[place] > rounding:
        return tuple(map(int, place))
    return None
