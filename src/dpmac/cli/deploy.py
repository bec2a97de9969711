"""`dpmac deploy export | keys | run | world | status`: trained agents as processes of their own."""

import contextlib
import json
import math
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from dpmac import cli
from dpmac.config import BadInput, require

COMMANDS = {
    "export": "write one agent of a run into a bundle folder",
    "keys": "make a team authority, and a certificate for each agent",
    "run": "run one agent as a process, synchronised with its peers",
    "world": "simulate a task's world for agents that run as processes",
    "status": "show the status of running agents: a table, a live page, metrics",
}


def run(argv: Sequence[str]) -> None:
    cli.choose("dpmac deploy", COMMANDS, argv, lambda name: globals()[f"run_{name}"])


PAYS = "note: this agent sends and pays in every episode, also while no robot is connected"


@contextlib.contextmanager
def extra() -> Iterator[None]:
    """Say how to install what only deployment needs, where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("zenoh", "cryptography"):
            raise BadInput(f"this needs {error.name}: pip install eclipse-zenoh cryptography") from None
        raise


@dataclass(frozen=True)
class Export:
    """Write one trained agent into a folder: its networks, the public noise scales, the claim for its messages, and its
    own ledger. The folder contains nothing of the other agents, and nothing of training."""

    run: tyro.conf.Positional[Path]
    """Folder of a trained run."""
    agent: int
    """Which agent."""
    limit: float
    """Epsilon that the agent may spend over all episodes; inf for no limit."""
    out: Path
    """Folder for the bundle; it must not exist."""
    epsilon: str | None = None
    """Budget of the team. Required if the run has several, and for messages without noise: inf."""
    seed: int | None = None
    """Seed of the team; by default the first."""
    json: bool = False
    """Print JSON."""


def run_export(argv: Sequence[str]) -> None:
    example = "dpmac deploy export runs/ccn --agent 0 --epsilon 3 --seed 0 --limit 30 --out bundle-0"
    options = cli.parse(Export, argv, "dpmac deploy export", example)
    from dpmac.deploy import bundle

    made = bundle.export(options.run, options.agent, options.out, options.limit, options.epsilon, options.seed)
    told = (
        f"{options.out}: agent {made.agent} of {made.agents}, epsilon {made.epsilon} an episode, limit {made.limit:g}"
    )
    free = "\nnote: its messages leave as they are" if made.noise[made.agent] == 0 else ""
    cli.emit(made, options.json, lambda: told + free)


@dataclass(frozen=True)
class Keys:
    """Make an authority for a team, and a key and certificate for each agent. An agent needs authority.pem and its own
    two files. authority.key signs new certificates; keep it on a machine where no agent runs."""

    agents: int
    """Number of agents in the team."""
    out: Path
    """Folder for the files."""
    days: int = 365
    """Days until the certificates expire."""
    renew: bool = False
    """Make new keys for all agents with the existing authority."""
    json: bool = False
    """Print JSON."""


def run_keys(argv: Sequence[str]) -> None:
    options = cli.parse(Keys, argv, "dpmac deploy keys", "dpmac deploy keys --agents 3 --out pki")
    with extra():
        from dpmac.deploy import keys
    made = keys.make(options.out, options.agents, options.days, options.renew)
    names = [path.stem for path in made]
    cli.emit({"out": str(options.out), "agents": names}, options.json, lambda: f"{options.out}: {', '.join(names)}")


@dataclass(frozen=True)
class Run:
    """Run one agent. It acts by the clock, receives messages from its peers, and sends each of them a frame of fixed
    size in every slot, even without a message. Ctrl-C stops it; charges stay in the ledger."""

    bundle: tyro.conf.Positional[Path]
    """Folder of a bundle."""
    peers: Path
    """File with the team's name and the addresses of all agents."""
    tls: Path | None = None
    """Folder with authority.pem and this agent's own certificate and key."""
    insecure: bool = False
    """Plain TCP instead of TLS, for tests only: anyone on the network can listen, and can send as any agent."""
    deadline: float = 0.1
    """Length of a slot in seconds; each step has one slot. It is the same for all agents. Their clocks may differ by a
    quarter of it."""
    when_spent: Literal["silent", "stop"] = "silent"
    """What to do when the budget has no room for another episode. silent: continue without messages. stop: end."""
    episodes: int = 0
    """Stop after this many episodes; 0: do not stop."""
    robot: Path | None = None
    """Socket for the robot's program; by default robot.sock in the bundle."""
    json: bool = False
    """Print the last status as JSON at the end."""


