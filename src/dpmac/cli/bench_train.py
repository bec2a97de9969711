"""`dpmac bench train`: milliseconds per update of all agents, with its share of rollouts."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from dpmac.cli import emit, parse
from dpmac.config import Budget, Channel, RunConfig, Training, require

RELEASED_SECONDS = {"cn": 1.15, "ccn": 0.71, "pp": 4.9}
"""One update of all agents and one episode in the authors' published code, on two cores."""


@dataclass(frozen=True)
class BenchTrain:
    """Time one update of all agents with its share of rollouts, at the paper's sizes, for populations of runs."""

    tasks: tuple[str, ...] = ("ccn", "cn", "pp")
    """Tasks to measure."""
    methods: tuple[str, ...] = ("dpmac",)
    """Methods to measure."""
    populations: tuple[int, ...] = (1, 5, 35)
    """Runs side by side."""
    episodes: int = 4
    """Fresh episodes an iteration; an update comes with four of them."""
    iterations: int = 10
    """Iterations in one timed piece."""
    repeats: int = 5
    """Timed pieces of each population, interleaved over a task's methods and populations; the median counts."""
    breakdown: bool = False
    """Also time the parts of an iteration, each compiled by itself."""
    json: bool = False
    """Print the result as JSON."""


def run_train(argv: Sequence[str]) -> None:
    options = parse(BenchTrain, argv, "dpmac bench train", "dpmac bench train --tasks ccn --populations 1 35")
    require(options.episodes % 4 == 0, f"episodes must be a multiple of 4, not {options.episodes}")
    emit(result := measure(options), options.json, lambda: text(result))


def measure(options: BenchTrain) -> dict[str, Any]:
    """One row for each task, method and population."""
    import jax

    from dpmac.analysis import bench

    rate, rows = bench.matrix_rate(), []
    kinds = list(itertools.product(options.tasks, options.methods, options.populations))
    prepared = bench.prepare([config(*kind, options.episodes) for kind in kinds])
    for task, group in itertools.groupby(zip(kinds, prepared, strict=True), lambda pair: pair[0][0]):
        names, items = zip(*group, strict=True)
        measured = bench.measure(items, options.iterations, options.repeats)
        for (_, method, runs), item, seconds in zip(names, items, measured, strict=True):
            row: dict[str, Any] = {
                "task": task,
                "method": method,
                "runs": runs,
                "ms_per_update": 1e3 * seconds,
                "updates_per_second": runs / seconds,
                "steps_per_second": runs * 4 * item.program.task.horizon / seconds,
                "compile_seconds": item.compile_seconds,
                "matrix_share": runs * bench.operations(item.program) / seconds / rate,
                "released_over_ours": RELEASED_SECONDS.get(task, float("nan")) / seconds * runs,
            }
            if options.breakdown:
                row["parts_ms"] = {k: 1e3 * v for k, v in bench.breakdown(item.config, options.repeats).items()}
            rows.append(row)
            done = f"{1e3 * seconds:.2f} ms an update, compiled in {item.compile_seconds:.0f} s"
            print(f"{task} {method} {runs} runs: {done}", file=sys.stderr, flush=True)
    return {"device": str(jax.devices()[0]), "matrix_rate": rate, "peak_bytes": bench.peak_bytes(), "rows": rows}


def config(task: str, method: str, runs: int, episodes: int) -> RunConfig:
    """The paper's sizes, noise where it puts it and as at ε = 10 for an episode, which costs what any other does."""
    from dpmac import tasks
    from dpmac.agents import protocol

    found = protocol.find(method)
    channel, budget = Channel(place=found.private_at), Budget((10.0,)) if found.speaks else Budget()
    steps = 2_500 * episodes * tasks.make(task).horizon  # enough that the whole replay is there
    return RunConfig(
        task,
        method,
        channel=channel,
        budgets=(budget,),
        seeds=tuple(range(runs)),
        training=Training(steps=steps, episodes=episodes),
    )


def text(result: dict[str, Any]) -> str:
    """The result as a table."""
    table = Table(title=title(result))
    for name in ("task", "method", "runs", "ms an update", "env steps/s", "compile s", "matrix share", "× released"):
        table.add_column(name, justify="left" if name in ("task", "method") else "right")
    for row in result["rows"]:
        table.add_row(
            row["task"],
            row["method"],
            str(row["runs"]),
            f"{row['ms_per_update']:.2f}",
            f"{row['steps_per_second']:,.0f}",
            f"{row['compile_seconds']:.0f}",
            f"{row['matrix_share']:.0%}",
            f"{row['released_over_ours']:.1f}",
        )
    console = Console(width=110)
    with console.capture() as captured:
        console.print(table)
        for row in result["rows"]:
            if "parts_ms" in row:
                parts = ", ".join(f"{name} {value:.1f}" for name, value in row["parts_ms"].items())
                console.print(f"{row['task']} {row['method']} {row['runs']} runs, ms of parts: {parts}")
    return captured.get().rstrip()


def title(result: dict[str, Any]) -> str:
    rate, peak = result["matrix_rate"] / 1e9, result["peak_bytes"] / 2**30
    return f"{result['device']}: matrix products {rate:,.0f} GFLOP/s, peak memory of all together {peak:.1f} GiB"
