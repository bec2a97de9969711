"""What leaves a deployed agent: its mechanism's release, with randomness from the operating system.

Seeds of training play no part in this.
"""

import math
import os
from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from dpmac.config import Channel, Release
from dpmac.privacy import mechanisms


class Entropy:
    """Randomness from a source of bytes; that of the operating system unless a test plants another."""

    def __init__(self, read: Callable[[int], bytes] = os.urandom):
        self.read = read

    def words(self, *shape: int) -> np.ndarray:
        """Uniform 64-bit integers."""
        return np.frombuffer(self.read(8 * math.prod(shape)), np.uint64).reshape(shape)

    def integer(self) -> int:
        return int(self.words(1)[0])

    def normal(self, *shape: int) -> np.ndarray:
        """Standard normal numbers in float64: one bit is the sign, and 63 choose a quantile of the lower half."""
        words = self.words(*shape)
        tail = ((words >> np.uint64(1)).astype(float) + 0.5) * 2.0**-64
        return np.where(words & np.uint64(1), -1.0, 1.0) * ndtri(tail)

    def lot(self, count: int) -> np.ndarray:
        """A random order of so many things."""
        return np.argsort(self.words(count), kind="stable")


class Voice:
    """One agent's way out: its channel, its noise and its draws, which it shares with nobody."""

    def __init__(self, spec: Channel, horizon: int, others: int, noise: float, entropy: Entropy):
        self.spec, self.horizon, self.others, self.noise, self.entropy = spec, horizon, others, noise, entropy

    def cost(self, step: int) -> Release | None:
        """What the release of a step costs, all its copies together; one that draws no transition tells nothing."""
        tells = not self.spec.sample_rate or self.spec.draws(step) > 0
        return Release(self.spec, self.noise, self.horizon, unit="message") if tells else None

    def key(self) -> np.ndarray:
        """Data of a key for the sender's own draws, which no claim relies on."""
        return self.entropy.words(1).view(np.uint32)

    def mix(self, history: np.ndarray, step: int) -> np.ndarray:
        """The mean of past messages (time, number) drawn by lot, for a sender that samples; else the last one."""
        if not self.spec.sample_rate:
            return history[-1]
        drawn = self.entropy.lot(step + 1)[: self.spec.draws(step)]
        return history[drawn].mean(axis=0) if len(drawn) else np.zeros_like(history[-1])

    def release(self, message: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Copies (other, number) of a message as they leave, and to whom (other,), by lot."""
        count = self.spec.recipients(self.others) if self.others else 0
        recipients = np.isin(np.arange(self.others), self.entropy.lot(self.others)[:count])
        fresh = 1 if self.spec.copies == 1 else self.others
        copies = np.stack([self.privatised(message) for _ in range(fresh)])
        return np.broadcast_to(copies, (max(self.others, fresh), copies.shape[1])), recipients

    def privatised(self, message: np.ndarray) -> np.ndarray:
        """One copy (number,) of a message as it leaves, with randomness of its own."""
        mechanism = mechanisms.of(self.spec)
        return mechanism.release(message, mechanism.draw(self.entropy, self.noise, len(message)), self.noise)
