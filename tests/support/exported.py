"""Bundles of the smallest team that hears each other, and processes that work on them."""

import contextlib
import dataclasses
import json
import math
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import jax
from tiny import CONFIG, begin, dpmac
from wiretap import Tap

from dpmac import tasks
from dpmac.agents.team import TaskShape, make_team
from dpmac.config import Budget, Channel, NetworkConfig
from dpmac.deploy import bundle, keys, status

AGENTS, HORIZON = 3, 5


@dataclasses.dataclass
class Fleet:
    """Processes at work, and what tests need to know of them."""

    folder: Path
    bundles: list[Path]
    slot: float
    ports: list[int]
    tls: bool
    taps: dict[int, Tap]
    """By agent: on its connection to agent 0."""
    processes: list[subprocess.Popen] = dataclasses.field(default_factory=list)

    def start(self, agent: int, *words: object, **limits: int) -> subprocess.Popen:
        secured = ("--tls", self.folder / "pki") if self.tls else ("--insecure",)
        peers = ("--peers", self.folder / f"peers-{agent}.toml")
        return dpmac("deploy", "run", self.bundles[agent], *peers, *secured, "--deadline", self.slot, *words, **limits)

    def world(self, task: str, episodes: int) -> subprocess.Popen:
        words = ("--deadline", self.slot, "--episodes", episodes, "--json")
        return dpmac("deploy", "world", task, *self.bundles, *words)

    def status(self, agent: int) -> dict:
        return status_of(self.bundles[agent])

    def peer(self, agent: int, other: int) -> dict:
        return self.status(agent)["peers"][str(other)]

    def together(self, seconds: float = 90.0) -> None:
        """Wait until everybody hears everybody."""
        pairs = [(a, b) for a in range(len(self.bundles)) for b in range(len(self.bundles)) if a != b]
        try:
            until(lambda: all(self.peer(*pair)["heard"] > 3 for pair in pairs), seconds)
        except AssertionError:
            ended = [process.communicate()[1] for process in self.processes if process.poll() is not None]
            raise AssertionError(f"{ended} {status.table(status.read(self.bundles))}") from None

    def heard(self, agent: int, other: int, more: int = 3) -> None:
        """Wait until an agent has heard more frames of another."""
        before = self.peer(agent, other)["heard"]
        until(lambda: self.peer(agent, other)["heard"] >= before + more)

    def goes_on(self, *agents: int) -> None:
        """Wait until these agents have played another episode."""
        before = {agent: self.status(agent)["episodes_played"] for agent in agents}
        until(lambda: all(self.status(a)["episodes_played"] > before[a] for a in agents))


@contextlib.contextmanager
def fleet(folder: Path, bundles: list[Path], slot: float, tls: bool = True) -> Iterator[Fleet]:
    """An agent at work on each bundle; all but agent 0 reach agent 0 through a tap. All is stopped at the end."""
    ports = free_ports(len(bundles))
    taps = {agent: Tap(ports[0]) for agent in range(1, len(bundles))}
    keys.make(folder / "pki", len(bundles))
    for agent in range(len(bundles)):
        write_peers(folder / f"peers-{agent}.toml", [taps[agent].port if agent else ports[0], *ports[1:]])
        (bundles[agent] / status.FILE).unlink(missing_ok=True)  # of processes before
    found = Fleet(folder, bundles, slot, ports, tls, taps)
    try:
        found.processes += [found.start(agent) for agent in range(len(bundles))]
        yield found
    finally:
        for process in found.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()
        for tap in taps.values():
            tap.close()


def run_of(folder: Path, epsilon: float = 3.0) -> Path:
    """A run of three agents who send a symbol in every step."""
    budgets = (Budget((epsilon,)), Budget((math.inf,)))
    networks = dataclasses.replace(CONFIG.networks, aware=True)
    config = dataclasses.replace(
        CONFIG, task="probe-neighbour", channel=Channel("response"), budgets=budgets, networks=networks
    )
    begin(folder, config, pieces=1)
    return folder


def export(run: Path, out: Path, limit: float = math.inf, epsilon: str = "3") -> list[Path]:
    """A bundle for each agent."""
    bundles = [out / f"bundle-{agent}" for agent in range(AGENTS)]
    for agent, folder in enumerate(bundles):
        bundle.export(run, agent, folder, limit, epsilon)
    return bundles


def untrained(out: Path, task: str = "probe-neighbour", limit: float = math.inf, **options: int) -> list[Path]:
    """A bundle for each agent of a team that was never trained and sends a symbol in every step."""
    found, networks, channel = tasks.make(task, **options), NetworkConfig(hidden=16, aware=True), Channel("response")
    shape = TaskShape(found.agents, found.observation_size, found.actions, found.horizon)
    team = make_team(jax.random.key(0), shape, "dpmac", {}, channel, networks)
    bundles = [out / f"bundle-{agent}" for agent in range(found.agents)]
    for agent, folder in enumerate(bundles):
        noise = (0.3,) * found.agents
        described = bundle.Bundle(
            1, task, agent, *shape[:4], "dpmac", channel, networks, noise, "?", limit, 1e-4, task_options=options
        )
        bundle.write(folder, described, team, {})
    return bundles


def copied(bundles: list[Path], out: Path) -> list[Path]:
    """The bundles as they were exported, somewhere else."""
    return [Path(shutil.copytree(folder, out / folder.name)) for folder in bundles]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback device that nobody listens on."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def write_peers(path: Path, ports: list[int], team: str = "tiny") -> Path:
    addresses = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    path.write_text(f'team = "{team}"\nagents = [{addresses}]\n')
    return path


def status_of(folder: Path) -> dict:
    return json.loads((folder / "status.json").read_text())


def until(condition, seconds: float = 40.0, every: float = 0.1):
    """What a condition returns once that is something; waiting for ever is a failure."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            if found := condition():
                return found
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(every)
    raise AssertionError(f"it did not come to be within {seconds} s")
