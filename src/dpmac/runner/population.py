"""Many runs as one compiled program: every budget and every seed of a configuration, side by side.

The Python loop is out here, over evaluations: progress, metrics, checkpoints and annealed budgets need no callbacks
from compiled code. A population that does not fit in memory is split into groups, which are trained one after another.
"""

import dataclasses
import os
import time
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac import privacy, tasks
from dpmac.agents import protocol
from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.team import Team
from dpmac.config import BadInput, Budget, Member, RunConfig, require, whole
from dpmac.learner.rollout import returns
from dpmac.results import store
from dpmac.results.store import Metric
from dpmac.runner import checkpoint, train
from dpmac.runner.devices import check_memory, side_by_side, spread
from dpmac.runner.finite import check_finite
from dpmac.runner.noise import scales_of, tables_of
from dpmac.runner.statement import check_statement, statement
from dpmac.runner.train import Program, RunState

REFERENCE_EPISODES = 1024
GROUPS = "checkpoints/groups.json"


class Run(NamedTuple):
    """One member of a population, with the label that metrics have of its budget and settings."""

    label: str
    budget: Budget
    seed: int
    settings: tuple[tuple[str, float], ...] = ()

    @property
    def member(self) -> Member:
        return Member(self.settings, self.budget, self.seed)


class Kept(NamedTuple):
    """What is kept of a finished run, which needs nothing that only learning needs."""

    team: Team


class Progress(NamedTuple):
    """Where a population stands after an evaluation."""

    step: int
    steps: int
    group: int
    groups: int
    rows: list[Metric]
    seconds: float
    """Wall time of the piece just done, compilation included in the first."""


def runs_of(config: RunConfig) -> list[Run]:
    """Members of a population: settings outermost, budgets within, and seeds within these."""
    labels = dict(zip(config.budgets, config.labels, strict=True))

    def label(member: Member) -> str:
        own = [f"{name}={value}" for name, value in member.settings] if len(config.settings) > 1 else []
        return " ".join([labels[member.budget], *own])

    return [Run(label(member), member.budget, member.seed, member.settings) for member in config.members]


def check(config: RunConfig) -> Program:
    """The program of a configuration, if budgets, method and task go together."""
    program = Program.of(config)
    allowed = program.learner.traced_settings()
    for each in config.settings:
        untraced = ", ".join(each.keys() - set(allowed))
        require(
            not untraced, f"members of a population may differ in {', '.join(allowed) or 'no setting'}, not {untraced}"
        )
        own = dataclasses.replace(program, learner=dataclasses.replace(program.learner, **each))
        _ = own.use if own.microbatch else None  # which refuses what private training cannot do
    privacy.mechanisms.of(config.channel)
    if not protocol.find(config.method).speaks:
        private = [budget.label for budget in config.budgets if budget.private]
        require(
            not private, f"method {config.method} sends no messages, so epsilon {', '.join(private)} has no meaning"
        )
    elif program.task.agents == 1:
        raise BadInput("an agent alone has nobody to send to; use --method silent")
    for budget in config.budgets:
        budget.of(program.task.agents)
    jax.eval_shape(partial(train.init, program), jax.random.key(0))
    return program


def create(folder: Path, config: RunConfig) -> Program:
    """Check a configuration and start its folder."""
    config = train.complete(config)
    program = check(config)
    check_memory(program)
    reference = tasks.reference_returns(program.task, jax.random.key(train.EVALUATION_SEED), REFERENCE_EPISODES)
    store.create(folder, config, statement(config, program), {"unit": program.task.reward_unit, "returns": reference})
    return program


def groups_of(runs: list[Run], size: int) -> list[list[Run]]:
    """Runs in groups of this size, the last one perhaps smaller."""
    return [runs[first : first + size] for first in range(0, len(runs), size)]


# Training -------------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def start(program: Program, keys: Array) -> RunState:
    """States (run, …) before the first step."""
    return jax.vmap(partial(train.init, program))(keys)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def advance(
    program: Program,
    states: RunState,
    tables: NoiseScale,
    scale: NoiseScale,
    settings: dict[str, Array],
    iterations: Array,
) -> tuple[RunState, dict[str, Array]]:
    """States and reports (run, …) after so many iterations and an evaluation."""
    step = jax.vmap(partial(train.advance, program), in_axes=(0, 0, 0, 0, None))
    return step(states, tables, scale, settings, iterations)


@partial(jax.jit, static_argnums=(0, 3))
def scores(program: Program, teams: Team, scale: NoiseScale, episodes: int) -> Array:
    """Returns (run, episode) of greedy episodes on the common starts."""
    return jax.vmap(lambda team, lev: returns(train.evaluate(program, team, lev, episodes)))(teams, scale)


