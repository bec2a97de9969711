"""All runs of an experiment, population after population, with the device never waiting for a compiler.

Each population is a job: a folder with a configuration goes in, folders of finished runs come out. Nothing but the
folder is shared between jobs, so that `cluster` runs the same `prepare`, `population.train_folder` and `finish` on many
machines. Here one process does: programs are traced one after another, in the order of training, compiled side
by side in threads, and trained as they are ready; finished teams are scored and written while the next ones train.
Programs that score are compiled last.

    OUT/runs/NAME/      finished runs
    OUT/jobs/NAME/      populations in training
    OUT/slices.json     sessions of work: seconds, device, versions
"""

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillAtWork
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpmac import __version__, experiments
from dpmac.config import Budget, Member, RunConfig, require, to_json
from dpmac.results import records, store
from dpmac.runner import devices, finish, noise, population, train
from dpmac.runner.population import Progress
from dpmac.runner.train import Program

TRACING = threading.Lock()
"""Tracing holds Python's lock anyway: one at a time, the first in order is ready first."""


Wanted = Mapping[str, RunConfig] | Sequence[tuple[str, RunConfig]]
"""Configurations by the name of their population, of which a sequence may have several parts."""


class Job(NamedTuple):
    """A population that has still to be trained, or to be finished."""

    folder: Path
    config: RunConfig
    names: dict[Member, str]
    """Of the runs."""

    @property
    def work(self) -> float:
        """Rows that its updates go through, which is about what training costs."""
        program = Program.of(self.config)
        updates = program.iterations * program.learner.updates(program.rollout)
        return len(self.names) * updates * devices.rows_of(program)


class Status(NamedTuple):
    """Where the whole work stands after an evaluation."""

    job: Job
    index: int
    jobs: int
    piece: Progress
    share: float
    """Of the work that was still to be done when this session began."""
    seconds: float
    left: float | None
    """Seconds, once two evaluations tell how fast it goes; compilation before the first is left out."""
    trained: bool
    """Whether the job is trained to its end."""


class Watch:
    """Measures how long the work took so far, and estimates the rest."""

    def __init__(self) -> None:
        self.began, self.first = time.monotonic(), (0.0, 0.0)

    def read(self, share: float) -> tuple[float, float | None]:
        """Seconds that have passed, and that are left after this share of the work."""
        seconds = time.monotonic() - self.began
        self.first = self.first if any(self.first) else (seconds, share)
        then, before = self.first
        return seconds, (seconds - then) * (1 - share) / (share - before) if share > before else None


@dataclasses.dataclass(frozen=True)
class Options:
    """How to go about it."""

    final_episodes: int
    time_limit: float = float("inf")
    """Seconds after which to stop, between two evaluations, with everything saved."""
    checkpoint_seconds: float = 300.0
    most_at_once: int = 0
    compilers: int = 0
    """Programs compiled side by side; 0: half of the cores."""
    after_each: Callable[[], Any] = lambda: None
    """Called when the runs of a population have got their folders, beside training."""
    finite: bool = True
    """Whether a run that does not stay finite ends the session; in a sweep it is a point that is no good."""

    def train(self, folder: Path) -> Generator[Progress, None, None]:
        """Train the population of a folder."""
        return population.train_folder(folder, self.checkpoint_seconds, self.most_at_once, self.finite)


# Planning -------------------------------------------------------------------------------------------------------------


def plan(out: Path, wanted: Wanted, slots: int = 1) -> list[Job]:
    """Jobs for the runs that are wanted and not finished: those begun, then the smallest, while others compile.

    Where there are fewer than can be trained at the same time, they are split by their seeds.
    """
    for left in out.glob("runs/.*"):  # by a process that was killed while it wrote them
        shutil.rmtree(left, ignore_errors=True)
    done = records.read(out).runs if out.exists() else {}
    begun, fresh = [], []
    for name, config in wanted.items() if isinstance(wanted, Mapping) else wanted:
        config = train.complete(config)
        names = experiments.run_names(name, config)
        members = {run: member for member, run in names.items()}
        for run, record in done.items():
            if run in members:
                check_same(out, train.complete(record.config), config.alone(members[run]))
            elif run in experiments.run_names(name, record.config).values():  # of another seed or budget
                check_same(out, train.complete(record.config), config)
        missing = {member: run for member, run in names.items() if run not in done}
        for job in jobs_begun(out, name):
            check_same(out, train.complete(job.config), config)
            if missing.keys() & job.names.keys():
                if job not in begun:  # parts of one population may have been begun together
                    begun.append(job)
                missing = {member: run for member, run in missing.items() if member not in job.names}
            elif all(run in done for run in job.names.values()):
                shutil.rmtree(job.folder)  # a process was killed between its last run's folder and this
        fresh += [(name, part) for part in products(config, missing)]
    parts = [new_job(out, name, part) for name, part in split(fresh, slots - len(begun))]
    return begun + sorted(parts, key=lambda job: job.work)


