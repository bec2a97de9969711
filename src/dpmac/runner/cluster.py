"""The scheduler's jobs on many machines: one Ray task a job, results on a filesystem that all of them see.

Nothing of them goes through Ray's object store. A task whose node dies is given to another node and goes on from the
last checkpoint.
"""

import dataclasses
import importlib.metadata
import logging
import os
import platform
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dpmac import __version__
from dpmac.config import BadInput, require
from dpmac.results import store
from dpmac.runner import crew
from dpmac.runner.schedule import Job, Options

RETRIES = 3
"""How often a job is given to another process after one that died."""
ANSWER = 60.0
"""Seconds in which a node must answer whether it sees the folder."""
GRACE = 30.0
"""Seconds that Ray has to give the job of a dead node to another. It does at once where connections broke; where a node
stands still they do not, and it would take minutes."""
NODE = "node"
"""The file in a job's folder that says on which node it is."""


@dataclass(frozen=True)
class Asked:
    """What a user says about the cluster."""

    address: str = "auto"
    """HOST:PORT of its head; auto: what RAY_ADDRESS says, or a cluster on this machine."""
    gpus_per_job: int | None = None
    """None: 1 where the cluster has GPUs."""
    insecure: bool = False
    """Whether a cluster that takes tasks from anybody will do."""
    patience: float = crew.PATIENCE
    """Seconds after which a job's folder that is held, and in which nothing happens, is given up and a copy trained."""


class Report(NamedTuple):
    """What a node says of itself before anything is trained."""

    token: str
    """What it reads in the shared folder; nothing if it does not see it."""
    versions: dict[str, str]
    authentication: str


# On the nodes ---------------------------------------------------------------------------------------------------------


def report(path: Path) -> Report:
    """What this process's node sees of the folder, and with what it would train."""
    token = path.read_text() if path.exists() else ""
    return Report(token, versions(), os.environ.get("RAY_AUTH_MODE", "disabled"))


def versions() -> dict[str, str]:
    """What must be the same everywhere for a run to have the same bits wherever it is trained."""
    packages = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
    return {"dpmac": __version__, "python": platform.python_version(), **packages}


def train(job: Job, out: Path, options: Options, stop: Path, patience: float) -> crew.Facts | None:
    """`crew.train`, with a note in the job's folder of where it is."""
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / NODE).write_text(ray.get_runtime_context().get_node_id())
    return crew.train(job, out, options, stop, patience)


