"""A sweep: points of a grid or of a search, each trained with every seed, and what they earn.

A point gives values to settings by name. Points that differ in their budget or in traced settings of the learner alone
share a compiled program and are trained as one population. Optuna keeps the points, by ask and tell, in a journal; what
they earned is read from the finished runs. So a killed sweep neither asks for a point twice nor trains a run twice.

    OUT/journal.log     Optuna's journal
    OUT/runs, OUT/jobs  as the scheduler has them
"""

import dataclasses
import itertools
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from dpmac import experiments, plugins, tasks
from dpmac.agents import protocol
from dpmac.config import (
    BadInput,
    Budget,
    Channel,
    Member,
    NetworkConfig,
    PrivateTraining,
    RunConfig,
    Training,
    dumps,
    require,
)
from dpmac.learner import base as learners
from dpmac.results import stats, store
from dpmac.results.records import Results
from dpmac.runner import population, schedule, train

Point = Mapping[str, Any]
"""Values of settings, by name."""
Objective = Literal["return", "bound"]
"""return: the mean over seeds. bound: the lower end of its 95 % interval, which prefers what works every time."""
Search = Literal["grid", "tpe"]

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Range(NamedTuple):
    """Numbers from low to high, on a logarithmic scale if they span a factor of ten or more."""

    low: Any
    high: Any

    @property
    def distribution(self) -> BaseDistribution:
        kind = IntDistribution if isinstance(self.low, int) else FloatDistribution
        return kind(self.low, self.high, log=self.low > 0 and self.high >= 10 * self.low)


Space = Mapping[str, tuple[Any, ...] | Range]
"""What each setting may be: one of several values, or a number in a range."""


# Points and configurations --------------------------------------------------------------------------------------------


SECTIONS = {"networks": NetworkConfig, "training": Training, "channel": Channel, "private": PrivateTraining}
"""Parts of a configuration whose fields are settings; the learner's own come after them."""
CALLED = {
    "epsilon": "budget",
    "noise_at": "place",
    "feedforward_actor": "recurrent_actor=false",
    "neighbours": "increments=true, with budgets that still cover all inputs,",
}
"""Settings that are options of `dpmac train` by another name."""
ANNEALING = ("anneal_from", "anneal_share")
"""Settings that belong to no part."""


LONGEST = 100
"""Characters of what is fixed that the name of a population spells out; files have names of at most 255."""


def kinds_of(learner: str) -> dict[str, Any]:
    """Every setting that a sweep may vary, with its type."""
    found = {"method": str, "budget": str, **dict.fromkeys(ANNEALING, float), **plugins.options(learners.find(learner))}
    return found | {name: kind for cls in SECTIONS.values() for name, kind in plugins.options(cls).items()}


def read_space(grid: Sequence[str], learner: str) -> Space:
    """A space from `hidden=64,128` and, for a search, `learning_rate=1e-4..1e-2`."""
    kinds, space = kinds_of(learner), {}
    for name, text in plugins.settings(grid).items():
        hint = f"; what dpmac train calls so is {CALLED[name]} here" if name in CALLED else ""
        require(name in kinds, f"a sweep has no setting {name!r}{hint}; allowed are {', '.join(kinds)}")
        low, dots, high = text.partition("..")
        parts = (low, high) if dots else tuple(text.split(","))
        values = tuple(plugins.read(name, part, kinds[name]) for part in parts)
        require(len(set(values)) == len(values), f"values of {name} must differ from each other, not {text}")
        if dots:
            ordered = kinds[name] in (int, float) and values[0] < values[1] and math.isfinite(values[1])
            require(ordered, f"a range is written LOW..HIGH and is one of numbers, not {name}={text}")
        space[name] = Range(*values) if dots else values
    return space


def budget_of(text: str) -> Budget:
    """A budget by the name that it has in the experiments, or by its exact ε for an episode; inf: free messages."""
    if text in experiments.BUDGETS:
        return experiments.BUDGETS[text]
    return Budget.parse(text, delta=experiments.DELTA)


def configured(base: RunConfig, point: Point) -> RunConfig:
    """The configuration of a point."""
    method = point.get("method", base.method)
    own = {"place": protocol.find(method).private_at, **point}
    parts: dict[str, Any] = {
        section: dataclasses.replace(
            getattr(base, section),
            **{item.name: own[item.name] for item in dataclasses.fields(cls) if item.name in own},
        )
        for section, cls in SECTIONS.items()
    }
    parts |= {name: point[name] for name in ANNEALING if name in point}
    elsewhere = {
        "method",
        "budget",
        *ANNEALING,
        *(item.name for cls in SECTIONS.values() for item in dataclasses.fields(cls)),
    }
    options = {name: value for name, value in point.items() if name not in elsewhere}
    budgets = (budget_of(point["budget"]),) if "budget" in point else base.budgets
    return dataclasses.replace(
        base, method=method, learner_options={**base.learner_options, **options}, budgets=budgets, **parts
    )


