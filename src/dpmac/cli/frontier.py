"""`dpmac frontier`: return against exact ε for every channel and schedule."""

import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from dpmac.cli import emit, parse
from dpmac.cli.session import Work, noted, work_through
from dpmac.cli.train import symbols_for
from dpmac.config import Channel, require
from dpmac.experiments import file_name
from dpmac.frontiers import EPSILONS, lines_for, populations

EXAMPLE = "dpmac frontier ccn --scale paper --out frontiers/ccn --time-limit 540"


@dataclass(frozen=True, kw_only=True)
class Frontier(Work):
    """Train every channel and schedule at the same exact budgets of a whole episode, and compare their returns with
    free messages and with silence. For a stream, also train lines that protect one increment, which is far less.
    Finished runs are not trained again; interrupted runs continue. Writes OUT/frontier.json, frontier.svg and
    frontier.png."""

    task: tyro.conf.Positional[str]
    """A task by name, or your own as package.module:Name."""
    out: Path | None = None
    """Folder for the runs and results, one for each task; by default frontiers/TASK."""
    learner: str = ""
    """Learner; by default pathwise if the task is differentiable, else maddpg."""
    epsilon: tuple[float, ...] = EPSILONS
    """Budgets of an episode, or of an increment, at δ = 1e-4."""
    lines: tuple[str, ...] | None = None
    """Only these channels and schedules; by default all that suit the task. response-fourth (every fourth step) and
    response-timed (once, when the sender wants) are trained only if they are named."""
    symbols: int | Literal["auto"] = Channel.symbols
    """Number of symbols of randomised response that is used once an episode; auto: the most informative number at each
    budget."""
    steps: int = 0
    """Environment steps of each run; 0: those of the scale and the learner."""
    episodes: int = 0
    """Episodes of each update; 0: those of the scale and the learner."""
    set: tuple[str, ...] = ()
    """Options of the task, as KEY=VALUE."""
    set_learner: tuple[str, ...] = ()
    """Settings of the learner, as KEY=VALUE, instead of those of the recipe."""
    skip_examination: bool = False
    """Only train and score. Skip the eavesdropper, the analysis of what symbols lose and, if agents may see each other,
    the scores over all secrets."""
    audit: int = 0
    """Also audit every private agent of every team with this many transcripts. 10000 give bounds close to ε; one symbol
    at ε = 10 needs 100000."""
    page: Path | None = None
    """Also insert the table and the picture into this page (NAME.md), between its marks for the task."""

    @property
    def home(self) -> Path:
        """Where everything is written."""
        return self.out or Path("frontiers") / file_name(self.task)


def run(argv: Sequence[str]) -> None:
    options = parse(Frontier, argv, "dpmac frontier", EXAMPLE)
    wanted = wanted_of(options)
    from dpmac.cli import progress
    from dpmac.results import store

    progress.use_cache()
    with store.locked(options.home):
        interrupted = trace(options, wanted, noted("frontier", argv))
    if interrupted:
        raise KeyboardInterrupt


def trace(options: Frontier, wanted: dict[str, Any], command: str) -> bool:
    """Train and examine what is missing, and show all there is; whether Ctrl-C came."""
    from dpmac.analysis import frontier
    from dpmac.results import store

    begun, out = time.monotonic(), options.home
    worked = work_through(out, wanted, options, command)
    if not worked.interrupted:
        family = wanted_of(dataclasses.replace(options, lines=None)) | wanted
        for name in frontier.examine(out, wanted, family, options.scale, options.audit, options.skip_examination):
            if not (options.quiet or options.json):
                print(f"examined {name}", file=sys.stderr, flush=True)
    before = store.read_json(out / "frontier.json") if (out / "frontier.json").exists() else None
    found = frontier.summary(options.results(out), wanted, options.scale, before)
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
        name = f"frontier-{file_name(options.task)}.svg"
        pictures = options.page.parent / "pictures"
        pictures.mkdir(parents=True, exist_ok=True)
        (pictures / name).write_bytes((options.home / "frontier.svg").read_bytes())
        frontier.fill_page(options.page, found, f"pictures/{name}")


def wanted_of(options: Frontier) -> dict[str, Any]:
    """Populations by name, from checked options."""
    from dpmac import plugins, tasks
    from dpmac.learner import base as learners

    options.check()
    for name in ("steps", "episodes", "audit"):
        value = getattr(options, name)
        require(value >= 0, f"{name} must be a whole number from 0, not {value}")
    if options.page is not None:
        from dpmac.figures import frontier

        frontier.marks_of(options.page, options.task)  # before anything is trained
    settings = plugins.settings(options.set)
    task = tasks.make(options.task, **settings)
    learner = options.learner or learners.default_for(task)
    given = plugins.settings(options.set_learner)
    made = learners.make(learner, given)
    counts = {
        each: symbols_for(task, each) if options.symbols == "auto" else options.symbols for each in options.epsilon
    }
    known = tasks.abilities(task)
    lines = lines_for(streams=bool(known.increments)) if options.lines is None else options.lines
    asked = (options.scale, options.epsilon, options.seeds, lines, settings, learner, counts, known.decay)
    changed = {name: getattr(made, name) for name in given}
    found = populations(options.task, *asked, options.steps, options.episodes, changed)
    return {name: options.seeded(config) for name, config in found.items()}


def text(found: dict[str, Any]) -> str:
    """The table for people."""
    from dpmac.figures import frontier

    lines = [frontier.table(found)]
    if found["finished"] < found["runs"]:
        lines.append(f"{found['finished']} of {found['runs']} runs are finished; the same command goes on")
    else:
        lines.append(f"see {found['out']}/frontier.svg")
    return "\n".join(lines)
