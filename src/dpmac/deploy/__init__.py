"""Trained teams at work: each agent with its own noise, its own account and nothing of the others.

`Agent` is one agent for programs that embed it; `dpmac deploy` runs it as a process of its own.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpmac.deploy.agent import Agent

__all__ = ["Agent"]


def __getattr__(name: str) -> Any:
    if name == "Agent":
        from dpmac.deploy.agent import Agent

        return Agent
    raise AttributeError(f"module 'dpmac.deploy' has no attribute {name!r}")
