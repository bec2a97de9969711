"""Where the numbers of a run go besides metrics.csv: TensorBoard and Weights & Biases, if asked for.

Each budget and seed is a run of its own there, so that a chart shows one metric with a curve for each of them. What was
asked for is kept in loggers.json, and a resumed run goes on in the same places. A failure is told once and never stops
training.
"""

import importlib.util
import math
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dpmac.config import BadInput, require, to_json
from dpmac.results import store
from dpmac.results.store import Metric

Logger = Callable[[list[Metric]], None]
"""Takes the rows of one evaluation."""
FILE = "loggers.json"
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}
TITLES = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases"}


@dataclass(frozen=True)
class Wanted:
    """What is asked for."""

    tensorboard: bool = False
    wandb: bool = False

    def check(self) -> None:
        """Bad input where a package that is needed is not installed."""
        for name, package in PACKAGES.items():
            there = not getattr(self, name) or importlib.util.find_spec(package) is not None
            require(there, f"--{name} needs the package {package}: pip install {package}")

    def write(self, folder: Path) -> None:
        """Keep it in a run's folder, where there is something to keep."""
        if self.tensorboard or self.wandb:
            names = {name: getattr(self, name) for name in PACKAGES}
            store.write_json(folder / FILE, {**names, "id": secrets.token_hex(4)})


def of_folder(folder: Path) -> list[Logger]:
    """The loggers that a run's folder asks for."""
    path = folder / FILE
    if not path.exists():
        return []
    kept = store.read_json(path)
    sound = isinstance(kept, dict) and kept.keys() == {*PACKAGES, "id"} and str(kept["id"]).isalnum()
    if not sound or not all(isinstance(kept[name], bool) for name in PACKAGES):
        raise BadInput(f"{path} is damaged; without it the run goes on, and logs nothing")
    Wanted(**{name: kept[name] for name in PACKAGES}).check()
    makers = {"tensorboard": to_tensorboard, "wandb": to_wandb}
    return [
        forgiving(TITLES[name], partial(each_run, partial(maker, folder, kept["id"])))
        for name, maker in makers.items()
        if kept[name]
    ]


def each_run(make: Callable[[str, int, int], Callable[[int, dict[str, float]], None]]) -> Logger:
    """A logger with a writer for each budget and seed, made when it is first needed; numbers alone, no infinities."""
    writers: dict[tuple[str, int], Any] = {}

    def log(rows: list[Metric]) -> None:
        for budget, seed in dict.fromkeys((row.budget, row.seed) for row in rows):
            mine = {
                row.name: row.value
                for row in rows
                if (row.budget, row.seed) == (budget, seed) and math.isfinite(row.value)
            }
            step = rows[0].step
            if (budget, seed) not in writers:
                writers[budget, seed] = make(budget, seed, step)
            writers[budget, seed](step, mine)

    return log


def to_tensorboard(folder: Path, _: str, budget: str, seed: int, step: int) -> Callable[[int, dict[str, float]], None]:
    """Events of one run in events/; those of a process that was killed, from this step on, are replaced."""
    from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]

    place = folder / "events" / f"epsilon-{budget.replace(':', '-').replace(' ', '-')}" / f"seed-{seed}"
    writer = SummaryWriter(str(place), purge_step=step)

    def log(step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return log


def to_wandb(folder: Path, mark: str, budget: str, seed: int, _: int) -> Callable[[int, dict[str, float]], None]:
    """One run of Weights & Biases with the configuration, in a group for the folder; what its environment variables
    say is left to them."""
    import wandb  # pyright: ignore[reportMissingImports]

    name = f"epsilon-{budget}-seed-{seed}"
    usual = {"WANDB_PROJECT": ("project", "dpmac"), "WANDB_RUN_GROUP": ("group", folder.name)}
    usual |= {"WANDB_DIR": ("dir", str(folder))}
    chosen: dict[str, Any] = {
        option: value for variable, (option, value) in usual.items() if variable not in os.environ
    }
    config = {**to_json(store.load_config(folder)), "budget": budget, "seed": seed}
    run = wandb.init(
        name=name,
        id=f"{mark}-{store.digest([budget, seed])[:12]}",
        config=config,
        resume="allow",
        reinit="create_new",
        **chosen,
    )
    return lambda step, values: run.log(values, step=step)


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
