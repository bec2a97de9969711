"""Three agents as processes over Zenoh with mutual TLS, on the loopback device, and what may go wrong.

One team serves all tests, in their order. Survivors go on, nobody is heard who should not be, and every release is in a
ledger once.
"""

import re
import signal
import time
from collections import Counter

import pytest
from exported import AGENTS, fleet, status_of, until, untrained
from tiny import dpmac as started
from wiretap import records

from dpmac.privacy import ledger as ledgers

SLOT = 0.2


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    with fleet(folder, untrained(folder), SLOT) as found:
        yield found


def test_agents_play_in_step_and_a_world_moves_them(team):
    world = team.world("probe-neighbour", episodes=2)
    team.together()
    out, err = world.communicate(timeout=60)
    assert world.returncode == 0, err
    assert len(out.splitlines()) == 3
    assert '"episodes": 2' in out
    statuses = [status_of(folder) for folder in team.bundles]
    for status in statuses:
        assert status["messages_sent"] > 0
        assert all(peer["malformed"] == 0 for peer in status["peers"].values())
        assert all(-1 < peer["latency_ms"] < 1000 * SLOT for peer in status["peers"].values())


def test_the_status_command_and_a_second_process_on_a_bundle(team):
    words = ("deploy", "status", *team.bundles)
    table = started(*words).communicate()[0]
    assert re.search(r"agent 2  at work  episode \d+ step \d  messages \d+ of \d+ frames  epsilon \S+ of inf", table)
    out, err = team.start(0).communicate(timeout=60)
    assert "another process is at work" in err
    assert not out


def test_a_peer_that_stands_still_is_missed_and_comes_back(team):
    process = team.processes[1]
    missed = team.peer(0, 1)["missed"]
    process.send_signal(signal.SIGSTOP)
    team.goes_on(0, 2)
    until(lambda: team.peer(0, 1)["missed"] > missed + 3)
    process.send_signal(signal.SIGCONT)
    team.goes_on(0, 1, 2)
    team.heard(0, 1)
    team.heard(2, 1)


def test_a_peer_that_is_killed_is_missed_and_what_it_was_charged_stays(team):
    missed = team.peer(0, 2)["missed"]
    team.processes[2].kill()
    team.processes[2].communicate()
    charged = ledgers.verify(team.bundles[2] / "ledger.json").book.accounts[0].total()
    assert charged > 0
    team.goes_on(0, 1)
    until(lambda: team.peer(0, 2)["missed"] > missed + 3)


def test_it_comes_back_with_a_full_disk_and_says_nothing(team):
    """What does not fit on the disk is not said; the agent acts on, and its peers hear that it says nothing."""
    ledger = team.bundles[2] / "ledger.json"
    before = ledgers.verify(ledger).book.accounts[0].total()
    team.processes[2] = team.start(2, largest_file=ledger.stat().st_size // 512 + 4)
    until(lambda: "File too large" in status_of(team.bundles[2])["silent_because"], 60)
    sent = until(lambda: status_of(team.bundles[2])["messages_sent"] or -1)
    team.heard(0, 2)
    team.heard(1, 2)
    assert status_of(team.bundles[2])["messages_sent"] == max(0, sent)
    verified = ledgers.verify(ledger)
    assert verified.book.accounts[0].total() <= before + 5
    assert len(ledger.read_bytes()) <= (ledger.stat().st_size // 512 + 5) * 512


def test_what_goes_over_the_wire_has_one_size_and_can_be_read_by_nobody(team):
    """Records of TLS from agent 1 to agent 0: those of frames are as long whether they say something or not."""
    assert not any(b"dpmc" in tap.stream(outward) for tap in team.taps.values() for outward in (True, False))
    sizes = Counter(size for at, size in records(team.taps[1], True) if at > time.time() - 5)
    (common, often), *others = sizes.most_common()
    assert often > 10
    assert all(size < common for size, _ in others), sizes  # what keeps a link alive is shorter


def test_every_release_is_in_a_ledger_once(team):
    """What a process said, or had ready too late, is what was charged while it ran; asked to stop, each one ends."""
    for process in team.processes:
        process.send_signal(signal.SIGTERM)
    for agent, process in enumerate(team.processes):
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        status = status_of(team.bundles[agent])
        assert status["ended"] == "asked to stop"
        account = ledgers.verify(team.bundles[agent] / "ledger.json").book.accounts[0]
        if agent < 2:  # the third was killed in between
            said = (status["messages_sent"] + status["messages_not_ready"]) // (AGENTS - 1)
            assert said <= account.total() <= said + 1  # the last one may have been charged when it was asked to stop
