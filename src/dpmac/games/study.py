"""All that can be said about a collaborative game: the paper's statements about it, potentials and equilibria."""

import re
from typing import NamedTuple

from dpmac.games import assumptions, markov
from dpmac.games.cgp import PLAYERS, Game, Point, Samples, sample
from dpmac.games.definitions import check
from dpmac.games.equilibria import Equilibria, Walk, find, silence_price, silenced_by, walk
from dpmac.games.potential import Cycle, closes, weights, worst_cycle
from dpmac.games.statements import Condition, Finding, conclude, finding

EXACT = (1.0, 1.0)
SILENCE = ("c(1) = 0", "c maps [0, 1] to [0, 1]", "b = 0 where V ≥ V^M", "V^M ≤ V where some p = 1")
"""The conditions that make (1, 1) an equilibrium for C ≥ 0."""
ASSUMPTIONS = tuple(f"asmp: {i}" for i in (1, 2, 3, 4))


class Study(NamedTuple):
    """One game, examined."""

    samples: Samples
    conditions: list[Condition]
    """Of the paper's definitions and of its theorem on collaborative games."""
    assumptions: list[Condition]
    """Of Assumptions 1 to 4, for the game as a Markov game of one step."""
    cycle: Cycle
    """The 4-cycle furthest from an exact potential."""
    exact_potential: bool
    weights: Point | None
    """Weights of a weighted potential, or None where there is none; (1, 1) where it is exact."""
    guarantee: str
    """What makes sure that a pure equilibrium exists, or "no guarantee" and why."""
    findings: list[Finding]
    """Verdicts about the paper's statements."""
    equilibria: Equilibria
    walks: dict[str, Walk]
    """Best-response dynamics in either order."""


def study(game: Game, cells: int = 160, tolerance: float | None = None, start: Point = (0.0, 0.0)) -> Study:
    """Examine a game on a grid of so many cells along each axis."""
    samples = sample(game, cells)
    conditions, assumed = check(game, samples), assumptions.check(markov.one_step(game))
    cycle = worst_cycle(samples)
    exact = closes(samples, cycle)
    w = EXACT if exact else weights(game, samples)
    found = find(game, samples, tolerance)
    definitions = ("def: privacy loss function", "def: benefit function", "def: value function in CGP")
    findings = [
        *(conclude(label, conditions) for label in definitions),
        potential_game(cycle, exact, w),
        theorem(game, samples, conditions, found),
        proof(conditions, cycle, exact),
        *(conclude(label, assumed) for label in ASSUMPTIONS),
    ]
    walks = {"sequential": walk(game, start, "sequential"), "simultaneous": walk(game, start, "simultaneous")}
    sure = guarantee(game, conditions, cycle, w)
    return Study(samples, conditions, assumed, cycle, exact, w, sure, findings, found, walks)


def guarantee(game: Game, conditions: list[Condition], cycle: Cycle, w: Point | None) -> str:
    """(1, 1) by the definitions, or the maximum of a continuous potential on the square; nothing else is promised."""
    if silence_is_certain(game, conditions):
        sure = "" if game.closed_form else ", as far as the grid can tell"
        return f"a pure equilibrium exists: (1, 1), by the definitions and C ≥ 0 alone{sure}; no guarantee of another"
    jumps = [c for c in conditions if c.name.endswith("is continuous") and c.verdict != "holds"]
    if jumps:
        return f"no guarantee: {jumps[0].name} fails {jumps[0].where}"
    if w is None:
        return f"no guarantee: neither an exact nor a weighted potential, {open_cycle(cycle)}"
    kind = "an exact potential" if w == EXACT else f"a weighted potential, weights {w[0]:g} and {w[1]:g},"
    limits = " as far as the grid can tell; no guarantee that it is not (1, 1)"
    return f"a pure equilibrium exists: {kind} and continuous utilities{'' if game.closed_form else limits}"


def silence_is_certain(game: Game, conditions: list[Condition]) -> bool:
    """Whether the paper's definitions make (1, 1) an equilibrium.

    Against p_m = 1 player n has V_n^M ≤ V_n, hence no benefit, whatever its own p. What is left of its utility is
    −C_n·c(p_n), which is largest at p_n = 1 for C_n ≥ 0.
    """
    needed = [c for c in conditions if without_player(c.name) in SILENCE]
    return min(game.C) >= 0 and all(condition.verdict == "holds" for condition in needed)


