"""One run as a pure function of its program, a key, the noise scales of its agents and its traced settings."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dpmac import privacy, tasks
from dpmac.agents import protocol
from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.team import TaskShape, Team, make_team, pick
from dpmac.config import Channel, NetworkConfig, PrivateTraining, RunConfig, Training, require, to_json
from dpmac.learner import base as learners
from dpmac.learner import private as gradients
from dpmac.learner.base import Clock, Learner, Rollout
from dpmac.learner.rollout import describe, returns, rollout
from dpmac.tasks import Task, abilities

EVALUATION_SEED = 20_230_813
"""Evaluations of every run, method and budget start from the same states."""
STARTS = 4096
"""Common starts. Finished teams are scored on all of them; each point of a curve on some, those that come next."""
ON_HOST = 32
"""Episodes of a point, at most, in an environment on the host, where episodes cost as much as learning."""


CLIP, NOISE = "train_clip", "train_noise"
"""Traced settings of private training."""


@dataclass(frozen=True)
class Program:
    """What is fixed when a run is compiled; hashable, and the same for all budgets, seeds and traced settings."""

    task: Task
    method: str
    options: tuple[tuple[str, Any], ...]
    channel: Channel
    networks: NetworkConfig
    learner: Learner
    training: Training
    microbatch: int = 0
    """Episodes whose gradients private training holds at once; 0: training is not private."""
    measured: bool = False
    """Whether private training has no noise, and so reports norms of gradients."""
    private: PrivateTraining = dataclasses.field(default=PrivateTraining(), compare=False)
    """What is traced of private training: programs that differ in it alone are one."""

    @classmethod
    def of(cls, config: RunConfig) -> "Program":
        """The program of a configuration, checked as far as it can be without running it."""
        task = tasks.make(config.task, **config.task_options)
        learner = learners.make(config.learner, config.learner_options)
        learner.check(protocol.find(config.method), Rollout(task, config.training.episodes))
        options, private = tuple(sorted(config.method_options.items())), config.private
        program = cls(task, config.method, options, config.channel, config.networks, learner, config.training)
        if not private.asked:
            return program
        require(
            not abilities(task).at_once,
            f"private training cannot use {config.task}: what an environment on the host keeps of an episode may reach "
            "others, a failure in one ends the run, and evaluations play in it, too",
        )
        gradients.check_installed()
        without = private.train_epsilon == math.inf
        program = dataclasses.replace(program, microbatch=private.train_microbatch, measured=without, private=private)
        _ = program.use  # which refuses what private training cannot do
        return program

    @property
    def rollout(self) -> Rollout:
        """What plays the fresh episodes of an iteration."""
        return Rollout(self.task, self.training.episodes)

    @property
    def iterations(self) -> int:
        """Iterations of a whole run."""
        return self.training.iterations(self.task.horizon)

    @property
    def evaluations(self) -> int:
        """Evaluations of a whole run; there is at least an iteration between two."""
        return min(self.training.evaluations, self.iterations)

    @property
    def steps_per_iteration(self) -> int:
        return self.task.horizon * self.training.episodes

    @property
    def steps(self) -> int:
        """Environment steps of a whole run."""
        return self.iterations * self.steps_per_iteration

    @property
    def settings(self) -> dict[str, float]:
        """The learner's traced settings where a run has none of its own, and those of private training."""
        own = {name: getattr(self.learner, name) for name in self.learner.traced_settings()}
        if not self.microbatch:
            return own
        return own | {CLIP: self.private.train_clip, NOISE: privacy.training.multiplier(self.private, self.use)}

    @property
    def use(self) -> "privacy.training.Use":
        """How private training uses an episode; bad input where the learner cannot, or not with these settings."""
        team = jax.eval_shape(self.team, jax.random.key(0))
        total = self.iterations * self.training.episodes
        found = self.learner.private_use(protocol.find(self.method), team, self.rollout, total)
        return privacy.training.Use(*found)

    @property
    def shape(self) -> TaskShape:
        """The sizes of the task that a team is built for."""
        task, known = self.task, abilities(self.task)
        sizes = (task.agents, task.observation_size, task.actions, task.horizon)
        return TaskShape(*sizes, known.continuous, known.increments)

    def team(self, key: Array) -> Team:
        """A freshly initialised team."""
        return make_team(key, self.shape, self.method, dict(self.options), self.channel, self.networks)


