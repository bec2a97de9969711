"""Markov games as the paper's Assumptions 1 to 4 speak of them, and this package's games in that form.

States x, policy parameters w and joint actions a are flat arrays (state,), (parameter,) and (action,). Nothing here
is random: rewards and transitions are functions of (x, a) alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpmac.games.cgp import PLAYERS, Game
from dpmac.games.rounds import Rounds

Array = NDArray[np.float64]
NEAR = 10.0
"""Where a box has no bound, points are drawn within this distance unless told otherwise."""


@dataclass(frozen=True)
class Region:
    """A set of points (n,): a box, whose bounds may be infinite, and in it what `inside` admits."""

    low: Array
    high: Array
    inside: Callable[[Array], bool] = lambda point: True

    def contains(self, point: Array) -> bool:
        return bool(np.all((self.low <= point) & (point <= self.high))) and self.inside(point)

    def box(self, reach: float = NEAR) -> tuple[Array, Array]:
        """Bounds (n,) each, infinite ones replaced by finite ones at this distance."""
        low = np.where(np.isfinite(self.low), self.low, np.where(np.isfinite(self.high), self.high - reach, -reach))
        high = np.where(np.isfinite(self.high), self.high, np.where(np.isfinite(self.low), self.low + reach, reach))
        return low, high

    def points(self, count: int, rng: np.random.Generator) -> list[Array]:
        """Up to so many members: half corners of the box, half drawn from it uniformly."""
        low, high = self.box()
        if np.any(low > high):
            return []
        corners = [np.where(rng.random(low.shape) < 0.5, low, high) for _ in range(count // 2)]
        drawn = [low + (high - low) * rng.random(low.shape) for _ in range(count - count // 2)]
        return [point for point in (*corners, *drawn) if self.contains(point)]


@dataclass(frozen=True)
class MarkovGame:
    """What the assumptions are about."""

    states: Region
    """Z."""
    parameters: Region
    """W: the policy parameters of all agents."""
    policy: Callable[[Array, Array], Array]
    """a = π(x, w), the joint action."""
    rewards: Callable[[Array, Array], Array]
    """r_k(x, a) (agent,)."""
    transition: Callable[[Array, Array], Array]
    """The next state f(x, a)."""
    constraints: Callable[[Array, Array], Array]
    """g(x, a) (constraint,): allowed is what has g ≤ 0."""


def box(low: ArrayLike, high: ArrayLike, size: int) -> Region:
    """A box in `size` dimensions; one number serves all of them."""
    return Region(np.broadcast_to(np.asarray(low, float), (size,)), np.broadcast_to(np.asarray(high, float), (size,)))


def one_step(game: Game) -> MarkovGame:
    """A collaborative game with privacy: one state that never changes, and w = a = (p₁, p₂)."""
    return MarkovGame(
        states=box(0, 0, 1),
        parameters=box(0, 1, 2),
        policy=lambda x, w: w,
        rewards=lambda x, a: np.array([game.utility(n, float(a[0]), float(a[1])) for n in PLAYERS]),
        transition=lambda x, a: x,
        constraints=lambda x, a: np.concatenate([-a, a - 1]),
    )


def bounded_rounds(game: Rounds, savings: ArrayLike) -> MarkovGame:
    """Multiple-round sums with 0 ≤ b ≤ x ≤ x₀. An agent's parameters are the share b/x that it gives, and p."""
    x0 = np.asarray(savings, float)
    n = x0.size

    def constraints(x: Array, a: Array) -> Array:
        b, p = a[:n], a[n:]
        return np.concatenate([-x, x - x0, -b, b - x, -p, p - 1])

    return MarkovGame(
        states=box(0, x0, n),
        parameters=box(0, 1, 2 * n),
        policy=lambda x, w: np.concatenate([w[:n] * x, w[n:]]),
        rewards=lambda x, a: game.rewards(x, a[:n], a[n:]),
        transition=lambda x, a: x - a[:n],
        constraints=constraints,
    )


def printed_rounds(game: Rounds, agents: int) -> MarkovGame:
    """Multiple-round sums to the letter of the paper: x ∈ ℝ, and no bound on b. Parameters are b and p themselves."""
    low = np.repeat([-np.inf, 0.0], agents)
    high = np.repeat([np.inf, 1.0], agents)
    return MarkovGame(
        states=box(-np.inf, np.inf, agents),
        parameters=Region(low, high),
        policy=lambda x, w: w,
        rewards=lambda x, a: game.rewards(x, a[:agents], a[agents:]),
        transition=lambda x, a: x - a[:agents],
        constraints=lambda x, a: np.concatenate([-a[agents:], a[agents:] - 1]),
    )
