"""What a person sees of a run while it trains."""

import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.table import Table

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
    claims = store.read_json(folder / "privacy.json")["claims"]
    for label, entries in claims.items():
        for text in dict.fromkeys(warning for entry in entries if not entry["valid"] for warning in entry["warnings"]):
            print(f"warning: epsilon {label}: {text}", file=sys.stderr)


def check_loudness(quiet: bool, verbose: bool) -> None:
    require(not (quiet and verbose), "--quiet and --verbose exclude each other")


def check_seconds(value: float) -> None:
    require(value >= 0, f"checkpoint-seconds must be at least 0, not {value:g}")


def follow(
    folder: Path, pieces: Generator[Any, None, None], quiet: bool, loggers: list[Logger], verbose: bool = False
) -> None:
    """Train to the end, showing progress; Ctrl-C ends after the piece in hand, saves and says how to go on."""
    console = Console(stderr=True)
    begun, shown, before = time.monotonic(), 0.0, None
    state = "stopped, the last checkpoint stands"
    every = 0.0 if verbose else 1.0 if console.is_terminal else 10.0
    with Interrupt() as interrupt:
        try:
            for piece in pieces:
                speed = rate(before, piece)
                before = piece
                for log in loggers:
                    log(piece.rows)
                last = piece.step == piece.steps
                if not quiet and (last or time.monotonic() - shown > every):
                    shown = time.monotonic()
                    end = "\r" if console.is_terminal and not last and not verbose else "\n"
                    console.print(line(piece, shown - begun) + speed, highlight=False, soft_wrap=True, end=end)
                if verbose and not quiet:
                    console.print(details(piece), highlight=False, soft_wrap=True)
                if interrupt.asked and not last:
                    pieces.close()
                    state = "saved"
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            console.print(f"{state}; go on with: dpmac resume {folder}", highlight=False, soft_wrap=True)
            raise


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


def line(piece: Any, seconds: float) -> str:
    """Steps, time left and the mean return of each budget."""
    returns = defaultdict(list)
    for row in piece.rows:
        if row.name == "return":
            returns[row.budget].append(row.value)
    share = (piece.group + piece.step / piece.steps) / piece.groups
    left = seconds * (1 - share) / share
    scores = "  ".join(f"ε={budget}: {sum(values) / len(values):.1f}" for budget, values in returns.items())
    return f"{piece.step:>9,}/{piece.steps:,} steps  {clock(left)} left  return {scores}"


def details(piece: Any) -> str:
    """Everything that was measured, each as its mean over all runs."""
    found = defaultdict(list)
    for row in piece.rows:
        found[row.name].append(row.value)
    return "  ".join(f"{name} {sum(values) / len(values):.4g}" for name, values in sorted(found.items()))


def rate(before: Any, piece: Any) -> str:
    """Environment steps a second, evaluations not counted; the first piece has compilation in it and says none."""
    if before is None or before.group != piece.group:
        return ""
    runs = len({(row.budget, row.seed) for row in piece.rows})
    return f"  {(piece.step - before.step) * runs / piece.seconds:,.0f} steps/s"


def clock(seconds: float) -> str:
    """3723 seconds are 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def table(summary: dict[str, Any]) -> str:
    """The summary for people."""
    console = Console(width=100)
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
    with console.capture() as text:
        console.print(grid)
    return text.get() + f"return: {summary['reward_unit']}"
