"""One of k symbols through a channel of few outcomes: what randomised response and its relatives have in common.

A pair of neighbours sends two different symbols, and every pair is told apart equally well. A use has a loss of +ε₀, 0
or −ε₀, so that many uses are composed exactly on a lattice. Randomness is 64-bit words, two uint32 (high, low) each, of
which as many are drawn whatever is sent; thresholds are rounded to the side of more privacy.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Container
from fractions import Fraction
from typing import Any

import numpy as np

from dpmac.config import Channel, Release, require
from dpmac.privacy import accounting, audit, checks, dependence
from dpmac.privacy import loss as losses
from dpmac.privacy.loss import Lattice
from dpmac.privacy.mechanisms.base import Mechanism, Source


def check_symbols(channel: Channel) -> None:
    """What all mechanisms that send symbols refuse."""
    require(channel.sample_rate == 0, "only the gaussian channel samples transitions")
    require(channel.place == "sender", "symbols cannot be made at the receiver")


def different_symbols(symbols: int, uses: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores (use, symbol) of two senders whose symbols differ in every use."""
    first = rng.integers(symbols, size=uses)
    return np.eye(symbols)[first], np.eye(symbols)[(first + 1) % symbols]


def words_of(value: int) -> np.ndarray:
    """High and low word (2,) of a 64-bit number."""
    return np.array([value >> 32, value & 0xFFFFFFFF], np.uint32)


def threshold_of(probability: float | Fraction) -> np.ndarray:
    """Words of ⌈probability·2⁶⁴⌉: a random word below it has at least this probability, and 2⁻⁶⁴ more at most."""
    require(
        probability == 0 or probability >= 2.0**-64,
        f"a probability of {float(probability):.3g} is below 2^-64 and cannot be drawn: choose a smaller epsilon, or "
        "inf",
    )
    return words_of(min(math.ceil(Fraction(probability) * 2**64), 2**64 - 1))


def below(first: Any, second: Any) -> Any:
    """Whether 64-bit words (…, 2) are smaller than others."""
    same = first[..., 0] == second[..., 0]
    return (first[..., 0] < second[..., 0]) | (same & (first[..., 1] < second[..., 1]))


def remainder(words: Any, divisor: int) -> Any:
    """64-bit words (…, 2) modulo a number below 2¹⁶, in 32-bit arithmetic."""
    return ((words[..., 0] % divisor) * (2**32 % divisor) + words[..., 1] % divisor) % divisor


