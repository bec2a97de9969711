"""`dpmac plot`: learning curves of one or many runs, as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from dpmac.cli import emit, parse


@dataclass(frozen=True)
class Plot:
    """Draw learning curves of runs: a curve for each run and budget, the interquartile mean over seeds with its 95 %
    interval. Unfinished runs are drawn as far as they are."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs."""
    out: Path
    """The picture: .png or .svg."""
    training: bool = False
    """Draw what private training costs instead: return against training episodes, from folders or sweep.json files of
    sweeps over train_epsilon."""
    metric: str = "return"
    """What to draw: a name in metrics.csv."""
    json: bool = False
    """Print the result as JSON."""


def run(argv: Sequence[str]) -> None:
    options = parse(Plot, argv, "dpmac plot", "dpmac plot runs/one runs/two --out curves.png")
    from dpmac.figures import curves, training

    if options.training:
        training.files([training.read(path) for path in options.runs], [options.out])
    else:
        curves.plot(options.runs, options.out, options.metric)
    emit({"picture": str(options.out)}, options.json, lambda: str(options.out))
