"""A secret that changes: what a stream of releases costs under three readings, and noise that is correlated over time.

A stream is s_t = ρ·s_{t−1} + u_t. Its increments u_t are vectors of norm C at most, so two of them differ by Δ = 2C at
most; in matrices s = A·u with A_tk = ρ^{t−k} for k ≤ t. A factorisation A = B·E releases v = E·u + z with independent
noise z of deviation σ (Li et al. 2010; Denisov et al. 2022), and a receiver computes B·v = s + B·z: the stream plus
noise that is correlated over time. The whole episode is one Gaussian vector, so its privacy loss is exactly that of one
Gaussian mechanism with μ = d/σ, where d is the largest distance between E·u and E·u′ for neighbours u and u′. That
inputs may be picked from what was released before changes nothing (docs/privacy-proofs.md):

    increment   u and u′ differ in one step's increment:   Δ times the largest norm of a column of E
    episode     they differ in all of them:                Δ times the norm of E·1, as no entry of E is negative

Plain noise on the stream is the factorisation E = A, B = 1. The square root E = B = A^½ is a Toeplitz matrix as well
(Fichtenberger, Henzinger and Upadhyay 2023). An increment is much less than an episode: what a stream drifts over many
steps is not protected by a budget for one of them. Two mechanisms of channels release so.

How well a stream can be followed is worked out for Gaussian increments of variance 1 − ρ², from the first on: it begins
near 0. What a cut takes away is counted. A first value of variance 1 would be an increment like the others, and mostly
be cut.
"""

import math
import typing
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtr

from dpmac.config import check_choice, require
from dpmac.privacy import loss
from dpmac.privacy.accounting import SAFETY

Reading = Literal["increment", "episode"]
KINDS = {"plain": 1.0, "root": 0.5}
"""Factorisations, each by the power of A that is applied before the noise."""


class Stream(NamedTuple):
    """A stream of one number, of variance 1 in the long run, whose increments are cut."""

    decay: float = 0.98
    """ρ."""
    horizon: int = 25
    """T."""
    cut: float = 1.0
    """C in standard deviations of an increment, which are √(1 − ρ²)."""
    stationary: bool = False
    """As if the first value had variance 1 and nothing were ever cut: no private release, but what is often shown."""

    @property
    def change(self) -> float:
        """Δ: the largest distance between two increments."""
        return 2 * self.cut * math.sqrt(1 - self.decay**2)

    @property
    def covariance(self) -> np.ndarray:
        """Of the stream (time, time)."""
        whole = toeplitz(self.decay ** np.arange(self.horizon))
        return whole @ (self.variances[:, None] * whole.T)

    @property
    def variances(self) -> np.ndarray:
        """Of increments (time,)."""
        found = np.full(self.horizon, 1 - self.decay**2)
        found[0] = 1.0 if self.stationary else found[0]
        return found

    @property
    def cuts(self) -> tuple[float, float]:
        """Of a cut increment, in units of the variance: its covariance with the increment, and its variance."""
        if self.stationary:
            return 1.0, 1.0
        kept, density = 2 * float(ndtr(self.cut)) - 1, math.exp(-(self.cut**2) / 2) / math.sqrt(2 * math.pi)
        return kept, kept - 2 * self.cut * density + self.cut**2 * (1 - kept)

    def check(self) -> None:
        require(0 <= self.decay < 1, f"decay must lie in [0, 1), not {self.decay}")
        require(1 <= self.horizon <= 10_000, f"horizon must be a whole number from 1 to 10,000, not {self.horizon}")
        require(self.cut > 0 and math.isfinite(self.cut), f"cut must be a finite number above 0, not {self.cut}")


def toeplitz(column: np.ndarray) -> np.ndarray:
    """The lower triangular matrix (time, time) whose diagonals are the entries of its first column (time,)."""
    steps = np.arange(len(column))
    apart = steps[:, None] - steps
    return np.where(apart >= 0, column[np.maximum(apart, 0)], 0.0)


