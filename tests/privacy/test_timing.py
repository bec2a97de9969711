"""Time tells nothing: how long a release takes does not depend on what is sent, and with a slot it leaves on the clock.

Each distinguisher has a control, a planted dependence that it must find in as many timings.
"""

import gc
import itertools
import os
import shutil
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from dpmac.config import BadInput, Channel, Release
from dpmac.privacy import Measurement, timing
from dpmac.privacy.mechanisms import base

HORIZON, SIZE = 25, 8
CHANCE = 1e-5
"""A sound release is accused once in so many times."""
COUNTS = [4_000, pytest.param(100_000, marks=pytest.mark.large)]
CHANNELS = {
    "gaussian": (Channel(), 3.0),
    "code": (Channel("code", symbols=SIZE), 3.0),
    "response": (Channel("response", symbols=SIZE), 0.5),
    "subset": (Channel("subset", symbols=SIZE), 0.6),
    "correlated": (Channel("correlated", stream_decay=0.98), 3.0),
}
MESSAGES = {
    "the first and the last symbol": (np.eye(SIZE)[0], np.eye(SIZE)[-1]),
    "nothing and too much": (np.zeros(SIZE), np.full(SIZE, -1e9)),
}


class Tally:
    def charge(self, releases):
        pass


def timed(measurement, messages, count):
    """How long releases of one of two messages took (step,), which one it was, and what left."""
    sides = np.random.default_rng().integers(2, size=count)
    made, times, left = [np.asarray(message, np.float32) for message in messages], np.empty(count), []
    gc.disable()
    try:
        for start in range(0, count, HORIZON):
            measurement.begin()
            for step, side in enumerate(sides[start : start + HORIZON]):
                message = made[side]
                before = time.perf_counter_ns()
                released = measurement.release(step, message)
                times[start + step] = time.perf_counter_ns() - before
                left.append(released.copies[0])
    finally:
        gc.enable()
    return times, sides, np.array(left)


def opened(name, kind: Any = Measurement):
    channel, noise = CHANNELS[name]
    return kind(Tally(), 0, Release(channel, noise, HORIZON), SIZE)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("name", CHANNELS)
def test_the_time_of_a_release_does_not_tell_what_was_sent(name, messages, count, record_property):
    times, sides, _ = timed(opened(name), MESSAGES[messages], count)
    told = timing.distinguish(times, sides)
    median = np.median(times) / 1e3
    record_property("counted", f"{name}: {count} releases, {median:.0f} µs, guessed {100 * told.accuracy:.2f} %")
    assert told.p_value > CHANCE


@pytest.mark.parametrize("count", COUNTS)
def test_the_time_of_a_release_does_not_tell_whether_a_symbol_was_flipped(count):
    """A flip probability of a half makes flips fair coins."""
    times, sides, left = timed(opened("response"), MESSAGES["the first and the last symbol"], count)
    flipped = left.argmax(-1) != sides * (SIZE - 1)
    assert 0.4 < flipped.mean() < 0.6
    assert timing.distinguish(times, flipped.astype(int)).p_value > CHANCE


class ReadsAgain(Measurement):
    """Reads the operating system's entropy once more if a symbol was flipped, as version 0.1 did."""

    def _let_out(self, step, message):
        released = super()._let_out(step, message)
        if released is not None and released.copies[0].argmax() != message.argmax():
            int(np.frombuffer(os.urandom(8), np.uint64)[0])
        return released


class Branches(Measurement):
    """Sorts its message if the first number is above 0."""

    def _let_out(self, step, message):
        if message[0] > 0:
            sorted(message.tolist())
        return super()._let_out(step, message)


TRIES = 8
"""Samples in which a planted dependence is looked for: on a busy machine one of them may be all noise."""


def found(name, kind, side):
    """Whether times of some sample tell a side, a function of what was chosen (step,) and of what left. A sound release
    would pass as often as one that has a single try."""
    for _ in range(TRIES):
        times, sides, left = timed(opened(name, kind), MESSAGES["the first and the last symbol"], 8_000)
        if timing.distinguish(times, side(sides, left)).p_value < CHANCE / TRIES:
            return True
    return False


def test_a_planted_read_and_a_planted_branch_are_found():
    assert found("response", ReadsAgain, lambda sides, left: (left.argmax(-1) != sides * (SIZE - 1)).astype(int))
    assert found("gaussian", Branches, lambda sides, left: sides)


