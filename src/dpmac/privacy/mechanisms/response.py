"""k-ary randomised response (Warner 1965; Kairouz, Oh and Viswanath 2014)."""

import math
from typing import Any, NamedTuple

import numpy as np

from dpmac.config import Release, require
from dpmac.privacy import accounting, checks, dependence, limits
from dpmac.privacy import loss as losses
from dpmac.privacy.loss import Lattice
from dpmac.privacy.mechanisms.base import choose, one_hot
from dpmac.privacy.mechanisms.symbols import Symbols, below, remainder, threshold_of

BETWEEN = "flips independent between copies"


class Flip(NamedTuple):
    """Public numbers of a flip probability; zeros: never."""

    threshold: Any
    """(2,) uint32, high and low word of flip probability · 2⁶⁴: float32 cannot draw events rarer than 1e-8."""


class Response(Symbols):
    """The symbol, or with the flip probability f one of the others, each as likely.

    What is released is one-hot with exactly k bit patterns.
    """

    traced = "dpmac.agents.mechanisms.response:Response"
    title = "randomised response"
    noise_name = "flip_probability"
    option = "flip"
    one_symbol = True

    def check_noise(self, noise: float) -> None:
        most = 1 - 1 / self.channel.symbols
        require(noise <= most, f"flip probability must be at most 1 - 1/k = {most:.4g}")

    def describe_noise(self, noise: float) -> str:
        return f"symbols replaced with probability {noise:.3g}"

    def lattice(self, noise: float) -> Lattice:
        return losses.response_lattice(noise, self.channel.symbols)

    def noise_of(self, epsilon: float) -> float:
        return losses.response_flip(epsilon, self.channel.symbols)

    def event(self, release: Release) -> Any:
        """Uses one by one: dp-accounting 0.6's PLD accountant overlooks the count of a `SelfComposedDpEvent` around
        them. Its noise parameter is that of flips which may fall on the symbol itself."""
        import dp_accounting as dp

        k = self.channel.symbols
        one = dp.RandomizedResponseDpEvent(release.noise * k / (k - 1), k)
        return dp.ComposedDpEvent([one] * accounting.count(release))

    def bits(self, noise: float, size: int, horizon: int) -> float:
        """The capacity of a symmetric channel."""
        k, values = self.channel.symbols, self.channel.uses(horizon) * self.channel.sent
        return values * (math.log2(k) - limits.entropy(noise) - noise * math.log2(k - 1))

    def eavesdropper(self, noise: float, values: int) -> float:
        """The commonest symbol."""
        return limits.plurality_accuracy(noise, values, self.channel.symbols)

    def check_released(self, sent: np.ndarray, released: np.ndarray, noise: float) -> list[checks.Check]:
        """Checks of symbols before any flip (episode, time, agent) and of what left, one-hot."""
        k, many = self.channel.symbols, self.channel.sent > 1
        require(sent.ndim == 3, f"sent must have the axes (episode, time, agent), not {sent.ndim}")
        require(0 < noise <= 1 - 1 / k, f"the flip probability must lie in (0, 1 - 1/k], not {noise}")
        copies = released if released.ndim == 5 else released[:, :, :, None]
        alphabet = checks.exact_alphabet(copies, k)
        if alphabet.p_value == 0:
            return [alphabet]
        shift = (copies.argmax(-1) - sent[..., None]) % k
        found = [alphabet, *checks.copies_as_declared(shift, self.channel)]
        shift = shift if many else shift[..., :1]
        flips = shift > 0
        return [
            *found,
            checks.flip_rate(flips, 1, noise, "flip rate at every step"),
            checks.flip_rate(flips, 2, noise, "flip rate of every agent"),
            checks.uniform_flips(shift, k),
            dependence.conditional_rates(
                np.broadcast_to(sent[..., None], shift.shape),
                copies[..., : shift.shape[-1], :] == 1,
                1 - noise,
                noise / (k - 1),
                "flips alike for every pair of symbols",
            ),
            *self.dependences(flips, sent, noise, "flips"),
            dependence.same_targets(shift, k),
            *([dependence.coincidences(flips.swapaxes(2, 3), [noise] * flips.shape[3], BETWEEN)] if many else []),
        ]

    def missing_rate(self, noise: float) -> float:
        return noise

    def ones(self, noise: float) -> tuple[int, ...]:
        return (1,)

    @property
    def words(self) -> int:
        """One decides whether to flip, one to what."""
        return 2

    def parameters(self, noise: float, /) -> Flip:
        self.check_noise(noise)
        return Flip(threshold_of(noise))

    def released(self, xp: Any, message: Any, draws: Any, parameters: Flip) -> Any:
        """Exact but for 2⁻⁶⁴ in the flip probability and a bias below k·2⁻⁶⁴ among the others."""
        k = self.channel.symbols
        shift = (1 + remainder(draws[1], k - 1)) * below(draws[0], parameters.threshold)
        return one_hot(xp, (choose(xp, message) + shift) % k, k)
