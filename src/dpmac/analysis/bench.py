"""How fast training is on this machine: one update of all agents with its share of rollouts, at any size."""

import dataclasses
import itertools
import math
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpmac import tasks
from dpmac.agents import protocol
from dpmac.config import Budget, Channel, PrivateTraining, RunConfig, Training, to_json
from dpmac.learner import base as learners
from dpmac.learner.base import Rollout
from dpmac.runner import devices, noise, population, train
from dpmac.runner.train import Program

MATRIX = 4096
RELEASED_SECONDS = {"cn": 1.15, "ccn": 0.71, "pp": 4.9}
"""One update of all agents and one episode in the authors' published code, on two cores."""


class Prepared(NamedTuple):
    """A population whose iterations are compiled."""

    config: RunConfig
    program: Program
    tables: Any
    settings: Any
    advance: Callable[..., Any]
    compile_seconds: float


def timed(work: Callable[[], Any]) -> float:
    """Seconds until the result of some work is there."""
    begun = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - begun


def matrix_rate() -> float:
    """Floating-point operations per second of this machine's large float32 matrix product, as JAX computes it."""
    side = MATRIX if jax.default_backend() != "cpu" else MATRIX // 4
    a = jax.random.normal(jax.random.key(0), (side, side))
    multiply = jax.jit(lambda x: x @ x)
    timed(lambda: multiply(a))
    return 2 * side**3 / min(timed(lambda: multiply(a)) for _ in range(10))


def operations(program: Program) -> float:
    """Floating-point operations of the matrix products that one update of one run cannot do without, as its learner
    counts them."""
    state = jax.eval_shape(partial(train.init, program), jax.random.key(0))
    rows = program.learner.batch_size(program.rollout) * program.task.horizon * program.task.agents
    return rows * program.learner.operations(state.learner)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def advance(program: Program, states: train.RunState, tables: Any, settings: Any, iterations: Any) -> train.RunState:
    """So many iterations of a population and nothing else."""

    def run(state: train.RunState, table: Any, settings: Any) -> train.RunState:
        return jax.lax.fori_loop(0, iterations, lambda _, s: train.iterate(program, s, table, settings)[0], state)

    return jax.vmap(run)(states, tables, settings)


def prepare(configs: Sequence[RunConfig]) -> list[Prepared]:
    """Trace populations' iterations one after another, and compile them side by side on half of the cores."""

    def compiled(lowered: Any) -> tuple[Callable[..., Any], float]:
        begun = time.perf_counter()
        return lowered.compile(), time.perf_counter() - begun

    traced = []
    with ThreadPoolExecutor(devices.half_of_the_cores()) as pool:
        for config in configs:
            program, runs = population.check(config), population.runs_of(config)
            tables = noise.tables_of(config, program, [run.budget for run in runs], 1.0)
            shapes = jax.eval_shape(partial(population.start, program), population.keys_of(runs))
            settings = population.settings_of(program, runs)
            lowered = advance.lower(program, shapes, tables, settings, jnp.asarray(1))
            traced.append((config, program, tables, settings, pool.submit(compiled, lowered)))
    return [Prepared(*given, *ready.result()) for *given, ready in traced]


def measure(prepared: Sequence[Prepared], iterations: int, repeats: int) -> list[float]:
    """Seconds of one update with its share of rollouts, for each population: medians of interleaved repeats.

    Before that each makes two iterations or more, which collect episodes for a batch.
    """

    def begun(item: Prepared) -> train.RunState:
        states = population.start(item.program, population.keys_of(population.runs_of(item.config)))
        play = item.program.rollout
        first = max(2, math.ceil(item.program.learner.batch_size(play) / play.episodes))
        return item.advance(states, item.tables, item.settings, jnp.asarray(first))

    states = [begun(item) for item in prepared]
    seconds: list[list[float]] = [[] for _ in prepared]
    for _ in range(repeats):
        for index, item in enumerate(prepared):
            clock = time.perf_counter()
            states[index] = item.advance(states[index], item.tables, item.settings, jnp.asarray(iterations))
            jax.block_until_ready(states[index])
            updates = iterations * item.program.learner.updates(item.program.rollout)
            seconds[index].append((time.perf_counter() - clock) / updates)
    return [median(each) for each in seconds]


