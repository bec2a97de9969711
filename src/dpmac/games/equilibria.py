"""Pure equilibria of a collaborative game, what guarantees them, and how best responses move."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.ndimage import minimum_filter
from scipy.optimize import OptimizeResult, minimize

from dpmac.games import require
from dpmac.games.cgp import (
    PLAYERS,
    Array,
    Game,
    Point,
    Samples,
    Segment,
    best_responses,
    regret,
    utility_of_own,
)

REST = 1e-7
"""Best-response dynamics rest when nobody moves further than this."""
TRIVIAL = 1e-4
"""An approximate equilibrium within this distance of (1, 1) counts as (1, 1)."""
CANDIDATES = 400
"""At most so many grid points are polished, those of least regret first."""
MARGIN = 1e-3
"""A price of silence, which is searched for, counts as exceeded by a C_n that is greater by this share."""


class Approximate(NamedTuple):
    """A point from which no deviation that was found gains more than `regret`; it stands for all those in the box."""

    point: Point
    regret: float
    low: Point
    high: Point

    @property
    def trivial(self) -> bool:
        """Whether it is (1, 1), where nobody says anything, as far as a search can tell."""
        return math.dist(self.point, (1.0, 1.0)) <= TRIVIAL


class Equilibria(NamedTuple):
    """What is known: all of them in closed form, or approximate ones found on a grid."""

    exact: tuple[Segment, ...] | None
    approximate: tuple[Approximate, ...]
    grid: int
    """Cells of the grid along each axis, for approximate ones."""
    tolerance: float
    """The regret up to which a point counts."""

    @property
    def nontrivial(self) -> Point | None:
        """One that is not (1, 1), if there is any; of a segment, the end that is not."""
        exact = [s.start if s.start != (1.0, 1.0) else s.end for s in self.exact or () if not s.trivial]
        return next(iter([*exact, *(a.point for a in self.approximate if not a.trivial)]), None)


def find(game: Game, samples: Samples, tolerance: float | None = None) -> Equilibria:
    """All equilibria where the family has a closed form, otherwise approximate ones and their regret."""
    require(tolerance is None or 0 < tolerance < math.inf, f"tolerance must be above 0 and finite, not {tolerance}")
    if game.closed_form is not None:
        require(tolerance is None, "a tolerance is for equilibria that are searched; this game has them in closed form")
        return Equilibria(game.closed_form.equilibria, (), samples.cells, 0.0)
    if tolerance is None:
        tolerance = 1e-6 * max(1e-6, float(np.ptp(samples.utility)))
    points = [polish(game, p, 1 / samples.cells, tolerance / 1000) for p in candidates(samples)]
    found = [(p, gain) for p, gain in points if gain <= tolerance]
    return Equilibria(None, gathered(found, 2 / samples.cells), samples.cells, tolerance)


def grid_regret(samples: Samples) -> Array:
    """The larger of both players' regrets (grid, grid) against deviations on the grid."""
    u1, u2 = samples.utility
    return np.maximum(u1.max(axis=0, keepdims=True) - u1, u2.max(axis=1, keepdims=True) - u2)


def candidates(samples: Samples) -> list[Point]:
    """Local minima of the regret on the grid that may have an equilibrium within half a cell, least regret first.

    There the regret is at most half a cell times the slopes of u_n: once along its own p, twice along the other's.
    """
    gains = grid_regret(samples)
    steps = [[float(np.max(np.abs(np.diff(u, axis=axis)))) for axis in (0, 1)] for u in samples.utility]
    most = max(steps[n][n] + 2 * steps[n][1 - n] for n in PLAYERS) / 2
    near = (gains <= minimum_filter(gains, size=3, mode="nearest")) & (gains <= most)
    order = sorted(map(tuple, np.argwhere(near)), key=lambda index: gains[index])[:CANDIDATES]
    return [(float(samples.p[i]), float(samples.p[j])) for i, j in order]


def polish(game: Game, start: Point, step: float, enough: float) -> tuple[Point, float]:
    """The point near `start`, and its regret, where a simplex search finds at most `enough` or can lower it no more."""

    def objective(p: Array) -> float:
        return max(regret(game, float(p[0]), float(p[1])))

    def stop(intermediate_result: OptimizeResult) -> None:
        if intermediate_result.fun <= enough:
            raise StopIteration

    if (gain := objective(np.array(start))) <= enough:
        return start, gain
    point, least = descend(objective, start, step, stop)
    return (point, least) if least < gain else (start, gain)


def descend(
    objective: Callable[[Array], float], start: Point, step: float, stop: Callable[..., None] | None = None
) -> tuple[Point, float]:
    """The lowest point of a function on the square, and its value, that a simplex search finds from `start`."""
    inward = [step if p < 0.5 else -step for p in start]
    simplex = np.array([start, (start[0] + inward[0], start[1]), (start[0], start[1] + inward[1])])
    options = {"initial_simplex": simplex, "xatol": 1e-9, "fatol": 1e-15, "maxfev": 200}
    bounds = [(0.0, 1.0)] * 2
    best = minimize(objective, np.array(start), method="Nelder-Mead", bounds=bounds, options=options, callback=stop)
    return (float(best.x[0]), float(best.x[1])), float(best.fun)


