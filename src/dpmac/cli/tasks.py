"""`dpmac tasks`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from dpmac import cli, config

SIZES = ("agents", "actions", "observation_size", "horizon")


@dataclass(frozen=True)
class Options:
    """List tasks: sizes, horizon, reward unit, and the returns of a random and of a scripted policy."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Tasks, by name, as package.module:Name or as pettingzoo:package.module; by default all that are registered."""
    set: tuple[str, ...] = ()
    """Options of the tasks, as KEY=VALUE."""
    episodes: int = 1000
    """Episodes for each return."""
    seed: int = 0
    """Seed of the episodes."""
    film: Path | None = None
    """Also film one episode of the first task, scripted if it has a script; the name ends in .gif, .webp or .png."""
    json: bool = False
    """Print JSON."""


def run(argv: Sequence[str]) -> None:
    options = cli.parse(Options, argv, "dpmac tasks", "dpmac tasks cn pp --set view_radius=0.5 --json")
    config.require(
        2 <= options.episodes <= 10**5, f"episodes must be at least 2 and at most 100,000, not {options.episodes}"
    )
    config.require(0 <= options.seed < 2**32, f"seed must lie in [0, 2^32), not {options.seed}")
    from dpmac import plugins, tasks
    from dpmac.cli import progress
    from dpmac.tasks import render

    if options.film:
        render.film_path(options.film)
    chosen = options.names or tuple(tasks.names())
    settings = plugins.settings(options.set)
    found = [tasks.make(name, **settings) for name in chosen]
    progress.use_cache()
    rows, tell = [], progress.nothing if options.json else progress.tell
    for name, task in zip(chosen, found, strict=True):
        tell(f"{len(rows) + 1}/{len(found)} {name}")
        rows.append({"name": name, **tasks.described(task, options.seed, options.episodes)})
    if options.film:
        from dpmac.analysis import film

        film.save_scripted(found[0], options.seed, options.film)
    cli.emit(rows, options.json, lambda: table(rows) + (f"\nfilm: {options.film}" if options.film else ""))


def table(rows: list[dict[str, Any]]) -> str:
    """The same for people."""
    grid: list[tuple[str, ...]] = [("task", "agents", "actions", "observes", "horizon", "random", "scripted")]
    for row in rows:
        earned = [worth(row[policy]) if policy in row else "-" for policy in ("random", "scripted")]
        grid.append((row["name"], *(str(row[key]) for key in SIZES), *earned))
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in grid]
    units = [f"{row['name']}: {row['reward_unit']}" for row in rows]
    said = f"Returns: sums of an episode's rewards, mean ± standard error of {rows[0]['episodes']} episodes. Rewards:"
    return "\n".join([*lines, "", said, *units])


def worth(earned: dict[str, float]) -> str:
    return f"{earned['return_mean']:.2f} ± {earned['return_se']:.2f}"
