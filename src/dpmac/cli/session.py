"""Many runs as one session of a scheduler's work: what may be asked of it, what a person sees, and what is noted."""

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from dpmac.cli.progress import Interrupt, check_loudness, check_seconds, clock
from dpmac.config import BadInput, RunConfig, require, whole
from dpmac.experiments import SCALES, ScaleName
from dpmac.results import records

if TYPE_CHECKING:
    from dpmac.runner.crew import Crew
    from dpmac.runner.schedule import Slice, Status, Wanted


@dataclass(frozen=True, kw_only=True)
class Work:
    """Options of every command that trains many runs."""

    finite: ClassVar[bool] = True  # that of `schedule.Options`
    scale: ScaleName = "quick"
    """smoke: takes seconds. quick: for a laptop without an accelerator. paper: a million steps per run."""
    seeds: int = 0
    """Number of seeds; 0: that of the scale, which is five for paper."""
    first_seed: int = 0
    """First seed; the others are consecutive."""
    time_limit: float = float("inf")
    """Stop after this many seconds, between two evaluations. Run the same command again to continue."""
    export: Path | None = None
    """Also write all finished results into one compact file, NAME.json.gz."""
    checkpoint_seconds: float = 300.0
    """Seconds between checkpoints of the population in training."""
    most_at_once: int = 0
    """Largest number of runs side by side; 0: as many as fit in memory."""
    compilers: int = 0
    """Programs compiled at the same time; 0: half of the cores."""
    processes: int = 1
    """Populations trained at the same time on this machine, each in its own process. More than 1 can make better use of
    a large GPU or of many cores."""
    engine: Literal["local", "ray"] = "local"
    """local: this machine. ray: the nodes of a Ray cluster, which must all see the folder of the results (extra:
    ray)."""
    address: str = "auto"
    """HOST:PORT of the Ray head; auto: RAY_ADDRESS, or a cluster on this machine."""
    gpus_per_job: int | None = None
    """GPUs for each population; by default 1 if the cluster has any."""
    insecure: bool = False
    """Also use a Ray cluster that accepts tasks from anyone who can reach it."""
    quiet: bool = False
    """Print no progress, only the result."""
    verbose: bool = False
    """Print a line after every evaluation, and a traceback for unexpected errors."""
    json: bool = False
    """Print the result as JSON."""

    def check(self) -> None:
        """Bad input unless all of this can be followed."""
        check_loudness(self.quiet, self.verbose)
        check_seconds(self.checkpoint_seconds)
        require(whole(self.seeds, 0, 10_000), f"seeds must be a whole number from 0 to 10,000, not {self.seeds}")
        require(whole(self.first_seed, 0, 2**31), f"first-seed must be a whole number from 0, not {self.first_seed}")
        for name in ("most_at_once", "compilers"):
            value = getattr(self, name)
            require(value >= 0, f"{name.replace('_', '-')} must be a whole number from 0, not {value}")
        for name in ("address", "gpus_per_job", "insecure"):
            unasked = getattr(self, name) == getattr(Work, name)
            require(self.engine == "ray" or unasked, f"--{name.replace('_', '-')} is for --engine ray")
        require(self.gpus_per_job is None or self.gpus_per_job >= 0, "gpus-per-job must be a whole number from 0")
        require(1 <= self.processes <= 64, f"processes must be a whole number from 1 to 64, not {self.processes}")
        require(
            self.processes == 1 or self.engine == "local", "processes are of the engine local; Ray has slots of its own"
        )
        require(self.time_limit > 0, f"time-limit must be above 0, not {self.time_limit}")
        named = self.export is None or self.export.name.endswith(".json.gz")
        require(named, f"an export is named NAME.json.gz, not {self.export}")
        require(
            self.compilers == 0 or (self.processes == 1 and self.engine == "local"),
            "each process of --processes, and each job of Ray, compiles by itself: --compilers is for one process",
        )
        if self.export is not None:
            above = next(path for path in self.export.absolute().parents if path.exists())
            require(above.is_dir(), f"{self.export} cannot be written: {above.name} is a file")

    def seeded(self, config: RunConfig) -> RunConfig:
        """A configuration with as many seeds, from the first that is asked for."""
        return dataclasses.replace(config, seeds=tuple(seed + self.first_seed for seed in config.seeds))

    def results(self, out: Path) -> records.Results:
        """All finished results so far, written into one file where asked."""
        from dpmac.runner.statement import check_records

        found = records.read(out)
        check_records(found)
        if self.export is not None:
            records.pack(found, self.export)
        return found


