"""Cooperative tasks as pure functions: `make` builds one by name, `register` adds one from outside."""

from dpmac.tasks.base import (
    REGISTRY,
    Abilities,
    Body,
    Scene,
    State,
    Task,
    abilities,
    advance,
    allowed,
    each_episode,
    find,
    make,
    names,
    register,
)
from dpmac.tasks.references import described, reference_returns

__all__ = [
    "REGISTRY",
    "Abilities",
    "Body",
    "Scene",
    "State",
    "Task",
    "abilities",
    "advance",
    "allowed",
    "described",
    "each_episode",
    "find",
    "make",
    "names",
    "reference_returns",
    "register",
]
