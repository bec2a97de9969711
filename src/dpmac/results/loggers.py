"""Where the numbers of a run go besides metrics.csv."""

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dpmac.config import require
from dpmac.results.store import Metric

Logger = Callable[[list[Metric]], None]
"""Takes the rows of one evaluation."""


def chosen(folder: Path, tensorboard: bool, wandb: bool) -> list[Logger]:
    """Where numbers go besides metrics.csv; a failure there is told once and never stops training."""
    wanted = {
        "tensorboard": ("tensorboardX", "TensorBoard", tensorboard),
        "wandb": ("wandb", "Weights & Biases", wandb),
    }
    makers = {"tensorboard": to_tensorboard, "wandb": to_wandb}
    found = []
    for extra, (module, name, asked) in wanted.items():
        if asked:
            there = importlib.util.find_spec(module) is not None
            require(there, f"--{extra} needs the extra: pip install 'dpmac[{extra}]'")
            found.append(forgiving(name, partial(makers[extra], folder)))
    return found


def to_tensorboard(folder: Path) -> Logger:
    from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]

    writer = SummaryWriter(str(folder / "events"))

    def log(rows: list[Metric]) -> None:
        for row in rows:
            writer.add_scalar(f"{row.name}/epsilon-{row.budget}/seed-{row.seed}", row.value, row.step)
        writer.flush()

    return log


def to_wandb(folder: Path) -> Logger:
    import wandb  # pyright: ignore[reportMissingImports]

    wandb.init(project="dpmac", name=folder.name, dir=str(folder))

    def log(rows: list[Metric]) -> None:
        values = {f"{row.name}/epsilon-{row.budget}/seed-{row.seed}": row.value for row in rows}
        wandb.log(values, step=rows[0].step)

    return log


def forgiving(name: str, make: Callable[[], Logger]) -> Logger:
    """A logger, made when it is first used, whose first failure is told and ends it."""
    log, alive = None, True

    def attempt(rows: list[Metric]) -> None:
        nonlocal log, alive
        if alive:
            try:
                log = log or make()
                log(rows)
            except (Exception, SystemExit) as error:  # whatever a service does must not stop training
                alive = False
                print(f"warning: {name} failed and is left alone from here on: {error}", file=sys.stderr)

    return attempt
