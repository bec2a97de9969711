"""dpmac: a team of learning agents that talk while each keeps its own secrets, and a true statement of how well."""

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {"load": "dpmac.deploy.team"}
"""Public functions that need JAX; importing `dpmac` alone does not import it."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'dpmac' has no attribute {name!r}")
