"""The least that walking can cost: a lower bound that no walker passes, from duality.

A particle at rest pays its squared distance to a place after each step. The five pushes lie in the square
|u_x| + |u_y| ≤ 1. Along the diagonals, p = x + y and q = x − y, this square is |u_p| ≤ 1, |u_q| ≤ 1, and the cost is
half the sum of both squares: two problems on a line. There positions are free + B·u, and for every vector λ

    min over |u| ≤ 1 of |free + B·u|²   ≥   2·λ·free − |λ|² − 2·Σ|Bᵀλ|,

with equality at the residual of the best walk. Since `free` is affine in the distance to the place, each λ is a tangent
below the least cost at all distances. Tangents at narrow steps are computed once; any λ is sound, however it was found.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from dpmac.tasks import particles
from dpmac.tasks.particles import Bodies, Convention

REACH, STEP = 4.0, 0.01
"""Tangents touch at these distances along a diagonal; farther away they hold as well, but are loose."""
SEARCHES, GAP = 100, 1e-6
"""Rounds of 200 steps of the search for walks; it ends early when all costs are this close to their tangents."""
ROUNDING = 1e-9
"""How much lower tangents are drawn than they were computed; costs are below 1e3 unless horizons are long."""
PUSHES = (-1, 0, 1)
DIAGONALS = np.array([[0, 0], [-1, -1], [1, 1], [-1, 1], [1, -1]])
"""Pushes (action, diagonal) of stay, left, right, down and up."""


class Tangents(NamedTuple):
    """Of the cost after the first step, by the first push and the distance after it."""

    distances: np.ndarray
    """(node,)"""
    heights: np.ndarray
    """(push, node)"""
    slopes: np.ndarray
    """(push, node)"""
    gap: float
    """The largest difference between a walk that was found and its tangent."""


def least_cost(offsets: np.ndarray, convention: Convention, horizon: int) -> np.ndarray:
    """Lower bounds (…, action) on the sum over `horizon` steps of the squared distance to a place, for a particle that
    rests at these offsets (…, 2) from it and makes each action first; then it may do what it likes."""
    diagonal = np.stack([offsets[..., 0] + offsets[..., 1], offsets[..., 0] - offsets[..., 1]], axis=-1)
    lines = np.stack([line_cost(diagonal, push, convention, horizon) for push in range(len(PUSHES))], axis=-1)
    p, q = lines[..., 0, :], lines[..., 1, :]
    index = DIAGONALS + 1
    return 0.5 * (p[..., index[:, 0]] + q[..., index[:, 1]])


def line_cost(distance: np.ndarray, push: int, convention: Convention, horizon: int) -> np.ndarray:
    """The same on a line, for one of the first pushes: the higher of the two nearest tangents, plus the first step."""
    first = distance + PUSHES[push] * moves(convention, 1)[1][0, 0]
    table = tangents(convention, horizon)
    left = np.clip(np.floor((first + REACH) / STEP).astype(int), 0, len(table.distances) - 2)
    rest = [
        table.heights[push, node] + table.slopes[push, node] * (first - table.distances[node])
        for node in (left, left + 1)
    ]
    return first**2 + np.maximum(*rest)


def moves(convention: Convention, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """How far after each step (step,) a particle has drifted that begins at speed 1, and (step, push) one that gets a
    single push at a time."""
    zeros = np.zeros(steps + 1)
    bodies = Bodies(zeros, zeros, np.append(1.0, np.zeros(steps)), zeros)  # type: ignore[arg-type]  # NumPy's floats
    found = []
    for step in range(steps):
        force = particles.GAIN * (np.arange(steps + 1) == step + 1)
        bodies = particles.integrate(bodies, force, zeros, convention)  # type: ignore[arg-type]
        found.append(bodies.x)
    table = np.reshape(found, (steps, steps + 1))
    return table[:, 0], table[:, 1:]


@cache
def tangents(convention: Convention, horizon: int) -> Tangents:
    """Tangents for each first push. To walk from the left is to walk from the right with all pushes turned round, so
    that half of them are found and mirrored."""
    right = np.linspace(0, REACH, round(REACH / STEP) + 1)
    drift, pushed = moves(convention, horizon - 1)
    pushed = pushed[:, np.abs(pushed).sum(0) > 0]  # under mpe2's convention the last push moves nothing
    speed = particles.DT * particles.GAIN
    found = [search(right[:, None] + speed * push * drift, pushed) for push in PUSHES]
    heights, slopes, gaps = (np.array(part) for part in zip(*found, strict=True))
    return Tangents(
        np.concatenate([-right[:0:-1], right]),
        np.hstack([heights[::-1, :0:-1], heights]),
        np.hstack([-slopes[::-1, :0:-1], slopes]),
        float(gaps.max()),
    )


def search(free: np.ndarray, pushed: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Heights and slopes (walk,) of tangents at good walks, and the largest gap between a walk's cost and its height:
    accelerated projected gradients for all walks with these free positions (walk, step) side by side."""
    if not pushed.size:
        return np.sum(free**2, 1), 2 * free.sum(1), 0.0
    spectrum = np.linalg.svd(pushed, compute_uv=False)
    momentum = (spectrum[0] - spectrum[-1]) / (spectrum[0] + spectrum[-1])
    curvature, pull = pushed.T @ pushed / spectrum[0] ** 2, free @ pushed / spectrum[0] ** 2
    walk = ahead = np.zeros_like(pull)
    heights, slopes, gap = np.zeros(len(free)), np.zeros(len(free)), np.inf
    for _ in range(SEARCHES):
        for _ in range(200):
            before, walk = walk, np.clip(ahead - pull - ahead @ curvature, -1, 1)
            ahead = walk + momentum * (walk - before)
        residual = free + walk @ pushed.T
        heights = np.sum((2 * free - residual) * residual, 1) - 2 * np.abs(residual @ pushed).sum(1)
        slopes, gap = 2 * residual.sum(1), float((np.sum(residual**2, 1) - heights).max())
        if gap < GAP:
            break
    return heights - ROUNDING, slopes, gap
