"""`dpmac bench env | train`."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from dpmac import cli

COMMANDS = {
    "env": "environment steps per second, beside other people's environments",
    "train": "updates per second of a training run",
}


def run(argv: Sequence[str]) -> None:
    cli.choose("dpmac bench", COMMANDS, argv, load)


def load(name: str) -> Callable[[Sequence[str]], Any]:
    return getattr(importlib.import_module(f"dpmac.cli.bench_{name}"), f"run_{name}")