def test_a_distinguisher_guesses_by_times_alone_and_is_rarely_wrong():
    """Of many samples that tell nothing, as many have a small p-value as chance says."""
    rng = np.random.default_rng(0)
    drift = np.cumsum(rng.standard_normal(500))
    p = [timing.distinguish(drift + rng.random(500), rng.integers(2, size=500)).p_value for _ in range(400)]
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.1
    sides = rng.integers(2, size=500)
    two_peaks = np.where(sides, 1.0, rng.integers(2, size=500) * 2.0)  # the same mean
    assert timing.distinguish(two_peaks + 0.01 * rng.random(500), sides).accuracy > 0.9
    for wrong in (np.zeros(3), np.array([0, 1, 2, 0])):
        with pytest.raises(BadInput, match="side"):
            timing.distinguish(np.zeros(len(wrong)), wrong)


# The operating system -------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, numpy as np
from dpmac.config import Channel, Release
from dpmac.privacy import Ledger, Measurement
channel, noise = Channel(sys.argv[1], symbols=4), float(sys.argv[2])
ledger = Ledger(sys.argv[3], [float("inf")], 1e-4, create=True)
one = Measurement(ledger, 0, Release(channel, noise, 60), 4)
one.begin()
for step in range(60):
    os.getppid()
    one.release(step, np.eye(4, dtype=np.float32)[step % 4] * (step % 3))
os.getppid()
"""


@pytest.mark.skipif(shutil.which("strace") is None and "CI" not in os.environ, reason="needs strace")
@pytest.mark.parametrize(("name", "noise"), [("response", 0.5), ("gaussian", 3.0)])
def test_every_release_makes_the_same_system_calls_whatever_is_sent_and_flipped(name, noise, tmp_path):
    """A charge is written and synced, and nothing else is asked of the operating system; memory is not counted."""
    trace = tmp_path / "calls"
    line = ["strace", "-o", trace, sys.executable, "-c", PROGRAM, name, str(noise), tmp_path / "ledger.json"]
    subprocess.run(line, check=True, timeout=120)
    calls = [text.split("(")[0] for text in trace.read_text().splitlines()]
    marks = [place for place, call in enumerate(calls) if call == "getppid"]
    memory = {"brk", "mmap", "munmap", "mremap", "madvise", "futex"}
    steps = [
        [call for call in calls[first + 1 : second] if call not in memory]
        for first, second in itertools.pairwise(marks)
    ]
    assert len(steps) == 60
    assert "getrandom" in calls
    assert all(step == steps[5] for step in steps[2:])  # the first ones load code
    assert steps[5].count("fsync") == 1
    assert steps[5].count("getrandom") == 1  # the ledger's own number


# The clock ------------------------------------------------------------------------------------------------------------


class Slow(Measurement):
    """Takes two milliseconds longer if the first number is above 0."""

    def _let_out(self, step, message):
        time.sleep(2e-3 * bool(message[0] > 0))
        return super()._let_out(step, message)


def departures(ahead, count=200):
    """When messages left after a step began (step,), and which of two it was. On a busy machine one may miss its slot,
    and then it does not leave."""
    one, sides = opened("gaussian", Slow), np.random.default_rng().integers(2, size=count)
    times = np.full(count, np.nan)
    for place, side in enumerate(sides):
        if place % HORIZON == 0:
            one.begin()
        start = time.monotonic()
        if one.release(place % HORIZON, np.full(SIZE, float(side)), start + ahead if ahead else None) is not None:
            times[place] = time.monotonic() - start
    left = np.isfinite(times)
    assert left.mean() > 0.9
    return times[left], sides[left]


def test_a_message_leaves_at_its_slot_whatever_it_says():
    assert timing.distinguish(*departures(0)).p_value < CHANCE
    times, sides = departures(0.01)
    assert times.min() >= 0.01
    assert timing.distinguish(times, sides).p_value > CHANCE


def test_a_message_that_misses_its_slot_does_not_leave_and_stays_charged():
    charged = []

    class Counted(Tally):
        def charge(self, releases):
            charged.append(releases)

    one = Measurement(Counted(), 0, Release(Channel(), 3.0, HORIZON), SIZE)
    one.begin()
    assert one.release(0, np.ones(SIZE), time.monotonic() - 1e-3) is None
    assert len(charged) == 1
    assert one.release(1, np.ones(SIZE), time.monotonic() + 1.0) is not None


def test_the_largest_score_is_chosen_as_an_argmax_does():
    rng = np.random.default_rng(0)
    for scores in [*rng.integers(-2, 3, (200, 5)), np.array([np.nan, 1, 2, 3, 4])]:
        expected = 0 if np.isnan(scores).any() else scores.argmax()
        assert base.choose(np, scores.astype(np.float32)) == expected