def coefficients(power: float, decay: float, steps: int) -> np.ndarray:
    """The first column (time,) of A^power: the series of (1 − ρx)^−power.

    >>> coefficients(0.5, 1.0, 4)
    array([1.    , 0.5   , 0.375 , 0.3125])
    """
    step = np.arange(1, steps)
    return np.cumprod(np.r_[1.0, decay * (step - 1 + power) / step])


def factors(kind: str, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """B and E (time, time): what a receiver multiplies by, and what the sender does."""
    stream.check()
    require(kind in KINDS, f"factorisations are {', '.join(KINDS)}, not {kind!r}")
    before = KINDS[kind]
    back, sent = (toeplitz(coefficients(power, stream.decay, stream.horizon)) for power in (1 - before, before))
    return back, sent


def distance(kind: str, stream: Stream, reading: Reading) -> float:
    """d: how far two neighbouring streams are apart in what is released, before the noise."""
    check_choice("reading", reading, Reading)
    sent = factors(kind, stream)[1]
    most = np.linalg.norm(sent, axis=0).max() if reading == "increment" else np.linalg.norm(sent.sum(1))
    return stream.change * float(most)


def calibrate(kind: str, stream: Stream, reading: Reading, epsilon: float, delta: float) -> float:
    """The σ of the noise z at which an episode keeps (ε, δ) under a reading.

    >>> [round(calibrate(kind, Stream(), "increment", 3.0, 1e-4), 2) for kind in KINDS]
    [1.95, 0.66]
    """
    return distance(kind, stream, reading) / loss.mu_of(epsilon, delta) * (1 + SAFETY)


def epsilon(kind: str, stream: Stream, reading: Reading, sigma: float, delta: float) -> float:
    """The exact ε of an episode at δ under a reading.

    >>> round(epsilon("root", Stream(), "episode", calibrate("root", Stream(), "increment", 3.0, 1e-4), 1e-4), 1)
    99.6
    """
    require(sigma > 0 and math.isfinite(sigma), f"sigma must be a finite number above 0, not {sigma}")
    return loss.epsilon_of(loss.Loss(distance(kind, stream, reading) / sigma), delta)


def event(kind: str, stream: Stream, reading: Reading, sigma: float) -> Any:
    """The same for dp-accounting: one Gaussian event."""
    import dp_accounting as dp

    return dp.GaussianDpEvent(sigma / distance(kind, stream, reading))


def release(kind: str, stream: Stream, increments: np.ndarray, sigma: float, rng: np.random.Generator) -> np.ndarray:
    """v (…, time) for increments (…, time), which are cut here. Simulated: float noise from a seed."""
    most = stream.change / 2
    sent = np.clip(increments, -most, most) @ factors(kind, stream)[1].T
    return sent + sigma * rng.standard_normal(increments.shape)


def filtering_errors(kind: str, stream: Stream, sigma: float) -> np.ndarray:
    """Mean squared error (time,) of the best linear estimate of s_t from everything released up to t."""
    back, sent = factors(kind, stream)
    along, variance = stream.cuts
    spread = stream.variances[:, None] * sent.T
    heard = variance * sent @ spread + sigma**2 * np.eye(stream.horizon)
    told, errors = along * back @ sent @ spread, np.diag(stream.covariance).copy()
    for last in range(stream.horizon):
        row = told[last, : last + 1]
        errors[last] -= row @ np.linalg.solve(heard[: last + 1, : last + 1], row)
    return errors


def rows(stream: Stream, epsilon_: float, delta: float) -> list[dict[str, Any]]:
    """For each reading and factorisation what a budget needs, how well the stream can be followed on average over time,
    and what the same noise costs for the whole episode."""
    found = []
    for reading in typing.get_args(Reading):
        for kind in KINDS:
            sigma = calibrate(kind, stream, reading, epsilon_, delta)
            found.append(
                {
                    "epsilon": epsilon_,
                    "reading": reading,
                    "kind": kind,
                    "sigma": sigma,
                    "error": float(filtering_errors(kind, stream, sigma).mean()),
                    "episode_epsilon": epsilon(kind, stream, "episode", sigma, delta),
                }
            )
    return found
