"""Potentials of two-player games on the unit square, by sums of gains over 4-cycles (Monderer and Shapley).

Walk round a rectangle, p₁ → p₁′, p₂ → p₂′, and back, and add up what the mover gains at each side. An exact potential
exists if and only if that sum is 0 for every rectangle; a weighted one, if it is 0 once each gain is divided by its
mover's weight. With D_n = u_n(p₁′,p₂′) − u_n(p₁,p₂′) − u_n(p₁′,p₂) + u_n(p₁,p₂) the sum is D₂/w₂ − D₁/w₁.
"""

import math
from typing import NamedTuple

import numpy as np

from dpmac.games.cgp import Array, Game, Point, Samples

TOLERANCE = 1e-11
"""Cycles that sum to less than this, relative to the weighted benefits, close."""


class Cycle(NamedTuple):
    """A rectangle between two corners of the grid, and the sum of gains round it."""

    corner: Point
    opposite: Point
    gains: float


def differences(samples: Samples) -> Array:
    """D_n (player, cell, cell) of every cell of the grid; a larger rectangle's is the sum over its cells.

    The privacy loss, which only the own p enters, cancels; it is left out, for its rounding need not.
    """
    return np.diff(np.diff(samples.weighted, axis=1), axis=2)


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
    return abs(cycle.gains) <= TOLERANCE * float(np.max(np.abs(samples.weighted) / np.array(weights)[:, None, None]))


def weights(game: Game, samples: Samples) -> Point | None:
    """w with w₁ = B₁ that make every 4-cycle of the grid close, or None where there are none."""

    def close(w: Point) -> bool:
        return closes(samples, worst_cycle(samples, w), w)

    if close(game.B):  # as with any weights where utilities separate (D ≈ 0), which rounding must not choose
        return game.B
    if close((1.0, math.inf)) or close((math.inf, 1.0)):  # those of one player separate, the other's do not
        return None
    one, two = differences(samples)
    ratio = float(np.sum(one * two) / np.sum(two * two))
    if ratio <= 0:
        return None
    found = (game.B[0], game.B[0] / ratio)
    return found if close(found) else None


def on_grid(samples: Samples, w: Point) -> Array:
    """Φ (grid, grid) with u_n − w_n·Φ free of p_n, for weights with which every cycle closes."""
    u1, u2 = samples.utility
    return (u1[:, :1] - u1[0, 0]) / w[0] + (u2 - u2[:, :1]) / w[1]
