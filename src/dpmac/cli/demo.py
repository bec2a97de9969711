"""`dpmac demo`: train with and without messages at a laptop's size, and show what came of it."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from dpmac.cli import drawn, emit, parse


@dataclass(frozen=True)
class Demo:
    """Train a small example of cooperative communication and navigation. Each of two agents has to reach a landmark
    that only the other one knows. One team sends one private symbol an episode, the other sends nothing. Print their
    returns beside the limit for every mechanism, and the privacy statement; draw curves and a film."""

    out: Path = Path("demo")
    """Folder for the runs, curves.png and episode.gif. Existing runs are not trained again."""
    json: bool = False
    """Print the result as JSON."""


def run(argv: Sequence[str]) -> None:
    options = parse(Demo, argv, "dpmac demo", "dpmac demo --out demo")
    from dpmac.analysis import demo, film
    from dpmac.cli import progress
    from dpmac.figures import demo as drawing
    from dpmac.runner import population
    from dpmac.runner.folder import begin

    progress.use_cache()
    begun = time.monotonic()
    for name, config in demo.configurations().items():
        folder = begin(options.out / name, config)
        print(f"training {name}: {len(population.runs_of(config))} runs side by side", file=sys.stderr)
        progress.follow(folder, population.train_folder(folder), quiet=False, loggers=[])
    result = demo.summary(options.out)
    drawing.curves(options.out)
    film.save(options.out / "dpmac", options.out / "episode.gif")
    result["seconds"] = time.monotonic() - begun
    emit(result, options.json, lambda: text(result, options.out))
    if not result["separated"]:
        print("dpmac: the returns with and without messages overlap; something is wrong", file=sys.stderr)
        raise SystemExit(1)


def text(result: dict[str, Any], out: Path) -> str:
    """The result for people."""
    table = Table(title=f"{result['task']}: each agent has to reach a landmark that only the other one knows")
    for name in ("method", "ε of an episode", "claim", "return of each seed", "limit"):
        table.add_column(name)
    for row in result["runs"]:
        claim = (
            "-" if row["valid"] is None else f"true, exactly {row['exact_epsilon']:.4g}" if row["valid"] else "NOT TRUE"
        )
        returns = "  ".join(f"{value:.2f}" for value in row["returns"])
        table.add_row(row["method"], row["epsilon"], claim, returns, f"{row['limit']:.2f}")
    verdict = "do not overlap: messages help" if result["separated"] else "OVERLAP"
    return (
        f"{drawn(table, 110)}Ranges with and without messages {verdict}. {result['seconds']:.0f} s.\n"
        "return: mean over starts, all secrets and all releases.\n"
        "limit: what no mechanism of this ε passes there; for silence, what scripted walkers earn.\n"
        f"Look at {out / 'curves.png'} and {out / 'episode.gif'}; {out / 'dpmac' / 'privacy.json'} is the statement."
    )