def complete(config: RunConfig) -> RunConfig:
    """The configuration with every setting of its learner and whole iterations written out, as a run's folder keeps it.

    Two configurations that train alike are then equal.
    """
    program = Program.of(config)
    return dataclasses.replace(
        config,
        learner_options=to_json(program.learner.settled(program.rollout, program.steps)),
        training=dataclasses.replace(config.training, steps=program.steps),
    )


class RunState(NamedTuple):
    """Everything that a run is, between two iterations."""

    learner: Any
    key: Array
    steps: Array
    secret: Any = ()
    """The key of private training's noise, which nobody may know; nothing where training is not private."""


@partial(jax.jit, static_argnums=0)  # traced once for all who ask for its shapes
def init(program: Program, key: Array) -> RunState:
    """The state of a run before its first step."""
    team_key, learner_key, key, secret = jax.random.split(key, 4)
    total = program.iterations * program.training.episodes
    state = program.learner.init(learner_key, program.team(team_key), program.rollout, total)
    return RunState(state, key, jnp.zeros((), jnp.int32), secret if program.microbatch else ())


@partial(jax.jit, static_argnums=0)  # traced once, for the shapes of its report and for the loop
def iterate(
    program: Program, state: RunState, table: NoiseScale, settings: Mapping[str, Array | float]
) -> tuple[RunState, dict[str, Array]]:
    """One iteration: fresh episodes side by side, and the learner's updates.

    The noise scale of each episode is drawn from a table (row, agent), which has one row unless scales are mixed.
    """
    iteration_key, key = jax.random.split(state.key)
    own = {name: value for name, value in settings.items() if name not in (CLIP, NOISE)}
    clock, learner, secret = Clock(state.steps, program.steps), program.learner.given(own), state.secret
    given = (state.learner, program.rollout, table, clock, iteration_key)
    if program.microbatch:
        now, secret = jax.random.split(secret)
        numbers = program.use.numbers
        private = gradients.Private(settings[CLIP], settings[NOISE], now, program.microbatch, numbers, program.measured)
        learner, report = learner.iterate_privately(*given, private)
    else:
        learner, report = learner.iterate(*given)
    return RunState(learner, key, state.steps + program.steps_per_iteration, secret), report


def evaluate(program: Program, team: Team, scale: NoiseScale, episodes: int) -> Any:
    """Greedy episodes (episode, …) on the first so many of the common starts."""
    return rollout(program.task, team, scale, jax.random.key(EVALUATION_SEED), episodes, greedy=True).episode


def glance(program: Program, team: Team, scale: NoiseScale, steps: Array) -> Any:
    """Greedy episodes (episode, …) for the point of a curve after so many steps.

    Points take turns through the common starts, all runs alike, so that a few of them together have seen them all: any
    starts that are the same at every point would shift the whole curve.
    """
    count, training = program.evaluations, program.training
    episodes = min(training.evaluation_episodes, ON_HOST if abilities(program.task).at_once else STARTS)
    index = jnp.round(steps / program.steps * count).astype(jnp.int32) - 1
    key = jax.random.key(EVALUATION_SEED)
    return rollout(
        program.task, team, scale, key, episodes, greedy=True, among=STARTS, first=index * episodes % STARTS
    ).episode


def advance(
    program: Program,
    state: RunState,
    table: NoiseScale,
    scale: NoiseScale,
    settings: Mapping[str, Array | float],
    iterations: Array,
) -> tuple[RunState, dict[str, Array]]:
    """So many iterations (traced) at noise scales from the table, then an evaluation at that of the budget.

    Reports are means over the iterations.
    """
    _, shapes = jax.eval_shape(partial(iterate, program), state, table, settings)
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def step(_: Array, carry: tuple[RunState, Any]) -> tuple[RunState, Any]:
        state, total = carry
        state, report = iterate(program, state, table, settings)
        return state, jax.tree.map(jnp.add, total, report)

    state, total = jax.lax.fori_loop(0, iterations, step, (state, zero))
    team = program.learner.team(state.learner)
    report = {name: value / iterations for name, value in total.items()}
    episodes = glance(program, team, scale, state.steps)
    report |= {"return": jnp.mean(returns(episodes))}
    if protocol.find(program.method).speaks:
        report |= describe(team, pick(episodes, 0), scale)
    return state, report