def noted(name: str, argv: Sequence[str]) -> str:
    """A command as others may see it: of absolute paths, which are about this machine, the last name alone.

    >>> noted("reproduce", ["all", "--out", "/elsewhere/results", "--export=/elsewhere/all.json.gz"])
    'dpmac reproduce all --out results --export=all.json.gz'
    """
    words = []
    for word in argv:
        option, equals, value = word.rpartition("=")
        words.append(option + equals + (Path(value).name if Path(value).is_absolute() else value))
    return " ".join(["dpmac", name, *words])


class Worked(NamedTuple):
    """What a session has done."""

    runs: int
    """Trained to their end."""
    interrupted: bool
    """By Ctrl-C, which ends after the piece in hand with everything saved."""


def work_through(out: Path, wanted: "Wanted", options: Work, command: str) -> Worked:
    """Train what is missing of these populations, in a session of work that is noted in slices.json."""
    from dpmac.runner import schedule

    how = schedule.Options(
        SCALES[options.scale].final_episodes,
        options.time_limit,
        options.checkpoint_seconds,
        options.most_at_once,
        options.compilers,
        (lambda: options.results(out)) if options.export else (lambda: None),
        options.finite,
    )
    with contextlib.ExitStack() as stack:
        work, slots, facts = schedule.work, 1, {}
        if options.engine == "ray" or options.processes > 1:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))  # where Ray says that a node has died
            crew = stack.enter_context(contextlib.closing(hire(out, options)))
            work, slots, facts = crew.work, crew.slots, crew.facts
        jobs = schedule.plan(out, wanted, slots)
        session = schedule.Slice(out, command, **facts)
        return follow(work(out, jobs, how), options, session if jobs else None)


def hire(out: Path, options: Work) -> "Crew":
    """Processes that train at the same time: on this machine, or of the Ray cluster that these options name."""
    import jax

    jax.config.update("jax_platforms", "cpu")  # whoever only plans and watches takes no device
    if options.engine == "local":
        from dpmac.runner.processes import Processes

        return Processes(options.processes)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "error")
    try:
        from dpmac.runner import cluster
    except ImportError as error:
        raise BadInput(f"the engine ray needs Ray: pip install ray ({error})") from None
    return cluster.connect(out, cluster.Asked(options.address, options.gpus_per_job, options.insecure))


def follow(statuses: Generator["Status", None, None], options: Work, session: "Slice | None") -> Worked:
    """Do the work, and note and show how far it is."""
    trained, shown, quiet = 0, 0.0, options.quiet or options.json
    with Interrupt() as interrupt:
        try:
            for status in statuses:
                trained += len(status.job.names) if status.trained else 0
                if session is not None:
                    session.write(trained, every=5.0)
                if not quiet and (status.trained or options.verbose or time.monotonic() - shown > 10):
                    shown = time.monotonic()
                    print(standing(status), file=sys.stderr, flush=True)
                if interrupt.asked:
                    break
        finally:
            statuses.close()
            if session is not None:
                session.write(trained)
    return Worked(trained, interrupt.asked)


def standing(status: "Status") -> str:
    """Where a scheduler's work stands, in a line."""
    returns = [row.value for row in status.piece.rows if row.name == "return"]
    rest = "" if status.left is None else f", {clock(status.left)} left"
    return (
        f"{status.share:6.1%}  {clock(status.seconds)} gone{rest}   "
        f"{status.index + 1}/{status.jobs} {status.job.folder.name}: {status.piece.step:,} steps, "
        f"returns {min(returns):.1f} to {max(returns):.1f}"
    )
