"""Code points plus Gaussian noise: one of k points that are all as far apart as the sensitivity allows."""

import math
from typing import Any

import numpy as np

from dpmac.privacy.mechanisms.additive import Additive, Grid
from dpmac.privacy.mechanisms.base import choose, one_hot
from dpmac.privacy.mechanisms.symbols import check_symbols, different_symbols


class Code(Additive):
    """One of k points √2·C·eᵢ, at distance Δ = 2C from each other, plus N(0, σ²I): no point of the ball is wasted."""

    traced = "dpmac.agents.mechanisms.code:Code"
    title = "Gaussian code points"
    alphabet = True

    def check(self) -> None:
        check_symbols(self.channel)

    def signal(self, size: int) -> tuple[float, int]:
        """Around their mean."""
        k = self.channel.symbols
        return 2 * self.channel.clip_norm**2 * (1 - 1 / k), k - 1

    def apart(self) -> float:
        return 2.0

    def bits(self, noise: float, size: int, horizon: int) -> float:
        return min(super().bits(noise, size, horizon), self.channel.uses(horizon) * math.log2(self.channel.symbols))

    def worst_case(self, uses: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return different_symbols(self.channel.symbols, uses, rng)

    def reach(self, rows: np.ndarray) -> tuple[float, float]:
        """The largest distance of two points; infinite where there are too many."""
        points = np.unique(rows, axis=0)
        if len(points) > self.channel.symbols:
            return math.inf, self.channel.sensitivity
        return float(np.linalg.norm(points[:, None] - points[None], axis=-1).max()), self.channel.sensitivity

    def radius(self) -> float:
        return math.sqrt(2) * self.channel.clip_norm

    def steps(self, xp: Any, message: Any, grid: Grid) -> Any:
        """⌊√2·C/grid⌋ steps along the axis of the symbol: two points are √2 times as far apart, at most 2C."""
        point = one_hot(xp, choose(xp, message), self.channel.symbols)
        return (point * grid.reach).astype(xp.int32)

    def plain(self, xp: Any, message: Any) -> Any:
        return one_hot(xp, choose(xp, message), self.channel.symbols) * xp.float32(self.radius())
