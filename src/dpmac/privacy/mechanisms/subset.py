"""Subset selection (Ye and Barg 2018): a random subset of the symbols that is likelier to hold the true one.

It tells more than randomised response where there are many symbols and ε is small. Where d = 1, as for three symbols at
every ε above 0.41, the two are the same.
"""

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dpmac.config import Release, require
from dpmac.privacy import accounting, checks, dependence
from dpmac.privacy import loss as losses
from dpmac.privacy.loss import Lattice
from dpmac.privacy.mechanisms.base import choose, one_hot
from dpmac.privacy.mechanisms.symbols import Symbols, below, threshold_of

BETWEEN = "true symbol independent between copies"


class Selection(NamedTuple):
    """Public numbers of a noise scale; zeros: the symbol alone leaves."""

    threshold: Any
    """(2,) uint32, high and low word of 2⁶⁴ times the probability that the true symbol is left out."""
    count: Any
    """d, int32."""
    slope: Any
    """How much of the symbol is in the mean of what is released, float32."""


class Subset(Symbols):
    """A subset of d of k symbols, which holds the true one with probability p and is uniform otherwise.

    The noise scale is η = e^{−ε₀}, how likely a subset without the true symbol is beside one with it: 0 protects
    nothing, 1 tells nothing. It settles both d = max(1, round(k·η/(1 + η))) and p = d/(d + (k − d)·η). What is released
    is a vector of zeros with exactly d ones.
    """

    traced = "dpmac.agents.mechanisms.subset:Subset"
    title = "subset selection"
    noise_name = "likelihood_ratio"
    option = "ratio"

    def check_noise(self, noise: float) -> None:
        require(noise <= 1, f"the likelihood ratio must be at most 1, not {noise}")

    def members(self, noise: float) -> int:
        """d, the size of a subset."""
        return max(1, round(self.channel.symbols * noise / (1 + noise)))

    def inclusion(self, noise: float) -> float:
        """p, the probability that the true symbol is in the subset.

        >>> from dpmac.config import Channel
        >>> round(Subset(Channel("subset", symbols=8)).inclusion(math.exp(-1)), 3)
        0.475
        """
        d = self.members(noise)
        return d / (d + (self.channel.symbols - d) * noise)

    def describe_noise(self, noise: float) -> str:
        d, k, p = self.members(noise), self.channel.symbols, self.inclusion(noise)
        return f"{d} of {k} symbols sent, the true one among them with probability {p:.3g}"

    # Accounting -------------------------------------------------------------------------------------------------------

    def lattice(self, noise: float) -> Lattice:
        """A subset with the true symbol is e^{ε₀} times as likely as one without. So the loss towards another symbol is
        ε₀ where the subset holds the true and not the other one, of probability p·(k − d)/(k − 1), −ε₀ with e^{−ε₀}
        times that, and else 0. All pairs of symbols are alike, in both directions."""
        k, d = self.channel.symbols, self.members(noise)
        up = self.inclusion(noise) * (k - d) / (k - 1)
        return Lattice(-math.log(noise) * (1 + 4 * losses.ULP), (up * noise, 1 - up - up * noise, up))

    def noise_of(self, epsilon: float) -> float:
        return math.exp(-epsilon)

    def calibrate(self, plain: Release, epsilon: float, delta: float) -> float:
        """The largest ε₀ of one use for which all of them keep the budget.

        For one d the cost of many uses rises with ε₀, but it falls where d does: each d is tried, from 1 up.
        """
        uses, k = accounting.count(plain), self.channel.symbols
        if uses == 1:
            return self.once(self.noise_of(epsilon), epsilon, self.lattice)
        excess = self.excess(uses, epsilon, delta)
        least = self.drawable(epsilon / uses)  # n times ε/n is never too much

        def lowest(d: int) -> float:
            """The least ε₀ of subsets of d."""
            return max(least, math.log(k / (d + 0.5) - 1) + 1e-12) if k > 2 * d + 1 else least

        d, high = 1, math.inf
        while (low := lowest(d)) > least and excess(low) > 0:
            d, high = d + 1, low - 2e-12
        if excess(low) > 0:  # by rounding alone
            return self.noise_of(low)
        low, high = self.bracket(excess, low) if math.isinf(high) else (low, max(low, high))
        each = high if excess(high) <= 0 else losses.solve(excess, low, high) * (1 - accounting.SAFETY)
        return self.noise_of(self.drawable(max(each, low)))

    def event(self, release: Release) -> Any:
        """Randomised response with the same ε₀ among as many symbols as keep it at least as telling: an upper bound,
        and exact where d = 1. dp-accounting has no event for subsets."""
        import dp_accounting as dp

        step, (_, _, up) = self.lattice(release.noise)
        count = math.floor(1 + (1 / up - 1) / release.noise * (1 + 1e-12))
        one = dp.RandomizedResponseDpEvent(losses.response_flip(step, count) * count / (count - 1), count)
        return dp.ComposedDpEvent([one] * accounting.count(release))

    # Limits -----------------------------------------------------------------------------------------------------------

    def eavesdropper(self, noise: float, values: int) -> float:
        """p/d from one subset, any of its members being the best guess; from several, what nobody can exceed."""
        return self.inclusion(noise) / self.members(noise) if values == 1 else super().eavesdropper(noise, values)

    def bits(self, noise: float, size: int, horizon: int) -> float:
        """The capacity of a symmetric channel: log₂ of the number of subsets less the entropy given a symbol."""
        k, d, p = self.channel.symbols, self.members(noise), self.inclusion(noise)
        given = [(p, math.comb(k - 1, d - 1)), (1 - p, math.comb(k - 1, d))]
        entropy = sum(share * math.log2(ways / share) for share, ways in given if share > 0)
        return self.channel.uses(horizon) * self.channel.sent * (math.log2(math.comb(k, d)) - entropy)

    # Checks -----------------------------------------------------------------------------------------------------------

    def check_released(self, sent: np.ndarray, released: np.ndarray, noise: float) -> list[checks.Check]:
        """Checks of symbols (episode, time, agent) and of the subsets that left, zeros and ones."""
        k, d, many = self.channel.symbols, self.members(noise), self.channel.sent > 1
        require(sent.ndim == 3, f"sent must have the axes (episode, time, agent), not {sent.ndim}")
        require(0 < noise <= 1, f"the likelihood ratio must lie in (0, 1], not {noise}")
        copies = released if released.ndim == 5 else released[:, :, :, None]
        exact = checks.exact_subsets(copies, k, d)
        if exact.p_value == 0:
            return [exact]
        found = [exact, *checks.copies_as_declared(copies, self.channel)]
        copies = copies if many else copies[..., :1, :]
        order = (sent[..., None, None] + np.arange(k)) % k  # the true symbol first
        held = np.take_along_axis(copies, np.broadcast_to(order, copies.shape), axis=-1) == 1
        out, rate = ~held[..., 0], self.missing_rate(noise)
        other = (d - 1 + rate) / (k - 1)
        return [
            *found,
            checks.flip_rate(out, 1, rate, "true symbol left out at every step"),
            checks.flip_rate(out, 2, rate, "true symbol left out by every agent"),
            checks.even_members(held[..., 1:]),
            dependence.conditional_rates(
                np.broadcast_to(sent[..., None], out.shape),
                copies == 1,
                1 - rate,
                other,
                "members alike for every pair",
            ),
            *self.dependences(out, sent, noise, "true symbol"),
            dependence.coincidences(held[..., 1], [other] * sent.shape[2], "other symbols independent"),
            *([dependence.coincidences(out.swapaxes(2, 3), [rate] * out.shape[3], BETWEEN)] if many else []),
        ]

    def missing_rate(self, noise: float) -> float:
        return 1 - self.inclusion(noise)

    # The release ------------------------------------------------------------------------------------------------------

    def ones(self, noise: float) -> tuple[int, ...]:
        return (self.members(noise),)

    @property
    def words(self) -> int:
        """One decides about the true symbol; one for each symbol puts the others in order."""
        return 1 + self.channel.symbols

    def parameters(self, noise: float, /) -> Selection:
        self.check_noise(noise)
        k, d, p = self.channel.symbols, self.members(noise), self.inclusion(noise)
        slope = (p * k - d) / (k - 1)
        left = (k - d) * Fraction(noise)
        return Selection(threshold_of(left / (d + left)), np.int32(d), np.float32(slope))

    def released(self, xp: Any, message: Any, draws: Any, parameters: Selection) -> Any:
        """The true symbol unless it is left out, and as many others as are missing: those with the smallest words.

        p is rounded to the side of more privacy, and the first symbol wins a tie between words: subsets with the true
        symbol, and those without, have their probabilities up to a share of k·2⁻⁶⁴.
        """
        k = self.channel.symbols
        own = one_hot(xp, choose(xp, message), k) > 0
        held = ~below(draws[0], parameters.threshold)
        words, index = draws[1:], np.arange(k)
        tie = (words[:, None] == words[None]).all(-1) & (index[:, None] < index)
        before = (below(words[:, None], words[None]) | tie) & ~own[:, None]
        rank = xp.sum(before, axis=0, dtype=xp.int32)
        return xp.where(own, held, rank < parameters.count - held).astype(xp.float32)
