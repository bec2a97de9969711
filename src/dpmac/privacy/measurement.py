"""An interactive measurement, which releases every message of a deployed agent.

    account = Ledger("ledger.json", epsilon=[12.0], delta=1e-4, create=True)
    measurement = Measurement(account, agent=0, release=Release(channel, noise, horizon=25), size=8)
    measurement.begin()                                 # an episode; all of its noise is drawn now
    released = measurement.release(0, message)          # charged, on disk, and only then released

It owns the agent's noise, its step counter and its account. A step can be asked once and in its turn, and there is no
release without a charge. Noise of a whole episode is drawn before the first message is seen, so that the time that
sampling takes says nothing about a message; what then happens to a message has no branch and no read that depends on
it. With a `slot` a message leaves when the clock says, however long it took to make. Nothing is kept on disk but the
ledger: after a crash the episode is over, and what was charged stays charged.
"""

import dataclasses
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from dpmac.config import Release, require, whole
from dpmac.privacy import mechanisms
from dpmac.privacy.timing import wait_until

_TAKING = threading.Lock()
"""Held while a step is taken, a message let out or an episode begun, so that two threads cannot take the same step."""


class Account(Protocol):
    """What releases are charged to: a `Ledger`, whose limits were named when it was begun."""

    def charge(self, releases: Mapping[int, Release], /) -> None:
        """Charge each named agent with a release, together or not at all; raises where it may not be released."""
        ...


class Entropy:
    """Randomness from a source of bytes; that of the operating system unless a test plants another."""

    def __init__(self, read: Callable[[int], bytes] = os.urandom):
        self.read = read

    def words(self, *shape: int) -> np.ndarray:
        """Uniform 64-bit integers, by one read."""
        return np.frombuffer(self.read(8 * math.prod(shape)), np.uint64).reshape(shape)

    def order(self, rows: int, count: int) -> np.ndarray:
        """Random orders (row, count) of so many things each."""
        return np.argsort(self.words(rows, count), axis=-1, kind="stable")


class Released(NamedTuple):
    """What left an agent at one step."""

    copies: np.ndarray
    """(other, number) of the message, as they left; the same for all where it is broadcast."""
    recipients: np.ndarray
    """(other,) to whom."""