def split(base: RunConfig, point: Point) -> tuple[dict[str, Any], tuple[tuple[str, float], ...], Budget]:
    """What of a point changes the program, its traced settings, and its budget."""
    traced = learners.find(base.learner).traced_settings()
    fixed = {name: value for name, value in point.items() if name not in (*traced, "budget")}
    settings = tuple(sorted((name, value) for name, value in point.items() if name in traced))
    return fixed, settings, configured(base, {"budget": point["budget"]} if "budget" in point else {}).budgets[0]


def population_of(base: RunConfig, fixed: Point) -> str:
    """The name of the population of all points that share what changes the program."""
    variant = "-".join(f"{name}-{value}" for name, value in fixed.items() if name != "method")
    if len(variant) > LONGEST:
        variant = f"{variant[:LONGEST]}-{store.digest(fixed)[:8]}"
    return experiments.Cell(base.task, fixed.get("method", base.method), variant=variant).population


def populations(base: RunConfig, points: Sequence[Point]) -> list[tuple[str, RunConfig]]:
    """Configurations that train exactly these points, by the name of their population: one each for a grid."""
    groups: dict[str, tuple[dict[str, Any], list[Member]]] = {}
    for point in points:
        fixed, settings, budget = split(base, point)
        _, members = groups.setdefault(population_of(base, fixed), (fixed, []))
        members += [Member(settings, budget, seed) for seed in base.seeds]
    found = []
    for name, (fixed, members) in groups.items():
        whole = dataclasses.replace(
            configured(base, fixed),
            settings=tuple(dict(each) for each in dict.fromkeys(member.settings for member in members)),
            budgets=tuple(dict.fromkeys(member.budget for member in members)),
        )
        found += [(name, train.complete(part)) for part in schedule.products(whole, members)]
    return found


# Asking and telling ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What is searched, and how; the study of a folder belongs to one."""

    base: RunConfig
    space: Space
    search: Search = "grid"
    trials: int = 0
    """Points of a search in all; a grid has as many as it has."""
    batch: int = 8
    """Points of a search that are asked for, and then trained, together."""
    objective: Objective = "return"

    @property
    def grid(self) -> list[dict[str, Any]]:
        """All points of a grid, the last setting first to change."""
        return [dict(zip(self.space, values, strict=True)) for values in itertools.product(*self.space.values())]

    @property
    def ends(self) -> list[dict[str, Any]]:
        """Points in which one setting after another has each of its values, or ends of its range."""
        first = {name: values[0] for name, values in self.space.items()}
        return [{**first, name: value} for name, values in self.space.items() for value in values]

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return {
            name: values.distribution if isinstance(values, Range) else CategoricalDistribution(values)
            for name, values in self.space.items()
        }


def check(plan: Plan) -> None:
    """Bad input unless every point of a grid can be trained, and of a search every value beside the others' first."""
    require(len(plan.space) > 0, "a sweep needs settings to vary, as --grid hidden=64,128")
    points = plan.grid if plan.search == "grid" else plan.ends
    for _, config in populations(plan.base, points):
        population.check(config)


def open_study(out: Path, plan: Plan) -> optuna.Study:
    """The study in a folder, new or as it was left; one of other points is refused. The folder is locked."""
    path = out / "journal.log"
    for left in out.glob(f"{path.name}.lock*"):  # Optuna's own, by a process that was killed; the folder is held
        left.unlink()
    text = path.read_bytes() if path.exists() else b""
    whole = text[: text.rfind(b"\n") + 1]  # half a line is of no use
    store.write_aside(path, whole)
    try:
        _ = [json.loads(line) for line in whole.splitlines()]  # Optuna passes over a damaged last line
        storage = JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{path} is damaged: {error!r}") from None
    if not storage.get_all_studies():
        optuna.create_study(storage=storage, study_name="sweep", direction="maximize")
    study = optuna.load_study(storage=storage, study_name="sweep")
    asked = dumps({"base": plan.base, "space": plan.space, "search": plan.search, "objective": plan.objective})
    before = study.user_attrs.get("plan", asked)
    require(before == asked, f"{out} holds a sweep of other settings; choose another --out")
    if "plan" not in study.user_attrs:
        study.set_user_attr("plan", asked)
    return study


