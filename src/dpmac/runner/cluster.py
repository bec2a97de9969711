"""The scheduler's jobs on many machines: one Ray task a job, results on a filesystem that all of them see.

The driver plans and watches; it trains nothing. A task does what the scheduler does here with a job: `prepare`,
`train_folder`, `finish`. Checkpoints, metrics and finished runs go through the shared folder, never through Ray's
object store, and the driver reads from there how far everybody is. A task whose node dies is given to another node and
goes on from the last checkpoint.
"""

import contextlib
import dataclasses
import importlib.metadata
import logging
import math
import os
import platform
import secrets
import shutil
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dpmac import __version__
from dpmac.config import BadInput, require
from dpmac.results import records, store
from dpmac.runner import finish, population, schedule
from dpmac.runner.population import Progress
from dpmac.runner.schedule import Job, Options, Status
from dpmac.runner.train import Program

RETRIES = 3
"""How often a job is given to another process after one that died."""
POLL = 0.5
"""Seconds between two looks at how far the jobs are."""
ANSWER = 60.0
"""Seconds in which a node must answer whether it sees the folder."""
FAREWELL = 60.0
"""Seconds that jobs have to save and end when the driver is interrupted."""
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
    patience: float = 120.0
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


def train(job: Job, out: Path, options: Options, stop: Path, patience: float) -> dict[str, Any] | None:
    """Train and finish one job, and say what it took; nothing if it was asked to stop before the end.

    A folder that another process holds is waited for. That may be one on a node that is taken for dead and is not: when
    it has done nothing for so long, a copy of the folder is trained, and the other one is not touched.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / NODE).write_text(ray.get_runtime_context().get_node_id())
    seen, since = 0.0, time.monotonic()
    while not stop.exists():
        try:
            with store.locked(job.folder):  # asked before anything is traced, which takes its time
                pass
            return attempt(job, out, options, stop)
        except store.Held:
            now = changed(job.folder)
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > patience:
                job = job._replace(folder=copied(job.folder))
            time.sleep(1.0)
    return None


def attempt(job: Job, out: Path, options: Options, stop: Path) -> dict[str, Any] | None:
    """`train` for a folder that nobody holds."""
    if all(records.finished(out / "runs" / name) for name in job.names.values()):
        shutil.rmtree(job.folder)  # a process was killed while it did
        return {}
    compiled, trained = schedule.prepare(job, options), 0.0
    with contextlib.closing(
        population.train_folder(job.folder, options.checkpoint_seconds, options.most_at_once)
    ) as pieces:
        for piece in pieces:
            trained += piece.seconds
            if stop.exists() and piece.step < piece.steps:
                return None
    facts = {"train_seconds": round(trained, 1), "compile_seconds": round(compiled, 1), **schedule.device()}
    facts |= {"node": platform.node(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES") or None}
    finish.finish(job.folder, out / "runs", job.names, options.final_episodes, facts)
    return facts


def changed(folder: Path) -> float:
    """When something last happened in a job's folder."""
    return max((path.stat().st_mtime for path in (folder, folder / "metrics.csv") if path.exists()), default=0.0)


def copied(folder: Path) -> Path:
    """A copy of a job's folder beside it."""
    copy = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}")
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("lock", store.ASIDE))
    return copy


# At the driver --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """A cluster whose nodes were all asked."""

    asked: Asked
    nodes: dict[str, dict[str, float]]
    """Resources of the nodes, by name."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that every worker gets."""

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

    def close(self) -> None:
        ray.shutdown()

    def work(self, out: Path, jobs: list[Job], options: Options) -> Generator[Status, None, None]:
        """As `schedule.work`, on all nodes at once.

        A job of bad input, or one whose processes died too often, is named when all others are done.
        """
        began, stop = time.monotonic(), out / f".stop-{secrets.token_hex(4)}"
        (out / "runs").mkdir(parents=True, exist_ok=True)
        plain = dataclasses.replace(options, time_limit=math.inf, after_each=nothing)
        task: Any = ray.remote(**self.resources)(train)

        def given(index: int) -> Any:
            (jobs[index].folder / NODE).unlink(missing_ok=True)
            return task.remote(jobs[index], out, plain, stop, self.asked.patience)

        pending, dead = {given(index): index for index in range(len(jobs))}, {}
        shares, shown, failures = [0.0] * len(jobs), [(-1, -1)] * len(jobs), []
        total = sum(job.work for job in jobs)

        def status(index: int, piece: Progress, trained: bool) -> Status:
            share = sum(job.work * part for job, part in zip(jobs, shares, strict=True)) / total
            seconds = time.monotonic() - began
            return Status(jobs[index], index, len(jobs), piece, share, seconds, seconds * (1 - share) / share, trained)

        try:
            while pending:
                ready, _ = ray.wait(list(pending), timeout=POLL)
                for done in ready:
                    index = pending.pop(done)
                    try:
                        facts = ray.get(done)
                    except ray.exceptions.RayError as error:
                        failures.append(named(jobs[index], error))
                        continue
                    if facts is not None:
                        shares[index] = 1.0
                        shutil.rmtree(jobs[index].folder, ignore_errors=True)  # where a copy of it was trained
                        options.after_each()
                        yield status(index, ended(out, jobs[index]), True)
                lost = gone(dead)
                for held, index in [*pending.items()]:
                    if where(jobs[index]) in lost:
                        ray.cancel(held, force=True)
                        pending[given(index)] = pending.pop(held)
                for index in pending.values():
                    piece, part = standing(jobs[index])
                    if piece is not None and shown[index] != (piece.step, len(piece.rows)):
                        shares[index], shown[index] = part, (piece.step, len(piece.rows))
                        yield status(index, piece, False)
                if time.monotonic() - began >= options.time_limit:
                    stop.touch()
            if failures:
                raise failures[0]
        finally:
            stop.touch()
            if pending:
                ray.wait(list(pending), num_returns=len(pending), timeout=FAREWELL)
            stop.unlink()


def nothing() -> None:
    """What a task does after its job."""


def named(job: Job, error: ray.exceptions.RayError) -> Exception:
    """A failure with the name of the job; bad input stays bad input."""
    cause = getattr(error, "cause", None) or error
    first = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    text = f"{job.folder.name}: {first}"
    return BadInput(text) if isinstance(cause, BadInput) else RuntimeError(f"{text} ({type(cause).__name__})")


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


def standing(job: Job) -> tuple[Progress | None, float]:
    """How far a job in training is, as its folder tells, and the share of it that is done."""
    folders = [path for path in job.folder.parent.glob(f"{job.folder.name}*") if (path / "metrics.csv").exists()]
    try:
        rows = store.read_metrics(max(folders, key=changed)) if folders else []
    except (BadInput, OSError):  # it is just being written, or removed
        rows = []
    if not rows:
        return None, 0.0
    program = Program.of(job.config)
    evaluations = len(job.names) * len(population.evaluations_of(program))
    step = rows[-1].step
    last = [row for row in rows if row.step == step]
    part = sum(row.name == "return" for row in rows) / evaluations
    return Progress(step, program.steps, 0, 1, last, 0.0), part


def ended(out: Path, job: Job) -> Progress:
    """Where a job stands when its runs have got their folders."""
    rows = [row for name in job.names.values() for row in store.read_metrics(out / "runs" / name)]
    step = max(row.step for row in rows)
    return Progress(step, step, 0, 1, [row for row in rows if row.step == step], 0.0)


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
            time.sleep(POLL)  # its process died, and perhaps the node with it, which takes a while to be known


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
