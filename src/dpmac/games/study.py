"""All that can be said about a collaborative game: its conditions, potentials, equilibria, and what guarantees them."""

import re
from typing import NamedTuple

from dpmac.games.cgp import Game, Point, Samples, sample
from dpmac.games.definitions import Condition, check
from dpmac.games.equilibria import Equilibria, Walk, find, walk
from dpmac.games.potential import Cycle, closes, weights, worst_cycle

EXACT = (1.0, 1.0)


class Study(NamedTuple):
    """One game, examined."""

    samples: Samples
    conditions: list[Condition]
    cycle: Cycle
    """The 4-cycle furthest from an exact potential."""
    exact_potential: bool
    weights: Point | None
    """Weights of a weighted potential, or None where there is none; (1, 1) where it is exact."""
    guarantee: str
    """What makes sure that a pure equilibrium exists, or "no guarantee" and the condition that fails."""
    theorem: str
    """What the paper's theorem says about this game, and whether that is so."""
    equilibria: Equilibria
    walks: dict[str, Walk]
    """Best-response dynamics in either order."""


def study(game: Game, cells: int = 160, tolerance: float | None = None, start: Point = (0.0, 0.0)) -> Study:
    """Examine a game on a grid of so many cells along each axis."""
    samples = sample(game, cells)
    conditions = check(game, samples)
    cycle = worst_cycle(samples)
    exact = closes(samples, cycle)
    w = EXACT if exact else weights(game, samples)
    return Study(
        samples,
        conditions,
        cycle,
        exact,
        w,
        guarantee(game, conditions, cycle, w),
        theorem(conditions, cycle, exact),
        find(game, samples, tolerance),
        {"sequential": walk(game, start, "sequential"), "simultaneous": walk(game, start, "simultaneous")},
    )


def guarantee(game: Game, conditions: list[Condition], cycle: Cycle, w: Point | None) -> str:
    """A continuous potential has a maximum on the square, which is a pure equilibrium; nothing else is promised."""
    jumps = [c for c in conditions if c.name.endswith("is continuous") and c.verdict != "holds"]
    if jumps:
        return f"no guarantee: {jumps[0].name} fails {jumps[0].where}"
    if w is None:
        return f"no guarantee: neither an exact nor a weighted potential, {open_cycle(cycle)}"
    kind = "an exact potential" if w == EXACT else f"a weighted potential, weights {w[0]:g} and {w[1]:g},"
    limits = " as far as the grid can tell; that it is not (1, 1) is not guaranteed"
    return f"a pure equilibrium exists: {kind} and continuous utilities{'' if game.closed_form else limits}"


def theorem(conditions: list[Condition], cycle: Cycle, exact: bool) -> str:
    """The paper: equal derivatives of V₁ and V₂ make an exact potential and so a pure equilibrium other than (1, 1)."""
    failing = dict.fromkeys(re.sub(r" \(player \d\)", "", c.name) for c in conditions if c.verdict != "holds")
    if failing:
        return f"no guarantee: the paper's theorem does not apply, as these are not met: {'; '.join(failing)}"
    if not exact:
        return (
            f"no guarantee: every condition of the paper's theorem holds, yet {open_cycle(cycle)}: no exact potential"
        )
    return "every condition of the paper's theorem holds, and the exact potential that it promises exists"


def open_cycle(cycle: Cycle) -> str:
    (a, b), (c, d) = cycle.corner, cycle.opposite
    return f"the gains round the rectangle from ({a:g}, {b:g}) to ({c:g}, {d:g}) sum to {cycle.gains:.4g} instead of 0"
