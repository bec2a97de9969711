"""The slots that a team's agents keep in step by: the wall clock alone says which step of which episode it is.

Time is divided into slots of equal length. An episode takes one slot a step and one more to rest. Within a slot, agents
take in what they observe, act at two fifths of it, and send at four fifths; what was sent counts as received if it
arrives before the recipient acts in the next slot.
"""

import threading
import time
from collections.abc import Callable

from dpmac.config import positive, require

ACTS, LEAVES = 0.4, 0.8
"""When agents act and when frames leave, in parts of a slot."""
JUMP = 0.5
"""Slots by which the wall clock must have moved against the steady one to have jumped."""


class Clock:
    """Slots by the wall clock, which is looked at between episodes only: within one, time runs steadily."""

    def __init__(
        self,
        seconds: float,
        horizon: int,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ):
        """seconds: length of a slot; horizon: steps of an episode."""
        require(positive(seconds) and seconds >= 1e-3, f"a slot takes at least 0.001 seconds, not {seconds}")
        self.seconds, self.horizon, self.slots = seconds, horizon, horizon + 1
        self._wall, self._steady, self._offset = wall, steady, wall() - steady()
        self.jumps = 0

    def now(self) -> float:
        return self._steady() + self._offset

    def place(self, at: float | None = None) -> int:
        """The number of the slot at a time, by default now; slots are counted from the beginning of time."""
        return int((self.now() if at is None else at) // self.seconds)

    def begins(self, place: int) -> float:
        return place * self.seconds

    def acts(self, place: int) -> float:
        """When agents act in a slot, and what was sent in the one before is too late."""
        return (place + ACTS) * self.seconds

    def leaves(self, place: int) -> float:
        """When frames leave in a slot."""
        return (place + LEAVES) * self.seconds

    def step_of(self, place: int) -> tuple[int, int]:
        """Episode and step of a slot; the step of the rest is the horizon."""
        return divmod(place, self.slots)

    def place_of(self, episode: int, step: int) -> int:
        return episode * self.slots + step

    def next_episode(self) -> int:
        """The episode that begins next, by the wall clock as it is now."""
        offset = self._wall() - self._steady()
        self.jumps += abs(offset - self._offset) > JUMP * self.seconds
        self._offset = offset
        return self.step_of(self.place())[0] + 1

    def wait(self, until: float, stop: threading.Event) -> bool:
        """Sleep until a time, as far away as it is now; whether it was reached before somebody asked to stop."""
        ends = self._steady() + until - self.now()
        while (left := ends - self._steady()) > 0:
            if stop.wait(min(left, 1.0)):
                return False
        return not stop.is_set()
