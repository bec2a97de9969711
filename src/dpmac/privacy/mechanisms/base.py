"""The host side of a mechanism: everything that depends on which mechanism a channel uses.

Exact accounting, calibration, limits, audits and the deployed release are methods of one object, so that what leaves an
agent and what is claimed about it cannot drift apart. Subclasses are abstract or final.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from dpmac.config import BadInput, Channel, Release, Unit
from dpmac.privacy import accounting, audit, checks, limits
from dpmac.privacy import loss as losses
from dpmac.privacy.loss import Loss, Pool


class Source(Protocol):
    """Where a deployed agent's randomness comes from."""

    read: Callable[[int], bytes]
    """So many uniform bytes."""

    def words(self, *shape: int) -> np.ndarray:
        """Uniform 64-bit integers."""
        ...


class Mechanism(ABC):
    """One way to privatise a message, built from the description of a channel."""

    traced: ClassVar[str]
    """`package.module:Class` of the array twin."""
    title: ClassVar[str]
    """What it is called in sentences and labels."""
    noise_name: ClassVar[str] = "noise"
    """What the noise scale is called in results."""
    option: ClassVar[str] = "noise"
    """The option of `dpmac privacy account` that gives the noise scale."""
    share: ClassVar[bool] = False
    """Whether the noise scale lies in [0, 1]."""
    clips: ClassVar[bool] = True
    """Whether `clip_norm` matters to it."""
    alphabet: ClassVar[bool] = False
    """Whether senders give scores of k symbols, of which the message is one."""
    remembers: ClassVar[bool] = False
    """Whether a release is made from all messages of the episode so far (time, number), newest first, rather than from
    the current one (number,); receivers then decode all releases so far, in the same order."""
    one_symbol: ClassVar[bool] = False
    """Whether what is released is one of these symbols, one-hot."""
    whole: ClassVar[bool] = False
    """Whether an episode's messages are one release, paid for with the first of them."""
    paper: ClassVar[bool] = False
    """Whether the paper's formula knows it."""
    released_as: ClassVar[str]
    """How released numbers are written: noise that is exact on paper can be undone by low bits of a float sum."""
    warning: ClassVar[str] = ""
    """What must be said about the noise of simulated runs."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.check()

    # The description --------------------------------------------------------------------------------------------------

    def check(self) -> None:  # noqa: B027 - most mechanisms refuse nothing
        """Raise `BadInput` where the channel asks for what this mechanism cannot do."""

    def check_noise(self, noise: float) -> None:  # noqa: B027
        """Raise `BadInput` where the noise scale lies outside its range; `Release` has seen that it is not negative."""

    def size(self, message_size: int) -> int:
        """Numbers in a message, given the number that the protocol would send."""
        return self.channel.symbols if self.alphabet else message_size

    @abstractmethod
    def describe_noise(self, noise: float) -> str:
        """The noise scale in words."""

    # Accounting -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def pool(self, release: Release) -> tuple[Pool, float]:
        """What a protected release adds to a ledger: releases with the same `Pool` add up, and then have one loss."""

    def loss(self, release: Release, delta: float) -> Loss:
        """The privacy loss of a release; `delta` is the scale of what a bound may ignore."""
        if accounting.unprotected(release):
            return Loss(infinite=1.0)
        pool, amount = self.pool(release)
        return pool.loss(amount)

    def epsilon(self, release: Release, delta: float) -> float:
        """The smallest ε at δ."""
        return losses.epsilon_of(self.loss(release, delta), delta)

    def delta(self, release: Release, epsilon: float) -> float:
        """The smallest δ at ε."""
        return losses.delta_of(self.loss(release, 1e-12), epsilon)

    def pure_epsilon(self, release: Release) -> float:
        """ε at δ = 0; infinite for mechanisms that have none."""
        if accounting.unprotected(release):
            return math.inf
        pool, amount = self.pool(release)
        return pool.pure(amount)

    @abstractmethod
    def calibrate(self, plain: Release, epsilon: float, delta: float) -> float:
        """The least noise scale for which a release like `plain` is (ε, δ)-DP."""

    @abstractmethod
    def event(self, release: Release) -> Any:
        """A protected release as a `dp_accounting.DpEvent`."""

    def replaces(self, release: Release) -> bool:
        """Whether `event` is to be read with the relation `REPLACE_ONE`; otherwise with `ADD_OR_REMOVE_ONE`."""
        return True

    def paper_sigma(self, epsilon: float, delta: float, unit: Unit, horizon: int) -> float:
        """The noise scale by the paper's formula at the released settings."""
        raise BadInput(f"the paper's formula has no {self.channel.mechanism} channel, only gaussian")

    # Limits -----------------------------------------------------------------------------------------------------------

    def best_guess(self, release: Release, secrets: int) -> float:
        """The best guess of one of so many secrets, all as likely, that the whole release can allow."""
        if accounting.unprotected(release):
            return 1.0
        tried = np.linspace(0.0, self.epsilon(release, 1e-9), 400)
        pure = self.pure_epsilon(release)
        if 0 < pure < math.inf:  # δ(ε) of symbols has corners at multiples of what one of them costs
            each = pure / accounting.count(release)
            tried = each * np.arange(math.ceil(tried[-1] / each) + 1)
        return min(limits.private_accuracy(float(at), self.delta(release, float(at)), secrets) for at in tried)

    def eavesdropper(self, noise: float, values: int) -> float:
        """Best guess of the k-valued secret from so many noisy values that all hold it; `noise` is above 0.

        Unless a mechanism knows better, what nobody can exceed.
        """
        plain = Channel(self.channel.mechanism, self.channel.clip_norm, self.channel.symbols)
        return self.best_guess(Release(plain, noise, values), self.channel.symbols)

    def signal_to_noise(self, noise: float, size: int) -> float:
        """Energy of a message over that of its noise; for symbols the odds of a right guess. `noise` is above 0."""
        right = self.eavesdropper(noise, 1)
        return right / (1 - right)

    def bits(self, noise: float, size: int, horizon: int) -> float:
        """The most that an episode's messages can tell, in bits."""
        values = self.channel.uses(horizon) * self.channel.sent
        once = self.pure_epsilon(Release(self.channel, noise, horizon, "message")) / self.channel.sent
        return values * min(math.log2(self.channel.symbols), once * math.log2(math.e))

    # Audits -----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def worst_case(self, uses: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Two inputs (use, feature) that no other pair is easier to tell apart than, before clipping or choosing."""

    def encoded(self, messages: np.ndarray) -> np.ndarray:
        """What is released before the noise (use, feature) for what a sender makes (use, feature), if nobody clips."""
        return messages

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
        """A lower bound on ε, as tight as what is known of the mechanism allows; `direction` as in a canary."""
        return audit.audit_channel(sample, delta, episodes, confidence, audit.matched(direction), seed)

    def check_released(self, sent: np.ndarray, released: np.ndarray, noise: float) -> list[checks.Check]:
        """White-box checks of what left (episode, time, agent, [copy,] number), given what was sent."""
        return []

    def white_box(self, before: np.ndarray, left: np.ndarray, noise: np.ndarray) -> list[checks.Check]:
        """Checks of a team: messages right before the noise (episode, time, agent, number), as they left (episode,
        time, agent, copy, number), and the noise scale of each agent (agent,)."""
        return []

    def check_exact(self, before: np.ndarray, left: np.ndarray, noise: np.ndarray) -> list[checks.Check]:
        """Further checks of the same, which exact noise passes, as deployed agents draw it, but simulated may not."""
        return []

    # The release ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def draw(self, source: Source, noise: float, size: int) -> Any:
        """The randomness of one deployed message of so many numbers; how much is drawn never depends on data."""

    def draws(self, source: Source, noise: float, size: int, count: int) -> Sequence[Any]:
        """The randomness of so many messages, each as `draw` gives it."""
        return [self.draw(source, noise, size) for _ in range(count)]

    @abstractmethod
    def parameters(self, noise: float, /) -> Any:
        """What a release needs to know of the noise scale, as a NamedTuple of NumPy values; all zeros: no noise.

        They are public. The array twin stacks them over agents and traces them.
        """

    @abstractmethod
    def released(self, xp: Any, message: Any, draws: Any, parameters: Any) -> Any:
        """What leaves (number,) for what a sender made (number,), or (time, number) where the mechanism remembers, in
        float32.

        A pure function that both sides share: `xp` is NumPy or its twin. It uses operations alone that are exact, or
        rounded in one way, and no branch or read that depends on data.
        """

    def keeps(self, xp: Any, last: Any, now: Any) -> Any:
        """What is out (…, number) after a release `now`, where `last` was out before it: by default the new one."""
        return now

    def release(self, message: np.ndarray, draws: Any, noise: float) -> np.ndarray:
        """What leaves a deployed agent (number,) for what its sender made, as `released` takes it."""
        with np.errstate(over="ignore"):
            return self.released(np, np.asarray(message, np.float32), draws, self.parameters(noise))

    def valid(self, released: np.ndarray, noise: float) -> bool:
        """Whether numbers (number,) that came from outside are ones that a release at this noise scale can hold.

        What a receiver takes in from others is checked by it. Unless a mechanism knows better: finite numbers.
        """
        return bool(np.isfinite(released).all())


def finite(xp: Any, message: Any) -> Any:
    """A message (…, number) as it is, or zeros where any number of it is not finite."""
    count = xp.sum(xp.isfinite(message), axis=-1, keepdims=True)
    return xp.where(count == message.shape[-1], message, xp.zeros_like(message))


def one_hot(xp: Any, index: Any, count: int) -> Any:
    """Zeros (count,) in float32 with a one at an index."""
    return (xp.arange(count, dtype=xp.uint32) == index).astype(xp.float32)


def choose(xp: Any, scores: Any) -> Any:
    """The index of the largest score; the first of equal ones, and 0 where any score is not finite.

    All pairs are compared, since an argmax may branch at every score that is larger than those before it.
    """
    scores, index = finite(xp, scores), xp.arange(scores.size, dtype=xp.uint32)
    other, own = scores[None], scores[:, None]
    before = (other > own) | ((other == own) & (index[None] < index[:, None]))
    return xp.sum(index * (xp.sum(before, axis=-1) == 0), dtype=xp.uint32)
