"""Environments of JaxMARL as tasks, compiled into training as any other. Needs the extra `jaxmarl`.

An environment is stepped by `step_env`, which never resets. What it says beside observations is used where it is there:
that an episode is over, which actions are allowed, a world state for value functions. Observations are flattened and
padded with zeros to the longest, and so are actions: those that an agent does not have are never allowed.
"""

import contextlib
import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from dpmac.config import BadInput, require, whole
from dpmac.plugins import read
from dpmac.tasks import smooth
from dpmac.tasks.base import Body, Scene, check_count
from dpmac.tasks.environments import MOST_ACTIONS
from dpmac.tasks.hosted import plain

PREFIX = "jaxmarl:"
MASKS = ("get_avail_actions", "get_legal_moves")
"""Methods by which environments say what is allowed."""
PLACES = ("p_pos", "unit_positions", "agent_pos")
"""Where states keep positions (body, 2), agents first."""


class MarlState(NamedTuple):
    """Where an episode stands, and what is seen there."""

    inside: Any
    """The environment's own state."""
    key: jax.Array
    observations: jax.Array
    """(agent, feature)."""
    done: jax.Array
    """Whether the environment says that the episode is over, other than by cutting it off at the horizon."""
    time: jax.Array


class Sizes(NamedTuple):
    """What an environment shows when its first step is traced."""

    counts: tuple[int, ...]
    """Actions of each agent, or numbers of an action."""
    bounds: tuple[tuple[Any, Any], ...]
    """Lowest and highest number of each agent's actions, where they are continuous; else nothing."""
    features: int
    masked: str
    """The method that says what is allowed, or nothing."""
    world: bool
    infos: frozenset[str]


