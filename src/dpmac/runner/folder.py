"""One configuration in one folder, from wherever it stands to its end: what a notebook calls."""

import contextlib
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from dpmac.config import RunConfig, require
from dpmac.results import store
from dpmac.runner import population
from dpmac.runner.population import Loaded, Progress
from dpmac.runner.train import complete


def train(config: RunConfig, out: str | PathLike[str], progress: Callable[[Progress], object] | None = None) -> Loaded:
    """Train every budget and every seed of a configuration in a folder, and return its teams.

    A folder without a run is created. One that holds this configuration is resumed, or only loaded where it is
    finished; one that holds another is `BadInput`. `progress` gets a `Progress` after each evaluation; an exception
    from it stops training with everything saved, and the same call goes on from there, bit-identical.
    """
    require(isinstance(config, RunConfig), f"a configuration is a dpmac.config.RunConfig, not {config!r:.80}")
    folder = begin(Path(out), config)
    with contextlib.closing(population.train_folder(folder)) as pieces:
        for piece in pieces:
            if progress is not None:
                progress(piece)
    return population.load(folder)


def begin(folder: Path, config: RunConfig) -> Path:
    """The folder with this configuration in it, new or begun before; one that holds another run is refused."""
    if not (folder / "config.json").exists():
        population.create(folder, config)
    require(store.load_config(folder) == complete(config), f"{folder} holds another run; choose another --out")
    return folder
