"""What a learner is, and the registry that finds one by name.

A learner is a frozen dataclass, as a task is: its fields are its settings, it is hashable, and so it is static under
`jit`. Settings that only enter arithmetic are `traced`: in a compiled program they are arrays, in which the members of
a population may differ. Its state is a tree of arrays that holds everything it learns with: networks, optimisers, and a
buffer if it has one. It knows how agents communicate only through `Team`, and the task only through `Rollout`.
"""

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dpmac import plugins
from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.protocol import Protocol
from dpmac.agents.team import Team
from dpmac.config import BadInput, require
from dpmac.learner.private import Private
from dpmac.learner.rollout import Trace, rollout
from dpmac.tasks import Task, abilities


@dataclasses.dataclass(frozen=True)
class Rollout:
    """Plays a team's episodes in a task: what a learner is given of the world."""

    task: Task
    episodes: int
    """Played side by side in one iteration."""

    def __call__(self, team: Team, noise: NoiseScale, key: Array, explore: Array | float = 0.0) -> Trace:
        """Fresh episodes (episode, …) with sampled actions; noise scales are drawn from a table (row, agent)."""
        return rollout(self.task, team, noise, key, self.episodes, explore)


def traced(default: float) -> Any:
    """A setting that is an array in compiled programs; two learners that differ in it alone share a program.

    It may not decide a shape or a branch of Python.
    """
    return dataclasses.field(default=default, compare=False)


class Clock(NamedTuple):
    """Where a run stands."""

    steps: Array
    """Environment steps done."""
    total: int
    """Environment steps of the whole run."""

    def rate_scale(self, decay: float) -> Array:
        """Share of the learning rate that applies now, if it falls to zero over this share of the run at its end."""
        return jnp.clip((1 - self.steps / self.total) / decay, 0.0, 1.0) if decay else jnp.ones(())


@dataclasses.dataclass(frozen=True)
class Learner(ABC):
    """Trains a team by iterations: fresh episodes, then updates. A new learner is a subclass and a line below."""

    gives_values: ClassVar[bool] = False
    """Whether it knows values of single joint actions, which some protocols need (`Protocol.needs_values`), and adds
    their losses (`Protocol.auxiliary`)."""

    def check(self, protocol: type[Protocol], play: Rollout) -> None:
        """Bad input where this learner cannot train this protocol in these episodes."""
        require(
            self.gives_values or not protocol.needs_values,
            f"{protocol.__name__} needs values of single joint actions, which this learner does not give",
        )
        require(
            self.gives_values or protocol.auxiliary is Protocol.auxiliary,
            f"{protocol.__name__} has a loss of its own, which this learner does not add",
        )

    @classmethod
    def traced_settings(cls) -> tuple[str, ...]:
        """Names of the settings that are arrays in a compiled program."""
        return tuple(item.name for item in dataclasses.fields(cls) if not item.compare)

    def given(self, settings: Mapping[str, Array | float]) -> Self:
        """This learner inside a compiled program, with its traced settings as arrays."""
        learner = copy.copy(self)
        for name, value in settings.items():
            object.__setattr__(learner, name, value)  # not checked again: an array has no value yet
        return learner

    @abstractmethod
    def init(self, key: Array, team: Team, play: Rollout, total: int) -> Any:
        """The state around a fresh team, for a run of so many episodes in all."""

    @abstractmethod
    def iterate(
        self, state: Any, play: Rollout, noise: NoiseScale, clock: Clock, key: Array
    ) -> tuple[Any, dict[str, Array]]:
        """The state after fresh episodes and the updates that follow, and scalars to report.

        noise is a table (row, agent) of noise scales, from which each episode draws one row.
        """

    def private_use(self, protocol: type[Protocol], team: Team, play: Rollout, total: int) -> tuple[float, int, int]:
        """How `iterate_privately` uses an episode, in a run of so many: the probability that an update takes it, the
        updates that it lives through at most, and how many numbers an update releases. Bad input where settings let
        one episode enter otherwise."""
        raise BadInput("this learner cannot train privately; mappo, maddpg and pathwise can")

    def iterate_privately(
        self, state: Any, play: Rollout, noise: NoiseScale, clock: Clock, key: Array, private: Private
    ) -> tuple[Any, dict[str, Array]]:
        """`iterate` in which episodes reach the state and the report through `private.release` alone, or a buffer."""
        raise NotImplementedError

    def without_leaks(self) -> Self:
        """This learner with the settings that private training asks for."""
        return self

    @abstractmethod
    def team(self, state: Any) -> Team:
        """The team as it acts now."""

    def settled(self, play: Rollout, total: int) -> "Learner":
        """This learner with every setting written out that by default depends on the task or on the run's steps."""
        return self

    # What planning and benchmarks ask ---------------------------------------------------------------------------------

    def batch_size(self, play: Rollout) -> int:
        """Episodes that one update goes through: by default the fresh ones."""
        return play.episodes

    def updates(self, play: Rollout) -> int:
        """Updates of all agents in one iteration."""
        return 1

    def parts(self, state: Any, play: Rollout, noise: NoiseScale) -> dict[str, Any]:
        """Functions without arguments that compute the parts of an iteration, to be timed one by one."""
        return {}

    def operations(self, state: Any) -> float:
        """Floating-point operations per row (one step of one agent's episode) that an update cannot do without."""
        return float("nan")


def check_reaches_horizon(task: Task) -> None:
    """Bad input where episodes are cut off before the horizon, and so values cannot go on there."""
    name, cut_at = getattr(task, "source", task.name), abilities(task).cut_at
    require(
        not 0 < cut_at < task.horizon,
        f"bootstrap_horizon needs episodes that reach the horizon, and {name} cuts off after {cut_at} of "
        f"{task.horizon} steps: give it horizon={cut_at}",
    )


def shapes(learner: Learner, team: Team, play: Rollout, total: int) -> Any:
    """The shapes of a learner's state, in a run of so many episodes."""
    return jax.eval_shape(lambda key, team: learner.init(key, team, play, total), jax.random.key(0), team)


def stepped(optimiser: Any, networks: Any, gradient: Any, state: Any, scale: Array | float) -> tuple[Any, Any]:
    """Networks (agent, …) and their optimisers' state after one step along a gradient, at this scale of the rate."""
    change, state = jax.vmap(optimiser.update)(gradient, state, networks)
    return eqx.apply_updates(networks, jax.tree.map(lambda x: scale * x, change)), state


BUILT_IN = {
    "maddpg": "dpmac.learner.maddpg:Maddpg",
    "mappo": "dpmac.learner.mappo:Mappo",
    "pathwise": "dpmac.learner.pathwise:Pathwise",
}
"""Learners by name; imported when asked for."""


def default_for(task: Task) -> str:
    """The learner that finds most on a task: the gradient of the return itself, where the task has one."""
    return "pathwise" if abilities(task).differentiable else "maddpg"


def find(name: str) -> type[Learner]:
    """The class of a built-in learner or of `package.module:Class`."""
    return plugins.load("learner", name, BUILT_IN, plugins.subclass_of(Learner), "a dpmac.learner.base.Learner")


def make(name: str, options: dict[str, Any]) -> Learner:
    """A learner with these settings; values may be text."""
    return plugins.build("learner", name, find(name), options)
