"""The measurement: one charge for each release, fresh noise for each step, and no way around either."""

import copy
import math
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dpmac import privacy
from dpmac.config import BadInput, Channel, Release
from dpmac.privacy import BudgetSpent, Entropy, Ledger, Measurement, mechanisms
from dpmac.privacy.measurement import together

HORIZON, SIZE = 5, 4
CHANNELS = [
    Channel(),
    Channel("code", symbols=4),
    Channel("response", symbols=4),
    Channel("subset", symbols=4),
    Channel(period=2),
    Channel(period=0, recipient_rate=0.5),
    Channel(copies=3, recipient_rate=0.4),
    Channel(sample_rate=0.5),
]


class Counted(Entropy):
    """Planted bytes, and how they were asked for."""

    def __init__(self, seed=0):
        self.calls = []
        source = np.random.default_rng(seed)
        super().__init__(lambda count: self.calls.append(count) or source.bytes(count))


class Tally:
    """An account that refuses nothing and remembers the order of things."""

    def __init__(self):
        self.charged = []

    def charge(self, releases):
        self.charged.append(dict(releases))


def noise_of(channel):
    return privacy.calibrate(channel, 3.0, 1e-4, HORIZON)


def made(channel=CHANNELS[0], account=None, seed=0, agent=0, others=3, noise=None) -> Any:
    release = Release(channel, noise_of(channel) if noise is None else noise, HORIZON)
    return Measurement(account or Tally(), agent, release, SIZE, others, Counted(seed))


def play(measurement, messages) -> list[Any]:
    measurement.begin()
    return [measurement.release(step, message) for step, message in enumerate(messages)]


def said(rng):
    return rng.standard_normal((HORIZON, SIZE))


@pytest.mark.parametrize("channel", CHANNELS, ids=str)
def test_reads_of_the_operating_system_do_not_depend_on_messages(channel):
    """All of them come before the first message, as many and as long whichever symbols are planted."""
    found = []
    for symbol in range(SIZE):
        one = made(channel)
        one.begin()
        calls = list(one._entropy.calls)
        for step in range(HORIZON):
            one.release(step, np.eye(SIZE)[symbol])
        assert one._entropy.calls == calls
        found.append(calls)
    assert found[0] == found[1] == found[2] == found[3] != []


@pytest.mark.parametrize("channel", CHANNELS, ids=str)
def test_a_release_is_the_mechanism_with_noise_that_nothing_else_uses(channel):
    messages, account = said(np.random.default_rng(0)), Tally()
    left = play(made(channel, account), messages)
    steps = [step for step, one in enumerate(left) if one is not None]
    assert len(steps) == channel.uses(HORIZON)
    for step in steps:
        assert left[step].copies.shape == (3, SIZE)
        assert left[step].recipients.sum() == channel.recipients(3)
        assert mechanisms.of(channel).valid(left[step].copies[0], noise_of(channel))
        assert (len(np.unique(left[step].copies, axis=0)) > 1) == (channel.copies > 1)
    again = play(made(channel, seed=1), messages)
    assert any(not np.array_equal(left[step].copies, again[step].copies) for step in steps)
    telling = [step for step in steps if not channel.sample_rate or channel.draws(step)]
    assert account.charged == [{0: made(channel).cost}] * len(telling)
    assert made(channel).cost.unit == "message"


def test_a_sender_that_samples_sends_the_mean_of_past_messages():
    channel = Channel(sample_rate=1.0)
    messages = said(np.random.default_rng(0)) / 10
    left = play(made(channel, noise=1e-4), messages)
    means = np.cumsum(messages, axis=0) / np.arange(1, HORIZON + 1)[:, None]
    np.testing.assert_allclose([one.copies[0] for one in left], means, atol=1e-3)
    some = play(made(Channel(sample_rate=0.4), noise=1e-4), messages)
    assert np.abs(some[0].copies).max() < 1e-2  # nothing is drawn yet
    assert np.min(np.abs(some[2].copies[0] - messages[:3]).max(axis=1)) < 1e-2  # one of the first three


def test_nothing_leaves_that_was_not_charged(tmp_path):
    """The limit holds over episodes; a refusal ends the episode, and what was charged stays charged."""
    release = Release(CHANNELS[0], noise_of(CHANNELS[0]), HORIZON)
    ledger = Ledger(tmp_path / "ledger.json", [3.0], 1e-4, create=True)
    one = Measurement(ledger, 0, release, SIZE)
    play(one, said(np.random.default_rng(0)))
    assert ledger.spent(0) == pytest.approx(3.0, rel=1e-4)
    one.begin()
    with pytest.raises(BudgetSpent):
        one.release(0, np.zeros(SIZE))
    with pytest.raises(BadInput, match="over"):
        one.release(0, np.zeros(SIZE))
    after = Measurement(Ledger(tmp_path / "ledger.json", [3.0], 1e-4), 0, release, SIZE)
    after.begin()
    with pytest.raises(BudgetSpent):
        after.release(0, np.zeros(SIZE))


def test_after_a_crash_the_episode_is_over_and_the_charge_stays(tmp_path):
    release = Release(CHANNELS[0], noise_of(CHANNELS[0]), HORIZON)
    ledger = Ledger(tmp_path / "ledger.json", [math.inf], 1e-4, create=True)
    one = Measurement(ledger, 0, release, SIZE)
    one.begin()
    one._noise[-1] = None  # the process dies between the charge and the release
    with pytest.raises(TypeError):
        one.release(0, np.zeros(SIZE))
    assert ledger.charged(0).total() == 1
    with pytest.raises(BadInput, match="over"):
        one.release(1, np.zeros(SIZE))