def keys_of(runs: list[Run]) -> Array:
    """A key for each run: its seed alone, so that budgets share their draws and a member equals its single run."""
    return jax.vmap(jax.random.key)(jnp.array([run.seed for run in runs], jnp.uint32))


def secret(program: Program) -> bool:
    """Whether training is private, with noise that nobody can repeat."""
    return program.microbatch > 0 and program.private.train_noise != "seed"


def with_secrets(program: Program, states: RunState, runs: int) -> RunState:
    """States (run, …) before the first step whose noise of private training, if they have any, nobody can repeat."""
    if not secret(program):
        return states
    words = np.frombuffer(os.urandom(8 * runs), np.uint32).reshape(runs, 2)
    return states._replace(secret=jax.random.wrap_key_data(jnp.asarray(words)))


def settings_of(program: Program, runs: list[Run]) -> dict[str, Array]:
    """Traced settings (run,) of the learner, by name."""
    own = [program.settings | dict(run.settings) for run in runs]
    return {name: jnp.array([each[name] for each in own], jnp.float32) for name in program.settings}


def evaluations_of(program: Program) -> list[int]:
    """Iterations after which a run is evaluated."""
    count = program.evaluations
    return [round(program.iterations * (index + 1) / count) for index in range(count)]


def train_folder(
    folder: Path, checkpoint_seconds: float = 60.0, most: int = 0, finite: bool = True
) -> Generator[Progress, None, None]:
    """Train the population of a folder from where it stands to its end, with a `Progress` after each evaluation.

    Closing the iterator saves the state; so does its end. finite: whether a run whose numbers are no longer finite is a
    failure; else all go on, and `finish` says which have no return.
    """
    config = store.load_config(folder)
    program, mark = check(config), store.mark(folder)
    check_statement(folder, config, program)
    require((folder / "checkpoints").is_dir(), f"{folder} is damaged: it has no folder checkpoints")
    with store.locked(folder):
        runs = runs_of(config)
        if not recorded_size(folder):
            store.write_json(folder / GROUPS, {"runs": side_by_side(program, len(runs), most)})
        groups = groups_of(runs, recorded_size(folder))
        for index, runs in enumerate(groups):
            yield from train_group(folder, config, program, mark, (index, groups), runs, checkpoint_seconds, finite)


def recorded_size(folder: Path) -> int:
    """How many runs are trained side by side, settled when training begins, for bits depend on it; 0 before that."""
    if not (folder / GROUPS).exists():
        return 0
    data = store.read_json(folder / GROUPS)
    size = data.get("runs") if isinstance(data, dict) else None
    if not whole(size, 1):
        raise BadInput(f"{folder / GROUPS} is damaged")
    return size


def train_group(
    folder: Path,
    config: RunConfig,
    program: Program,
    mark: str,
    where: tuple[int, list[list[Run]]],
    runs: list[Run],
    checkpoint_seconds: float,
    finite: bool,
) -> Iterator[Progress]:
    """`train_folder` for the runs of one group."""
    index, groups = where
    home, name = folder / "checkpoints", f"group-{index}"
    place = checkpoint.place_of(home, name, mark)
    if place is not None and place["finished"]:
        load_teams(program, home, name, place, runs)  # which refuses what is damaged
        checkpoint.tidy(home, name, place)  # a crash may have left what this one replaced
        return
    shapes = jax.eval_shape(partial(start, program), keys_of(runs))
    done = 0
    require(
        place is None or checkpoint.current(place),
        f"{folder} was begun by version 0.1 of dpmac and is unfinished: go on with that version, or train it again",
    )
    if place is None:
        states = with_secrets(program, start(program, keys_of(runs)), len(runs))
    else:
        states, done = checkpoint.load(home, name, shapes, place), place["evaluations"]
    mine = {(run.label, run.seed) for run in runs}
    points = [0, *evaluations_of(program)]
    reached = points[done] * program.steps_per_iteration
    known = [row for row in store.read_metrics(folder) if (row.budget, row.seed) not in mine or row.step <= reached]
    store.rewind_metrics(folder, known)
    states = spread(states)
    budgets = [run.budget for run in runs]
    scale = spread(scales_of(config, program, budgets))
    tables = spread(tables_of(config, program, budgets, points[done] / points[-1]))
    settings = spread(settings_of(program, runs))
    saved, begun = done, time.monotonic()

    def save(evaluations: int, states: RunState) -> None:
        finished = evaluations == len(points) - 1
        tree = Kept(jax.vmap(program.learner.team)(states.learner)) if finished else states
        checkpoint.save(home, name, tree, {"config": mark, "evaluations": evaluations, "finished": finished})

    if place is None and secret(program):  # begun again, it would release the same episodes under other noise
        save(0, states)
    try:
        while done < len(points) - 1:
            clock = time.monotonic()
            if config.anneal_from > 0:  # else they stay as they are, and the device need not wait for them
                tables = spread(tables_of(config, program, budgets, points[done] / points[-1]))
            count = jnp.asarray(points[done + 1] - points[done])
            after, report = advance(program, states, tables, scale, settings, count)
            rows = metrics(points[done + 1] * program.steps_per_iteration, runs, report)
            if finite:
                check_finite(folder, program, after, scale, rows)
            store.append_metrics(folder, rows)
            states, done = after, done + 1
            last = done == len(points) - 1
            if last or time.monotonic() - begun > checkpoint_seconds:
                save(done, states)
                saved, begun = done, time.monotonic()
            seconds = time.monotonic() - clock
            yield Progress(rows[0].step, program.steps, index, len(groups), rows, seconds)
    except GeneratorExit:
        # Any other exception may come between two states, and then the last checkpoint stands.
        if saved < done:
            save(done, states)
        raise