class Symbols(Mechanism):
    """A symbol, the largest of k scores, through a channel that treats all pairs of symbols alike."""

    clips = False
    alphabet = True
    share = True
    released_as = "one of a few whole numbers"

    def check(self) -> None:
        check_symbols(self.channel)

    @abstractmethod
    def lattice(self, noise: float) -> Lattice:
        """The loss of one use."""

    @abstractmethod
    def noise_of(self, epsilon: float) -> float:
        """The noise scale of one use that costs ε₀ at δ = 0."""

    def pool(self, release: Release) -> tuple[Lattice, float]:
        """Uses of like channels add up."""
        return self.lattice(release.noise), accounting.count(release)

    def calibrate(self, plain: Release, epsilon: float, delta: float) -> float:
        """A symbol that leaves once is calibrated at δ = 0: spending δ would win it less than δ of accuracy."""
        uses = accounting.count(plain)
        if uses == 1:
            return self.once(self.noise_of(epsilon), epsilon, self.lattice)
        excess = self.excess(uses, epsilon, delta)
        least = self.drawable(epsilon / uses)  # n times ε/n is never too much
        if excess(least) > 0:  # by rounding alone
            return self.noise_of(least)
        low, high = self.bracket(excess, least)
        return self.noise_of(self.drawable(losses.solve(excess, low, high) * (1 - accounting.SAFETY)))

    def once(self, noise: float, epsilon: float, lattice: Callable[[float], Lattice]) -> float:
        """The noise of one use, or as little more as it takes for its greatest loss not to exceed ε."""
        self.check_drawn(noise)
        return accounting.accepted(noise, lambda noise: lattice(noise).pure(1), epsilon)

    def excess(self, uses: int, epsilon: float, delta: float) -> Callable[[float], float]:
        """By how much so many uses of ε₀ each exceed δ at ε."""
        require(
            uses <= losses.DIRECT or delta > losses.TRANSFORM_ERROR,
            f"more than {losses.DIRECT} symbols are added up to {losses.TRANSFORM_ERROR:g} of delta, which must be "
            f"larger, not {delta:g}",
        )
        return lambda each: losses.delta_of(self.lattice(self.noise_of(each)).loss(uses), epsilon) - delta

    def bracket(self, excess: Callable[[float], float], low: float) -> tuple[float, float]:
        """Two ε₀ of a use between which `excess` changes its sign, from one up at which it does not exceed 0."""
        high = 2 * low
        while excess(high) <= 0:
            low, high = self.drawable(high), 2 * high
        return low, high

    def drawable(self, each: float) -> float:
        """ε₀ of a use, unless what it must draw is too rare for 64-bit words."""
        self.check_drawn(self.noise_of(each))
        return each

    def check_drawn(self, noise: float) -> None:
        """Raise `BadInput` where a noise scale of a finite ε is too small to be drawn."""
        require(noise > 0, "noise of this epsilon is too rare to be drawn: choose a smaller epsilon, or inf")
        self.parameters(noise)

    def worst_case(self, uses: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return different_symbols(self.channel.symbols, uses, rng)

    def audit(
        self,
        sample: audit.Sampler,
        delta: float,
        episodes: int,
        noise: float,
        direction: np.ndarray,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> audit.Bound:
        """From how often what is released speaks for the right symbol, and for the other one."""
        return audit.audit_response(sample, delta, episodes, direction, confidence, seed)

    def white_box(self, before: np.ndarray, left: np.ndarray, noise: np.ndarray) -> list[checks.Check]:
        """Each agent by itself, and all together; before the noise, the symbol stands out."""
        sent = before.argmax(-1)
        own = np.broadcast_to(sent[..., None, None], (*left.shape[:4], 1))
        missing = np.take_along_axis(left, own, axis=-1)[..., 0] == 0
        each = [
            check
            for agent, amount in enumerate(noise)
            for check in self.check_released(sent[:, :, [agent]], left[:, :, [agent]], float(amount))
        ]
        if not each:
            return []
        rates = [self.missing_rate(float(amount)) for amount in noise]
        return [*each, dependence.coincidences(missing[..., :1], rates, "symbols independent between agents")]

    def missing_rate(self, noise: float) -> float:
        """How often what is released lacks the true symbol; only mechanisms with checks of their own need it."""
        raise NotImplementedError

    def dependences(self, missing: np.ndarray, sent: np.ndarray, noise: float, name: str) -> list[checks.Check]:
        """Checks that the true symbol (episode, time, agent) is missing (…, copy) independently of everything else."""
        rate = self.missing_rate(noise)
        return [
            dependence.coincidences(missing, [rate] * missing.shape[2], f"{name} independent"),
            dependence.rates_after(missing, sent, rate, f"{name} whatever came before"),
            dependence.odd_threes(missing, sent, self.channel.symbols, rate, f"{name} in three steps"),
        ]

    @property
    @abstractmethod
    def words(self) -> int:
        """Random words that a release takes."""

    def draw(self, source: Source, noise: float, size: int) -> np.ndarray:
        """Words (word, 2), high and low."""
        return self.draws(source, noise, size, 1)[0]

    def draws(self, source: Source, noise: float, size: int, count: int) -> np.ndarray:
        """Words (count, word, 2), by one read."""
        drawn = source.words(count, self.words)
        return np.stack([drawn >> np.uint64(32), drawn & np.uint64(0xFFFFFFFF)], axis=-1).astype(np.uint32)

    def valid(self, released: np.ndarray, noise: float) -> bool:
        """Zeros and ones; as many ones as a release holds."""
        return bool(np.isin(released, (0.0, 1.0)).all() and np.sum(released) in self.ones(noise))

    def ones(self, noise: float) -> Container[int]:
        """How many ones a release holds."""
        return range(self.channel.symbols + 1)