def split(parts: list[tuple[str, RunConfig]], slots: int) -> list[tuple[str, RunConfig]]:
    """Populations cut in two by their seeds, the one of most runs first, until there are so many or nothing is left to
    cut."""
    parts = list(parts)
    while len(parts) < slots and any(len(config.seeds) > 1 for _, config in parts):
        largest = max((part for part in parts if len(part[1].seeds) > 1), key=lambda part: len(part[1].members))
        name, config = largest
        middle = (len(config.seeds) + 1) // 2
        halves = [
            (name, dataclasses.replace(config, seeds=seeds)) for seeds in (config.seeds[:middle], config.seeds[middle:])
        ]
        parts[parts.index(largest) : parts.index(largest) + 1] = halves
    return parts


def check_same(out: Path, found: RunConfig, wanted: RunConfig) -> None:
    """Bad input where a folder holds runs of the same names that were trained otherwise."""

    def rest(config: RunConfig) -> Any:
        return {key: value for key, value in to_json(config).items() if key not in ("settings", "budgets", "seeds")}

    differing = [key for key, value in rest(wanted).items() if rest(found)[key] != value]
    require(
        not differing,
        f"{out} holds runs of {found.task}, {found.method} with another {', '.join(differing)}; choose another --out",
    )


def new_job(out: Path, name: str, config: RunConfig) -> Job:
    folder = out / "jobs" / f"{name}.{store.digest(config)[:8]}"
    return Job(folder, config, experiments.run_names(name, config))


def jobs_begun(out: Path, name: str) -> list[Job]:
    """Jobs of a population that a session before this one has begun."""
    folders = [path for path in sorted((out / "jobs").glob(f"{name}.*")) if (path / "config.json").exists()]
    configs = [store.load_config(folder) for folder in folders]
    return [
        Job(folder, config, experiments.run_names(name, config))
        for folder, config in zip(folders, configs, strict=True)
    ]


def products(config: RunConfig, missing: Iterable[Member]) -> list[RunConfig]:
    """Configurations that cover exactly the missing runs: budgets that lack the same seeds go together, and then
    settings that lack the same budgets and seeds."""
    lacking = set(missing)
    parts: dict[tuple[tuple[Budget, ...], tuple[int, ...]], list[dict[str, float]]] = {}
    for settings in config.settings:
        budgets: dict[tuple[int, ...], list[Budget]] = {}
        for budget in config.budgets:
            own = dataclasses.replace(config, settings=(settings,), budgets=(budget,)).members
            seeds = tuple(member.seed for member in own if member in lacking)
            if seeds:
                budgets.setdefault(seeds, []).append(budget)
        for seeds, group in budgets.items():
            parts.setdefault((tuple(group), seeds), []).append(settings)
    return [
        dataclasses.replace(config, settings=tuple(sets), budgets=budgets, seeds=seeds)
        for (budgets, seeds), sets in parts.items()
    ]


# Doing ----------------------------------------------------------------------------------------------------------------


def prepare(job: Job, options: Options) -> float:
    """Create a job's folder if it is new, and compile the programs that train it; seconds that this took.

    JAX keeps what is compiled here, and training finds it there.
    """
    clock, lowered = time.monotonic(), []
    with TRACING:
        program, parts = parts_of(job, options)
        for part in parts:
            keys, budgets = population.keys_of(part), [run.budget for run in part]
            shapes = jax.eval_shape(partial(population.start, program), keys)
            across = devices.spread(noise.scales_of(job.config, program, budgets))
            states = devices.spread_shapes(shapes, across.value.sharding)
            tables = devices.spread(noise.tables_of(job.config, program, budgets, 0.0))
            settings = devices.spread(population.settings_of(program, part))
            lowered += [
                population.start.lower(program, keys),
                population.advance.lower(program, states, tables, across, settings, jnp.asarray(1)),
            ]
    if not (job.folder / "config.json").exists():
        population.create(job.folder, job.config)
    for item in lowered:
        item.compile()
    return time.monotonic() - clock


def prepare_end(job: Job, options: Options) -> None:
    """Compile the programs that score a job, which nobody needs before it is trained."""
    lowered = []
    with TRACING:
        program, parts = parts_of(job, options)
        for part in parts:
            scale = noise.scales_of(job.config, program, [run.budget for run in part])
            shapes = jax.eval_shape(partial(population.start, program), population.keys_of(part))
            teams = jax.eval_shape(jax.vmap(program.learner.team), shapes.learner)
            lowered += [
                population.scores.lower(program, teams, scale, options.final_episodes),
                finish.watch.lower(program, teams, scale),
            ]
    for item in lowered:
        item.compile()