def waiting(study: optuna.Study, plan: Plan) -> list[FrozenTrial]:
    """Points that were asked for and not told, and before that new ones if there are none: the next to be trained."""
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        if trial.params.keys() != plan.space.keys():  # a process was killed while it asked
            study.tell(trial.number, state=TrialState.FAIL)
    asked = sum(trial.state != TrialState.FAIL for trial in study.trials)
    cut = plan.search == "tpe" and asked % plan.batch > 0  # of the last batch, some points were not asked for yet
    if cut or not study.get_trials(states=(TrialState.RUNNING,)):
        ask(study, plan)
    return study.get_trials(states=(TrialState.RUNNING,))


def ask(study: optuna.Study, plan: Plan) -> None:
    """All points of a grid, or the next batch of a search."""
    known = [trial for trial in study.trials if trial.state != TrialState.FAIL]
    if plan.search == "grid":
        there = [trial.params or trial.system_attrs.get("fixed_params") for trial in known]
        for point in plan.grid:
            if point not in there:
                study.enqueue_trial(point)
        count = len(study.get_trials(states=(TrialState.WAITING,)))
    else:
        count = min(plan.batch - len(known) % plan.batch, plan.trials - len(known))
    for place in range(len(known), len(known) + count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # Seeded by the points that are there, so that a search that was stopped goes on as if it had not been.
            study.sampler = optuna.samplers.TPESampler(seed=place, constant_liar=True)
        study.ask(plan.distributions)


def tell(study: optuna.Study, plan: Plan, results: Results) -> None:
    """Tell the study of the points whose runs are all finished; one whose runs did not stay finite is pruned."""
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        row = row_of(plan, trial, results)
        if row["finished"] == len(plan.base.seeds):
            sound = math.isfinite(row["objective"])
            study.tell(trial.number, row["objective"] if sound else None, None if sound else TrialState.PRUNED)


# What came of it ------------------------------------------------------------------------------------------------------


def row_of(plan: Plan, trial: FrozenTrial, results: Results) -> dict[str, Any]:
    """One point: its settings, and what each of its seeds earned."""
    ((population, config),) = populations(plan.base, [trial.params])
    names = experiments.run_names(population, config).values()
    found = [results.runs[name] for name in names if name in results.runs]
    program = train.Program.of(config)
    returns = [record.final_return for record in found]
    mean = stats.interval(returns) if returns else stats.Estimate(math.nan, math.nan, math.nan)
    return {
        "trial": trial.number,
        "point": dict(trial.params),
        "finished": len(found),
        "returns": returns,
        "return_mean": mean.value,
        "return_low": mean.low,
        "return_high": mean.high,
        "objective": mean.low if plan.objective == "bound" else mean.value,
    } | ({"noise_multiplier": program.settings[train.NOISE]} if program.microbatch else {})


def summary(study: optuna.Study, plan: Plan, results: Results) -> dict[str, Any]:
    """All points so far, and the best of each budget."""
    trials = [trial for trial in study.trials if trial.params.keys() == plan.space.keys()]
    rows = [row_of(plan, trial, results) for trial in trials if trial.state != TrialState.FAIL]
    seeds = plan.base.seeds
    done = [row for row in rows if row["finished"] == len(seeds) and math.isfinite(row["objective"])]
    budgets = list(dict.fromkeys(row["point"].get("budget", "inf") for row in done))
    best = {
        budget: max((row for row in done if row["point"].get("budget", "inf") == budget), key=lambda r: r["objective"])
        for budget in budgets
    }
    programs = {population_of(plan.base, split(plan.base, row["point"])[0]) for row in rows}
    return {
        "task": plan.base.task,
        "learner": plan.base.learner,
        "search": plan.search,
        "objective": plan.objective,
        "space": {name: [*values] for name, values in plan.space.items()},
        "steps": plan.base.training.steps,
        "horizon": tasks.make(plan.base.task, **plan.base.task_options).horizon,
        "seeds": [*seeds],
        "programs": len(programs),
        "points": len(rows),
        "of_points": len(plan.grid) if plan.search == "grid" else plan.trials,
        "runs": len(rows) * len(seeds),
        "finished": sum(row["finished"] for row in rows),
        "best": {budget: row["trial"] for budget, row in best.items()},
        "rows": rows,
    }


def best_config(plan: Plan, found: Mapping[str, Any], budget: str) -> RunConfig:
    """The configuration of the best point of a budget."""
    (row,) = (row for row in found["rows"] if row["trial"] == found["best"][budget])
    return train.complete(configured(plan.base, row["point"]))
