"""Agents as processes for long: a team earns what it does in simulation, the wire tells nothing, and it lasts."""

import json
import math
import os
import random
import re
import signal
import socket
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from exported import HORIZON, fleet, untrained
from scipy.stats import binom
from wiretap import records

import dpmac
from dpmac.config import Budget, Channel, NetworkConfig, RunConfig, Training
from dpmac.deploy import bundle, world
from dpmac.deploy.clock import Clock
from dpmac.deploy.robot import SOCKET, send
from dpmac.deploy.wire import HEADER
from dpmac.learner.rollout import returns
from dpmac.privacy import audit
from dpmac.privacy import ledger as ledgers

EPISODES = int(os.environ.get("DPMAC_EPISODES", "1000"))
SLOT = float(os.environ.get("DPMAC_SLOT", "0.06"))
"""Seconds; longer where the machine does other work as well."""
SECONDS = float(os.environ.get("DPMAC_SECONDS", "3600"))
MIDWAY = RunConfig(
    "midway",
    learner="pathwise",
    channel=Channel("response", period=0),
    budgets=(Budget((3.0,)),),
    networks=NetworkConfig(hidden=32, aware=True, products=48, entry_layer=True, share_parameters=True),
    training=Training(steps=400_000, evaluations=10),
)


@pytest.fixture(scope="module")
def midway(tmp_path_factory):
    """The folder of a trained team of three."""
    folder = Path(os.environ.get("DPMAC_MIDWAY") or tmp_path_factory.mktemp("midway") / "run")
    if not folder.exists():
        dpmac.train(MIDWAY, folder)
    return folder


def said(stream: bytes, agent: int, size: int = 3) -> dict[int, np.ndarray]:
    """Messages by episode that left an agent in the first steps, from what went over plain TCP."""
    found = {}
    for match in re.finditer(rb"dpmc\x01\x01", stream):
        frame = stream[match.start() : match.start() + HEADER.size + 4 * size]
        if len(frame) == HEADER.size + 4 * size:
            *_, sender, _, episode, step = HEADER.unpack_from(frame)
            if (sender, step) == (agent, 0):
                found[episode] = np.frombuffer(frame, "<f4", offset=HEADER.size)
    return found


def bound(known: np.ndarray, symbols: np.ndarray, confidence: float = 0.99) -> float:
    """A lower bound on ε from the symbols (episode,) that left for each value (episode,) of the secret: the best of all
    pairs of values and all symbols, by Clopper and Pearson, with what so many choices cost."""
    pairs = [(a, b, s) for a in range(3) for b in range(3) for s in range(3) if a != b]
    each, best = 1 - (1 - confidence) / len(pairs), 0.0
    for a, b, symbol in pairs:
        first, second = symbols[known == a] == symbol, symbols[known == b] == symbol
        count = min(len(first), len(second))
        low = audit.clopper_pearson(first[:count].sum(), second[:count].sum(), count, 1e-4, each)
        best = max(best, float(low))
    return best


