"""Running sums of what each step says, with Gaussian noise that is correlated over time, or with independent noise.

A stream is m_t = ρ·m_{t−1} + u_t: in matrices m = A·u, where each u_t (number,) is clipped to norm C. A factorisation
A = B·E of triangular Toeplitz matrices splits it (see `privacy.streams`). What leaves is E·u + z with independent noise
z, on the grid. Receivers multiply by B, which is post-processing, and have m + B·z: the stream plus noise that is
correlated over time. So everything that is known of independent noise on a grid holds for it, exactness included.

Rounding costs nothing here either. Release t is Σ_k ⌊e_{t−k}·u_k⌋ in whole steps, each term rounded towards zero by
itself: it depends on u_k alone, and its norm is at most e_{t−k}·C. Two inputs that differ in u_k alone are therefore at
most 2C·e_{t−k} apart in release t, and those that differ in every step 2C·Σ_k e_{t−k}.
"""

import math
from typing import Any, ClassVar

import numpy as np

from dpmac.config import Release, require
from dpmac.privacy import checks, limits, streams
from dpmac.privacy.mechanisms.additive import Additive, Grid, clipped_steps

LONGEST = 1024
"""Steps of an episode that the grid has room for."""


class Correlated(Additive):
    """Half of the sum before the noise and half after it: E = B = A^½."""

    traced = "dpmac.agents.mechanisms.correlated:Correlated"
    title = "noise correlated over time"
    remembers = True
    whole = True
    power: ClassVar[float] = 0.5
    """E = A^power, and B is the rest."""

    def check(self) -> None:
        channel = self.channel
        plain = channel.period == channel.rounds == channel.copies == 1 and channel.place == "sender"
        require(
            plain and channel.sample_rate == 0 and channel.recipient_rate == 1,
            f"the mechanism {channel.mechanism} sends one message at every step, from the sender, to everybody: "
            "period, rounds, copies and recipient_rate must be 1, and sample_rate 0",
        )

    def weights(self, steps: int) -> np.ndarray:
        """The first column (time,) of E."""
        require(steps <= LONGEST, f"running sums have room for {LONGEST} steps of an episode, not for {steps}")
        return streams.coefficients(self.power, self.channel.stream_decay, steps)

    def back(self, steps: int) -> np.ndarray:
        """The first column (time,) of B."""
        return streams.coefficients(1 - self.power, self.channel.stream_decay, steps)

    # Accounting -------------------------------------------------------------------------------------------------------

    def squares(self, release: Release) -> float:
        """Of a column of E where one input differs, whenever that is; of E·1 where all do, since no entry is negative.
        Before one message or in one step, it is one input that differs, and all later messages tell of it."""
        weights = self.weights(release.horizon)
        one = release.unit == "message" or release.neighbours != "inputs"
        return float(np.sum((weights if one else np.cumsum(weights)) ** 2))

    def event(self, release: Release) -> Any:
        """The whole episode is one Gaussian vector."""
        import dp_accounting as dp

        return dp.GaussianDpEvent(release.noise / (self.width() * math.sqrt(self.squares(release))))

    # Limits -----------------------------------------------------------------------------------------------------------

    def signal(self, size: int) -> tuple[float, int]:
        return self.channel.clip_norm**2, size

    def apart(self) -> float:
        """The points of a simplex in a ball of radius 1."""
        return math.sqrt(2 * self.channel.symbols / (self.channel.symbols - 1))

    def eavesdropper(self, noise: float, values: int) -> float:
        distance = self.apart() * self.channel.clip_norm * np.linalg.norm(np.cumsum(self.weights(values))) / noise
        return limits.simplex_accuracy(float(distance), self.channel.symbols)

    def bits(self, noise: float, size: int, horizon: int) -> float:
        """Step t is a Gaussian channel of energy (C·Σ_j e_j)²."""
        reach = self.channel.clip_norm * np.cumsum(self.weights(horizon))
        return float(np.sum(size / 2 * np.log2(1 + (reach / noise) ** 2 / size))) if noise else math.inf

    # Audits -----------------------------------------------------------------------------------------------------------

    def worst_case(self, uses: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Opposite directions that stay the same from step to step, so that they add up, four times too long."""
        direction = rng.standard_normal(size)
        first = np.tile(4 * self.channel.clip_norm * direction / np.linalg.norm(direction), (uses, 1))
        return first, -first

    def encoded(self, messages: np.ndarray) -> np.ndarray:
        return streams.toeplitz(self.weights(len(messages))) @ messages

    def reach(self, rows: np.ndarray) -> tuple[float, float]:
        return float(np.linalg.norm(rows, axis=-1).max()), self.channel.clip_norm

    def within_reach(self, sent: np.ndarray) -> checks.Check:
        """Of each step's message so much as all inputs up to it may make of it."""
        return super().within_reach(sent / np.cumsum(self.weights(sent.shape[1]))[:, None, None])

    # The release ------------------------------------------------------------------------------------------------------

    def extent(self) -> float:
        return self.channel.clip_norm * float(self.weights(LONGEST).sum())

    def parameters(self, noise: float, /) -> Grid:
        """Without noise, the grid is the finest that has room."""
        if noise:
            return super().parameters(noise)
        return super().parameters(self.extent() / 2**18)._replace(deviation=np.float32(0))

    def steps(self, xp: Any, message: Any, grid: Grid) -> Any:
        """Σ_j ⌊e_j·u_{t−j}⌋. A product is off by a relative 2⁻²² at most, for which `clipped_steps` leaves room."""
        window = message.reshape(-1, message.shape[-1])
        weights = self.weights(len(window)).astype(np.float32)[:, None]
        terms = (clipped_steps(xp, window, grid).astype(xp.float32) * weights).astype(xp.int32)
        return xp.sum(terms, axis=0, dtype=xp.int32)

    def plain(self, xp: Any, message: Any) -> Any:
        """Sums are on a grid with and without noise, so that nothing leaves in another way."""
        return xp.zeros_like(message.reshape(-1, message.shape[-1])[0])


class Sums(Correlated):
    """All of the sum before the noise, which stays independent over time: E = A, and receivers have nothing to do."""

    title = "independent noise on running sums"
    power = 1.0
