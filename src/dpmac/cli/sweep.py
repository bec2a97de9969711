"""`dpmac sweep`: train every point of a grid, or of a search, and say which settings are best."""

import csv
import dataclasses
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from dpmac.cli import emit, parse
from dpmac.cli.session import Work, noted, work_through
from dpmac.config import BadInput, RunConfig, Training, require
from dpmac.experiments import SCALES

if TYPE_CHECKING:
    from dpmac.runner.sweep import Plan

EXAMPLE = "dpmac sweep ccn --grid hidden=64,128 learning_rate=3e-4,7e-4 --seeds 5 --out sweeps/ccn"


@dataclass(frozen=True, kw_only=True)
class Sweep(Work):
    """Train every point of a grid, or the points of a search, each with several seeds. Points that differ only in
    budget, learning rate, discount or penalties share a compiled program. Finished runs are not trained again;
    interrupted runs continue. Writes OUT/sweep.json, sweep.csv, sweep.svg, sweep.png and the best configurations, and
    where steps and train_epsilon vary OUT/training.svg and training.png."""

    finite: ClassVar[bool] = False

    task: tyro.conf.Positional[str]
    """A task by name, or your own as package.module:Name."""
    grid: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUES ...")]
    """Settings and their values, as hidden=64,128: of networks, channel, training and learner as `dpmac train` names
    them, method=dpmac,tarmac, and budget=inf,1,step-1 (an exact epsilon of an episode, or one of the paper's by name).
    In a search also ranges of numbers, as learning_rate=1e-4..1e-2."""
    out: Path
    """Folder for the runs and results."""
    search: Literal["grid", "tpe"] = "grid"
    """grid: every combination. tpe: Optuna proposes as many points as --trials."""
    trials: int = 0
    """Number of points in a search."""
    batch: int = 8
    """Points of a search that are proposed and trained together."""
    objective: Literal["return", "bound"] = "return"
    """What to maximise: the mean return over seeds, or the lower end of its 95 % interval."""
    learner: str = RunConfig.learner
    """Learner, the training algorithm."""
    steps: int = 0
    """Environment steps of each run; 0: that of the scale."""
    episodes: int = 0
    """Fresh episodes per iteration; 0: that of the scale, which is 4 for paper. 16 make better use of an
    accelerator."""
    set: tuple[str, ...] = ()
    """Options of the task, as KEY=VALUE."""


def run(argv: Sequence[str]) -> None:
    options = parse(Sweep, argv, "dpmac sweep", EXAMPLE)
    plan = plan_of(options)
    from dpmac.cli import progress
    from dpmac.results import store

    progress.use_cache()
    with store.locked(options.out):
        interrupted = search(options, plan, noted("sweep", argv))
    if interrupted:
        raise KeyboardInterrupt


def plan_of(options: Sweep) -> "Plan":
    """What is to be swept, from checked options."""
    try:
        from dpmac.runner import sweep
    except ImportError as error:
        raise BadInput(f"sweeps need Optuna: pip install 'optuna<6' ({error})") from None
    from dpmac import plugins
    from dpmac.learner import base as learners

    options.check()
    scale, kinds = SCALES[options.scale], plugins.options(learners.find(options.learner))
    seeds = options.seeds or scale.seeds
    for name in ("steps", "episodes"):
        value = getattr(options, name)
        require(value >= 0, f"{name} must be a whole number from 1, or 0, not {value}")
    require(options.batch >= 1, f"batch must be a whole number from 1, not {options.batch}")
    require(options.objective == "return" or seeds > 1, "the objective bound needs two seeds or more")
    require((options.search == "tpe") == (options.trials > 0), "--search tpe and --trials N belong together")
    require(options.search == "tpe" or options.batch == Sweep.batch, "--batch is for --search tpe")
    space = sweep.read_space(options.grid, options.learner)
    ranges = [name for name, values in space.items() if isinstance(values, sweep.Range)]
    require(not (ranges and options.search == "grid"), f"a grid has values, not a range, of {', '.join(ranges)}")
    training: Training = dataclasses.replace(
        scale.training,
        steps=options.steps or scale.steps.get(options.task, scale.training.steps),
        episodes=options.episodes or scale.training.episodes,
    )
    base = RunConfig(
        options.task,
        learner=options.learner,
        task_options=plugins.settings(options.set),
        learner_options={name: value for name, value in scale.learner_options.items() if name in kinds},
        seeds=tuple(range(seeds)),
        networks=scale.networks,
        training=training,
    )
    plan = sweep.Plan(options.seeded(base), space, options.search, options.trials, options.batch, options.objective)
    sweep.check(plan)
    return plan


def search(options: Sweep, plan: "Plan", command: str) -> bool:
    """Train what is missing, point after point, and show all there is; whether Ctrl-C came."""
    from dpmac.runner import sweep

    begun, trained, interrupted = time.monotonic(), 0, False
    study = sweep.open_study(options.out, plan)
    while points := sweep.waiting(study, plan):
        left = dataclasses.replace(options, time_limit=options.time_limit - (time.monotonic() - begun))
        worked = work_through(
            options.out, sweep.populations(plan.base, [each.params for each in points]), left, command
        )
        trained, interrupted = trained + worked.runs, worked.interrupted
        sweep.tell(study, plan, options.results(options.out))
        if interrupted or time.monotonic() - begun >= options.time_limit:
            break
    found = sweep.summary(study, plan, options.results(options.out))
    write(options.out, plan, found)
    said = {**found, "out": str(options.out), "trained_now": trained, "seconds_now": round(time.monotonic() - begun, 1)}
    emit(said, options.json, lambda: text(said))
    return interrupted


def write(out: Path, plan: "Plan", found: dict[str, Any]) -> None:
    """The table, the picture and the best configurations beside the runs."""
    from dpmac.figures import sweep as picture
    from dpmac.figures import training
    from dpmac.results import store
    from dpmac.runner import sweep

    store.write_json(out / "sweep.json", found)
    store.write_aside(out / "sweep.csv", as_csv(found).encode())
    for left in out.glob("best*.json"):  # of a search that had fewer budgets
        left.unlink()
    for budget in found["best"]:
        name = "best.json" if len(found["best"]) == 1 else f"best-{budget}.json"
        store.write_json(out / name, sweep.best_config(plan, found, budget))
    if found["best"]:
        picture.files(found, out)
        if training.drawable(found):
            training.files([found], [out / "training.svg", out / "training.png"])


def as_csv(found: dict[str, Any]) -> str:
    """A row for each point: its settings, what each seed earned, and their mean with its interval."""
    settings, seeds, numbers = [*found["space"]], found["seeds"], ("return_mean", "return_low", "return_high")
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["trial", *settings, *(f"seed_{seed}" for seed in seeds), *numbers])
    for row in found["rows"]:
        missing = [""] * (len(seeds) - row["finished"])
        values = [*row["returns"], *missing, *(row[name] for name in numbers)]
        table.writerow([row["trial"], *(row["point"][name] for name in settings), *values])
    return file.getvalue()


def text(found: dict[str, Any]) -> str:
    """The table for people."""
    from dpmac.figures import sweep

    lines = [sweep.table(found)]
    if found["finished"] < found["runs"] or found["points"] < found["of_points"]:
        lines.append(f"{found['finished']} of {found['runs']} runs are finished; the same command goes on")
    else:
        lines.append(f"see {found['out']}/sweep.svg")
    return "\n".join(lines)
