"""Time as a side channel: messages that leave at their slot on the clock, and whether times tell what was sent."""

import time
from typing import NamedTuple

import numpy as np
from scipy.special import bdtrc

from dpmac.config import require

BINS = 64
"""Ranges of times that a guess is learned for."""


def wait_until(slot: float) -> bool:
    """Return at a time of `time.monotonic()`, whatever was done before, and say whether it had not passed yet.

    What is sent right after it leaves when the clock says, not when it was ready:

    >>> slot = time.monotonic() + 0.01
    >>> wait_until(slot), time.monotonic() >= slot, wait_until(slot)
    (True, True, False)
    """
    early = time.monotonic() <= slot
    while (left := slot - time.monotonic()) > 0:
        time.sleep(left)
    return early


class Told(NamedTuple):
    """How often a guess from a time was right about which of two things had been sent."""

    right: int
    guesses: int
    p_value: float
    """Probability of as many right guesses, or more, where times tell nothing."""

    @property
    def accuracy(self) -> float:
        return self.right / self.guesses


def distinguish(times: np.ndarray, sides: np.ndarray) -> Told:
    """Guess which of two things (0 or 1) was sent at each of many steps from how long it took (step,).

    A range of times gets the side that was more frequent in it in the first half of the steps; the second half is
    guessed. `sides` must come from fair coins. Then, where times do not depend on them, right guesses are fair coins as
    well, whatever times are distributed like and however they drift: the p-value is exact.

    >>> rng = np.random.default_rng(0)
    >>> sides = rng.integers(2, size=10_000)
    >>> distinguish(rng.gamma(9, size=10_000), sides).p_value > 0.01
    True
    >>> distinguish(rng.gamma(9, size=10_000) + 2 * sides, sides).p_value < 1e-9
    True
    """
    require(
        times.shape == sides.shape and times.ndim == 1 and len(times) >= 4,
        "there must be a side for each of many times",
    )
    require(bool(np.isin(sides, (0, 1)).all()), "sides must be 0 or 1")
    half = len(times) // 2
    edges = np.quantile(times[:half], np.linspace(0, 1, min(BINS, half // 2) + 1)[1:-1])
    ranges = np.searchsorted(edges, times)
    votes = np.bincount(ranges[:half], 2 * sides[:half] - 1, len(edges) + 1)
    right = int(((votes[ranges[half:]] > 0) == sides[half:]).sum())
    guesses = len(times) - half
    return Told(right, guesses, float(bdtrc(right - 1, guesses, 0.5)) if right else 1.0)
