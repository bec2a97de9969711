"""Potentials of two-player games on the unit square, by sums of gains over 4-cycles (Monderer and Shapley).

Walk round a rectangle, p₁ → p₁′, p₂ → p₂′, and back, and add up what the mover gains at each side. An exact potential
exists if and only if that sum is 0 for every rectangle; a weighted one, if it is 0 once each gain is divided by its
mover's weight. With D_n = u_n(p₁′,p₂′) − u_n(p₁,p₂′) − u_n(p₁′,p₂) + u_n(p₁,p₂) the sum is D₂/w₂ − D₁/w₁.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpmac.games import GameError
from dpmac.games.cgp import Array, Game, Point, Samples

TOLERANCE = 1e-11
"""Cycles that sum to less than this, relative to the utilities, close."""


class Cycle(NamedTuple):
    """A rectangle between two corners of the grid, and the sum of gains round it."""

    corner: Point
    opposite: Point
    gains: float


def differences(samples: Samples) -> Array:
    """D_n (player, cell, cell) of every cell of the grid; a larger rectangle's is the sum over its cells."""
    return np.diff(np.diff(samples.utility, axis=1), axis=2)


def worst_cycle(samples: Samples, weights: Point = (1.0, 1.0)) -> Cycle:
    """The rectangle from the origin of the grid whose weighted gains are furthest from 0.

    Every rectangle's sum is a signed sum of four of these, so if they all close then so does every one.
    """
    cells = differences(samples) / np.array(weights)[:, None, None]
    sums = np.cumsum(np.cumsum(cells[1] - cells[0], axis=0), axis=1)
    i, j = np.unravel_index(np.argmax(np.abs(sums)), sums.shape)
    return Cycle((0.0, 0.0), (float(samples.p[i + 1]), float(samples.p[j + 1])), float(sums[i, j]))


def closes(samples: Samples, cycle: Cycle, weights: Point = (1.0, 1.0)) -> bool:
    """Whether a cycle's gains sum to 0, up to rounding."""
    return abs(cycle.gains) <= TOLERANCE * float(np.max(np.abs(samples.utility))) / min(weights)


def weights(game: Game, samples: Samples) -> Point | None:
    """w with w₁ = B₁ that make every 4-cycle of the grid close, or None where there are none."""
    one, two = differences(samples)
    square = float(np.sum(two * two))
    ratio = float(np.sum(one * two)) / square if square > 0 else game.B[0] / game.B[1]
    # Utilities that separate (D ≈ 0) close with any weights; rounding must not choose them.
    if closes(samples, worst_cycle(samples, game.B), game.B):
        ratio = game.B[0] / game.B[1]
    if ratio <= 0:
        return None
    found = (game.B[0], game.B[0] / ratio)
    return found if closes(samples, worst_cycle(samples, found), found) else None


def potential(game: Game, samples: Samples, w: Point = (1.0, 1.0)) -> Callable[[float, float], float]:
    """Φ(p₁, p₂) with u_n − w_n·Φ free of p_n: exact for weights (1, 1), the default. Refuses where a cycle is open."""
    cycle = worst_cycle(samples, w)
    if not closes(samples, cycle, w):
        kind = "exact potential" if w == (1.0, 1.0) else f"potential with weights {w}"
        (a, b), (c, d) = cycle.corner, cycle.opposite
        raise GameError(
            f"no {kind}: the gains round ({a:g}, {b:g}) to ({c:g}, {d:g}) and back sum to {cycle.gains:.4g}"
        )

    def phi(p1: float, p2: float) -> float:
        first = game.utility(0, p1, 0.0) - game.utility(0, 0.0, 0.0)
        second = game.utility(1, p1, p2) - game.utility(1, p1, 0.0)
        return first / w[0] + second / w[1]

    return phi


def on_grid(samples: Samples, w: Point) -> Array:
    """The same Φ (grid, grid) from sampled utilities."""
    u1, u2 = samples.utility
    return (u1[:, :1] - u1[0, 0]) / w[0] + (u2 - u2[:, :1]) / w[1]
