"""The collaborative game with privacy: two players choose p₁, p₂ ∈ [0, 1] and get

    u_n(p₁, p₂) = B_n·b(V_n, V_n^M(p₁, p₂)) − C_n·c(p_n).

A user gives V, b, c, B and C; the functions are plain Python of plain floats.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import fminbound

from dpmac.games import GameError, require

Array = NDArray[np.float64]
Point = tuple[float, float]
PLAYERS = (0, 1)
TIE = 1e-12
"""Utilities that differ by less than this, relative to their size, count as equal."""


class Segment(NamedTuple):
    """Equilibria from start to end, (p₁, p₂) each; a single one where they coincide."""

    start: Point
    end: Point

    @property
    def is_point(self) -> bool:
        return self.start == self.end

    @property
    def trivial(self) -> bool:
        """Whether it is (1, 1) alone, where nobody says anything."""
        return self.is_point and self.start == (1.0, 1.0)


class ClosedForm(NamedTuple):
    """What is known exactly about a family."""

    responses: Callable[[int, float], tuple[float, ...]]
    """All best responses of a player to the other's p; of an interval of them, its ends."""
    equilibria: tuple[Segment, ...]
    """All pure equilibria."""


@dataclass(frozen=True)
class Game:
    """The tuple of the paper's definition; index 0 is its player 1."""

    alone: tuple[float, float]
    """V_n: what player n has without the other."""
    value: tuple[Callable[[float, float], float], Callable[[float, float], float]]
    """V_n^M(p₁, p₂): what it has with the other under the mechanism."""
    benefit: Callable[[float, float], float]
    """b(V_n, V_n^M)."""
    loss: Callable[[float], float]
    """c(p_n), the privacy loss."""
    B: tuple[float, float]
    """Weight of the benefit, above 0."""
    C: tuple[float, float]
    """Weight of the privacy loss."""
    closed_form: ClosedForm | None = None
    """Exact answers, where the family has them."""

    def __post_init__(self) -> None:
        for name in ("alone", "value", "B", "C"):
            count = len(getattr(self, name))
            require(count == 2, f"a collaborative game has two players, but {name} has {count} entries")
        for name in ("alone", "B", "C"):
            given = getattr(self, name)
            require(all(map(math.isfinite, given)), f"{name} must hold two finite numbers, not {given}")
        require(min(self.B) > 0, f"B must be above 0 for both players, not {self.B}: without it C/B means nothing")

    def utility(self, n: int, p1: float, p2: float) -> float:
        """u_n(p₁, p₂)."""
        return self.B[n] * self.benefit_of(n, p1, p2) - self.C[n] * self.loss_of((p1, p2)[n])

    def value_of(self, n: int, p1: float, p2: float) -> float:
        if not (0 <= p1 <= 1 and 0 <= p2 <= 1):
            raise GameError(f"p₁ and p₂ must lie in [0, 1], not ({p1}, {p2})")
        return finite(f"V_{n + 1}^M", self.value[n], p1, p2)

    def benefit_of(self, n: int, p1: float, p2: float) -> float:
        return finite("b", self.benefit, self.alone[n], self.value_of(n, p1, p2))

    def loss_of(self, p: float) -> float:
        if not 0 <= p <= 1:
            raise GameError(f"p must lie in [0, 1], not {p}")
        return finite("c", self.loss, p)


def finite(name: str, function: Callable[..., float], *arguments: float) -> float:
    """Call a user's function of floats; anything but a finite number is a `GameError` that says where it came up."""
    try:
        result = float(function(*arguments))
    except Exception as error:  # a user's function may raise anything
        raise GameError(f"{called(name, arguments)} raised {type(error).__name__}: {error}") from error
    if not math.isfinite(result):
        raise GameError(f"{called(name, arguments)} is {result}; it must be a finite number")
    return result


def called(name: str, arguments: tuple[float, ...]) -> str:
    return f"{name}({', '.join(f'{argument:g}' for argument in arguments)})"


