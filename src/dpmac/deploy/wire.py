"""What goes over the network: a frame of fixed size from each agent to each other one in every slot.

A frame says of which episode and step it is, and holds the numbers of a message, or zeros where nothing is said. Its
layout, little-endian: `dpmc`, version (1 byte), whether something is said (1), sender (2), recipient (2), episode (8),
step (4), and as many 32-bit floats as a message has numbers.
"""

import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from dpmac.deploy.clock import Clock

MAGIC, VERSION = b"dpmc", 1
HEADER = struct.Struct("<4sBBHHQI")
FAULTS = ("missed", "late", "early", "doubled", "malformed")
"""What is counted of each peer: slots without a frame, and frames that were not accepted, by why."""


def encode(sender: int, recipient: int, episode: int, step: int, message: np.ndarray | None, size: int) -> bytes:
    """A frame with a message (size,), or with nothing."""
    said = message is not None
    numbers = np.zeros(size, "<f4") if message is None else np.asarray(message, "<f4")
    assert numbers.shape == (size,)
    return HEADER.pack(MAGIC, VERSION, said, sender, recipient, episode, step) + numbers.tobytes()


class Inbox:
    """Frames that have arrived in time for one agent; threads of the transport fill it."""

    def __init__(
        self,
        agent: int,
        others: Sequence[int],
        size: int,
        clock: Clock,
        sends: np.ndarray,
        valid: Callable[[int, np.ndarray], bool],
    ):
        """sends (step,) says when messages are due; valid(sender, numbers), whether a sender's channel has them."""
        self._agent, self._size, self._clock = agent, size, clock
        self._sends, self._valid, self._lock = sends, valid, threading.Lock()
        self._held: dict[int, dict[int, np.ndarray | None]] = {other: {} for other in others}
        self._seen: dict[int, set[int]] = {other: set() for other in others}
        self.counts: dict[int, Counter[str]] = {other: Counter() for other in others}
        self.latency = dict.fromkeys(others, 0.0)
        """Seconds from when a frame should leave to its arrival, averaged over about ten."""

    def hear(self, sender: int, frame: bytes) -> str:
        """Take in a frame that came over a sender's connection; what became of it: `heard`, or why not."""
        now = self._clock.now()
        place, message, fault = self._read(sender, frame)
        with self._lock:
            found = fault or self._timely(sender, place, now)
            self.counts[sender][found] += 1
            if found == "heard":
                self._seen[sender] = {one for one in self._seen[sender] if one >= place - 2} | {place}
                held = self._held[sender]
                held[place] = message
                for old in [one for one in held if one < place - self._clock.slots]:
                    del held[old]
                self.latency[sender] += 0.1 * (now - self._clock.leaves(place) - self.latency[sender])
        return found

    def _read(self, sender: int, frame: bytes) -> tuple[int, np.ndarray | None, str]:
        """Place and message of a frame, and what is wrong with its form."""
        if len(frame) != HEADER.size + 4 * self._size:
            return 0, None, "malformed"
        magic, version, said, source, recipient, episode, step = HEADER.unpack_from(frame)
        numbers = np.frombuffer(frame, "<f4", offset=HEADER.size).astype(np.float32)
        addressed = (magic, version, source, recipient) == (MAGIC, VERSION, sender, self._agent)
        due = step < len(self._sends) and bool(self._sends[step])
        empty = not np.frombuffer(frame, np.uint8, offset=HEADER.size).any()
        said_well = due and bool(np.isfinite(numbers).all()) and self._valid(sender, numbers)
        sound = said in (0, 1) and (said_well if said else empty)
        if not (addressed and sound and step <= len(self._sends)):
            return 0, None, "malformed"
        return self._clock.place_of(episode, step), numbers if said else None, ""

    def _timely(self, sender: int, place: int, now: float) -> str:
        if now < self._clock.begins(place):
            return "early"
        if now >= self._clock.acts(place + 1):
            return "late"
        return "doubled" if place in self._seen[sender] else "heard"

    def take(self, place: int) -> dict[int, np.ndarray]:
        """Messages by sender that were sent in a slot; whoever sent no frame in it is counted as missed."""
        with self._lock:
            found = {}
            for other, held in self._held.items():
                self.counts[other]["missed"] += place not in held
                message = held.get(place)
                if message is not None:
                    found[other] = message
                for old in [one for one in held if one <= place]:
                    del held[old]
            return found

    def forget(self) -> None:
        """Begin anew after the clock has jumped: what was heard is of another time."""
        with self._lock:
            for other in self._held:
                self._held[other].clear()
                self._seen[other].clear()
