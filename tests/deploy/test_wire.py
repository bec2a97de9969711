"""Frames and slots: one size, one time, and nothing is heard that is late, early, doubled or none of the channel's."""

import random
import threading
import time

import numpy as np
import pytest

from dpmac.config import BadInput, Channel
from dpmac.deploy.clock import Clock
from dpmac.deploy.process import Outlet
from dpmac.deploy.wire import HEADER, Inbox, encode
from dpmac.privacy import mechanisms

HORIZON, SLOT, START = 4, 0.1, 1_000_000
"""Steps, seconds of a slot, and the episode at which the tests' time begins."""
ONE = np.array([0.0, 1.0, 0.0], np.float32)


class Time:
    """A wall clock and a steady one that stand still until they are moved."""

    def __init__(self, wall):
        self.wall, self.steady = wall, 50.0

    def move(self, seconds):
        self.wall, self.steady = self.wall + seconds, self.steady + seconds


@pytest.fixture
def now():
    return Time(START * (HORIZON + 1) * SLOT + 1e-6)


@pytest.fixture
def clock(now):
    return Clock(SLOT, HORIZON, lambda: now.wall, lambda: now.steady)


@pytest.fixture
def inbox(clock):
    valid = mechanisms.of(Channel("response")).valid
    sends = np.array([True, False, True, False])
    return Inbox(0, [1, 2], 3, clock, sends, lambda sender, numbers: valid(numbers, 0.1))


def frame(sender=1, episode=START, step=0, message: np.ndarray | None = ONE):
    return encode(sender, 0, episode, step, message, 3)


def reach(now, clock, place, share):
    """Move on to a part of a slot."""
    now.move((place + share) * SLOT - clock.now())


def test_every_frame_has_one_size_whatever_it_says():
    said = [None, ONE, np.full(3, np.float32(1e30)), np.zeros(3)]
    sizes = {len(encode(s, r, e, t, m, 3)) for m in said for s, r, e, t in ((0, 1, 0, 0), (9, 8, 2**60, 2**31))}
    assert sizes == {HEADER.size + 12}


def test_a_message_is_taken_in_the_slot_after_its_own(inbox, clock, now):
    first = clock.place()
    reach(now, clock, first, 0.8)
    assert inbox.hear(1, frame()) == "heard"
    assert inbox.hear(2, frame(2, message=None)) == "heard"
    taken = inbox.take(first)
    assert list(taken) == [1]
    np.testing.assert_array_equal(taken[1], ONE)
    assert inbox.take(first) == {}
    assert [inbox.counts[peer]["missed"] for peer in (1, 2)] == [1, 1]  # by the second time only


@pytest.mark.parametrize(
    ("share", "says"), [(-0.1, "early"), (0.0, "heard"), (0.9, "heard"), (1.35, "heard"), (1.45, "late"), (600, "late")]
)
def test_a_frame_is_heard_between_its_slot_and_when_the_next_one_acts(inbox, clock, now, share, says):
    place = clock.place() + 1
    reach(now, clock, place, share)
    assert inbox.hear(1, frame(step=1, message=None)) == says
    assert inbox.counts[1] == {says: 1}
    assert inbox.take(place) == {}


def test_replayed_frames_are_not_heard_again(inbox, clock, now):
    """Neither at once, nor later, nor in another episode; reordered ones that are in time are."""
    place = clock.place()
    reach(now, clock, place + 1, 0.1)
    assert inbox.hear(1, frame(step=1, message=None)) == "heard"
    assert inbox.hear(1, frame()) == "heard"
    for _ in range(3):
        assert inbox.hear(1, frame()) == "doubled"
    assert list(inbox.take(place)) == [1]
    assert inbox.hear(1, frame()) == "doubled"
    for later in (2, 5, 500):
        reach(now, clock, place + later, 0.1)
        assert inbox.hear(1, frame()) == "late"
        assert inbox.take(place) == {}


def bent(frame, at, value):
    return frame[:at] + bytes([value]) + frame[at + 1 :]


