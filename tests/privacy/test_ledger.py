"""What has been spent is never understated, whatever happens."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmac import privacy
from dpmac.config import BadInput, Channel, Release
from dpmac.privacy import BudgetSpent, Ledger

EPISODE = Release(Channel(), privacy.calibrate(Channel(), 1.0, 1e-4, 25), 25)
SYMBOL = Release(Channel("response", period=0), 0.5, 25)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.json"


def test_a_budget_for_one_episode_pays_for_exactly_one(path):
    ledger = Ledger(path, [1.0], 1e-4)
    ledger.charge({0: EPISODE})
    assert ledger.spent(0) == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(BudgetSpent, match="agent 0 would spend"):
        ledger.charge({0: EPISODE})
    assert ledger.charged(0) == {EPISODE: 1}


def test_messages_add_up_to_their_episode(path):
    ledger = Ledger(path, [1.0], 1e-4)
    for _ in range(25):
        ledger.charge({0: replace(EPISODE, unit="message")})
    assert ledger.spent(0) == pytest.approx(privacy.epsilon(EPISODE, 1e-4), rel=1e-9)
    with pytest.raises(BudgetSpent):
        ledger.charge({0: replace(EPISODE, unit="message")})


def test_a_team_is_charged_together_or_not_at_all(path):
    ledger = Ledger(path, [10.0, 0.5], 1e-4)
    with pytest.raises(BudgetSpent, match="agent 1"):
        ledger.charge({0: EPISODE, 1: EPISODE})
    assert ledger.charged(0) == ledger.charged(1) == {}
    assert ledger.spent(0) == 0


def test_different_channels_compose_exactly(path):
    ledger = Ledger(path, [math.inf], 1e-5)
    ledger.charge({0: EPISODE}, times=3)
    ledger.charge({0: SYMBOL}, times=2)
    ledger.charge({0: replace(SYMBOL, noise=0.6)})
    plds = pld.privacy_loss_distribution
    mu = math.sqrt(3) * EPISODE.channel.sensitivity * 5 / EPISODE.noise
    total = plds.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    for flip in (0.5, 0.5, 0.6):
        total = total.compose(plds.from_randomized_response(flip * 3 / 2, 3))
    assert ledger.spent(0) == pytest.approx(total.get_epsilon_for_delta(1e-5), rel=1e-3)


@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=6))
@settings(max_examples=15, deadline=None)
def test_the_order_of_charges_does_not_matter(tmp_path_factory, order):
    costs = []
    for kinds in (order, sorted(order)):
        ledger = Ledger(tmp_path_factory.mktemp("ledger") / "file", [math.inf], 1e-5)
        for kind in kinds:
            ledger.charge({0: (EPISODE, SYMBOL)[kind]})
        costs.append(ledger.spent(0))
    assert costs[0] == pytest.approx(costs[1], rel=1e-12)


def test_unprotected_messages_exhaust_any_limit(path):
    ledger = Ledger(path, [100.0, math.inf], 1e-4)
    free = Release(Channel(), 0.0, 25)
    with pytest.raises(BudgetSpent, match="inf"):
        ledger.charge({0: free})
    ledger.charge({1: free})
    assert ledger.spent(1) == math.inf


def test_affordable_says_how_many_more_fit(path):
    cheap = Release(Channel(), 200.0, 25)
    ledger = Ledger(path, [1.0, math.inf], 1e-4)
    count = ledger.affordable(0, cheap)
    assert count > 50
    ledger.charge({0: cheap}, times=count)
    assert ledger.affordable(0, cheap) == 0
    with pytest.raises(BudgetSpent):
        ledger.charge({0: cheap})
    assert ledger.affordable(1, cheap, most=1000) == 1000


def test_it_goes_on_where_it_stopped(path):
    Ledger(path, [5.0], 1e-4).charge({0: EPISODE})
    again = Ledger(path, [5.0], 1e-4)
    again.charge({0: EPISODE})
    assert again.charged(0) == {EPISODE: 2}


def test_a_crash_before_the_rename_leaves_the_last_state_and_lets_no_message_out(path, monkeypatch):
    ledger = Ledger(path, [5.0], 1e-4)
    ledger.charge({0: EPISODE})

    def crash(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        with pytest.raises(OSError, match="disk full"):
            ledger.charge({0: EPISODE})
    assert Ledger(path, [5.0], 1e-4).charged(0) == {EPISODE: 1}


def test_every_charge_is_synced_before_it_returns(path, monkeypatch):
    ledger, synced = Ledger(path, [5.0], 1e-4), []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(path.read_text()), real(file)))
    ledger.charge({0: EPISODE})
    assert len(synced) == 2
    assert synced[0] != synced[1] == path.read_text()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"epsilon": [1], "delta": 1e-4, "accounts": [[{"times": 1}]]}', '{"epsilon": 1}']
)
def test_a_damaged_file_is_refused_rather_than_begun_anew(path, content):
    path.write_text(content)
    with pytest.raises(BadInput, match="nothing may be released"):
        Ledger(path, [1.0], 1e-4)
    assert path.read_text() == content


def test_a_file_that_vanishes_is_not_begun_anew(path):
    ledger = Ledger(path, [1.0], 1e-4)
    path.unlink()
    with pytest.raises(BadInput, match="nothing may be released"):
        ledger.charge({0: EPISODE})


@pytest.mark.parametrize(("epsilon", "delta"), [([2.0], 1e-4), ([1.0], 1e-5), ([1.0, 1.0], 1e-4)])
def test_limits_cannot_be_moved(path, epsilon, delta):
    Ledger(path, [1.0], 1e-4)
    with pytest.raises(BadInput, match="other limits"):
        Ledger(path, epsilon, delta)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: Ledger(path, [], 1e-4), "at least one agent"),
        (lambda path: Ledger(path, [0.0], 1e-4), "above 0"),
        (lambda path: Ledger(path, [math.nan], 1e-4), "above 0"),
        (lambda path: Ledger(path, [1.0], 0.0), "delta"),
        (lambda path: Ledger(path, [1.0], 1e-4).charge({1: EPISODE}), "agent must lie"),
        (lambda path: Ledger(path, [1.0], 1e-4).charge({0: EPISODE}, times=0), "times"),
        (lambda path: Ledger(path, [1.0], 1e-4).charge({0: replace(EPISODE, neighbours="transition")}), "inputs"),
        (lambda path: Ledger(path, [1.0], 1e-4).spent(-1), "agent must lie"),
    ],
)
def test_nonsense_is_refused_with_a_message(path, call, message):
    with pytest.raises(BadInput, match=message):
        call(path)


def test_the_file_is_plain_json(path):
    Ledger(path, [1.0, math.inf], 1e-4).charge({0: EPISODE})
    data = json.loads(path.read_text())
    assert data["epsilon"] == [1.0, "inf"]
    assert data["accounts"][0][0]["times"] == 1


def test_many_episodes_stay_quick(path):
    ledger = Ledger(path, [math.inf], 1e-4)
    ledger.charge({0: SYMBOL}, times=100_000)
    ledger.charge({0: EPISODE}, times=10_000)
    start = time.process_time()
    assert ledger.spent(0) > 0
    assert time.process_time() - start < 5


# Other processes, and sudden death ------------------------------------------------------------------------------------

CHILD = """
import sys
from dpmac.config import Channel, Release
from dpmac.privacy import Ledger
path, sent, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
ledger = Ledger(path, [1e9], 1e-4)
release = Release(Channel(), 50.0, 25)
with open(sent, "a", buffering=1) as file:
    for _ in range(count):
        ledger.charge({0: release})
        file.write("x")
        file.flush()
