"""Any PettingZoo `ParallelEnv` as a task. Needs the extra `pettingzoo` and whatever the environment itself needs.

A task is a pure function, and an environment is not. So the state of such a task is the seed of its episode and what
was done since, and a pool on the host keeps environments that stand at such states: compiled code asks it for the
next observations and rewards of all episodes at once. Where no environment stands at a state, one is reset with the
seed and led there again. Everything else is as for any other task, bit-identical; only speed is that of Python.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmac.config import BadInput, require, whole
from dpmac.plugins import read
from dpmac.tasks.base import Scene, check_count
from dpmac.tasks.environments import MOST_ACTIONS, Layout, build, cycles_of

PREFIX = "pettingzoo:"
MOST_ENVIRONMENTS = 2048
"""Environments at work before one is taken away from the oldest episode."""

logging.getLogger("jax._src.callback").setLevel(logging.CRITICAL)  # what an environment raises is raised, not logged


class HostedState(NamedTuple):
    """Where an episode stands, and what is seen there."""

    seed: jax.Array
    done: jax.Array
    """(time, agent) actions so far, int8; zeros where none was made yet."""
    time: jax.Array
    observations: jax.Array
    """(agent, feature)."""
    over: jax.Array
    """Whether all agents have left, other than by a cut at the horizon, where values may go on."""
    masks: Any
    """(agent, action) which actions are allowed, if the environment says so."""


@dataclass(frozen=True)
class Hosted:
    """An environment of somebody else, stepped by Python on the host."""

    source: str
    """Where it comes from: `package.module`, whose `parallel_env` is called, or `package.module:Name`."""
    settings: tuple[tuple[str, Any], ...] = ()
    """What it is called with."""
    horizon: int = 25
    """Steps of an episode. One that ends earlier stands still until then, one that does not is cut off: messages are
    sent for as long, so that their number tells nothing."""
    levels: int = 3
    """Values of each number of a continuous action."""
    rewards: Literal["team", "own"] = "team"
    """Whether agents learn from the mean of all rewards or each from its own."""

    name: ClassVar[str] = "pettingzoo"
    observers: ClassVar[Mapping[str, str]] = {
        "everything": "in an environment from outside, it is not known who else observes what an agent observes"
    }
    at_once: ClassVar[int] = 32
    """Episodes of a run that are played side by side; each needs an environment of its own."""
    reference_episodes: ClassVar[int] = 64

    def __post_init__(self) -> None:
        check_count("horizon", self.horizon, 1, 10_000)
        check_count("levels", self.levels, 2, MOST_ACTIONS)
        try:
            hash(self.settings)
        except TypeError:
            raise BadInput(f"options of {self.source} must be numbers, truth values or text") from None
        assert self.layout.names

    @property
    def cut_at(self) -> int:
        found = dict(self.settings).get("max_cycles", self.layout.cycles)
        return found if whole(found, 1) else 0

    @property
    def layout(self) -> Layout:
        """Agents and spaces; `gather` and `assign` serve whoever drives the environment by hand."""
        return layout_of(self)

    @property
    def agents(self) -> int:
        return len(self.layout.names)

    @property
    def actions(self) -> int:
        """Actions of the agent that has most."""
        return max(self.layout.counts)

    @property
    def observation_size(self) -> int:
        return self.layout.features

    @property
    def reward_unit(self) -> str:
        return f"mean over agents of the rewards of {self.source}"

    def cautions(self) -> Iterator[str]:
        """What to tell somebody who is about to train in it."""
        yield f"{self.source} is stepped by Python on the host, which is far slower than a task in JAX"
        if not repeats(self):
            yield f"{self.source} does not repeat an episode from its seed: a resumed run ends with other bits"

    def reset(self, key: jax.Array) -> HostedState:
        seed = jax.random.bits(key, (), jnp.uint32) >> 1  # some environments want a seed below 2^31
        seen = jax.pure_callback(pool(self).reset, self.sight, seed, vmap_method="broadcast_all")
        done = jnp.zeros((self.horizon, self.agents), jnp.int8)
        return HostedState(seed, done, jnp.zeros((), jnp.int32), *seen)

    def observe(self, state: HostedState) -> jax.Array:
        return state.observations

    def over(self, state: HostedState) -> jax.Array:
        return state.over

    @property
    def available(self) -> Callable[[HostedState], jax.Array] | None:
        """Which actions are allowed, if the environment says so."""
        return (lambda state: state.masks) if self.layout.masked else None

    def step(self, state: HostedState, actions: jax.Array) -> tuple[HostedState, jax.Array]:
        shapes = self.sight, jax.ShapeDtypeStruct((self.agents,), jnp.float32)
        given = state.seed, state.done, state.time, state.over, actions
        seen, rewards = jax.pure_callback(pool(self).step, shapes, *given, vmap_method="broadcast_all")
        done = state.done.at[state.time].set(actions.astype(jnp.int8))
        return HostedState(state.seed, done, state.time + 1, *seen), rewards

    @property
    def sight(self) -> "Sight":
        """Shapes of what the pool shows."""
        masks = jax.ShapeDtypeStruct((self.agents, self.actions), bool) if self.layout.masked else None
        seen = jax.ShapeDtypeStruct((self.agents, self.observation_size), jnp.float32)
        return Sight(seen, jax.ShapeDtypeStruct((), bool), masks)

    def secrets(self, state: HostedState) -> dict[str, jax.Array]:
        del state
        return {}

    def scene(self, state: HostedState) -> Scene:
        """The environment's own picture of a state."""
        return Scene((), picture=painter(self).picture(int(state.seed), np.asarray(state.done)[: int(state.time)]))


