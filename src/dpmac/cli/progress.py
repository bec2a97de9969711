"""What a person sees of a run while it trains."""

import os
import shlex
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.table import Table

from dpmac.cli import drawn
from dpmac.config import require
from dpmac.results import store
from dpmac.results.loggers import Logger


def use_cache() -> None:
    """Keep compiled programs between commands; set JAX_COMPILATION_CACHE_DIR to choose where."""
    import jax

    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dpmac" / "jax"
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(home))


def warn(folder: Path, task: Any) -> None:
    """Say on stderr where a run's claim is not true, and what else somebody must know about the task."""
    from dpmac import tasks

    for text in tasks.abilities(task).cautions():
        print(f"note: {text}", file=sys.stderr)
    statement = store.read_json(folder / "privacy.json")
    claims = statement["claims"]
    if any(entry["noise"] > 0 for entries in claims.values() for entry in entries):
        print(f"note: {statement['simulated']}", file=sys.stderr)
    for label, entries in claims.items():
        for text in dict.fromkeys(warning for entry in entries if not entry["valid"] for warning in entry["warnings"]):
            print(f"warning: epsilon {label}: {text}", file=sys.stderr)
    for text in statement.get("training", {}).get("warnings", ()):
        print(f"warning: training: {text}", file=sys.stderr)


def tell(line: str) -> None:
    """Say on stderr what comes next."""
    print(line, file=sys.stderr, flush=True)


def nothing(line: str) -> None:
    """Say nothing, beside JSON."""


def check_loudness(quiet: bool, verbose: bool) -> None:
    require(not (quiet and verbose), "--quiet and --verbose exclude each other")


def check_seconds(value: float) -> None:
    require(value >= 0, f"checkpoint-seconds must be at least 0, not {value:g}")


def follow(
    folder: Path, pieces: Generator[Any, None, None], quiet: bool, loggers: list[Logger], verbose: bool = False
) -> None:
    """Train to the end, showing progress; Ctrl-C ends after the piece in hand, saves and says how to go on."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    shown, pace = 0.0, Pace()
    state = "stopped, the last checkpoint stands"
    every = 0.0 if verbose else 1.0 if console.is_terminal else 10.0
    with Interrupt() as interrupt, Compiling(console, quiet) as compiling:
        try:
            for piece in pieces:
                compiling.done()
                pace.add(piece)
                for log in loggers:
                    log(piece.rows)
                last = piece.step == piece.steps
                if not quiet and (last or time.monotonic() - shown > every):
                    shown = time.monotonic()
                    end = "\r" if console.is_terminal and not last and not verbose else "\n"
                    console.print(line(piece, pace), soft_wrap=True, end=end)
                if verbose and not quiet:
                    console.print(details(piece), soft_wrap=True)
                if interrupt.asked and not last:
                    pieces.close()
                    state = "saved"
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            console.print(f"{state}; go on with: dpmac resume {shlex.quote(str(folder))}", soft_wrap=True)
            raise


class Compiling:
    """Says, with a clock, that a program is compiled before the first evaluation; on a terminal every second."""

    def __init__(self, console: Console, quiet: bool):
        self.console, self.over = console, threading.Event()
        self.thread = threading.Thread(target=self.tell, daemon=True)
        self.quiet, self.begun = quiet, time.monotonic()

    def tell(self) -> None:
        wait = 1.0 if self.console.is_terminal else 3.0
        while not self.over.wait(wait):
            wait = 1.0 if self.console.is_terminal else 30.0
            said = f"compiling, and training to the first evaluation: {clock(time.monotonic() - self.begun)}"
            end = "\r" if self.console.is_terminal else "\n"
            self.console.print(said, highlight=False, soft_wrap=True, end=end)

    def done(self) -> None:
        """The first evaluation is there."""
        if not self.over.is_set():
            self.over.set()
            if self.thread.is_alive():
                self.thread.join()
            if self.console.is_terminal and not self.quiet:
                self.console.print(" " * 70, end="\r")

    def __enter__(self) -> Self:
        if not self.quiet:
            self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.done()


class Pace:
    """How fast a run trains; compilation, which is in the first piece of a group, is left out."""

    def __init__(self) -> None:
        self.before: Any = None
        self.steps, self.seconds, self.latest = 0, 0.0, 0.0

    def add(self, piece: Any) -> None:
        self.latest = 0.0
        if self.before is not None and self.before.group == piece.group:
            steps, runs = piece.step - self.before.step, len({(row.budget, row.seed) for row in piece.rows})
            self.steps, self.seconds = self.steps + steps, self.seconds + piece.seconds
            self.latest = steps * runs / max(piece.seconds, 1e-9)
        self.before = piece

    def left(self) -> float | None:
        """Seconds to the end, once a piece without compilation was seen."""
        piece = self.before
        rest = piece.steps * (piece.groups - piece.group) - piece.step
        return self.seconds / self.steps * rest if self.steps else 0.0 if rest == 0 else None


class Interrupt:
    """Ctrl-C once asks for an end; twice is the usual interruption, which leaves the last checkpoint."""

    asked = False

    def __enter__(self) -> Self:
        self.usual = signal.signal(signal.SIGINT, self.ask)
        return self

    def ask(self, *_: Any) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self.usual)
        print("\nstopping after this piece; Ctrl-C again stops at once", file=sys.stderr)

    def __exit__(self, *_: Any) -> None:
        signal.signal(signal.SIGINT, self.usual)


def line(piece: Any, pace: Pace) -> str:
    """Steps, time left, the mean return of each budget and environment steps a second."""
    returns = defaultdict(list)
    for row in piece.rows:
        if row.name == "return":
            returns[row.budget].append(row.value)
    left = pace.left()
    said = "" if left is None else f"  {clock(left)} left"
    speed = f"  {pace.latest:,.0f} steps/s" if pace.latest else ""
    scores = "  ".join(f"ε={budget}: {sum(values) / len(values):.1f}" for budget, values in returns.items())
    return f"{piece.step:>9,}/{piece.steps:,} steps{said}  return {scores}{speed}"


def details(piece: Any) -> str:
    """Everything that was measured, each as its mean over all runs."""
    found = defaultdict(list)
    for row in piece.rows:
        found[row.name].append(row.value)
    return "  ".join(f"{name} {sum(values) / len(values):.4g}" for name, values in sorted(found.items()))


def clock(seconds: float) -> str:
    """3723 seconds are 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def table(summary: dict[str, Any]) -> str:
    """The summary for people."""
    title = f"{summary['folder']} after {summary['step']:,} steps, on {summary['episodes']:,} common starts"
    grid = Table(title=title, title_justify="left")
    for name in ("claimed ε", "unit", "claim", "exact ε, episode", "return, mean", "95 % interval", "seeds"):
        grid.add_column(name, justify="left" if name in ("unit", "claim") else "right")
    for budget in summary["budgets"]:
        free = budget["epsilon"] == "inf"
        grid.add_row(
            budget["epsilon"],
            budget["unit"] or "-",
            "silent" if budget["unit"] is None else "none" if free else "true" if budget["valid"] else "NOT TRUE",
            f"{budget['exact_epsilon_episode']:.4g}",
            f"{budget['return_mean']:.2f}",
            "{:.2f} to {:.2f}".format(*budget["return_ci95"]),
            str(len(budget["returns"])),
        )
    return drawn(grid) + f"return: sum of an episode's rewards ({summary['reward_unit']})"