"""


def spawn(path, sent, count):
    return subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(sent), str(count)])


def test_two_processes_never_forget_each_others_charges(path, tmp_path):
    children = [spawn(path, tmp_path / f"sent{index}", 40) for index in range(2)]
    assert [child.wait(60) for child in children] == [0, 0]
    assert Ledger(path, [1e9], 1e-4).charged(0).total() == 80


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.large)])
def test_a_killed_sender_has_charged_all_that_it_sent_and_nothing_twice(kills, path, tmp_path, record_property):
    """What is on disk never falls behind what was sent, and each kill wastes one charge at most."""
    rng, sent, seen = np.random.default_rng(0), tmp_path / "sent", 0
    charged: Counter[Release] = Counter()
    for number in range(kills):
        child = spawn(path, sent, 1_000_000)
        while not sent.exists() or sent.stat().st_size <= seen:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        child.wait()
        seen = sent.stat().st_size
        charged = Ledger(path, [1e9], 1e-4).charged(0)
        assert seen <= charged.total() <= seen + number + 1
    record_property("counted", f"sender killed {kills} times: {seen} messages sent, {charged.total()} charged")


def test_on_a_full_disk_nothing_is_charged_and_nothing_may_leave(path):
    ledger = Ledger(path, [5.0], 1e-4)
    ledger.charge({0: EPISODE})
    before = path.read_bytes()
    aside = path.with_name(path.name + ".new")
    aside.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        ledger.charge({0: EPISODE})
    assert path.read_bytes() == before
    aside.unlink()
    ledger.charge({0: EPISODE})
    assert ledger.charged(0) == {EPISODE: 2}


def test_a_number_that_fell_over_on_the_disk_is_noticed(path):
    ledger = Ledger(path, [10.0], 1e-4)
    ledger.charge({0: EPISODE}, times=3)
    path.write_text(path.read_text().replace('"times": 3', '"times": 1'))
    with pytest.raises(BadInput, match="seal"):
        ledger.spent(0)
