"""The scheduler's jobs in several processes at once, on this machine or on others: what all such engines share.

The driver plans and watches; it trains nothing. Another process does with a job what the scheduler does in one:
`prepare`, `train_folder` with `prepare_end` beside it, `finish`. Checkpoints, metrics and finished runs go through the
folder of the results, which all processes see, and the driver reads from there how far everybody is.
"""

import abc
import contextlib
import dataclasses
import math
import os
import platform
import secrets
import shutil
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dpmac.config import BadInput
from dpmac.results import records, store
from dpmac.runner import finish, population, schedule
from dpmac.runner.population import Progress
from dpmac.runner.schedule import Job, Options, Status
from dpmac.runner.train import Program

POLL = 0.5
"""Seconds between two looks at how far the jobs are."""
FAREWELL = 60.0
"""Seconds that jobs have to save and end when the driver is interrupted."""
PATIENCE = 120.0
"""Seconds after which a job's folder that is held, and in which nothing happens, is given up and a copy trained."""

Facts = dict[str, Any]
"""What training a job took."""


# In a process that trains ---------------------------------------------------------------------------------------------


def train(job: Job, out: Path, options: Options, stop: Path, patience: float = PATIENCE) -> Facts | None:
    """Train and finish one job, and say what it took; nothing if it was asked to stop before the end.

    A folder that another process holds is waited for. That may be one on a node that is taken for dead and is not: when
    it has done nothing for so long, a copy of the folder is trained, and the other one is not touched.
    """
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


def attempt(job: Job, out: Path, options: Options, stop: Path) -> Facts | None:
    """`train` for a folder that nobody holds."""
    if all(records.finished(out / "runs" / name) for name in job.names.values()):
        shutil.rmtree(job.folder, ignore_errors=True)  # a process was killed while it did, or still does
        return {}
    compiled, trained = schedule.prepare(job, options), 0.0
    with ThreadPoolExecutor(1) as beside, contextlib.closing(options.train(job.folder)) as pieces:
        scorers = beside.submit(schedule.prepare_end, job, options)
        for piece in pieces:
            trained += piece.seconds
            if stop.exists() and piece.step < piece.steps:
                return None
        scorers.result()
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


class Crew(abc.ABC):
    """Processes that train jobs at the same time."""

    @property
    @abc.abstractmethod
    def slots(self) -> int:
        """Jobs that can be trained at the same time."""

    @property
    def facts(self) -> Facts:
        """What `slices.json` says of it."""
        return {}

    @abc.abstractmethod
    def begin(self, job: Job, out: Path, options: Options, stop: Path) -> Any:
        """Have a process `train` this, now or when one is free; a handle of that."""

    @abc.abstractmethod
    def ended(self, handles: list[Any], seconds: float, everything: bool = False) -> list[Any]:
        """Those that have ended, once one of them has, or everything; at the latest after so many seconds."""

    @abc.abstractmethod
    def outcome(self, handle: Any) -> Facts | None:
        """What `train` returned, or an exception: its own, or one that says how its process ended."""

    def stranded(self, pending: dict[Any, Job]) -> list[Any]:
        """Let go of handles whose processes are gone and will not say so: these, whose jobs are begun again."""
        return []

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of all processes."""

    def work(self, out: Path, jobs: list[Job], options: Options) -> Generator[Status, None, None]:
        """As `schedule.work`, in all processes at once; what takes longest begins first.

        A job of bad input, or one whose processes died too often, is named when all others are done.
        """
        watch, stop = schedule.Watch(), out / f".stop-{secrets.token_hex(4)}"
        (out / "runs").mkdir(parents=True, exist_ok=True)
        plain = dataclasses.replace(options, time_limit=math.inf, after_each=nothing)
        order = sorted(range(len(jobs)), key=lambda index: -jobs[index].work)
        pending = {self.begin(jobs[index], out, plain, stop): index for index in order}
        shares, shown, failures = [0.0] * len(jobs), [(-1, -1)] * len(jobs), []
        total = sum(job.work for job in jobs)

        def status(index: int, piece: Progress, trained: bool) -> Status:
            share = sum(job.work * part for job, part in zip(jobs, shares, strict=True)) / total
            return Status(jobs[index], index, len(jobs), piece, share, *watch.read(share), trained)

        try:
            while pending:
                for handle in self.ended(list(pending), POLL):
                    index = pending.pop(handle)
                    try:
                        facts = self.outcome(handle)
                    except Exception as error:
                        failures.append(named(jobs[index], error))
                        continue
                    if facts is not None:
                        shares[index] = 1.0
                        shutil.rmtree(jobs[index].folder, ignore_errors=True)  # where a copy of it was trained
                        options.after_each()
                        yield status(index, finished(out, jobs[index]), True)
                for handle in self.stranded({handle: jobs[index] for handle, index in pending.items()}):
                    index = pending.pop(handle)
                    pending[self.begin(jobs[index], out, plain, stop)] = index
                for index in pending.values():
                    piece, part = standing(jobs[index])
                    if piece is not None and shown[index] != (piece.step, len(piece.rows)):
                        shares[index], shown[index] = part, (piece.step, len(piece.rows))
                        yield status(index, piece, False)
                if time.monotonic() - watch.began >= options.time_limit:
                    stop.touch()
            if failures:
                raise failures[0]
            if not stop.exists():  # every folder has been held since, so nobody looks for an earlier wish to stop
                for left in out.glob(".stop-*"):
                    left.unlink()
        finally:
            stop.touch()
            if not pending or len(self.ended(list(pending), FAREWELL, everything=True)) == len(pending):
                stop.unlink()  # else it stays for those that have not looked yet


def nothing() -> None:
    """What a process does after its job."""


def named(job: Job, cause: BaseException) -> Exception:
    """A failure with the name of the job; bad input stays bad input."""
    first = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    text = f"{job.folder.name}: {first}"
    return BadInput(text) if isinstance(cause, BadInput) else RuntimeError(f"{text} ({type(cause).__name__})")


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


def finished(out: Path, job: Job) -> Progress:
    """Where a job stands when its runs have got their folders."""
    rows = [row for name in job.names.values() for row in store.read_metrics(out / "runs" / name)]
    step = max(row.step for row in rows)
    return Progress(step, step, 0, 1, [row for row in rows if row.step == step], 0.0)