class Sight(NamedTuple):
    """What an environment shows at one place: the last three parts of a state."""

    observations: Any
    over: Any
    masks: Any


def make(name: str, values: Mapping[str, Any]) -> Hosted:
    """The task of `pettingzoo:package.module` or `pettingzoo:package.module:Name`.

    Options are `horizon`, `levels` and `rewards`; all others go to the environment. The horizon is by default the
    environment's `max_cycles`.
    """
    kinds = {"horizon": int, "levels": int, "rewards": Literal["team", "own"]}
    own = {key: read(f"{name}: {key}", values[key], kind) for key, kind in kinds.items() if key in values}
    settings = {key: plain(value) for key, value in sorted(values.items()) if key not in kinds}
    source = name.removeprefix(PREFIX)
    if "horizon" not in own:
        env = build(source, settings)
        found = settings.get("max_cycles", cycles_of(env))
        require(whole(found, 1), f"{name} does not say how long an episode is: give the option horizon=STEPS")
        own["horizon"] = found
    return Hosted(source, tuple(settings.items()), **own)


def plain(value: Any) -> Any:
    """What text of the command line means: a truth value, a number, or the text itself."""
    for kind in (bool, int, float):
        try:
            return read("", value, kind)
        except BadInput:
            continue
    return value


@cache
def layout_of(task: Hosted) -> Layout:
    env = build(task.source, dict(task.settings))
    found = Layout.of(task.source, env, task.levels)
    pool(task).spare.append(env)
    return found


