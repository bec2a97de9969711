"""What a task is, and the registry that finds one by name.

A task is a frozen dataclass: its fields are its options, it is hashable, and so it is static under `jit`. It describes
one episode; `vmap` makes many.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from dpmac import plugins
from dpmac.config import require

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
    legend: str = ""
    """What shapes and colours mean, for a film."""


class Task(Protocol):
    """A cooperative task of a fixed horizon. `step` never resets: an episode is exactly `horizon` steps from a reset,
    or less where the task says that it is over (`Abilities.over`).

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

    def secrets(self, state: State) -> dict[str, jax.Array]:
        """Named facts (agent, …) that agent i observes and its messages may reveal."""
        ...

    def scene(self, state: State) -> Scene: ...


class Abilities(NamedTuple):
    """What a task may have beside the methods of `Task`: an attribute or a method of the same name declares it."""

    scripted: Callable[[State], jax.Array] | None = None
    """Actions (agent,) of a reference policy that knows the secrets."""
    informed: Callable[[State, jax.Array], jax.Array] | None = None
    """What to make of a belief about the secrets (see `Informed`)."""
    with_secrets: Callable[[State, jax.Array], State] | None = None
    """A first state with these secrets (agent,) in place of its own; for tasks whose one secret has `symbols` values,
    all as likely (see `Informed`)."""
    shares: Callable[[State, jax.Array], jax.Array] | None = None
    """What each agent (agent,) adds to the return by the step that led to a state, in the mean over secrets of which
    this is believed (agent, symbol), independently of each other. It declares that nobody sees or moves anybody else,
    whose secrets change nothing but what a walk is worth: where an agent goes depends on its start, its own secret and
    what it hears, and its share on where it is and on the secrets of the others."""
    at_once: int = 0
    """Episodes of a run that can be played side by side at most; 0: any number."""
    reference_episodes: int = 0
    """Episodes that the reference policies play at most; 0: any number."""
    cautions: Callable[[], Iterable[str]] = tuple
    """Sentences for somebody who is about to train on it."""
    over: Callable[[State], jax.Array] | None = None
    """Whether the episode has ended before the horizon: true or false. From then on the state stays as it is, nothing
    is earned, and messages go on to the horizon, heard by nobody who could still earn by them. A differentiable task
    may give 1.0 and 0.0, through which the gradient of what the end costs flows."""
    cut_at: int = 0
    """Steps after which an environment from outside cuts an episode off, which is no end of its own; 0: not known."""
    available: Callable[[State], jax.Array] | None = None
    """Which actions (agent, action) are allowed, at least one for each agent; without it all of them are."""
    world: Callable[[State], jax.Array] | None = None
    """What value functions (those of MAPPO) see (feature,) beside all observations."""
    continuous: bool = False
    """Whether actions are (agent, action) numbers in [-1, 1], `Task.actions` of them for each agent."""
    length: str = "every episode has the same number of steps and messages"
    """What the number of messages may tell, for the privacy statement."""
    differentiable: bool = False
    """Whether `step` also takes weights (agent, action) on all actions instead of actions (agent,), and state and
    rewards can be differentiated with respect to them."""
    symbols: int = 0
    """How many values the one secret of each agent may have (see `Informed`); 0: it is a number, or there are several.
    """
    secret_dimensions: int = 2
    """Of the space in which lies what secrets stand for, for the number of symbols that pays at a budget."""
    increments: tuple[int, ...] = ()
    """Places in an observation that hold what its step alone adds to a secret stream s_t = ρ·s_{t−1} + u_t: a change of
    one u_t changes them at step t and at no other, whatever the agents do."""
    decay: float = 1.0
    """ρ of that stream."""
    paper_batch: int = 128
    """Episodes in a minibatch of the paper."""


PADDED = (
    "padded: if an episode ends early, messages continue to the horizon, so their number reveals nothing; if a "
    "deployed agent is stopped when the episode has ended, its length is revealed, which no claim covers"
)
"""What the number of messages tells where episodes end early."""


def abilities(task: Task) -> Abilities:
    """What a task declares, and for the rest that it has none."""
    found = Abilities(*(getattr(task, name, default) for name, default in Abilities._field_defaults.items()))
    return found if found.over is None or hasattr(task, "length") else found._replace(length=PADDED)


def advance(task: Task, state: State, actions: jax.Array) -> tuple[State, jax.Array]:
    """The next state and rewards (agent,): those of `Task.step` until the episode is over, then the same state and
    nothing."""
    after, rewards = task.step(state, actions)
    over = abilities(task).over
    if over is None:
        return after, rewards
    ended = over(state)
    stays = ended > 0
    state = jax.tree.map(lambda old, new: jnp.where(stays, old, new), state, after)
    return state, jnp.where(stays, 0.0, rewards) if ended.dtype == bool else rewards * (1 - ended)