def run_run(argv: Sequence[str]) -> None:
    example = "dpmac deploy run bundle-0 --peers peers.toml --tls pki --deadline 0.1"
    options = cli.parse(Run, argv, "dpmac deploy run", example)
    require((options.tls is None) == options.insecure, "say either --tls FOLDER or --insecure")
    require(options.episodes >= 0, f"episodes must be a whole number from 0, not {options.episodes}")
    with extra():
        from dpmac.deploy import transport
    from dpmac.cli.progress import use_cache
    from dpmac.deploy import status
    from dpmac.deploy.process import opened

    use_cache()
    if options.insecure:
        print(transport.PLAIN, file=sys.stderr)
    peers = transport.read_peers(options.peers)
    print(PAYS, file=sys.stderr)
    with opened(options.bundle, peers, options.tls, options.deadline, options.when_spent, options.robot) as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: process.stop.set())
        ended = threading.Event()
        writer = threading.Thread(target=status.keep, args=(options.bundle / status.FILE, process.status, ended))
        writer.start()
        try:
            process.run(options.episodes)
        finally:
            ended.set()
            writer.join()
        found = status.read([options.bundle])
        cli.emit(found[0], options.json, lambda: status.table(found))


@dataclass(frozen=True)
class World:
    """Simulate a task's world for agents that run as processes on this machine. It sends observations and receives
    actions through the interface of a robot's program. It prints one line per episode."""

    task: tyro.conf.Positional[str]
    """The task that the agents were trained for."""
    bundles: tyro.conf.Positional[tuple[Path, ...]]
    """Bundles of all agents, in order."""
    deadline: float = 0.1
    """Length of a slot in seconds, the same as that of the agents."""
    episodes: int = 10
    """Number of whole episodes."""
    seed: int = 0
    """Seed of the initial states."""
    json: bool = False
    """Print JSON: one object per line for each episode, and one for all of them."""


def run_world(argv: Sequence[str]) -> None:
    options = cli.parse(World, argv, "dpmac deploy world", "dpmac deploy world midway bundle-0 bundle-1 bundle-2")
    from dpmac import tasks
    from dpmac.cli.progress import use_cache
    from dpmac.config import check_seed
    from dpmac.deploy import bundle, world
    from dpmac.deploy.robot import SOCKET

    use_cache()
    check_seed(options.seed)
    require(len(options.bundles) > 0, "name the bundles of all agents")
    described = [bundle.read(folder) for folder in options.bundles]
    for place, (one, folder) in enumerate(zip(described, options.bundles, strict=True)):
        require(one.agent == place, f"{folder} is agent {one.agent}, named as agent {place}")
        require(one.task == options.task, f"{folder} was trained for {one.task}, not for {options.task}")
    task = tasks.make(options.task, **described[0].task_options)
    found = []
    sockets = [folder / SOCKET for folder in options.bundles]
    for one in world.play(task, sockets, options.deadline, options.episodes, options.seed):
        found.append(one)
        line = f"episode {one.episode}: return {one.value:.3f}, {one.absent} actions missing"
        print(json.dumps(one._asdict()) if options.json else line, flush=True)
    told = world.summary(found)
    low, high = told["return_ci95"]
    said = f"{told['episodes']} episodes: return {told['return_mean']:.3f}" + (
        f" ({low:.3f} to {high:.3f})" if math.isfinite(low) else ""
    )
    print(json.dumps(told) if options.json else said)


@dataclass(frozen=True)
class Status:
    """Show the status of agents that run on this machine."""

    bundles: tyro.conf.Positional[tuple[Path, ...]]
    """Bundles of the agents."""
    serve: str | None = None
    """Serve a live page (/), its data (/status.json) and metrics (/metrics) at HOST:PORT, until Ctrl-C."""
    metrics: bool = False
    """Print metrics in Prometheus' text format."""
    json: bool = False
    """Print JSON."""


def run_status(argv: Sequence[str]) -> None:
    example = "dpmac deploy status bundle-0 bundle-1 bundle-2 --serve 127.0.0.1:8900"
    options = cli.parse(Status, argv, "dpmac deploy status", example)
    from dpmac.deploy import status

    require(len(options.bundles) > 0, "name at least one bundle")
    found = status.read(options.bundles)
    if options.serve is None:
        if options.metrics:
            print(status.metrics(found), end="")
        else:
            cli.emit(found, options.json, lambda: status.table(found))
        return
    host, _, port = options.serve.rpartition(":")
    numbered = port.isdigit() and int(port) < 2**16
    require(bool(host) and numbered, f"serve must be HOST:PORT, not {options.serve!r}")
    with status.server(options.bundles, host, int(port)) as server:
        print(f"http://{host}:{server.server_address[1]}/", flush=True)
        server.serve_forever()