def potential_game(cycle: Cycle, exact: bool, w: Point | None) -> Finding:
    """The definition by equal mixed derivatives, as 4-cycles test it, which asks for no derivatives."""
    label = "def: potential game"
    if exact:
        return finding(
            label, "holds", "the gains round every rectangle of the grid sum to 0: an exact potential exists"
        )
    weighted = (
        f"; a weighted potential exists, weights {w[0]:g} and {w[1]:g}" if w else "; no weighted potential either"
    )
    return finding(label, "fails", f"no exact potential: {open_cycle(cycle)}{weighted}")


def theorem(game: Game, samples: Samples, conditions: list[Condition], found: Equilibria) -> Finding:
    """The paper: equal derivatives of V₁ and V₂ make sure of a pure equilibrium that is not trivial, not (1, 1)."""
    label = "theorem: NE in CGP"
    if broken := unmet(conditions):
        return finding(label, "does not apply", f"these of its conditions are not met: {broken}")
    silent = silenced_by(game, samples) if found.exact is None else None
    if silent is not None:
        price, n = silence_price(game, samples, silent), silent + 1
        reason = (
            "all of its conditions hold, but (1, 1) is the only equilibrium, as far as a search can tell: "
            f"C_{n} = {game.C[silent]:.6g} exceeds {price:.6g}, so p_{n} = 1 is strictly best for player {n} whatever "
            "the other does, and the other's only best response to that is 1"
        )
        if found.nontrivial is None:
            return finding(label, "fails", reason)
        return finding(label, "undecided", f"{reason}; yet a search for equilibria found {pair(found.nontrivial)}")
    if found.nontrivial is None and found.exact is None:
        return finding(label, "undecided", "all of its conditions hold; a search found no equilibrium but (1, 1)")
    if found.nontrivial is None:
        return finding(label, "fails", "all of its conditions hold, but (1, 1) is the only equilibrium")
    sure = "" if found.exact else ", as far as a search can tell"
    return finding(label, "holds", f"all of its conditions hold, and {pair(found.nontrivial)} is an equilibrium{sure}")


def proof(conditions: list[Condition], cycle: Cycle, exact: bool) -> Finding:
    """The proof's step from equal derivatives to an exact potential."""
    label = "proof of theorem: NE in CGP"
    if unmet(conditions):
        return finding(label, "does not apply", "the conditions of the theorem are not met")
    if exact:
        return finding(label, "holds", "the exact potential that it promises exists")
    return finding(label, "fails", f"all of the theorem's conditions hold, yet {open_cycle(cycle)}: no exact potential")


def binary_sums_theorem(game: Game, studied: Study) -> Finding:
    """The paper: binary sums are a collaborative game, so a pure equilibrium that is not trivial exists.

    Its own utility takes b = V^M − V; clipped at 0, the benefit is what its definition demands.
    """
    label, found = "theorem: single round binary sums", studied.equilibria.nontrivial
    ratios = " and ".join(f"{game.C[n] / game.B[n]:.12g}" for n in PLAYERS)
    route = f"the theorem that it rests on does not apply, as these are not met: {unmet(studied.conditions)}"
    if found is None:
        return finding(label, "fails", f"at C/B = {ratios} (1, 1) is the only equilibrium; {route}")
    return finding(label, "holds", f"at C/B = {ratios} {pair(found)} is an equilibrium other than (1, 1); but {route}")


def unmet(conditions: list[Condition]) -> str:
    """The conditions that do not hold, each once whichever player it fails for."""
    return "; ".join(dict.fromkeys(without_player(c.name) for c in conditions if c.verdict != "holds"))


def without_player(name: str) -> str:
    return re.sub(r" \(player \d\)", "", name)


def pair(point: Point) -> str:
    """A point in six digits, or in all of them where six would make it (1, 1) and it is not."""
    short = f"({point[0]:.6g}, {point[1]:.6g})"
    return f"({point[0]}, {point[1]})" if short == "(1, 1)" and min(point) < 1 else short


def open_cycle(cycle: Cycle) -> str:
    return f"the gains round the rectangle from {pair(cycle.corner)} to {pair(cycle.opposite)} sum to {cycle.gains:.4g}"