def test_no_step_is_released_twice_skipped_or_rewound():
    one = made()
    with pytest.raises(BadInput, match="begin"):
        one.release(0, np.zeros(SIZE))
    one.begin()
    one.release(0, np.zeros(SIZE))
    for step in (0, 2, -1, 1.5, None, "1"):
        with pytest.raises(BadInput, match="step 1 comes next"):
            one.release(step, np.zeros(SIZE))
    assert one.step == 1
    for step in range(1, HORIZON):
        one.release(step, np.zeros(SIZE))
    with pytest.raises(BadInput, match="over"):
        one.release(HORIZON, np.zeros(SIZE))


def test_two_threads_never_take_the_same_step():
    account, barrier = Tally(), threading.Barrier(8)
    one = made(account=account)
    one.begin()

    def ask(_):
        barrier.wait()
        try:
            return one.release(0, np.zeros(SIZE)) is not None
        except BadInput:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 1
    assert len(account.charged) == 1


@pytest.mark.parametrize("mechanism", ["gaussian", "timed"])
def test_an_episode_begun_while_a_step_is_charged_is_not_paid_for_by_it(mechanism):
    """Another thread begins it after the charge of the old one, whose step then releases nothing."""

    class Begins(Tally):
        def charge(self, releases):
            super().charge(releases)
            if len(self.charged) == 1:
                thread = threading.Thread(target=one.begin)
                thread.start()
                thread.join()

    account = Begins()
    one = made(Channel(mechanism, symbols=SIZE), account)
    one.begin()
    with pytest.raises(BadInput, match="a new episode was begun"):
        one.release(0, np.zeros(SIZE))
    assert one.step == 0
    assert one.release(0, np.zeros(SIZE)) is not None
    assert len(account.charged) == 2


def test_it_cannot_be_copied_nor_taken_along_into_another_process(monkeypatch):
    one = made()
    one.begin()
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps, lambda x: x.__reduce__()):
        with pytest.raises(TypeError, match="cannot be copied"):
            duplicate(one)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(BadInput, match="belongs to the process"):
        one.release(0, np.zeros(SIZE))


def test_there_is_no_public_way_to_a_raw_message_or_to_noise():
    one = made(Channel(sample_rate=0.5))
    play(one, said(np.random.default_rng(0)))
    public = {name for name in dir(one) if not name.startswith("_")}
    assert public == {"begin", "charges", "cost", "release", "sends", "step"}


def test_agents_of_one_account_are_charged_together_or_not_at_all(tmp_path):
    ledger = Ledger(tmp_path / "ledger.json", [math.inf, 1e-3], 1e-4, create=True)
    team = [made(account=ledger, agent=agent, seed=agent) for agent in range(2)]
    for one in team:
        one.begin()
    with pytest.raises(BudgetSpent, match="agent 1"):
        together(team, 0, np.zeros((2, SIZE)))
    assert ledger.charged(0).total() == 0
    with pytest.raises(BadInput, match="one account"):
        together([made(), made(agent=1)], 0, np.zeros((2, SIZE)))
    with pytest.raises(BadInput, match="one measurement"):
        together([team[0], team[0]], 0, np.zeros((2, SIZE)))


def test_messages_that_are_not_numbers_are_sent_as_nothing():
    for bad in (np.nan, np.inf):
        (left, *_) = play(made(noise=1e-4), np.array([[bad, 1.0, 0, 0]] * HORIZON))
        assert np.abs(left.copies).max() < 0.01


def test_without_others_a_message_still_has_its_noise():
    (left, *_) = play(made(others=0), np.zeros((HORIZON, SIZE)))
    assert left.copies.shape == (1, SIZE)
    assert left.recipients.shape == (0,)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: made(Channel(place="receiver"), noise=1.0), "at the receivers"),
        (lambda: made(Channel(rounds=2), noise=1.0), "2 rounds"),
        (lambda: made(Channel("response"), noise=0.9), "flip probability"),
        (lambda: made(others=-1), "others must be"),
        (lambda: made(Channel(copies=2), others=5), "copies must be 1"),
        (lambda: made(Channel(copies=2), others=0), "copies must be 1"),
        (lambda: Measurement(Tally(), 0, Release(Channel(), 1.0), -1), "size must be"),
        (lambda: play(made(), np.zeros((1, SIZE + 1))), r"shape \(4,\), not \(5,\)"),
    ],
)
def test_what_cannot_be_measured_is_refused(make, says):
    with pytest.raises(BadInput, match=says):
        make()


def test_whole_transcripts_are_as_private_as_claimed_and_no_more():
    """Two neighbouring canaries through a measurement: the bound stays below ε, and comes near it."""
    release = Release(Channel(), noise_of(Channel()), HORIZON)
    canary, one = privacy.canary(release, SIZE), made(others=1)

    def sample(side, episodes, _):
        inputs = (canary.first, canary.second)[side]
        return np.stack([[left.copies for left in play(one, inputs)] for _ in range(episodes)])

    bound = privacy.audit_gaussian(sample, 1e-4, 1000, release.noise, canary.direction, 0.999)
    assert 1.5 < bound.epsilon < 3.0
