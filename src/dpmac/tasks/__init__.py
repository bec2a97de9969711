"""Cooperative tasks as pure functions: `make` builds one by name, `register` adds one from outside."""

from dpmac.tasks.base import (
    REGISTRY,
    Body,
    Scene,
    State,
    Task,
    each_episode,
    find,
    make,
    names,
    options,
    register,
    settings,
)
from dpmac.tasks.references import reference_returns

__all__ = [
    "REGISTRY",
    "Body",
    "Scene",
    "State",
    "Task",
    "each_episode",
    "find",
    "make",
    "names",
    "options",
    "reference_returns",
    "register",
    "settings",
]