def parts_of(job: Job, options: Options) -> tuple[Program, list[list[population.Run]]]:
    """A job's program, and runs that are trained side by side, of each number of them once."""
    program, runs = population.check(job.config), population.runs_of(job.config)
    size = population.recorded_size(job.folder) or devices.side_by_side(program, len(runs), options.most_at_once)
    return program, list({len(group): group for group in population.groups_of(runs, size)}.values())


def work(out: Path, jobs: list[Job], options: Options) -> Generator[Status, None, None]:
    """Do the jobs, with a `Status` after each evaluation; ends early, everything saved, when the time is up.

    Whoever plans and works holds `store.locked(out)` from before the one to after the other.
    """
    watch = Watch()
    compilers = options.compilers or devices.half_of_the_cores()
    (out / "runs").mkdir(parents=True, exist_ok=True)
    total = sum(job.work for job in jobs)
    done, endings, pieces = 0.0, [], None

    def left() -> float:
        return options.time_limit - (time.monotonic() - watch.began)

    def end(job: Job, facts: dict[str, Any], scorers: Future[None]) -> None:
        with contextlib.suppress(CancelledError):  # the time is up: `finish` compiles them
            scorers.result()
        finish.finish(job.folder, out / "runs", job.names, options.final_episodes, facts)
        options.after_each()

    pool = ThreadPoolExecutor(compilers)
    with ThreadPoolExecutor(1) as finisher:
        ready = [pool.submit(prepare, job, options) for job in jobs]
        scorers = [pool.submit(prepare_end, job, options) for job in jobs]
        try:
            for index, job in enumerate(jobs):
                compiled = wait(ready[index], left())
                if compiled is None or left() <= 0:
                    return
                trained = 0.0
                pieces = options.train(job.folder)
                for piece in pieces:
                    trained += piece.seconds
                    part = (piece.group + piece.step / piece.steps) / piece.groups
                    share = (done + job.work * part) / total
                    last = piece.step == piece.steps and piece.group == piece.groups - 1
                    yield Status(job, index, len(jobs), piece, share, *watch.read(share), last)
                    if left() <= 0 and piece.step < piece.steps:
                        return
                done += job.work
                facts = {"train_seconds": round(trained, 1), "compile_seconds": round(compiled, 1), **device()}
                endings.append(finisher.submit(end, job, facts, scorers[index]))
                for ending in endings:
                    if ending.done():
                        ending.result()
        finally:
            if pieces is not None:
                pieces.close()  # which saves where it stands
            pool.shutdown(wait=False, cancel_futures=True)  # a compiler cannot be stopped: the process ends after it
            for ending in endings:
                ending.result()


def wait(ready: Future[float], seconds: float) -> float | None:
    """The result, or nothing if the time is up before."""
    try:
        return ready.result(None if seconds == float("inf") else max(0.0, seconds))
    except StillAtWork:
        return None


def device() -> dict[str, Any]:
    """What trains."""
    devices = jax.local_devices()
    return {"device": devices[0].device_kind, "devices": len(devices)}


def machine() -> dict[str, Any]:
    """What a result depends on besides its configuration."""
    packages = ("jax", "jaxlib", "equinox", "optax", "numpy", "dp-accounting")
    return {
        **device(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "versions": {
            "dpmac": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
    }


def version(package: str) -> str:
    """The version of an installed package; of one that merely lies on the path it cannot be told."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class Slice:
    """The record of one session of work in slices.json: written as it goes, so that a kill loses seconds of it."""

    def __init__(self, out: Path, command: str, **facts: Any):
        self.path = out / "slices.json"
        out.mkdir(parents=True, exist_ok=True)
        self.before = store.read_json(self.path) if self.path.exists() else []
        self.began, self.written = time.monotonic(), 0.0
        self.facts = {"command": command, "date": time.strftime("%Y-%m-%d", time.gmtime()), **machine(), **facts}

    def write(self, runs: int, every: float = 0.0) -> None:
        """Note the time so far and how many runs were trained to their end, unless it was noted just now."""
        now = time.monotonic()
        if now - self.written >= every:
            self.written = now
            entry = {**self.facts, "seconds": round(now - self.began, 1), "runs": runs}
            store.write_json(self.path, [*self.before, entry])

    @property
    def seconds(self) -> float:
        """Over all sessions."""
        return sum(item["seconds"] for item in self.before) + time.monotonic() - self.began
