"""Randomised response on when to speak: silence is one of the symbols, at every slot of an episode.

An agent sends one word an episode, when it wants. An episode has one of N = n·(k − 1) + 1 outcomes: one of k − 1 words
in one of n slots, or no word. The mechanism is N-ary randomised response on the outcome, and runs online. With
probability f the outcome is drawn uniformly before the episode begins. Otherwise the first word that the sender picks
leaves. The symbol of a slot does not depend on later inputs. The whole episode costs one use, ε = log(1 + (1 − f)·N/f),
for any number of slots: silence is free.
"""

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dpmac.config import Release, require
from dpmac.privacy import checks, dependence, limits
from dpmac.privacy import loss as losses
from dpmac.privacy.loss import Lattice
from dpmac.privacy.mechanisms.base import Mechanism, Source, choose, one_hot
from dpmac.privacy.mechanisms.symbols import Symbols, below, remainder, threshold_of

HESITATION = 3.0
"""Head start of silence among the scores: who has learned nothing yet speaks late or not at all."""


class Drawn(NamedTuple):
    """Public numbers of the probability that an outcome is drawn; zeros: never."""

    threshold: Any
    """(2,) uint32, high and low word of f · 2⁶⁴."""


class Timed(Symbols):
    """Symbol 0 is silence, and the first other one of an episode is its only word, which is repeated to its end.

    Neighbours may differ in all inputs of an episode, whichever the unit: what differs before one slot can move the
    moment to any later one.
    """

    traced = "dpmac.agents.mechanisms.timed:Timed"
    title = "randomised response on the moment"
    noise_name = "random_probability"
    option = "flip"
    whole = True

    def check(self) -> None:
        super().check()
        require(self.channel.copies == 1, "one word an episode is broadcast: copies must be 1")
        require(self.channel.rounds == 1, "one word an episode is sent in one round: rounds must be 1")

    def check_noise(self, noise: float) -> None:
        require(noise <= 1, f"the probability of a random moment must be at most 1, not {noise}")

    def describe_noise(self, noise: float) -> str:
        return f"moment and word drawn at random with probability {noise:.3g}"

    def outcomes(self, slots: int) -> int:
        """Moments and words that an episode of so many slots may have, and that it has none."""
        count = slots * (self.channel.symbols - 1) + 1
        require(count < 2**16, f"{slots} slots with {self.channel.symbols - 1} words are too many to draw one of them")
        return count

    # Accounting -------------------------------------------------------------------------------------------------------

    def lattice(self, noise: float, slots: int = 1) -> Lattice:
        outcomes = self.outcomes(slots)
        return losses.response_lattice(Fraction(noise) * (outcomes - 1) / outcomes, outcomes)

    def noise_of(self, epsilon: float, slots: int = 1) -> float:
        outcomes = self.outcomes(slots)
        return losses.response_flip(epsilon, outcomes) * outcomes / (outcomes - 1)

    def pool(self, release: Release) -> tuple[Lattice, float]:
        """Episodes of as many slots add up; a message costs what its episode does."""
        return self.lattice(release.noise, release.channel.uses(release.horizon)), 1

    def calibrate(self, plain: Release, epsilon: float, delta: float) -> float:
        """At δ = 0, as every symbol that leaves once."""
        slots = plain.channel.uses(plain.horizon)
        return self.once(min(1.0, self.noise_of(epsilon, slots)), epsilon, lambda noise: self.lattice(noise, slots))

    def event(self, release: Release) -> Any:
        import dp_accounting as dp

        return dp.RandomizedResponseDpEvent(release.noise, self.outcomes(release.channel.uses(release.horizon)))

    def bits(self, noise: float, size: int, horizon: int) -> float:
        """The capacity of the symmetric channel of all outcomes."""
        count = self.outcomes(self.channel.uses(horizon))
        flip = noise * (count - 1) / count
        return math.log2(count) - limits.entropy(flip) - flip * math.log2(count - 1)

    # Audits -----------------------------------------------------------------------------------------------------------

    def worst_case(self, uses: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """One who speaks at once, and one who never does."""
        words = 2 * HESITATION * np.eye(self.channel.symbols)
        return np.tile(words[rng.integers(1, len(words))], (uses, 1)), np.tile(words[0], (uses, 1))

    audit = Mechanism.audit

    def outcome(self, symbols: np.ndarray) -> np.ndarray:
        """The outcome (…) of symbols (…, time): 0 where nobody speaks, else by the first word and its slot."""
        slot = (symbols > 0).argmax(-1)
        first = np.take_along_axis(symbols, slot[..., None], -1)[..., 0]
        return np.where(first > 0, slot * (self.channel.symbols - 1) + first, 0)

    def white_box(self, before: np.ndarray, left: np.ndarray, noise: np.ndarray) -> list[checks.Check]:
        """Whether each episode has one word, and its outcome is replaced as often as declared, by all others alike."""
        alphabet = checks.exact_alphabet(left, self.channel.symbols)
        if alphabet.p_value == 0 or not (noise > 0).any():
            return [alphabet]
        count, said = self.outcomes(before.shape[1]), np.moveaxis(left[:, :, :, 0].argmax(-1), 1, -1)
        once = not np.diff(said, axis=-1)[said[..., :-1] > 0].any()
        found = [alphabet, checks.Check("one word an episode", float(once), f"{said.shape[-1]} slots")]
        sent = self.outcome(np.moveaxis(before.argmax(-1), 1, -1))
        shift = (self.outcome(said) - sent) % count
        rates = noise * (count - 1) / count
        for agent, rate in enumerate(rates):
            own = shift[:, [agent]]
            found += [checks.flip_rate(own > 0, 1, rate, "moments replaced"), checks.uniform_flips(own, count)]
        flips = (shift > 0)[:, None, :, None]
        return [*found, dependence.coincidences(flips, list(rates), "moments independent between agents")]

    # The release ------------------------------------------------------------------------------------------------------

    @property
    def words(self) -> int:
        """One decides whether the outcome is drawn, one which."""
        return 2

    def ones(self, noise: float) -> tuple[int, ...]:
        return (1,)

    def slots(self, xp: Any, words: Any, count: int) -> Any:
        """An episode's words (…, word, 2) as draws (slot, …, 2, 2) of so many slots: whether the outcome is drawn, and
        the symbol that then leaves, 0 in all slots but one."""
        drawn = remainder(words[..., 1, :], self.outcomes(count))
        slot = xp.arange(count, dtype=xp.uint32).reshape(-1, *(1,) * drawn.ndim)
        each = self.channel.symbols - 1
        here = (drawn > slot * each) & (drawn <= (slot + 1) * each)
        symbol = (xp.where(here, drawn - slot * each, 0)).astype(xp.uint32)
        live = xp.broadcast_to(words[..., 0, :], (*symbol.shape, 2))
        return xp.stack([live, xp.stack([symbol, xp.zeros_like(symbol)], axis=-1)], axis=-2)

    def draws(self, source: Source, noise: float, size: int, count: int) -> np.ndarray:
        """Draws (slot, 2, 2) of an episode of so many slots, by one read."""
        return self.slots(np, super().draws(source, noise, size, 1)[0], count)

    def parameters(self, noise: float, /) -> Drawn:
        self.check_noise(noise)
        return Drawn(threshold_of(noise))

    def scores(self, xp: Any, message: Any) -> Any:
        """A sender's scores (symbol,) with the head start of silence."""
        return xp.where(xp.arange(self.channel.symbols) == 0, message + xp.float32(HESITATION), message)

    def released(self, xp: Any, message: Any, draws: Any, parameters: Drawn) -> Any:
        symbol = choose(xp, self.scores(xp, message))
        drawn = below(draws[0], parameters.threshold)
        return one_hot(xp, xp.where(drawn, draws[1, 0], symbol), self.channel.symbols)

    def keeps(self, xp: Any, last: Any, now: Any) -> Any:
        """The first word again, once there is one; linear in both, so that a gradient knows what waiting is worth."""
        said = xp.sum(last[..., 1:], axis=-1, keepdims=True)
        return last * said + now * (1 - said)
