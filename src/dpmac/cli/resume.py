"""`dpmac resume`: go on where a run stopped; the result is bit-identical."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from dpmac.cli import emit, parse


@dataclass(frozen=True)
class Resume:
    """Continue a run that was interrupted. The result is bit-identical to that of an uninterrupted run. Its loggers
    continue, too."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    quiet: bool = False
    """Print no progress, only the result."""
    verbose: bool = False
    """Print all metrics after every evaluation, and a traceback for unexpected errors."""
    json: bool = False
    """Print the result as JSON."""


def run(argv: Sequence[str]) -> None:
    options = parse(Resume, argv, "dpmac resume", "dpmac resume runs/ccn")
    from dpmac.analysis.evaluate import closing
    from dpmac.cli import progress
    from dpmac.results import loggers, store
    from dpmac.runner import population

    progress.check_seconds(options.checkpoint_seconds)
    progress.check_loudness(options.quiet, options.verbose)
    progress.use_cache()
    population.check(store.load_config(options.folder))
    pieces = population.train_folder(options.folder, options.checkpoint_seconds)
    logs = loggers.of_folder(options.folder)
    progress.follow(options.folder, pieces, options.quiet or options.json, logs, options.verbose)
    found = closing(options.folder)
    emit(found, options.json, lambda: progress.table(found))