@pytest.mark.large
def test_three_processes_earn_what_the_simulated_team_does(midway, tmp_path, record_property):
    """At exact ε = 3 an episode: returns, charges, and an audit of the symbols that went over the wire."""
    bundles = [tmp_path / f"bundle-{agent}" for agent in range(3)]
    for agent, folder in enumerate(bundles):
        bundle.export(midway, agent, folder, math.inf, 3)
    with fleet(tmp_path, bundles, SLOT, tls=False) as team:
        team.together()
        out, err = team.world("midway", EPISODES).communicate()
        statuses = [team.status(agent) for agent in range(3)]
        streams = [team.taps[max(agent, 1)].stream(agent > 0) for agent in range(3)]  # to agent 0; agent 0's to agent 1
        for process in team.processes:
            process.send_signal(signal.SIGTERM)
        for process in team.processes:
            process.communicate()
        final = [team.status(agent) for agent in range(3)]
    *played, total = [json.loads(line) for line in out.splitlines()]
    assert len(played) == EPISODES, err

    simulated = dpmac.load(midway, limit=math.inf, new_ledger=not (midway / "ledger.json").exists())
    values = np.asarray(returns(simulated.simulate(jax.random.key(0), EPISODES).episode))
    gaps = np.array([one["value"] for one in played]) - values
    half = 2.576 * gaps.std(ddof=1) / math.sqrt(len(gaps))
    record_property(
        "counted",
        f"{EPISODES} episodes of three processes: return {total['return_mean']:.3f}, simulated {values.mean():.3f}, "
        f"difference {gaps.mean():.3f} ± {half:.3f}, {total['absent']} actions missing, "
        f"missed {[peer['missed'] for one in statuses for peer in one['peers'].values()]}",
    )
    assert abs(gaps.mean()) < half

    for folder, status in zip(bundles, final, strict=True):
        account = ledgers.verify(folder / "ledger.json").book.accounts[0]
        left = (status["messages_sent"] + status["messages_not_ready"]) // 2
        assert left <= account.total() <= left + 1
        assert account.total() >= EPISODES

    task = simulated.program.task
    known = np.asarray(world.starts(task, 0, EPISODES).known)
    for agent, stream in enumerate(streams):
        messages = said(stream, agent)
        index = [i for i, one in enumerate(played) if one["episode"] in messages]
        symbols = np.array([messages[played[i]["episode"]].argmax() for i in index])
        found = bound(known[index, agent], symbols)
        record_property("counted", f"agent {agent}: {len(index)} symbols on the wire show ε above {found:.3f} of 3")
        assert len(index) > 0.95 * EPISODES
        assert found <= 3.0


def distinguished(features: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """Accuracy of a distinguisher (naive Bayes over eighths of each feature), fitted on one half and scored on the
    other, that of naming the commoner label always, and the p-value that it is no better."""
    half = len(labels) // 2
    edges = np.quantile(features[:half], np.linspace(0, 1, 9)[1:-1], axis=0)
    bins = np.stack([np.searchsorted(edges[:, i], features[:, i]) for i in range(features.shape[1])], 1)
    scores = np.zeros((len(labels), 2))
    for label in (0, 1):
        mine = bins[:half][labels[:half] == label]
        for i in range(features.shape[1]):
            share = (np.bincount(mine[:, i], minlength=8) + 1) / (len(mine) + 8)
            scores[:, label] += np.log(share[bins[:, i]])
    right = int((scores[half:].argmax(1) == labels[half:]).sum())
    count = len(labels) - half
    chance = max(labels[half:].mean(), 1 - labels[half:].mean())
    return right / count, float(chance), float(binom.sf(right - 1, count, chance))


def test_the_distinguisher_would_see_half_a_millisecond_or_a_byte():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=1500)
    times, sizes = 1e-3 + 4e-4 * rng.standard_normal(1500), np.full(1500, 69.0)
    assert distinguished(np.stack([times, sizes], 1), labels)[-1] > 0.01
    assert distinguished(np.stack([times + 5e-4 * labels, sizes], 1), labels)[-1] < 1e-6
    assert distinguished(np.stack([times, sizes + labels], 1), labels)[-1] < 1e-6