@dataclass(frozen=True)
class JaxMarl:
    """An environment of JaxMARL."""

    source: str
    """Its name, as `jaxmarl.make` takes it."""
    settings: tuple[tuple[str, Any], ...] = ()
    """What it is made with."""
    horizon: int = 25
    """Steps of an episode. One that ends earlier stands still until then, one that does not is cut off."""
    rewards: Literal["team", "own"] = "team"
    """Whether agents learn from the mean of all rewards or each from its own."""
    shaping: float = 0.0
    """Weight of the environment's `shaped_reward`, where it has one."""
    secret: str = ""
    """What an eavesdropper is after, as NAME:FIRST-LAST: which of these numbers of an agent's observation is the
    largest."""
    first_actions: int = 0
    """How many of its actions each agent may take, the first ones; 0: all. It closes the words that an environment has
    of its own, which no claim covers."""

    name: ClassVar[str] = "jaxmarl"

    def __post_init__(self) -> None:
        check_count("horizon", self.horizon, 1, 10_000)
        try:
            hash(self.settings)
        except TypeError:
            raise BadInput(f"options of {self.source} must be numbers, truth values or text") from None
        assert self.sizes.counts
        shaped = "shaped_reward" in self.sizes.infos
        require(shaped or not self.shaping, f"{self.source} gives no shaped_reward, so shaping must be 0")
        check_count("first_actions", self.first_actions, 0, MOST_ACTIONS)
        fixed = self.continuous or bool(self.sizes.masked)
        require(not (self.first_actions and fixed), f"{self.source} says itself what is allowed: no first_actions")
        if self.secret:
            _, places = declared(self.secret)
            require(places.stop <= self.observation_size, f"observations have {self.observation_size} numbers")

    @property
    def cut_at(self) -> int:
        steps = getattr(self.env, "max_steps", None)
        return steps if whole(steps, 1) else 0

    @property
    def env(self) -> Any:
        return build(self.source, self.settings)

    @property
    def sizes(self) -> Sizes:
        return sizes_of(self.source, self.settings)

    @property
    def agents(self) -> int:
        return len(self.env.agents)

    @property
    def actions(self) -> int:
        """Actions of the agent that has most."""
        return max(self.counts)

    @property
    def counts(self) -> tuple[int, ...]:
        """Actions of each agent, or numbers of an action."""
        return tuple(min(count, self.first_actions or count) for count in self.sizes.counts)

    @property
    def continuous(self) -> bool:
        return bool(self.sizes.bounds)

    @property
    def differentiable(self) -> bool:
        return self.source in smooth.ENVIRONMENTS and not self.continuous

    @property
    def observation_size(self) -> int:
        return self.sizes.features

    @property
    def reward_unit(self) -> str:
        shaped = f", with {self.shaping:g} x shaped rewards" if self.shaping else ""
        return f"mean over agents of the rewards of {self.source}{shaped}"

    @property
    def observers(self) -> Mapping[str, str]:
        outside = (
            "in an environment from outside, dpmac does not know who else observes what an agent observes; what an "
            "agent does may show it to anyone who sees the agent"
        )
        if not self.secret:
            return {"everything": outside}
        name, places = declared(self.secret)
        return {name: f"Numbers {places.start} to {places.stop - 1} of an agent's observation; {outside}."}

    def reset(self, key: jax.Array) -> MarlState:
        key, reset_key = jax.random.split(key)
        seen, inside = self.env.reset(reset_key)
        return MarlState(inside, key, self.gathered(seen), jnp.zeros((), bool), jnp.zeros((), jnp.int32))

    def observe(self, state: MarlState) -> jax.Array:
        return state.observations

    def over(self, state: MarlState) -> jax.Array:
        return state.done

    def step(self, state: MarlState, actions: jax.Array) -> tuple[MarlState, jax.Array]:
        key, step_key = jax.random.split(state.key)
        weighted = self.differentiable and actions.ndim == 2
        env = smooth.twin(self.env, self.settings) if weighted else self.env
        given = smooth.blended(actions, max(self.sizes.counts)) if weighted else actions
        seen, inside, rewards, done, infos = env.step_env(step_key, state.inside, self.assigned(given))
        names = self.env.agents
        earned = jnp.stack([rewards[name] for name in names]).astype(jnp.float32)
        if self.shaping:
            earned += self.shaping * jnp.stack([infos["shaped_reward"][name] for name in names])
        if self.rewards == "team":
            earned = jnp.full_like(earned, jnp.mean(earned))
        over, time = jnp.asarray(done["__all__"]), state.time + 1
        if self.cut_at == self.horizon:  # nobody tells a time limit from an end in its last step
            over &= time < self.horizon
        return MarlState(inside, key, self.gathered(seen), over, time), earned

    @property
    def available(self) -> Callable[[MarlState], jax.Array] | None:
        """Which actions are allowed; nothing where all agents have the same and none is ever forbidden."""
        counts = np.array(self.counts)
        if self.continuous or (not self.sizes.masked and (counts == counts.max()).all()):
            return None
        return self.masks

    def masks(self, state: MarlState) -> jax.Array:
        """Which actions (agent, action) are allowed."""
        if not self.sizes.masked:
            return jnp.asarray(np.arange(self.actions) < np.array(self.counts)[:, None])
        found = getattr(self.env, self.sizes.masked)(state.inside)
        each = [jnp.asarray(found[name]).astype(bool) for name in self.env.agents]
        return jnp.stack([jnp.pad(mask, (0, self.actions - len(mask))) for mask in each])

    @property
    def world(self) -> Callable[[MarlState], jax.Array] | None:
        """What value functions see, where the environment has a world state."""
        return self.world_state if self.sizes.world else None

    def world_state(self, state: MarlState) -> jax.Array:
        return jnp.ravel(self.env.get_world_state(state.inside)).astype(jnp.float32)

    def gathered(self, seen: Mapping[str, jax.Array]) -> jax.Array:
        """The environment's observations as (agent, feature)."""
        flat = [jnp.ravel(seen[name]).astype(jnp.float32) for name in self.env.agents]
        return jnp.stack([jnp.pad(one, (0, self.observation_size - len(one))) for one in flat])

    def assigned(self, actions: jax.Array) -> dict[str, jax.Array]:
        """Actions (agent,), or (agent, number) in [-1, 1], as the environment takes them."""
        if not self.continuous:
            return {name: actions[place] for place, name in enumerate(self.env.agents)}
        each = zip(self.env.agents, actions, self.sizes.counts, self.sizes.bounds, strict=True)
        return {name: low + (1 + row[:count]) / 2 * (high - low) for name, row, count, (low, high) in each}

    def secrets(self, state: MarlState) -> dict[str, jax.Array]:
        if not self.secret:
            return {}
        name, places = declared(self.secret)
        return {name: jnp.argmax(state.observations[:, places], axis=-1)}

    def scene(self, state: MarlState) -> Scene:
        """Agents and whatever else has a position; a row of agents where nothing has."""
        inside = state.inside
        while hasattr(inside, "state"):
            inside = inside.state
        found = next((getattr(inside, name) for name in PLACES if hasattr(inside, name)), None)
        if hasattr(getattr(inside, "agents", None), "pos"):  # rows of a grid are counted downwards
            found = np.stack([inside.agents.pos.x, -inside.agents.pos.y], axis=-1)
        places = np.asarray(found if found is not None else [(i, 0) for i in range(self.agents)], float)
        size = 0.03 * max(float(np.ptp(places)), 1.0)
        bodies = [Body(x, y, size, (0.35, 0.55, 0.85), f"{i}") for i, (x, y) in enumerate(places.tolist())]
        others = [body._replace(colour=(0.6, 0.6, 0.6), label="", shape="square") for body in bodies[self.agents :]]
        return Scene(tuple(bodies[: self.agents]), tuple(others))