MALFORMED = {
    "cut": frame()[:-1],
    "longer": frame() + b"\0",
    "empty": b"",
    "another protocol": bent(frame(), 0, 0),
    "another version": bent(frame(), 4, 2),
    "neither said nor not": bent(frame(), 5, 2),
    "of another agent": frame(2),
    "for another agent": encode(1, 2, START, 0, ONE, 3),
    "no symbol": frame(message=np.full(3, 5.0)),
    "too large": frame(message=np.array([1e30, 0, 0])),
    "no number": frame(message=np.full(3, np.nan)),
    "numbers where nothing is said": bent(frame(), 5, 0),
    "a message where none is due": frame(step=1),
    "a message at rest": frame(step=HORIZON),
    "a step that is none": frame(step=HORIZON + 1, message=None),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_is_counted_and_not_heard(inbox, clock, now, name):
    reach(now, clock, clock.place(), 0.8)
    assert inbox.hear(1, MALFORMED[name]) == "malformed"
    assert inbox.take(clock.place()) == {}
    assert inbox.hear(1, frame()) == "heard"


def test_fuzzed_payloads_are_heard_only_where_they_are_messages(inbox, clock, now):
    count = 10_000
    generator, symbols = random.Random(count), np.eye(3, dtype=np.float32)
    reach(now, clock, clock.place(), 0.8)
    for _ in range(count):
        kind = generator.randrange(4)
        data = bytearray(frame(message=symbols[generator.randrange(3)]))
        if kind == 0:
            data = bytearray(generator.randbytes(generator.randrange(200)))
        elif kind == 1:
            data[HEADER.size :] = generator.randbytes(12)
        else:
            for _ in range(generator.randrange(1, 6)):
                data[generator.randrange(len(data))] = generator.randrange(256)
        inbox.forget()
        if inbox.hear(1, bytes(data)) == "heard":
            for message in inbox.take(clock.place()).values():
                assert message.tolist() in symbols.tolist()
    assert inbox.counts[1]["malformed"] > 0.9 * count
    assert all(len(held) <= 1 for held in inbox._held.values())


def test_what_nobody_takes_is_not_kept_for_ever(inbox, clock, now):
    for place in range(clock.place(), clock.place() + 20 * clock.slots):
        reach(now, clock, place, 0.8)
        episode, step = clock.step_of(place)
        assert inbox.hear(1, frame(1, episode, step, None)) == "heard"
    assert len(inbox._held[1]) <= clock.slots + 1
    assert len(inbox._seen[1]) <= 3


# The clock ------------------------------------------------------------------------------------------------------------


def test_the_wall_clock_alone_says_which_step_it_is(clock, now):
    assert clock.step_of(clock.place()) == (START, 0)
    now.move(3 * SLOT)
    assert clock.step_of(clock.place()) == (START, 3)
    assert clock.next_episode() == START + 1
    other = Clock(SLOT, HORIZON, lambda: now.wall + 0.01, lambda: now.steady + 1234)
    assert other.step_of(other.place()) == (START, 3)
    with pytest.raises(BadInput, match="a slot takes at least"):
        Clock(0.0, HORIZON)


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_changes_nothing_before_the_next_episode(clock, inbox, now, jump):
    place = clock.place()
    now.wall += jump
    assert clock.place() == place
    reach(now, clock, place, 0.8)
    assert inbox.hear(1, frame()) == "heard"
    episode = clock.next_episode()
    assert clock.jumps == 1
    assert episode == START + 1 + round(jump / (SLOT * clock.slots))
    inbox.forget()
    assert inbox.take(place) == {}  # what was heard is of another time
    assert inbox.hear(1, frame()) == ("late" if jump > 0 else "early")
    assert clock.next_episode() == episode
    assert clock.jumps == 1


# What leaves ----------------------------------------------------------------------------------------------------------


class Speaker:
    """What an outlet needs of an agent."""

    index, others = 1, [0, 2]

    class channel:
        size = 3


def test_a_frame_leaves_in_every_slot_at_its_time_and_late_messages_never_do():
    clock, sent = Clock(0.04, HORIZON), []
    outlet = Outlet(Speaker(), clock, lambda frames: sent.append((clock.now(), frames)))  # type: ignore[arg-type]
    outlet.start()
    first = clock.place() + 2
    for place in range(first, first + 8):
        clock.wait(clock.begins(place), threading.Event())
        if place % 2:
            outlet.hand(place, {0: ONE, 2: ONE})
        outlet.hand(place - 1, {0: ONE})  # too late
    time.sleep(0.05)
    outlet.stop()
    offsets = [(at / clock.seconds) % 1 for at, _ in sent]
    assert len(sent) >= 8
    assert max(offsets) < 0.96
    assert min(offsets) >= 0.8
    assert {len(one) for _, frames in sent for one in frames.values()} == {HEADER.size + 12}
    assert all(list(frames) == [0, 2] for _, frames in sent)
    assert outlet.unsaid == 8
    assert 0 < outlet.said <= 8
    assert outlet.frames == 2 * len(sent)


def test_messages_that_the_next_ones_overtake_are_counted_as_never_said(clock):
    outlet = Outlet(Speaker(), clock, lambda frames: None)  # type: ignore[arg-type]
    for place in range(clock.place(), clock.place() + 3):
        outlet.hand(place, {0: ONE, 2: ONE})
    outlet.stop()
    assert (outlet.said, outlet.unsaid) == (0, 6)