class Samples(NamedTuple):
    """A game on a grid of the unit square: axis n is player n's p."""

    p: Array
    """(grid,)"""
    value: Array
    """V_n^M (player, grid, grid)"""
    benefit: Array
    """b (player, grid, grid)"""
    weighted: Array
    """B_n·b (player, grid, grid): the part of u_n that the other's p enters."""
    loss: Array
    """c (grid,)"""
    utility: Array
    """u_n (player, grid, grid)"""

    @property
    def cells(self) -> int:
        return len(self.p) - 1


def sample(game: Game, cells: int = 160) -> Samples:
    """Evaluate a game at the (cells + 1)² points of a grid."""
    require(cells >= 24 and cells % 8 == 0, f"the grid must have a multiple of 8 cells, at least 24, not {cells}")
    p = np.linspace(0.0, 1.0, cells + 1)
    points = p.tolist()  # users' functions get plain floats
    value = np.array([[[game.value_of(n, p1, p2) for p2 in points] for p1 in points] for n in PLAYERS])
    benefit = np.array(
        [[[finite("b", game.benefit, game.alone[n], v) for v in row] for row in value[n].tolist()] for n in PLAYERS]
    )
    loss = np.array([game.loss_of(point) for point in points])
    weighted = np.array(game.B)[:, None, None] * benefit
    utility = np.stack([weighted[0] - game.C[0] * loss[:, None], weighted[1] - game.C[1] * loss[None, :]])
    return Samples(p, value, benefit, weighted, loss, utility)


def best_responses(game: Game, n: int, other: float, cells: int = 64) -> tuple[float, ...]:
    """Player n's best p against the other's: exact with a closed form, otherwise local maxima on a grid, refined."""
    if game.closed_form is not None:
        return game.closed_form.responses(n, other)
    return search(lambda p: utility_of_own(game, n, p, other), cells)


def utility_of_own(game: Game, n: int, own: float, other: float) -> float:
    """u_n as a function of the player's own p and the other's."""
    return game.utility(n, own, other) if n == 0 else game.utility(n, other, own)


def search(payoff: Callable[[float], float], cells: int) -> tuple[float, ...]:
    """All maximisers of a function on [0, 1] that a grid of so many cells and a local search find; a plateau's ends."""
    p = np.linspace(0.0, 1.0, cells + 1).tolist()
    u = [payoff(point) for point in p]
    found = dict(zip(p, u, strict=True))
    for i in range(cells + 1):
        low, high = max(i - 1, 0), min(i + 1, cells)
        if u[i] == max(u[low : high + 1]) > min(u[low : high + 1]):  # not on a plateau
            best = fminbound(lambda x: -payoff(float(x)), p[low], p[high], xtol=1e-10)
            point = float(best)  # pyright: ignore[reportArgumentType]
            found[point] = payoff(point)
    best = max(found.values())
    points = sorted(point for point in found if found[point] >= best - TIE * max(1.0, abs(best)))
    breaks = [0, *(i for i in range(1, len(points)) if points[i] - points[i - 1] > 1.5 / cells), len(points)]
    runs = [points[start:stop] for start, stop in itertools.pairwise(breaks)]
    # Rounding makes a short run of one maximum; a long run is a plateau.
    ends = ([max(run, key=found.__getitem__)] if run[-1] - run[0] < 1e-5 else [run[0], run[-1]] for run in runs)
    return tuple(itertools.chain.from_iterable(ends))


def regret(game: Game, p1: float, p2: float) -> Point:
    """What each player would gain by its best deviation from (p₁, p₂); never below 0."""
    gains = []
    for n, own, other in ((0, p1, p2), (1, p2, p1)):
        best = max(utility_of_own(game, n, response, other) for response in best_responses(game, n, other))
        gains.append(max(0.0, best - utility_of_own(game, n, own, other)))
    return gains[0], gains[1]