class Measurement:
    """One agent's releases, in one process; it can be neither copied nor rewound."""

    def __init__(
        self,
        account: Account,
        agent: int,
        release: Release,
        size: int,
        others: int = 1,
        entropy: Entropy | None = None,
    ) -> None:
        """account: where each message is charged before it leaves, under the name `agent`.
        release: the channel, its noise scale and the steps of an episode. size: numbers in a message. others: agents
        that may receive it; where each gets a copy of its own, `channel.copies` of them."""
        channel = release.channel
        where = "this run adds its noise at the receivers, which protects nothing: not deployed"
        require(channel.place == "sender", where)
        require(channel.rounds == 1, f"deployed agents send once a step; this run exchanges {channel.rounds} rounds")
        require(whole(size, 0), f"size must be a whole number from 0, not {size!r}")
        require(whole(others, 0), f"others must be a whole number from 0, not {others!r}")
        paid = f"a charge pays for {channel.copies} copies: copies must be 1 (broadcast) or, like the others, {others}"
        require(channel.copies in (1, others), paid)
        self._account, self._agent, self._size, self._others = account, agent, size, others
        self._mechanism, self._entropy = mechanisms.of(channel), entropy or Entropy()
        unit = "episode" if self._mechanism.whole else "message"
        self._price = dataclasses.replace(release, unit=unit, neighbours="inputs")
        self._mechanism.check_noise(release.noise)
        self._step, self._process = release.horizon, os.getpid()
        self._noise: list[Any] = []
        self._recipients: list[np.ndarray] = []
        self._subsets: list[np.ndarray] = []
        self._history: list[np.ndarray] = []
        self._out = np.zeros(size, np.float32)
        self._episode = object()
        """A new one for each episode, so that a charge pays for the episode in which it was asked for."""

    @property
    def cost(self) -> Release:
        """What one charge pays for: a release, all its copies together, or a whole episode (`Mechanism.whole`)."""
        return self._price

    @property
    def charges(self) -> int:
        """Charges in an episode, at most."""
        return 1 if self._mechanism.whole else sum(map(self.sends, range(self._price.horizon)))

    @property
    def step(self) -> int:
        """The step that may be asked next; the horizon where the episode is over."""
        return self._step

    def sends(self, step: int) -> bool:
        """Whether a message leaves at a step: the clock alone decides."""
        period = self._price.channel.period
        return self._size > 0 and (step % period == 0 if period else step == 0)

    def begin(self) -> None:
        """Begin an episode: everything random about its messages is drawn now, as much of it whatever they will be."""
        channel, others, horizon = self._price.channel, self._others, self._price.horizon
        steps = [step for step in range(horizon) if self.sends(step)]
        fresh = 1 if channel.copies == 1 else others
        drawn = self._mechanism.draws(self._entropy, self._price.noise, self._size, len(steps) * fresh)
        noise = [drawn[fresh * use : fresh * (use + 1)] for use in range(len(steps))][::-1]
        count = channel.recipients(others) if others else 0
        chosen = np.ones((len(steps), others), bool)
        if count < others:
            chosen = self._entropy.order(len(steps), others) < count
        subsets = []
        if channel.sample_rate:
            order = dict(zip(steps, self._entropy.order(len(steps), horizon), strict=True))
            subsets = [order[step][order[step] <= step][: channel.draws(step)] for step in steps[::-1]]
        with _TAKING:
            self._noise, self._recipients, self._subsets = noise, list(chosen[::-1]), subsets
            self._history, self._step, self._process = [], 0, os.getpid()
            self._out, self._episode = np.zeros(self._size, np.float32), object()

    def release(self, step: int, message: np.ndarray, slot: float | None = None) -> Released | None:
        """Charge for, and then release, what the sender made (number,) at a step; None where nothing leaves.

        Steps come in their order, each once, those without a release too. A refusal ends the episode. With a `slot`, a
        time of `time.monotonic()`, this returns at the slot; a message that was not ready by then does not leave, since
        how late it is could tell what it says.
        """
        return together([self], step, [message], slot)[0]

    def _check(self, step: int, message: Any) -> np.ndarray:
        """The message, if this step is the next one."""
        horizon = self._price.horizon
        require(self._process == os.getpid(), "a measurement belongs to the process that began its episode")
        require(self._step < horizon, "the episode is over; begin the next one")
        require(step == self._step, f"step {self._step} comes next, not {step!r}: no step is released twice")
        made = np.array(message, np.float32)
        require(made.shape == (self._size,), f"a message must have the shape {(self._size,)}, not {made.shape}")
        return made

    def _tells(self, step: int) -> bool:
        """Whether a step is charged: a release that draws no transition depends on no input, and where an episode is
        one release the first step has paid for all."""
        channel, paid = self._price.channel, self._mechanism.whole and step > 0
        return self.sends(step) and not paid and (not channel.sample_rate or channel.draws(step) > 0)

    def _let_out(self, step: int, message: np.ndarray) -> Released | None:
        """What leaves; the noise that it takes is used up."""
        channel, noise = self._price.channel, self._price.noise
        if channel.sample_rate or self._mechanism.remembers:
            self._history.append(message)
        if not self.sends(step):
            return None
        if self._mechanism.remembers:
            before = np.zeros((self._price.horizon - len(self._history), self._size), np.float32)
            message = np.concatenate([self._history[::-1], before])
        if channel.sample_rate:
            drawn = self._subsets.pop()
            message = np.mean([self._history[place] for place in drawn] or [np.zeros_like(message)], axis=0)
        copies = np.stack([self._mechanism.release(message, draws, noise) for draws in self._noise.pop()])
        copies = self._out = self._mechanism.keeps(np, self._out, copies)
        shape = (max(self._others, len(copies)), self._size)
        return Released(np.broadcast_to(copies, shape), self._recipients.pop())

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("a measurement cannot be copied: the copy would release with the same noise")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = _refuse


def together(
    measurements: Sequence[Measurement], step: int, messages: Iterable[Any], slot: float | None = None
) -> list[Released | None]:
    """What agents of one account release at a step, for what their senders made (agent, number): all or nobody.

    One charge pays for all of them; where it is refused, nothing leaves and the episode is over. Nothing leaves either
    where another thread begins an episode meanwhile, for which nothing was charged. A `slot` is that of
    `Measurement.release`.
    """
    require(len({id(one._account) for one in measurements}) <= 1, "agents that release together share one account")
    require(len({one._agent for one in measurements}) == len(measurements), "every agent has one measurement")
    with _TAKING:
        made = [one._check(step, message) for one, message in zip(measurements, messages, strict=True)]
        episodes = [one._episode for one in measurements]
        for one in measurements:
            one._step = one._price.horizon
    due = {one._agent: one._price for one in measurements if one._tells(step)}
    if due:
        measurements[0]._account.charge(due)
    with _TAKING:
        same = all(one._episode is episode for one, episode in zip(measurements, episodes, strict=True))
        require(same, "a new episode was begun during this step: nothing leaves, and what was charged stays charged")
        released = [one._let_out(step, message) for one, message in zip(measurements, made, strict=True)]
        for one in measurements:
            one._step = step + 1
    in_time = slot is None or wait_until(slot)
    return released if in_time else [None for _ in released]
