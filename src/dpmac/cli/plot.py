"""`dpmac plot`: learning curves of one or many runs, as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from dpmac.cli import emit, parse


@dataclass(frozen=True)
class Plot:
    """Draw learning curves of runs. Each run and budget has one curve: the interquartile mean over seeds with its 95 %
    interval. Unfinished runs are drawn up to their last evaluation."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs."""
    out: Path
    """File of the picture: .png or .svg."""
    training: bool = False
    """Draw the cost of private training instead: return against training episodes, from folders or sweep.json files of
    sweeps over train_epsilon."""
    agents: bool = False
    """Draw return and training time against the number of agents instead, from folders or frontier.json files of
    frontiers that differ in the task's option agents. Also print them as a table."""
    metric: str = "return"
    """Metric to draw, by its name in metrics.csv."""
    json: bool = False
    """Print the result as JSON."""


def run(argv: Sequence[str]) -> None:
    options = parse(Plot, argv, "dpmac plot", "dpmac plot runs/one runs/two --out curves.png")
    from dpmac.figures import agents, curves, training

    text = str(options.out)
    if options.agents:
        found = [agents.read(path) for path in options.runs]
        agents.files(found, [options.out])
        text = f"{agents.table(found)}\n{text}"
    elif options.training:
        training.files([training.read(path) for path in options.runs], [options.out])
    else:
        curves.plot(options.runs, options.out, options.metric)
    emit({"picture": str(options.out)}, options.json, lambda: text)