def metrics(step: int, runs: list[Run], report: dict[str, Array]) -> list[Metric]:
    """Rows of metrics.csv."""
    host = {name: np.asarray(value) for name, value in report.items()}
    return [
        Metric(step, run.label, run.seed, name, float(values[index]))
        for index, run in enumerate(runs)
        for name, values in sorted(host.items())
    ]


# What a folder holds --------------------------------------------------------------------------------------------------


class Loaded(NamedTuple):
    """A population as it stands on disk."""

    config: RunConfig
    program: Program
    runs: list[Run]
    teams: Team
    """(run, …) of all runs, in their order."""
    scale: NoiseScale
    """(run, agent) of the budgets."""
    step: int
    """Environment steps that the least trained of the runs has made."""

    def one(self, index: int) -> tuple[Team, NoiseScale]:
        """The team of one run and the noise scales of its budget."""
        return jax.tree.map(lambda leaf: leaf[index], (self.teams, self.scale))


def load(folder: Path) -> Loaded:
    """The teams of all runs of a folder, finished or not."""
    config = store.load_config(folder)
    program, mark, runs = check(config), store.mark(folder), runs_of(config)
    check_statement(folder, config, program)
    home, size, points = folder / "checkpoints", recorded_size(folder), [0, *evaluations_of(program)]
    require(size > 0, f"{folder} has no checkpoint yet; resume it first")
    parts, steps = [], []
    for index, group in enumerate(groups_of(runs, size)):
        place = checkpoint.place_of(home, f"group-{index}", mark)
        require(place is not None, f"{folder}: runs of group {index} have no checkpoint yet; resume it first")
        assert place is not None
        parts.append(load_teams(program, home, f"group-{index}", place, group))
        steps.append(points[place["evaluations"]] * program.steps_per_iteration)
    teams = jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    return Loaded(config, program, runs, teams, scales_of(config, program, [run.budget for run in runs]), min(steps))


def load_teams(program: Program, home: Path, name: str, place: dict[str, Any], runs: list[Run]) -> Team:
    """Teams (run, …) of a checkpoint, whichever version wrote it."""
    shapes = jax.eval_shape(partial(start, program), keys_of(runs))
    teams = Kept(jax.eval_shape(jax.vmap(program.learner.team), shapes.learner))
    if not checkpoint.current(place):  # version 0.1 kept all networks under one name
        return checkpoint.load(home, name, teams, place, within="" if place["finished"] else ".networks").team
    if place["finished"]:
        return checkpoint.load(home, name, teams, place).team
    return jax.vmap(program.learner.team)(checkpoint.load(home, name, shapes, place).learner)


def label_of(config: RunConfig, epsilon: str) -> str:
    """The label of the one budget with these numbers, as `3.0` for `3`; the text itself where there is none."""
    if epsilon in config.labels:
        return epsilon
    wanted = Budget.parse(epsilon).epsilon
    found = [label for label, budget in zip(config.labels, config.budgets, strict=True) if budget.epsilon == wanted]
    return found[0] if len(found) == 1 else epsilon


def member(loaded: Loaded, epsilon: str | None, seed: int | None) -> int:
    """The place of the run of this budget and seed; those that are not named are the first."""
    label = loaded.runs[0].label if epsilon is None else label_of(loaded.config, epsilon)
    wanted = loaded.runs[0].seed if seed is None else seed
    places = {(run.label, run.seed): place for place, run in enumerate(loaded.runs)}
    require(
        (label, wanted) in places,
        f"no run has epsilon {label} and seed {wanted}; budgets are {', '.join(loaded.config.labels)}, "
        f"seeds {', '.join(map(str, loaded.config.seeds))}",
    )
    return places[label, wanted]