class Play:
    """One environment, and where it stands."""

    def __init__(self, task: Hosted, env: Any):
        self.task, self.env = task, env

    def begin(self, seed: int) -> None:
        self.place = start_of(seed)
        self.look(*self.env.reset(seed=seed))

    @property
    def at_horizon(self) -> bool:
        return len(self.place) == len(start_of(0)) + self.task.horizon * self.task.agents

    def look(self, observations: Mapping[str, Any], infos: Mapping[str, Any], cut: bool = False) -> None:
        layout = self.task.layout
        masks = layout.allowed(observations, infos) if layout.masked else None
        self.sight = Sight(layout.gather(observations), np.array(not self.env.agents and not cut), masks)

    def allowed(self, actions: np.ndarray) -> np.ndarray:
        """Actions (agent,), each a place among those that are allowed, round and round."""
        if self.sight.masks is None:
            return actions
        open_to = (np.flatnonzero(mask) for mask in self.sight.masks)
        return np.array([each[action % len(each)] for each, action in zip(open_to, actions, strict=True)], np.int8)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Rewards (agent,) of a step; zeros once the episode is over."""
        self.place += actions.tobytes()
        if not self.env.agents:
            self.sight = self.sight._replace(observations=np.zeros_like(self.sight.observations))
            return np.zeros(len(actions), np.float32)
        layout = self.task.layout
        observations, rewards, ended, _, infos = self.env.step(layout.assign(actions, self.env.agents))
        self.look(observations, infos, cut=self.at_horizon and not all(ended.values()))
        earned = np.array([rewards.get(name, 0.0) for name in layout.names], np.float32)
        return np.full_like(earned, earned.mean()) if self.task.rewards == "team" else earned


def start_of(seed: int) -> bytes:
    """The place of an environment that has just been reset; every step adds its actions."""
    return seed.to_bytes(4, "little")


class Pool:
    """Environments of a task, each at some place of some episode."""

    def __init__(self, task: Hosted, **more: Any):
        self.task, self.settings = task, {**dict(task.settings), **more}
        self.spare: list[Any] = []
        self.live: dict[bytes, list[Play]] = {}
        self.count, self.lock = 0, threading.Lock()

    def fresh(self) -> Play:
        """An environment that nobody needs, or that is needed last."""
        if self.spare:
            return Play(self.task, self.spare.pop())
        if self.count >= MOST_ENVIRONMENTS:
            return self.take(next(iter(self.live)))
        return Play(self.task, build(self.task.source, self.settings))

    def take(self, place: bytes) -> Play:
        """An environment at a place, out of those that wait there."""
        waiting = self.live[place]
        play = waiting.pop()
        self.count -= 1
        if not waiting:
            del self.live[place]
        return play

    def keep(self, play: Play) -> None:
        """Let an environment wait for its next step, or for another episode after the last one."""
        if play.sight.over or play.at_horizon:
            self.spare.append(play.env)
        else:
            self.live.setdefault(play.place, []).append(play)
            self.count += 1

    def find(self, seed: int, done: np.ndarray) -> Play:
        """An environment after these actions (time, agent) in a seed's episode."""
        place = start_of(seed) + done.tobytes()
        if place in self.live:
            return self.take(place)
        play = self.fresh()
        play.begin(seed)
        for actions in done:
            play.step(actions)
        return play

    def reset(self, seeds: Any) -> Sight:
        """What is seen first (…, part) in the episodes of these seeds (…)."""
        seeds, seen = np.asarray(seeds), []
        with self.lock:
            for seed in seeds.ravel():
                play = self.fresh()
                play.begin(int(seed))
                seen.append(play.sight)
                self.keep(play)
        return stacked(seen, seeds.shape)

    def step(self, seeds: Any, done: Any, times: Any, over: Any, actions: Any) -> tuple[Sight, np.ndarray]:
        """What is seen (…, part) and earned (…, agent) after actions (…, agent) at these states (…); nothing where it
        is over."""
        seeds, task = np.asarray(seeds), self.task
        past = np.asarray(done).reshape(-1, task.horizon, task.agents)
        now = np.asarray(actions, np.int8).reshape(-1, task.agents)
        seen, rewards = [], []
        nothing = jax.tree.map(lambda part: np.ones(part.shape, part.dtype), task.sight)
        nothing = nothing._replace(observations=np.zeros_like(nothing.observations))
        with self.lock:
            each = zip(seeds.ravel(), past, np.ravel(times), np.ravel(over), now, strict=True)
            for seed, before, time, ended, chosen in each:
                if ended:
                    rewards.append(np.zeros(task.agents, np.float32))
                    seen.append(nothing)
                    continue
                play = self.find(int(seed), before[:time])
                rewards.append(play.step(chosen))
                seen.append(play.sight)
                self.keep(play)
        return stacked(seen, seeds.shape), np.reshape(rewards, (*seeds.shape, task.agents))

    def picture(self, seed: int, done: np.ndarray) -> np.ndarray:
        """What the environment looks like after these actions (time, agent) in a seed's episode, as RGB bytes."""
        with self.lock:
            play = self.find(seed, done)
            drawn: Any = None
            with contextlib.suppress(NotImplementedError):
                drawn = play.env.render()
            self.keep(play)
        pixels = isinstance(drawn, np.ndarray) and drawn.ndim == 3 and drawn.shape[-1] in (3, 4)
        require(
            pixels, f"{self.task.source} cannot be filmed: its render() gives no picture with render_mode=rgb_array"
        )
        return drawn[..., :3].astype(np.uint8)


def stacked(seen: list[Sight], shape: tuple[int, ...]) -> Sight:
    """What is seen in many places, as (*shape, part)."""
    return jax.tree.map(lambda *parts: np.stack(parts).reshape((*shape, *parts[0].shape)), *seen)


@cache
def pool(task: Hosted) -> Pool:
    """The environments that train."""
    return Pool(task)


@cache
def painter(task: Hosted) -> Pool:
    """Environments that draw."""
    return Pool(task, render_mode="rgb_array")


@cache
def repeats(task: Hosted, episodes: int = 5, steps: int = 10) -> bool:
    """Whether a seed decides an episode, as far as a few tell, whatever an environment has played before."""
    shape = (min(steps, task.horizon), task.agents)
    actions = np.random.default_rng(0).integers(0, task.actions, shape).astype(np.int8)
    first, second = (Play(task, build(task.source, dict(task.settings))) for _ in range(2))

    def trace(play: Play, seed: int) -> np.ndarray:
        play.begin(seed)
        parts = [play.sight.observations]
        for now in actions:
            parts += [play.step(play.allowed(now)), play.sight.observations]
        return np.concatenate([part.ravel() for part in parts])

    forwards = [trace(first, seed) for seed in range(episodes)]
    backwards = [trace(second, seed) for seed in reversed(range(episodes))]
    return np.array_equal(forwards, backwards[::-1])
