"""Learning curves of any runs, from their metrics alone."""

import itertools
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dpmac.config import require
from dpmac.figures import plots
from dpmac.results import stats, store
from dpmac.results.store import Metric

ENDINGS = (".png", ".svg")


def plot(
    runs: str | PathLike[str] | Sequence[str | PathLike[str]],
    out: str | PathLike[str] | None = None,
    metric: str = "return",
) -> Figure:
    """Draw a metric of runs over training, and write it to a file (.png or .svg) where one is named.

    runs: the folder of a run, or several. There is one curve for each run and budget: the interquartile mean over
    seeds, with its 95 % bootstrap interval where there are several seeds. metric: a name in metrics.csv.
    """
    folders = [Path(runs)] if isinstance(runs, str | PathLike) else [Path(run) for run in runs]
    path = None if out is None else Path(out)
    require(len(folders) > 0, "name the folder of at least one run")
    require(path is None or path.suffix in ENDINGS, f"a picture's name ends in {', '.join(ENDINGS)}, not {path}")
    with plots.canvas(7, 4) as figure:
        axes = figure.subplots()
        for named, folder in zip(names_of(folders), folders, strict=True):
            config, rows = store.load_config(folder), of_metric(folder, metric)
            for label in config.labels:
                steps, values = table_of([row for row in rows if row.budget == label])
                if not len(steps):  # of a group whose turn has not come
                    continue
                middle, low, high = stats.curve(values)
                name = f"{named}, ε = {label}" if len(folders) > 1 else f"ε = {label}"
                seeds = f" ({len(values)} seeds)" if len(values) > 1 else ""
                (line,) = axes.plot(steps, middle, linewidth=1.4, label=name + seeds)
                if len(values) > 1:
                    axes.fill_between(steps, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
        tasks = ", ".join(dict.fromkeys(store.load_config(folder).task for folder in folders))
        axes.set(xlabel="environment steps", ylabel=metric.replace("_", " "), title=tasks)
        axes.legend()
        if path is not None:
            plots.save(figure, path)
        return figure


def names_of(folders: Sequence[Path]) -> list[str]:
    """A name for each folder: the last part of its path, or of all paths as many parts as tell them apart."""
    paths = [folder.resolve().parts for folder in folders]
    last = next(count for count in itertools.count(1) if len({path[-count:] for path in paths}) == len(set(paths)))
    return [str(Path(*path[-last:])) for path in paths]


def of_metric(folder: Path, metric: str) -> list[Metric]:
    """Rows of one metric that are finite; bad input where there are none."""
    rows = store.read_metrics(folder)
    names = sorted({row.name for row in rows})
    require(bool(rows), f"{folder} has no evaluation yet")
    require(metric in names, f"{folder} has no metric {metric!r}; it has {', '.join(names)}")
    found = [row for row in rows if row.name == metric and np.isfinite(row.value)]
    require(bool(found), f"{metric} of {folder} is never finite")
    return found


def table_of(rows: Sequence[Metric]) -> tuple[np.ndarray, np.ndarray]:
    """Steps (evaluation,) that all seeds have reached, and values (seed, evaluation)."""
    by_seed: dict[int, dict[int, float]] = {}
    for row in rows:
        by_seed.setdefault(row.seed, {})[row.step] = row.value
    steps = sorted(set.intersection(*map(set, by_seed.values()))) if by_seed else []
    return np.array(steps), np.array([[values[step] for step in steps] for values in by_seed.values()])
