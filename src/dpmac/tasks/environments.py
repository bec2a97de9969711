"""Environments of other people, as NumPy sees them: how one is found, what its agents observe, and how they may act.

Any PettingZoo `ParallelEnv` will do. Observations are flattened and padded with zeros to the longest; actions are
numbers, which stand for points of a grid where an environment wants continuous ones.
"""

import importlib
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpmac.config import BadInput, require

FORM = "an environment is named pettingzoo:package.module, or pettingzoo:package.module:Name"
MOST_ACTIONS = 127
"""Replay keeps actions as bytes."""


def build(source: str, settings: Mapping[str, Any]) -> Any:
    """A new environment: what `parallel_env` of `package.module`, or the class `package.module:Name`, makes of these
    settings."""
    try:
        import gymnasium  # noqa: F401
    except ImportError:
        raise BadInput("environments of PettingZoo need it and Gymnasium: pip install pettingzoo gymnasium") from None
    module, _, attribute = source.partition(":")
    attribute = attribute or "parallel_env"
    if "" not in sys.path:
        sys.path.append("")  # a user's own module lies in the working directory
    try:
        constructor = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"cannot load {attribute} of {module!r}: {error}; {FORM}") from None
    # A configuration that was read may name this, so nothing is called that does not look like an environment.
    shaped = isinstance(constructor, type) and hasattr(constructor, "reset") and hasattr(constructor, "step")
    require(shaped or attribute == "parallel_env", f"{source} is not the class of a PettingZoo ParallelEnv; {FORM}")
    try:
        env = constructor(**settings)
    except Exception as error:  # whatever somebody else's code makes of its options
        given = ", ".join(f"{key}={value}" for key, value in settings.items()) or "no options"
        raise BadInput(f"{source} cannot be made with {given}: {error}{takes(constructor)}") from None
    members = ("reset", "step", "observation_space", "action_space")
    parallel = all(callable(getattr(env, member, None)) for member in members) and not hasattr(env, "agent_iter")
    require(parallel, f"{source} gives a {type(env).__name__}, not a PettingZoo ParallelEnv; {FORM}")
    return env


def takes(constructor: Any) -> str:
    """The options of a constructor, if it says them."""
    try:
        parameters = inspect.signature(constructor).parameters.values()
    except (TypeError, ValueError):
        return ""
    names = [item.name for item in parameters if item.kind not in (item.VAR_KEYWORD, item.VAR_POSITIONAL)]
    return f"; it takes {', '.join(names)}" if names else ""


class Layout(NamedTuple):
    """What the spaces of an environment say, agent by agent."""

    names: tuple[str, ...]
    spaces: tuple[Any, ...]
    """Of observations."""
    features: int
    """Numbers in the longest observation."""
    counts: tuple[int, ...]
    """Actions of each agent."""
    meanings: tuple[Callable[[int], Any], ...]
    """What the environment takes for an action below the count."""

    @classmethod
    def of(cls, source: str, env: Any, levels: int) -> "Layout":
        """The layout of an environment; spaces that cannot be used are refused."""
        from gymnasium.spaces import flatdim

        names = tuple(getattr(env, "possible_agents", ()))
        require(bool(names), f"{source} names no possible_agents")
        spaces = tuple(env.observation_space(name) for name in names)
        for name, space in zip(names, spaces, strict=True):
            check_observations(f"{source}: {name}", space)
        acting = [meaning(f"{source}: {name}", env.action_space(name), levels) for name in names]
        counts, meanings = zip(*acting, strict=True)
        return cls(names, spaces, max(int(flatdim(space)) for space in spaces), counts, meanings)

    def gather(self, observations: Mapping[str, Any]) -> np.ndarray:
        """The environment's observations as a team takes them, (agent, feature); agents that are gone see zeros."""
        from gymnasium.spaces import flatten

        found = np.zeros((len(self.names), self.features), np.float32)
        for row, (name, space) in enumerate(zip(self.names, self.spaces, strict=True)):
            if name in observations:
                flat = np.asarray(flatten(space, observations[name]))
                found[row, : len(flat)] = flat
        return found

    def assign(self, actions: Sequence[int] | np.ndarray, present: Sequence[str]) -> dict[str, Any]:
        """A team's actions (agent,) as the environment takes them, for the agents that are present.

        An agent with fewer actions than another has its first ones again.
        """
        each = zip(self.names, actions, self.counts, self.meanings, strict=True)
        return {name: mean(int(action) % count) for name, action, count, mean in each if name in present}


def check_observations(who: str, space: Any) -> None:
    """Bad input unless observations can be flattened."""
    from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

    fits = isinstance(space, (Box, Discrete, MultiBinary, MultiDiscrete))
    kinds = "Box, Discrete, MultiBinary and MultiDiscrete, which are flattened"
    require(fits, f"{who} observes a {type(space).__name__} space; allowed are {kinds}")


def meaning(who: str, space: Any, levels: int) -> tuple[int, Callable[[int], Any]]:
    """How many actions there are in a space, and what each means."""
    from gymnasium.spaces import Box, Discrete

    allowed = f"allowed are Discrete spaces of at most {MOST_ACTIONS} actions, and Box spaces with bounds"
    if isinstance(space, Discrete):
        require(int(space.n) <= MOST_ACTIONS, f"{who} has {space.n} actions; {allowed}")
        first = int(space.start)
        return int(space.n), lambda action: first + action
    require(isinstance(space, Box), f"{who} acts in a {type(space).__name__} space; {allowed}")
    require(bool(space.is_bounded()), f"{who} acts in a Box without bounds; {allowed}")
    points = grid(space.low.ravel(), space.high.ravel(), levels)
    require(len(points) <= MOST_ACTIONS, f"{who}: levels={levels} makes {len(points)} actions; {allowed}")
    if np.issubdtype(space.dtype, np.integer):
        points = np.rint(points)
    made = points.reshape(-1, *space.shape).astype(space.dtype)
    return len(made), lambda action: made[action]


def grid(low: np.ndarray, high: np.ndarray, levels: int) -> np.ndarray:
    """Points (action, number) of a box: all combinations of so many levels of each number, if they are few enough;
    otherwise the middle of the box, and what is reached from there by moving one number to one of its levels.

    >>> grid(np.array([-1.0]), np.array([1.0]), 3).ravel().tolist()
    [-1.0, 0.0, 1.0]
    """
    axes = np.linspace(low.astype(float), high.astype(float), levels).T
    if levels ** len(axes) <= MOST_ACTIONS:
        return np.array(list(itertools.product(*axes)))
    middle = (axes[:, 0] + axes[:, -1]) / 2
    moves = ((index, value) for index, axis in enumerate(axes) for value in axis)
    moved = [np.where(np.arange(len(axes)) == index, value, middle) for index, value in moves]
    return np.unique(np.array([middle, *moved]), axis=0)