def allowed(task: Task, state: State) -> jax.Array | None:
    """Which actions (agent, action) are allowed in a state; None where all always are."""
    available = abilities(task).available
    return None if available is None else available(state)


class Informed(Task, Protocol):
    """A task in which all that messages can add is one secret of each agent, and which says what to make of it. Agents
    who believe exactly what a channel tells them then show what the channel is worth."""

    @property
    def symbols(self) -> int:
        """How many values the one secret (agent,) of each agent may have, all as likely."""
        ...

    def informed(self, state: State, belief: jax.Array) -> jax.Array:
        """Actions (agent,) of agents who believe (agent, symbol) this of each other's secrets."""
        ...


REGISTRY: dict[str, str | type] = {
    "cn": "dpmac.tasks.cn:CN",
    "ccn": "dpmac.tasks.ccn:CCN",
    "pp": "dpmac.tasks.pp:PP",
    "midway": "dpmac.tasks.midway:Midway",
    "speaker-listener": "dpmac.tasks.speaker_listener:SpeakerListener",
    "traffic-junction": "dpmac.tasks.traffic_junction:TrafficJunction",
    "place": "dpmac.tasks.place:Place",
    "drift": "dpmac.tasks.drift:Drift",
    "alarm": "dpmac.tasks.alarm:Alarm",
    "probe-value": "dpmac.tasks.probes:ProbeValue",
    "probe-memory": "dpmac.tasks.probes:ProbeMemory",
    "probe-listen": "dpmac.tasks.probes:ProbeListen",
    "probe-neighbour": "dpmac.tasks.probes:ProbeNeighbour",
    "probe-partner": "dpmac.tasks.probes:ProbePartner",
    "probe-end": "dpmac.tasks.restricted:ProbeEnd",
    "probe-mask": "dpmac.tasks.restricted:ProbeMask",
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
    entry = REGISTRY.get(name)
    if isinstance(entry, type):
        return entry
    places = {known: place for known, place in REGISTRY.items() if isinstance(place, str)}
    wanted = "a dataclass with the methods of dpmac.tasks.Task"
    also = ", or jaxmarl:NAME, or pettingzoo:package.module"
    return plugins.load("task", name, places, is_task, wanted, also)


def is_task(found: Any) -> bool:
    return isinstance(found, type) and dataclasses.is_dataclass(found) and hasattr(found, "reset")


def make(name: str, **values: Any) -> Task:
    """Build a task; option values may be text, as the command line's `--set key=value` gives them.

    `pettingzoo:package.module` is the environment that its `parallel_env` makes (see `dpmac.tasks.hosted`),
    `jaxmarl:NAME` one of JaxMARL (see `dpmac.tasks.jaxmarl`).

    >>> make("ccn", view_radius="0.5").observation_size
    14
    """
    require(isinstance(name, str), f"the name of a task is text, not {name!r}")
    if name.startswith("pettingzoo:"):
        from dpmac.tasks import hosted

        return hosted.make(name, values)  # type: ignore[return-value]  # it has no script
    if name.startswith("jaxmarl:"):
        from dpmac.tasks import jaxmarl

        return jaxmarl.make(name, values)  # type: ignore[return-value]  # it has no script
    return plugins.build("task", name, find(name), values)


def each_episode(task: Task, play: Callable[..., Any], *given: Any) -> Any:
    """What `play` makes of each episode of these arrays (episode, …): all side by side, or as many as a task allows."""
    at_once = abilities(task).at_once
    if not at_once:
        return jax.vmap(play)(*given)
    # `lax.map` cannot put parts together that hold nothing, such as the messages of those who are silent.
    shapes = jax.eval_shape(jax.vmap(play), *given)
    parts = iter(
        jax.lax.map(lambda one: [leaf for leaf in jax.tree.leaves(play(*one)) if leaf.size], given, batch_size=at_once)
    )
    return jax.tree.map(lambda like: next(parts) if like.size else jnp.zeros(like.shape, like.dtype), shapes)


def check_count(what: str, value: int, least: int, most: int) -> None:
    """Bad input unless a number of things lies in its range."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(whole and least <= value <= most, f"{what} must be a whole number from {least} to {most}, not {value}")


def check_radius(radius: float) -> None:
    """Bad input unless a view radius is above 0; inf sees everything."""
    require(not math.isnan(radius) and radius > 0, f"view_radius must be a number above 0, or inf, not {radius}")