def gathered(found: list[tuple[Point, float]], reach: float) -> tuple[Approximate, ...]:
    """Points that a chain of steps of at most `reach` joins are one group: its point of least regret, and a box."""
    groups: list[list[tuple[Point, float]]] = []
    for item in found:
        joined = [group for group in groups if any(math.dist(item[0], p) <= reach for p, _ in group)]
        groups = [group for group in groups if group not in joined] + [[item, *(x for group in joined for x in group)]]
    result = []
    for group in groups:
        point, gain = min(group, key=lambda item: item[1])
        corners = np.array([p for p, _ in group])
        (a, b), (c, d) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
        result.append(Approximate(point, gain, (a, b), (c, d)))
    return tuple(sorted(result))


def silence_price(game: Game, samples: Samples, n: int, silent: bool = False) -> float:
    """The C_n above which p_n = 1 is strictly the best response to everything, or to the other's silence alone.

    It is B_n·sup (b(p) − b(1))/(c(p) − c(1)), by the own p: the largest on the grid, refined by a local search, or the
    limit p → 1. It is finite in every game that meets the paper's definitions with ∂c < 0 at p = 1.
    """
    p, c = samples.p, samples.loss
    b = np.moveaxis(samples.weighted[n], n, 0)[:, -1 if silent else 0 :]  # (own p, the other's p)
    fall, slope = c[:-1] - c[-1], np.gradient(c, p, edge_order=2)[-1]
    if np.min(fall) <= 0 or slope >= -1e-9:
        return math.inf
    ratios = (b[:-1] - b[-1]) / fall[:, None]
    limits = np.gradient(b, p, axis=0, edge_order=2)[-1] / slope
    free = replace(game, C=(0.0, 0.0))  # whose u_n is B_n·b

    def minus_ratio(point: Array) -> float:
        own, other = min(float(point[0]), 1 - 1e-6), 1.0 if silent else float(point[1])
        rise = utility_of_own(free, n, own, other) - utility_of_own(free, n, 1.0, other)
        return -rise / max(game.loss_of(own) - game.loss_of(1.0), 1e-12)

    i, j = np.unravel_index(np.argmax(ratios), ratios.shape)
    _, least = descend(minus_ratio, (float(p[i]), float(p[j])), 1 / samples.cells)
    return max(float(np.max(ratios)), float(np.max(limits)), -least)


def silenced_by(game: Game, samples: Samples) -> int | None:
    """A player to whom p_n = 1 is strictly best whatever the other does, and whose silence makes the other silent.

    Where there is one, (1, 1) is the only equilibrium.
    """

    def exceeds(n: int, silent: bool) -> bool:
        price = silence_price(game, samples, n, silent)
        return game.C[n] > price + MARGIN * abs(price)

    return next((n for n in PLAYERS if exceeds(n, False) and exceeds(1 - n, True)), None)


class Walk(NamedTuple):
    """Where best-response dynamics went."""

    path: tuple[Point, ...]
    outcome: Literal["rest", "cycle", "neither"]
    """rest: nobody moves any more. cycle: the last `period` points repeat. neither: not within the rounds given."""
    period: int

    @property
    def said(self) -> str:
        """The outcome in words. Points that repeat only nearly may converge very slowly."""
        if self.outcome != "cycle":
            return self.outcome
        slow = "" if self.path[-1] == self.path[-1 - self.period] else ", or a very slow convergence"
        return f"a cycle of {self.period} rounds{slow}"


def walk(game: Game, start: Point, order: Literal["sequential", "simultaneous"], rounds: int = 200) -> Walk:
    """Best-response dynamics. A player for whom staying is best stays; of several best responses it takes the nearest.

    In the sequential order player 1 moves first in every round. A path that comes back to within 1e-7 of an earlier
    point after having gone at least a thousand times as far is called a cycle.
    """
    require(all(0 <= p <= 1 for p in start), f"the start must lie in the unit square, not {start}")
    path = [start]
    for _ in range(rounds):
        p1 = answer(game, 0, path[-1][0], path[-1][1])
        p2 = answer(game, 1, path[-1][1], p1 if order == "sequential" else path[-1][0])
        path.append((p1, p2))
        if math.dist(path[-1], path[-2]) <= REST:
            return Walk(tuple(path), "rest", 0)
        for period in range(2, len(path)):
            lap = path[-period - 1 :]
            if math.dist(lap[0], lap[-1]) <= REST and max(math.dist(p, lap[0]) for p in lap) > 1000 * REST:
                return Walk(tuple(path), "cycle", period)
    return Walk(tuple(path), "neither", 0)


def answer(game: Game, n: int, own: float, other: float) -> float:
    """The player's next p: its own where that is a best response already, otherwise the nearest one."""
    responses = best_responses(game, n, other)
    best = max(utility_of_own(game, n, response, other) for response in responses)
    if utility_of_own(game, n, own, other) >= best - 1e-14 * max(1.0, abs(best)):
        return own
    return min(responses, key=lambda response: abs(response - own))
