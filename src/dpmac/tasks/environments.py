"""Environments of other people, as NumPy sees them: how one is found, what its agents observe, and how they may act.

Any PettingZoo `ParallelEnv` will do. Observations are flattened and padded with zeros to the longest; actions are
numbers, which stand for combinations where an action has several parts, and for points of a grid where it is
continuous. Which actions are allowed is taken from `action_mask`, in an observation or beside it.
"""

import importlib
import inspect
import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpmac.config import BadInput, require

MASK = "action_mask"
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
    except (ImportError, AttributeError, TypeError, ValueError) as error:
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


def cycles_of(env: Any) -> Any:
    """Steps after which an environment cuts episodes off, if it says so."""
    return getattr(getattr(env, "unwrapped", env), "max_cycles", None)


class Layout(NamedTuple):
    """What the spaces of an environment say, agent by agent."""

    names: tuple[str, ...]
    spaces: tuple[Any, ...]
    """Of observations."""
    features: int
    """Numbers in the longest observation."""
    counts: tuple[int, ...]
    """Actions of each agent."""
    meanings: tuple[Sequence[Any], ...]
    """What the environment takes for each action."""
    masked: bool
    """Whether the environment says which actions are allowed."""
    cycles: Any
    """What `cycles_of` says."""

    @classmethod
    def of(cls, source: str, env: Any, levels: int) -> "Layout":
        """The layout of an environment; spaces that cannot be used are refused."""
        from gymnasium.spaces import flatdim

        names = tuple(getattr(env, "possible_agents", ()))
        require(bool(names), f"{source} names no possible_agents")
        whole = [env.observation_space(name) for name in names]
        spaces = tuple(seen_part(space) for space in whole)
        for name, space in zip(names, spaces, strict=True):
            check_observations(f"{source}: {name}", space)
        meanings = tuple(actions_of(f"{source}: {name}", env.action_space(name), levels) for name in names)
        features, counts = max(int(flatdim(space)) for space in spaces), tuple(map(len, meanings))
        found = cls(names, spaces, features, counts, meanings, any(map(is_masked, whole)), cycles_of(env))
        try:
            observations, infos = env.reset(seed=0)
            found.gather(observations)
            return found._replace(masked=found.masked or any(MASK in infos.get(name, {}) for name in names))
        except Exception as error:  # whatever somebody else's code does
            raise BadInput(f"{source} does not follow PettingZoo's interface in reset(seed=0): {error}") from None

    def gather(self, observations: Mapping[str, Any]) -> np.ndarray:
        """The environment's observations as a team takes them, (agent, feature); agents that are gone see zeros."""
        from gymnasium.spaces import flatdim, flatten

        found = np.zeros((len(self.names), self.features), np.float32)
        for row, (name, space) in enumerate(zip(self.names, self.spaces, strict=True)):
            if name in observations:
                flat, size = np.asarray(flatten(space, seen_part(observations[name]))), flatdim(space)
                require(len(flat) == size, f"{name} observes {len(flat)} numbers, and its space has {size}")
                found[row, : len(flat)] = flat
        return found

    def allowed(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> np.ndarray:
        """Which actions (agent, action) are allowed; an agent that says nothing, or is gone, may do all that it has."""
        found = np.zeros((len(self.names), max(self.counts)), bool)
        for row, (name, count) in enumerate(zip(self.names, self.counts, strict=True)):
            seen: Any = observations.get(name)
            mask = seen[MASK] if is_masked(seen) else infos.get(name, {}).get(MASK)
            found[row, :count] = True if mask is None or not np.any(mask) else np.asarray(mask, bool)
        return found

    def assign(self, actions: Sequence[int] | np.ndarray, present: Sequence[str]) -> dict[str, Any]:
        """A team's actions (agent,) as the environment takes them, for the agents that are present.

        An agent with fewer actions than another has its first ones again.
        """
        each = zip(self.names, actions, self.counts, self.meanings, strict=True)
        return {name: means[int(action) % count] for name, action, count, means in each if name in present}


def is_masked(seen: Any) -> bool:
    """Whether an observation, or its space, has a mask beside what is seen."""
    parts = getattr(seen, "spaces", seen)
    return isinstance(parts, Mapping) and MASK in parts


def seen_part(seen: Any) -> Any:
    """An observation, or its space, without the mask: `observation`, where there is nothing else."""
    if not is_masked(seen):
        return seen
    parts = {name: part for name, part in getattr(seen, "spaces", seen).items() if name != MASK}
    return next(iter(parts.values())) if len(parts) == 1 else type(seen)(parts)


def check_observations(who: str, space: Any) -> None:
    """Bad input unless observations can be flattened."""
    from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

    if isinstance(space, (Dict, Tuple)):
        for part in space.spaces.values() if isinstance(space, Dict) else space.spaces:
            check_observations(who, part)
        return
    fits = isinstance(space, (Box, Discrete, MultiBinary, MultiDiscrete))
    kinds = "Box, Discrete, MultiBinary and MultiDiscrete, and Dict and Tuple of these, which are flattened"
    require(fits, f"{who} observes a {type(space).__name__} space; allowed are {kinds}")


def actions_of(who: str, space: Any, levels: int) -> Sequence[Any]:
    """All actions of a space, in the order of their numbers: of one that has parts, all combinations."""
    from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

    allowed = (
        f"allowed are at most {MOST_ACTIONS} actions: a Discrete space, MultiBinary, MultiDiscrete, a Box with bounds, "
        "and Dict and Tuple of these"
    )

    def fit(count: int) -> None:
        levelled = f"levels={levels} makes {count}" if isinstance(space, Box) else f"has {count}"
        require(count <= MOST_ACTIONS, f"{who} {levelled} actions; {allowed}")

    def combined(parts: Iterable[Iterable[Any]]) -> list[tuple[Any, ...]]:
        parts = [list(part) for part in parts]
        fit(math.prod(map(len, parts)))
        return list(itertools.product(*parts))

    if isinstance(space, Discrete):
        fit(int(space.n))
        return range(int(space.start), int(space.start + space.n))
    if isinstance(space, (MultiBinary, MultiDiscrete)):
        multi = isinstance(space, MultiDiscrete)
        counts = np.ravel(space.nvec) if multi else np.full(int(np.prod(space.shape)), 2)
        start = np.ravel(space.start) if multi else np.zeros_like(counts)
        found = combined(range(first, first + count) for first, count in zip(start, counts, strict=True))
        return [np.array(one, space.dtype).reshape(space.shape) for one in found]
    if isinstance(space, Tuple):
        return combined(actions_of(who, part, levels) for part in space.spaces)
    if isinstance(space, Dict):
        parts = combined(actions_of(who, part, levels) for part in space.spaces.values())
        return [dict(zip(space.spaces, one, strict=True)) for one in parts]
    require(isinstance(space, Box), f"{who} acts in a {type(space).__name__} space; {allowed}")
    require(bool(space.is_bounded()), f"{who} acts in a Box without bounds; {allowed}")
    points = grid(space.low.ravel(), space.high.ravel(), levels)
    fit(len(points))
    if np.issubdtype(space.dtype, np.integer):
        points = np.rint(points)
    return list(points.reshape(-1, *space.shape).astype(space.dtype))


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