def make(name: str, values: Mapping[str, Any]) -> JaxMarl:
    """The task of `jaxmarl:NAME`. Its own options are those of `JaxMarl`; all others go to the environment. The
    horizon is by default the environment's `max_steps`."""
    kinds = {"horizon": int, "rewards": Literal["team", "own"], "shaping": float, "secret": str, "first_actions": int}
    own = {key: read(f"{name}: {key}", values[key], kind) for key, kind in kinds.items() if key in values}
    settings = tuple((key, plain(value)) for key, value in sorted(values.items()) if key not in kinds)
    source = name.removeprefix(PREFIX)
    if "horizon" not in own:
        steps = getattr(build(source, settings), "max_steps", None)
        require(whole(steps, 1), f"{name} does not say how long an episode is: give the option horizon=STEPS")
        own["horizon"] = steps
    return JaxMarl(source, settings, **own)


def declared(secret: str) -> tuple[str, slice]:
    """Name and places of a secret that is written NAME:FIRST-LAST.

    >>> declared("goal:8-10")
    ('goal', slice(8, 11, None))
    """
    name, _, places = secret.partition(":")
    first, _, last = places.partition("-")
    require(
        bool(name) and first.isdigit() and last.isdigit() and int(first) < int(last),
        f"a secret is written NAME:FIRST-LAST, as goal:8-10, not {secret!r}",
    )
    return name, slice(int(first), int(last) + 1)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Importing JaxMARL prints, and puts Python's first streams in the place of those that are in use."""
    nowhere = io.StringIO()
    with redirect_stdout(nowhere), redirect_stderr(sys.stderr), patch.object(sys, "__stdout__", nowhere):
        yield


