"""The Gaussian mechanism of the paper: a vector of norm at most C, plus noise."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpmac.config import Release, Unit, require
from dpmac.privacy import accounting, theorem
from dpmac.privacy import loss as losses
from dpmac.privacy.loss import Loss
from dpmac.privacy.mechanisms.additive import SAFETY, Additive, Grid, clipped_steps


class Gaussian(Additive):
    """Clip the sampled message to norm C, last of all, and add N(0, σ²I); the one mechanism whose sender may sample."""

    traced = "dpmac.agents.mechanisms.gaussian:Gaussian"
    title = "Gaussian"
    paper = True

    def paper_sigma(self, epsilon: float, delta: float, unit: Unit, horizon: int) -> float:
        """σ of the theorem (unit message) or the corollary (unit episode)."""
        setting = theorem.released(horizon, self.channel.clip_norm)
        return float(theorem.sigma(epsilon, delta, setting, theorem.steps(unit, horizon)))

    # A sender that samples --------------------------------------------------------------------------------------------

    def loss(self, release: Release, delta: float) -> Loss:
        if min(release.rates, default=1.0) < 1 and not accounting.unprotected(release):
            return losses.sampled(self.width() / release.noise, release.rates, delta)
        return super().loss(release, delta)

    def epsilon(self, release: Release, delta: float) -> float:
        rate = sampling_rate(release)
        if rate is None or accounting.unprotected(release):
            return super().epsilon(release, delta)
        if delta >= rate:
            return 0.0
        unsampled = losses.epsilon_of(Loss(self.width() / release.noise), delta / rate)
        return losses.amplified(unsampled, rate)

    def delta(self, release: Release, epsilon: float) -> float:
        rate = sampling_rate(release)
        if rate is None or accounting.unprotected(release):
            return super().delta(release, epsilon)
        unsampled = losses.gaussian_delta(losses.unamplified(epsilon, rate), self.width() / release.noise)
        return rate * float(unsampled)

    def calibrate(self, plain: Release, epsilon: float, delta: float) -> float:
        rate = sampling_rate(plain)
        if rate is not None:
            require(delta < rate, f"delta ({delta}) must lie below the rate of sampling ({rate:.4g})")
            return self.width() / losses.mu_of(float(losses.unamplified(epsilon, rate)), delta / rate) * (1 + SAFETY)
        unsampled = super().calibrate(plain, epsilon, delta)
        return self.sampled_sigma(plain, epsilon, delta, unsampled) if min(plain.rates) < 1 else unsampled

    def sampled_sigma(self, plain: Release, epsilon: float, delta: float, unsampled: float) -> float:
        """σ of a sampled sender to a thousandth, from the safe side; sampling never needs more than `unsampled`."""

        def meets(sigma: float) -> bool:
            return losses.delta_of(self.loss(replace(plain, noise=sigma), delta), epsilon) <= delta

        low = high = unsampled
        while meets(low):
            low, high = low / 2, low
        while high > low * 1.001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if meets(middle) else (middle, high)
        return high

    def event(self, release: Release) -> Any:
        if min(release.rates) == 1:
            return super().event(release)
        import dp_accounting as dp

        gaussian = dp.GaussianDpEvent(release.noise / self.channel.sensitivity)
        copies = dp.SelfComposedDpEvent(gaussian, self.channel.sent)  # recipients share the subset and differ in noise
        shares = [Fraction(rate).limit_denominator(release.horizon) for rate in release.rates]
        return dp.ComposedDpEvent(
            [dp.SampledWithoutReplacementDpEvent(share.denominator, share.numerator, copies) for share in shares]
        )

    def replaces(self, release: Release) -> bool:
        return min(release.rates, default=1.0) < 1

    # The rest ---------------------------------------------------------------------------------------------------------

    def signal(self, size: int) -> tuple[float, int]:
        return self.channel.clip_norm**2, size

    def apart(self) -> float:
        """The points of a simplex in a ball of radius 1."""
        return math.sqrt(2 * self.channel.symbols / (self.channel.symbols - 1))

    def worst_case(self, uses: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Opposite directions that change from use to use, four times too long: a channel that does not clip, or
        repeats its noise, gives itself away."""
        directions = rng.standard_normal((uses, size))
        first = 4 * self.channel.clip_norm * directions / np.linalg.norm(directions, axis=-1, keepdims=True)
        return first, -first

    def reach(self, rows: np.ndarray) -> tuple[float, float]:
        return float(np.linalg.norm(rows, axis=-1).max()), self.channel.clip_norm

    def steps(self, xp: Any, message: Any, grid: Grid) -> Any:
        return clipped_steps(xp, message, grid)

    def plain(self, xp: Any, message: Any) -> Any:
        return message


def sampling_rate(release: Release) -> float | None:
    """γ of a single sampled release, which has a closed form; None for all others."""
    return release.rates[0] if len(release.rates) == 1 and release.rates[0] < 1 else None
