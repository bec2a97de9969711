"""`dpmac bench train`: milliseconds per update of all agents, with its share of rollouts."""

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from dpmac.cli import emit, parse
from dpmac.config import RunConfig, require


@dataclass(frozen=True)
class BenchTrain:
    """Time one update of all agents with its share of rollouts, at the paper's sizes, for populations of runs."""

    tasks: tuple[str, ...] = ("ccn", "cn", "pp")
    """Tasks to measure."""
    learners: tuple[str, ...] = (RunConfig.learner,)
    """Learners to measure."""
    methods: tuple[str, ...] = ("dpmac",)
    """Methods to measure."""
    populations: tuple[int, ...] = (1, 5, 35)
    """Numbers of runs side by side."""
    episodes: int = 4
    """Fresh episodes per iteration."""
    iterations: int = 10
    """Iterations in one measurement."""
    repeats: int = 5
    """Measurements of each population, interleaved over a task's methods and populations; the median is reported."""
    private: bool = False
    """Also time private training, which clips and noises the gradient of every episode."""
    breakdown: bool = False
    """Also time the parts of an iteration, each compiled separately."""
    json: bool = False
    """Print the result as JSON."""


def run_train(argv: Sequence[str]) -> None:
    options = parse(BenchTrain, argv, "dpmac bench train", "dpmac bench train --tasks ccn --populations 1 35")
    require(options.episodes % 4 == 0, f"episodes must be a multiple of 4, not {options.episodes}")
    for name in ("episodes", "iterations", "repeats"):
        require(getattr(options, name) >= 1, f"{name} must be a whole number from 1, not {getattr(options, name)}")
    require(min(options.populations, default=0) >= 1, "populations must be whole numbers from 1")
    from dpmac.agents import protocol
    from dpmac.analysis import bench
    from dpmac.learner import base as learners

    for find, names in ((learners.find, options.learners), (protocol.find, options.methods)):
        for name in names:
            find(name)  # before anything is compiled
    modes = (False, True) if options.private else (False,)
    kinds = list(itertools.product(options.tasks, options.learners, options.methods, options.populations, modes))
    result = bench.compare(kinds, options.episodes, options.iterations, options.repeats, options.breakdown, show)
    emit(result, options.json, lambda: text(result))


def show(row: dict[str, Any]) -> None:
    """Say on stderr what was just measured."""
    done = f"{row['ms_per_update']:.2f} ms an update, compiled in {row['compile_seconds']:.0f} s"
    named = f"{row['task']} {row['learner']}{' in private' * row['private']} {row['method']} {row['runs']} runs"
    print(f"{named}: {done}", file=sys.stderr, flush=True)


def text(result: dict[str, Any]) -> str:
    """The result as a table."""
    table = Table(title=title(result))
    named = ("task", "learner", "method")
    for name in (*named, "runs", "ms an update", "env steps/s", "compile s", "matrix share", "× released"):
        table.add_column(name, justify="left" if name in named else "right")
    for row in result["rows"]:
        table.add_row(
            row["task"],
            row["learner"] + ", private" * row["private"],
            row["method"],
            str(row["runs"]),
            f"{row['ms_per_update']:.2f}",
            f"{row['steps_per_second']:,.0f}",
            f"{row['compile_seconds']:.0f}",
            f"{row['matrix_share']:.0%}" if math.isfinite(row["matrix_share"]) else "-",
            f"{row['released_over_ours']:.1f}" if "released_over_ours" in row else "-",
        )
    console = Console(width=110, markup=False, emoji=False)
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