def breakdown(config: RunConfig, repeats: int) -> dict[str, float]:
    """Seconds of the parts of an iteration, each compiled by itself: they share less than the whole does."""
    program, runs = population.check(config), population.runs_of(config)
    states = population.start(program, population.keys_of(runs))
    tables = noise.tables_of(config, program, [run.budget for run in runs], 1.0)

    def parts(state: train.RunState, table: Any) -> dict[str, Callable[[], Any]]:
        return program.learner.parts(state.learner, program.rollout, table)

    def median_of(name: str) -> float:
        part = jax.jit(jax.vmap(lambda state, table: parts(state, table)[name]()))
        timed(lambda: part(states, tables))
        return median(timed(lambda: part(states, tables)) for _ in range(repeats))

    one = jax.tree.map(lambda leaf: leaf[0], (states, tables))
    return {name: median_of(name) for name in parts(*one)}


def peak_bytes() -> int:
    """The most memory that was in use: of the device, or of this process on a CPU."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def compare(
    kinds: Sequence[tuple[str, str, str, int, bool]],
    episodes: int,
    iterations: int,
    repeats: int,
    parts: bool,
    progress: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """This machine, and a row for each kind (task, learner, method, runs side by side, whether training is private),
    which `progress` gets as well.

    Kinds of a task stand together and are timed in turns. With `parts`, also the times of the parts of an iteration.
    """
    rate, rows = matrix_rate(), []
    prepared = prepare([config_of(*kind, episodes) for kind in kinds])
    for task, group in itertools.groupby(zip(kinds, prepared, strict=True), lambda pair: pair[0][0]):
        names, items = zip(*group, strict=True)
        for (_, learner, method, runs, private), item, seconds in zip(
            names, items, measure(items, iterations, repeats), strict=True
        ):
            fresh = episodes / item.program.learner.updates(item.program.rollout)
            row: dict[str, Any] = {
                "task": task,
                "learner": learner,
                "method": method,
                "runs": runs,
                "private": private,
                "ms_per_update": 1e3 * seconds,
                "updates_per_second": runs / seconds,
                "steps_per_second": runs * fresh * item.program.task.horizon / seconds,
                "compile_seconds": item.compile_seconds,
                "matrix_share": runs * operations(item.program) / seconds / rate,
                "released_over_ours": RELEASED_SECONDS.get(task, float("nan")) / seconds * runs,
            }
            if learner != RunConfig.learner:
                del row["released_over_ours"]  # the authors' code updates as the default learner does
            if parts:
                row["parts_ms"] = {name: 1e3 * value for name, value in breakdown(item.config, repeats).items()}
            rows.append(row)
            progress(row)
    return {"device": str(jax.devices()[0]), "matrix_rate": rate, "peak_bytes": peak_bytes(), "rows": rows}


def config_of(task: str, learner: str, method: str, runs: int, private: bool, episodes: int) -> RunConfig:
    """The paper's sizes, noise where it puts it and as at ε = 10 for an episode, which costs what any other does.

    Private training differs from plain training in what it asks of the learner, and holds all gradients of a batch. A
    replay is then as large as a batch, so that an update takes a batch from the start, and not the few that are stored.
    """
    found = protocol.find(method)
    channel, budget = Channel(place=found.private_at), Budget((10.0,)) if found.speaks else Budget()
    steps = 2_500 * episodes * tasks.make(task).horizon  # enough that the whole replay is there
    own = learners.make(learner, {})
    batch = own.batch_size(Rollout(tasks.make(task), episodes))
    if private:
        replay = {"buffer": batch} if hasattr(own, "buffer") else {}
        own = dataclasses.replace(own.without_leaks(), **replay)
    return RunConfig(
        task,
        method,
        learner,
        learner_options=to_json(own),
        channel=channel,
        budgets=(budget,),
        seeds=tuple(range(runs)),
        training=Training(steps=steps, episodes=episodes),
        private=PrivateTraining(1.0 if private else None, train_microbatch=batch),
    )
