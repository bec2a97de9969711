"""`dpmac frontier`: return against exact ε for every channel and schedule."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from dpmac.cli import emit, parse
from dpmac.config import require
from dpmac.experiments import SCALES, ScaleName
from dpmac.frontiers import EPSILONS, LINES, populations

EXAMPLE = "dpmac frontier ccn --scale paper --out frontiers/ccn --time-limit 540"


@dataclass(frozen=True)
class Frontier:
    """Train every channel and schedule at the same exact budgets of a whole episode, with free messages and silence
    beside them, and show what each of them gets through. What is finished is not trained again; what was interrupted
    goes on. Writes OUT/frontier.json, frontier.svg and frontier.png."""

    task: tyro.conf.Positional[str]
    """A task by name, or your own as package.module:Name."""
    out: Path | None = None
    """Folder for the runs and what is made of them, one for each task; by default frontiers/TASK."""
    scale: ScaleName = "quick"
    """smoke: seconds. quick: a laptop without an accelerator. paper: a million steps a run."""
    epsilon: tuple[float, ...] = EPSILONS
    """Budgets of an episode, at δ = 1e-4."""
    seeds: int = 0
    """Seeds of each run; 0: those of the scale, five at the paper's."""
    lines: tuple[str, ...] = tuple(LINES)
    """Only these channels and schedules."""
    set: tuple[str, ...] = ()
    """Options of the task, as key=value."""
    skip_examination: bool = False
    """Only train; without this the same command then lets an eavesdropper listen, and finds out where symbols lose."""
    audit: int = 0
    """Also audit every private agent of every team with so many transcripts; 10000 come close to ε, but for one symbol
    at ε = 10 it takes 100000."""
    page: Path | None = None
    """Also put the table and the picture into this page (NAME.md), between its marks for the task."""
    time_limit: float = float("inf")
    """Stop after so many seconds, between two evaluations; the same command goes on from there."""
    export: Path | None = None
    """Also write all finished results into this one compact file, NAME.json.gz."""
    checkpoint_seconds: float = 300.0
    """Time between checkpoints of the population in training."""
    most_at_once: int = 0
    """Runs trained side by side; 0: as many as fit in memory."""
    compilers: int = 0
    """Programs compiled side by side; 0: half of the cores."""
    quiet: bool = False
    """No progress, only the result."""
    verbose: bool = False
    """A line after every evaluation, and a traceback if something breaks."""
    json: bool = False
    """Print the result as JSON."""

    @property
    def home(self) -> Path:
        """Where everything is written."""
        return self.out or Path("frontiers") / self.task.replace(":", ".")


def run(argv: Sequence[str]) -> None:
    options = parse(Frontier, argv, "dpmac frontier", EXAMPLE)
    wanted = wanted_of(options)
    from dpmac.cli import progress
    from dpmac.results import store

    progress.use_cache()
    with store.locked(options.home):
        interrupted = trace(options, wanted, "dpmac frontier " + " ".join(argv))
    if interrupted:
        raise KeyboardInterrupt


def trace(options: Frontier, wanted: dict[str, Any], command: str) -> bool:
    """Train and examine what is missing, and show all there is; whether Ctrl-C came."""
    from dpmac.cli import session
    from dpmac.results import records, store
    from dpmac.runner import frontier, schedule

    begun, out = time.monotonic(), options.home
    jobs = schedule.plan(out, wanted)
    how = schedule.Options(
        SCALES[options.scale].final_episodes,
        options.time_limit,
        options.checkpoint_seconds,
        options.most_at_once,
        options.compilers,
        lambda: export(options),
    )
    worked = session.work_through(out, jobs, how, command, options.quiet or options.json, options.verbose)
    if not (worked.interrupted or options.skip_examination):
        for name in frontier.examine(out, wanted, options.scale, options.audit):
            if options.verbose:
                print(f"examined {name}", file=sys.stderr, flush=True)
    export(options)
    found = frontier.summary(records.read(out), wanted, options.scale)
    store.write_json(out / "frontier.json", found)
    draw(options, found)
    said = {**found, "out": str(out), "trained_now": worked.runs, "seconds_now": round(time.monotonic() - begun, 1)}
    emit(said, options.json, lambda: text(said))
    return worked.interrupted


def draw(options: Frontier, found: dict[str, Any]) -> None:
    """The pictures beside the data, and the page where asked."""
    from dpmac.figures import frontier

    frontier.files(found, options.home)
    if options.page is not None:
        name = f"frontier-{options.task}.svg"
        pictures = options.page.parent / "pictures"
        pictures.mkdir(parents=True, exist_ok=True)
        (pictures / name).write_bytes((options.home / "frontier.svg").read_bytes())
        frontier.fill_page(options.page, found, f"pictures/{name}")


def export(options: Frontier) -> None:
    """All finished results so far, written into one file where asked."""
    from dpmac.results import records

    if options.export is not None:
        records.pack(records.read(options.home), options.export)


def wanted_of(options: Frontier) -> dict[str, Any]:
    """Populations by name, from checked options."""
    from dpmac import tasks
    from dpmac.cli import progress

    progress.check_work(options)
    require(options.seeds >= 0, f"seeds must be a whole number from 0, not {options.seeds}")
    require(options.time_limit > 0, f"time-limit must be above 0, not {options.time_limit}")
    named = options.export is None or options.export.name.endswith(".json.gz")
    require(named, f"an export is named NAME.json.gz, not {options.export}")
    settings = tasks.settings(options.set)
    horizon = tasks.make(options.task, **settings).horizon
    return populations(options.task, horizon, options.scale, options.epsilon, options.seeds, options.lines, settings)


def text(found: dict[str, Any]) -> str:
    """The table for people."""
    from dpmac.figures import frontier

    lines = [frontier.table(found)]
    if found["finished"] < found["runs"]:
        lines.append(f"{found['finished']} of {found['runs']} runs are finished; the same command goes on")
    else:
        lines.append(f"see {found['out']}/frontier.svg")
    return "\n".join(lines)