@pytest.mark.large
def test_sizes_and_times_on_the_wire_tell_nothing(tmp_path, record_property):
    """Agent 1 observes one of two things in each episode; a distinguisher of its TLS records stays within chance."""
    bundles = untrained(tmp_path)
    slot, labels = 0.04, {}
    with fleet(tmp_path, bundles, slot) as team:
        team.together()
        clock, generator, stop = Clock(slot, HORIZON), random.Random(1), threading.Event()
        with socket.socket(socket.AF_UNIX) as robot:
            robot.connect(str(bundles[1] / SOCKET))
            size = bundle.read(bundles[1]).observation
            for _ in range(EPISODES):
                episode = clock.next_episode()
                label = labels[episode] = generator.randrange(2)
                for step in range(HORIZON):
                    clock.wait(clock.begins(clock.place_of(episode, step)), stop)
                    send(robot, {"observation": [float(2 * label - 1)] * size})
        found = records(team.taps[1], True)
    frames = max({size for _, size in found}, key=[size for _, size in found].count)
    rows = []
    for at, size in found:
        place = clock.place(at)
        episode, step = clock.step_of(place)
        if size >= frames and episode in labels and step < HORIZON:
            rows.append((at - clock.leaves(place), size, labels[episode]))
    data = np.array(rows)
    accuracy, chance, p_value = distinguished(data[:, :2], data[:, 2].astype(int))
    record_property(
        "counted",
        f"{len(data)} records, sizes {sorted(set(data[:, 1].tolist()))}, leaving {1e3 * data[:, 0].mean():.2f} ± "
        f"{1e3 * data[:, 0].std():.2f} ms after their time: accuracy {accuracy:.3f}, {chance:.3f} without "
        f"looking, p = {p_value:.3f}",
    )
    assert len(set(data[:, 1])) == 1
    assert len(data) > 0.8 * EPISODES * HORIZON
    assert p_value > 0.001


def load_at(tmp_path: Path, bundles: list[Path], slot: float, seconds: float = 8.0) -> tuple[float, float]:
    """Share of frames that were heard in time, and messages a second, of a team at this pace."""
    with fleet(tmp_path, bundles, slot) as team:
        team.together(120)
        time.sleep(1.5)
        before, clock = [team.status(agent) for agent in range(len(bundles))], time.time()
        time.sleep(seconds)
        after, passed = [team.status(agent) for agent in range(len(bundles))], time.time() - clock
    heard, missed, messages = (
        sum(f(late) - f(early) for early, late in zip(before, after, strict=True))
        for f in (
            lambda one: sum(peer["heard"] for peer in one["peers"].values()),
            lambda one: sum(peer["missed"] for peer in one["peers"].values()),
            lambda one: one["messages_sent"],
        )
    )
    return heard / (heard + missed), messages / passed


@pytest.mark.large
@pytest.mark.parametrize("agents", [2, 4, 8])
def test_load(agents, tmp_path, record_property):
    """The fastest of a few paces at which 99 of 100 frames are heard in time; everybody tells everybody each step."""
    bundles, heard = untrained(tmp_path, "midway", agents=agents), []
    for slot in (0.2, 0.1, 0.05, 0.02, 0.01, 0.005):
        folder = tmp_path / f"{slot}"
        folder.mkdir()
        share, messages = load_at(folder, bundles, slot)
        steps = messages / (agents * (agents - 1))
        record_property(
            "counted",
            f"{agents} agents, slots of {slot} s: {steps:.1f} steps/s, {messages:.0f} messages/s, {share:.4f} heard",
        )
        heard.append(share)
        if share < 0.99:
            break
    assert heard[0] >= 0.99


def resident(process) -> int:
    """Kilobytes of its own that a process has in memory."""
    return int(re.findall(r"RssAnon:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[0])


@pytest.mark.large
def test_an_hour_in_step_without_growth_of_memory(tmp_path, record_property):
    """Looked at sixty times. Between the second and the last third of it, no process grows by more than 1 MB."""
    bundles, slot, looks = untrained(tmp_path), 0.1, 60
    with fleet(tmp_path, bundles, slot) as team:
        team.together()
        seen = []
        for _ in range(looks):
            time.sleep(SECONDS / looks)
            seen.append([resident(process) for process in team.processes])
        played = team.status(0)["episodes_played"]
    _, second, last = (np.median(part, axis=0) for part in np.split(np.array(seen), 3))
    record_property(
        "counted",
        f"{SECONDS:.0f} s, {played} episodes: kB of each process at first, and the median of each third "
        f"{seen[0]} {[np.median(part, axis=0).astype(int).tolist() for part in np.split(np.array(seen), 3)]}",
    )
    assert (last - second).max() < 1_000
    assert played > 0.5 * SECONDS / (slot * (HORIZON + 1))