# At the driver --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster(crew.Crew):
    """A cluster whose nodes were all asked."""

    asked: Asked
    nodes: dict[str, dict[str, float]]
    """Resources of the nodes, by name."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that every worker gets."""
    dead: dict[str, float] = field(default_factory=dict)
    """Since when nodes are dead."""

    @property
    def gpus(self) -> int:
        """GPUs of a job."""
        there = any(node.get("GPU", 0) >= 1 for node in self.nodes.values())
        return (1 if there else 0) if self.asked.gpus_per_job is None else self.asked.gpus_per_job

    @property
    def cpus(self) -> float:
        """Processors of a job: those of the smallest node, so that it is busy with one; 0 where a job has GPUs."""
        there = [node["CPU"] for node in self.nodes.values() if node.get("CPU", 0) >= 1]
        return 0 if self.gpus else min(there, default=1)

    @property
    def slots(self) -> int:
        """Jobs that can be trained at the same time."""
        name, each = ("GPU", self.gpus) if self.gpus else ("CPU", self.cpus)
        return sum(int(node.get(name, 0) // each) for node in self.nodes.values())

    @property
    def resources(self) -> dict[str, Any]:
        """Of the task of one job. One with GPUs gets a process of its own, which leaves no memory in use behind it."""
        return {
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "max_calls": 1 if self.gpus else 0,
            "max_retries": RETRIES,
            "scheduling_strategy": "SPREAD",
            "runtime_env": {"env_vars": self.environment},
        }

    @property
    def facts(self) -> crew.Facts:
        return {"nodes": self.nodes}

    def begin(self, job: Job, out: Path, options: Options, stop: Path) -> Any:
        (job.folder / NODE).unlink(missing_ok=True)
        task: Any = ray.remote(**self.resources)(train)
        return task.remote(job, out, options, stop, self.asked.patience)

    def stranded(self, pending: dict[Any, Job]) -> list[Any]:
        lost = gone(self.dead)
        found = [handle for handle, job in pending.items() if where(job) in lost]
        for handle in found:
            ray.cancel(handle, force=True)
        return found

    def ended(self, handles: list[Any], seconds: float, everything: bool = False) -> list[Any]:
        return ray.wait(handles, num_returns=len(handles) if everything else 1, timeout=seconds)[0]

    def outcome(self, handle: Any) -> crew.Facts | None:
        try:
            return ray.get(handle)
        except ray.exceptions.RayError as error:
            raise getattr(error, "cause", None) or error from None

    def close(self) -> None:
        ray.shutdown()


def gone(dead: dict[str, float]) -> set[str]:
    """Nodes that have been dead for longer than Ray needs to give their jobs to others; `dead` keeps since when."""
    now = time.monotonic()
    for node in ray.nodes():
        if not node["Alive"]:
            dead.setdefault(node["NodeID"], now)
    return {node for node, since in dead.items() if now - since > GRACE}


def where(job: Job) -> str:
    """The node on which a job is; nothing if it has not begun."""
    try:
        return (job.folder / NODE).read_text()
    except FileNotFoundError:
        return ""


def connect(out: Path, asked: Asked) -> Cluster:
    """The cluster, if it takes tasks from us alone and all of its nodes see the folder and have our versions."""
    try:
        ray.init(asked.address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except (ConnectionError, ray.exceptions.RayError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())
        hint = "; is RAY_AUTH_TOKEN, or the token in ~/.ray/auth_token, the cluster's?"
        raise BadInput(f"no Ray cluster can be used at {asked.address}: {said[:200]}{hint}") from None
    try:
        return checked(out, asked)
    except BaseException:
        ray.shutdown()
        raise


def checked(out: Path, asked: Asked) -> Cluster:
    """The cluster that this process is connected with, once every node has answered, also one that has just joined; one
    that dies meanwhile is none of it."""
    token, path = secrets.token_hex(16), out / f".token-{secrets.token_hex(4)}"
    store.write_aside(path, token.encode())
    answers: dict[str, Report | str] = {}
    try:
        while True:
            there = {name_of(node): node for node in ray.nodes() if node["Alive"]}
            cluster = Cluster(asked, {name: node["Resources"] for name, node in there.items()})
            require(cluster.gpus >= 0, f"gpus-per-job must be a whole number from 0, not {cluster.gpus}")
            cluster = dataclasses.replace(cluster, environment=environment(out, cluster.gpus > 0))
            new = there.keys() - answers.keys()
            if not new:
                break
            answers |= {name: ask(there[name], path, cluster.environment) for name in new}
    finally:
        path.unlink()
    refuse({name: answers[name] for name in there}, token, out, asked.insecure)
    require(cluster.slots > 0, f"no node has {cluster.gpus or cluster.cpus} {'GPUs' if cluster.gpus else 'processors'}")
    return cluster


def name_of(node: Mapping[str, Any]) -> str:
    """A node for people: its name or address, and the beginning of its identity."""
    return f"{node['NodeName'] or node['NodeManagerAddress']} ({node['NodeID'][:8]})"


def environment(out: Path, gpus: bool) -> dict[str, str]:
    """Variables of every worker: what ours says about JAX, a shared cache of compiled programs, and no search for GPUs
    where a job has none."""
    ours = {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_"))}
    ours.pop("JAX_PLATFORMS", None)
    shared = {"JAX_COMPILATION_CACHE_DIR": str(out.resolve() / "cache")}
    return {**shared, **ours, **({} if gpus else {"JAX_PLATFORMS": "cpu"})}


def ask(node: Mapping[str, Any], path: Path, variables: dict[str, str]) -> Report | str:
    """What a node says of itself, or why it says nothing."""
    pinned: Any = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task: Any = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=pinned, runtime_env={"env_vars": variables})(
        report
    )
    ends = time.monotonic() + ANSWER
    while True:
        try:
            return ray.get(task.remote(path.resolve()), timeout=ANSWER)
        except ray.exceptions.RayError as error:
            alive = any(other["Alive"] for other in ray.nodes() if other["NodeID"] == node["NodeID"])
            if not alive or isinstance(error, ray.exceptions.RayTaskError) or time.monotonic() > ends:
                return (str(error).strip().splitlines() or [type(error).__name__])[-1]
            time.sleep(crew.POLL)  # its process died, and perhaps the node with it, which takes a while to be known


def refuse(reports: Mapping[str, Report | str], token: str, out: Path, insecure: bool) -> None:
    """Bad input that names the first node that cannot train what others do, or that anybody may send tasks to."""
    ours = versions()
    for name, said in reports.items():
        if isinstance(said, str):
            raise BadInput(f"node {name} does not answer: {said}")
        require(said.token == token, f"node {name} does not see {out}; all nodes need it, at the same path")
        other = [f"{key} {said.versions.get(key)} instead of {value}" for key, value in ours.items()
                 if said.versions.get(key) != value]  # fmt: skip
        require(not other, f"node {name} has {', '.join(other)}")
        require(
            insecure or said.authentication == "token",
            f"node {name} takes tasks from anybody who can reach it; start the cluster with RAY_AUTH_MODE=token, or "
            "say --insecure",
        )
