"""What a task is, and the registry that finds one by name.

A task is a frozen dataclass: its fields are its options, it is hashable, and so it is static under `jit`. It describes
one episode; `vmap` makes many.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import jax

from dpmac import plugins
from dpmac.config import BadInput, require

State = Any
"""A `NamedTuple` of arrays; each task has its own."""


class Body(NamedTuple):
    """Something to draw: a disc or a square of this radius at (x, y)."""

    x: float
    y: float
    radius: float
    colour: tuple[float, float, float]
    label: str = ""
    shape: Literal["disc", "square"] = "disc"


class Scene(NamedTuple):
    """What the renderer needs of a state: the agents in their order, then everything else."""

    agents: tuple[Body, ...]
    others: tuple[Body, ...] = ()
    picture: Any = None
    """RGB bytes (height, width, 3) that stand for all bodies, from an environment that draws itself."""


class Task(Protocol):
    """A cooperative task of a fixed horizon. `step` never resets: an episode is exactly `horizon` steps from a reset.

    The return of an episode is the sum over time of the mean over agents of the rewards: for a reward that the team
    shares, that is the team's.
    """

    name: ClassVar[str]
    observers: ClassVar[Mapping[str, str]]
    """For every fact of `secrets`, a sentence that says who observes it."""

    @property
    def agents(self) -> int: ...
    @property
    def actions(self) -> int: ...
    @property
    def observation_size(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    @property
    def reward_unit(self) -> str: ...

    def reset(self, key: jax.Array) -> State: ...

    def observe(self, state: State) -> jax.Array:
        """Observations (agent, feature), float32."""
        ...

    def step(self, state: State, actions: jax.Array) -> tuple[State, jax.Array]:
        """The next state and rewards (agent,) for actions (agent,); what chance a task needs is a key in its state."""
        ...

    def scripted(self, state: State) -> jax.Array:
        """Actions (agent,) of a reference policy that knows the secrets."""
        ...

    def secrets(self, state: State) -> dict[str, jax.Array]:
        """Named facts (agent, …) that agent i observes and its messages may reveal."""
        ...

    def scene(self, state: State) -> Scene: ...


class Telling(Task, Protocol):
    """A task in which all that messages can add is one secret of each agent, and which says what to make of it. Agents
    who believe exactly what a channel tells them then show what the channel is worth."""

    @property
    def symbols(self) -> int:
        """How many values the one secret (agent,) of each agent may have, all as likely."""
        ...

    def told(self, state: State, belief: jax.Array) -> jax.Array:
        """Actions (agent,) of agents who believe (agent, symbol) this of each other's secrets."""
        ...


REGISTRY: dict[str, str | type] = {
    "cn": "dpmac.tasks.cn:CN",
    "ccn": "dpmac.tasks.ccn:CCN",
    "pp": "dpmac.tasks.pp:PP",
    "midway": "dpmac.tasks.midway:Midway",
    "probe-value": "dpmac.tasks.probes:ProbeValue",
    "probe-memory": "dpmac.tasks.probes:ProbeMemory",
    "probe-listen": "dpmac.tasks.probes:ProbeListen",
    "probe-neighbour": "dpmac.tasks.probes:ProbeNeighbour",
    "probe-partner": "dpmac.tasks.probes:ProbePartner",
    "binary-sums": "dpmac.tasks.binary_sums:BinarySums",
    "rounds": "dpmac.tasks.rounds:Rounds",
}
"""Tasks by name: a class, or where to import it from."""


def names() -> list[str]:
    """Names that `make` knows."""
    return list(REGISTRY)


def register(name: str, task: str | type) -> None:
    """Add a task under a name: a class, or `package.module:Name`."""
    require(name not in REGISTRY, f"a task named {name!r} exists already")
    REGISTRY[name] = task


def find(name: str) -> type:
    """The class of a task, by its name or as `package.module:Name`."""
    entry = REGISTRY.get(name, name)
    if isinstance(entry, type):
        return entry
    allowed = f"allowed are {', '.join(names())}, or your own as package.module:Name or pettingzoo:package.module"
    require(all(entry.partition(":")), f"unknown task {name!r}; {allowed}")
    found = plugins.load("task", name, entry)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found) and hasattr(found, "reset")):
        raise BadInput(f"{name!r} is not a task, a dataclass with the methods of dpmac.tasks.Task; {allowed}")
    return found


def options(cls: type) -> dict[str, Any]:
    """The options of a task's class and their types."""
    hints = typing.get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls) if item.init}


def make(name: str, **values: Any) -> Task:
    """Build a task; option values may be text, as the command line's `--set key=value` gives them.

    `pettingzoo:package.module` is the environment that its `parallel_env` makes (see `dpmac.tasks.hosted`).

    >>> make("ccn", view_radius="0.5").observation_size
    14
    """
    if name.startswith("pettingzoo:"):
        from dpmac.tasks import hosted

        return hosted.make(name, values)  # type: ignore[return-value]  # it has no script
    cls = find(name)
    kinds = options(cls)
    for option in values:
        require(option in kinds, f"task {name} has no option {option!r}; allowed are {', '.join(kinds)}")
    return cls(**{option: read(f"{name}: {option}", value, kinds[option]) for option, value in values.items()})


def each_episode(task: Task, play: Callable[..., Any], *given: Any) -> Any:
    """What `play` makes of each episode of these arrays (episode, …): all side by side, or as many as a task allows."""
    if at_once := getattr(task, "at_once", 0):
        return jax.lax.map(lambda one: play(*one), given, batch_size=at_once)
    return jax.vmap(play)(*given)


def settings(pairs: Iterable[str]) -> dict[str, str]:
    """Options from KEY=VALUE pairs.

    >>> settings(["agents=4", "convention=mpe2"])
    {'agents': '4', 'convention': 'mpe2'}
    """
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        require(bool(key and equals and value), f"an option is written KEY=VALUE, not {pair!r}")
        found[key] = value
    return found


def read(what: str, value: Any, kind: Any) -> Any:
    """A value of this type from one that may be text."""
    if typing.get_origin(kind) is Literal:
        allowed = typing.get_args(kind)
        require(value in allowed, f"{what} must be one of {', '.join(map(str, allowed))}, not {value!r}")
        return value
    if kind is bool and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    try:
        if kind is float and not isinstance(value, bool):
            return float(value)
        if kind is int and not isinstance(value, bool) and float(value) == int(value):
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    require(isinstance(kind, type) and kind not in (bool, int, float), f"{what} must be {article(kind)}, not {value!r}")
    return value


def article(kind: type) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number or inf"}[kind]


def check_count(what: str, value: int, least: int, most: int) -> None:
    """Bad input unless a number of things lies in its range."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(whole and least <= value <= most, f"{what} must be a whole number from {least} to {most}, not {value}")


def check_radius(radius: float) -> None:
    """Bad input unless a view radius is above 0; inf sees everything."""
    require(not math.isnan(radius) and radius > 0, f"view_radius must be a number above 0, or inf, not {radius}")