@cache
def build(source: str, settings: tuple[tuple[str, Any], ...]) -> Any:
    """The environment of a name, with two agents or more."""
    try:
        with quiet():
            import jaxmarl
            from jaxmarl.environments import MultiAgentEnv
            from jaxmarl.environments.overcooked import overcooked_layouts
            from jaxmarl.environments.overcooked_v2.layouts import overcooked_v2_layouts
            from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO
            from jaxmarl.registration import registered_envs
    except ImportError as error:
        raise BadInput(f"environments of JaxMARL need it: pip install 'jaxmarl<0.3' ({error})") from None
    allowed = f"allowed are {', '.join(registered_envs)}"
    require(source in registered_envs, f"JaxMARL has no environment {source!r}; {allowed}")
    given = dict(settings)
    layouts = {"overcooked": overcooked_layouts, "overcooked_v2": overcooked_v2_layouts}.get(source)
    tables = {"scenario": MAP_NAME_TO_SCENARIO} | ({"layout": layouts} if layouts else {})
    for option in given.keys() & tables.keys():
        table = tables[option]
        require(given[option] in table, f"{source}: {option} must be one of {', '.join(table)}, not {given[option]!r}")
        given[option] = table[given[option]]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = jaxmarl.make(source, **given)
    except Exception as error:  # whatever somebody else's code makes of its options
        made = ", ".join(f"{key}={value}" for key, value in settings) or "no options"
        raise BadInput(f"JaxMARL's {source} cannot be made with {made}: {error}") from None
    known = options_of(env)
    for option in given:
        require(option in known, f"JaxMARL's {source} has no option {option!r}; allowed are {', '.join(sorted(known))}")
    team = isinstance(env, MultiAgentEnv) and len(getattr(env, "agents", ())) > 1
    require(team, f"JaxMARL's {source} has a single agent, which has nobody to tell anything: dpmac trains teams")
    return env


def options_of(env: Any) -> set[str]:
    """What an environment's constructor takes, and those that it hands the rest to, which would ignore a wrong name."""
    kinds = [kind for one in (env, vars(env).get("_env")) for kind in type(one).__mro__ if kind is not object]
    parameters = [
        each for kind in kinds if kind is not type(None) for each in inspect.signature(kind).parameters.values()
    ]
    named = (
        each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD or each.kind is each.KEYWORD_ONLY
    )
    return set(named)


@cache
def sizes_of(source: str, settings: tuple[tuple[str, Any], ...]) -> Sizes:
    """The sizes of an environment, by tracing its first step; spaces that cannot be used are refused."""
    env, key = build(source, settings), jax.random.key(0)
    try:
        seen, inside = jax.eval_shape(env.reset, key)
        features = max(int(np.prod(seen[name].shape)) for name in env.agents)
        spaces = [env.action_space(name) for name in env.agents]
        actions = {name: jnp.zeros(space.shape, space.dtype) for name, space in zip(env.agents, spaces, strict=True)}
        after, infos = jax.eval_shape(lambda key, inside: env.step_env(key, inside, actions)[1::3], key, inside)
        require(jax.tree.structure(inside) == jax.tree.structure(after), "its state changes its shape")
    except Exception as error:  # whatever somebody else's code does
        raise BadInput(f"JaxMARL's {source} does not follow its interface, so it cannot be used: {error!r}") from None
    kinds = {type(space).__name__ for space in spaces}
    require(
        kinds in ({"Discrete"}, {"Box"}), f"{source}: agents act in {', '.join(kinds)}; allowed is Discrete, or Box"
    )
    if kinds == {"Box"}:
        counts = tuple(int(np.prod(space.shape)) for space in spaces)
        require(all(len(space.shape) == 1 for space in spaces), f"{source}: actions must be rows of numbers")
        bounds = tuple((tuple_of(space.low), tuple_of(space.high)) for space in spaces)
        return Sizes(counts, bounds, features, "", hasattr(env, "get_world_state"), frozenset(infos))
    counts = tuple(int(space.n) for space in spaces)
    require(max(counts) <= MOST_ACTIONS, f"{source} has {max(counts)} actions; at most {MOST_ACTIONS} are allowed")
    masked = next((name for name in MASKS if gives_masks(env, name, inside)), "")
    return Sizes(counts, (), features, masked, hasattr(env, "get_world_state"), frozenset(infos))


def tuple_of(bound: Any) -> Any:
    """A bound of a box that can be hashed: one number, or a row of them."""
    return tuple(np.asarray(bound).tolist()) if np.ndim(bound) else float(bound)


def gives_masks(env: Any, name: str, inside: Any) -> bool:
    """Whether a method of an environment says for each agent what is allowed."""
    try:
        found = jax.eval_shape(getattr(env, name), inside)
    except (AttributeError, NotImplementedError, TypeError):
        return False
    return isinstance(found, dict) and all(name in found for name in env.agents)
