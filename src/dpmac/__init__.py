"""dpmac: a team of learning agents that talk while each keeps its own secrets, and a true statement of how well.

What a notebook needs is here: `train`, `load`, `evaluate`, `plot`, `tasks`, `privacy`, `games` and the classes of a
configuration. Whatever needs JAX is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dpmac.config import BadInput, Budget, Channel, NetworkConfig, PrivateTraining, RunConfig, Training

if TYPE_CHECKING:
    from dpmac import games, privacy, tasks
    from dpmac.analysis.evaluate import evaluate
    from dpmac.deploy.team import load
    from dpmac.figures.curves import plot
    from dpmac.runner.folder import train

__version__ = "0.2.0"

__all__ = [
    "BadInput",
    "Budget",
    "Channel",
    "NetworkConfig",
    "PrivateTraining",
    "RunConfig",
    "Training",
    "evaluate",
    "games",
    "load",
    "plot",
    "privacy",
    "tasks",
    "train",
]

_FUNCTIONS = {
    "evaluate": "dpmac.analysis.evaluate",
    "load": "dpmac.deploy.team",
    "plot": "dpmac.figures.curves",
    "train": "dpmac.runner.folder",
}
_MODULES = ("games", "privacy", "tasks")


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"dpmac.{name}")
    raise AttributeError(f"module 'dpmac' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
