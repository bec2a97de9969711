"""One run as a pure function of its program, a key and the noise levels of its agents."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dpmac import tasks
from dpmac.agents import protocol
from dpmac.agents.mechanisms import Level, levels
from dpmac.agents.team import Shape, Team, make_team, pick
from dpmac.config import Channel, Learning, Networks, RunConfig, require
from dpmac.learner import maddpg, replay
from dpmac.learner.maddpg import Optimisers
from dpmac.learner.replay import Ring
from dpmac.learner.rollout import returns, rollout
from dpmac.tasks import Task

EVALUATION_SEED = 20_230_813
"""Evaluations of every run, method and budget start from the same states."""


@dataclass(frozen=True)
class Program:
    """What is fixed when a run is compiled; hashable, and the same for all budgets and seeds."""

    task: Task
    method: str
    options: tuple[tuple[str, Any], ...]
    channel: Channel
    networks: Networks
    learning: Learning

    @classmethod
    def of(cls, config: RunConfig) -> "Program":
        """The program of a configuration, checked as far as it can be without running it."""
        task, learning = tasks.make(config.task, **config.task_options), config.learning
        protocol.find(config.method)
        share = task.horizon * learning.episodes
        require(
            learning.steps % share == 0,
            f"steps must be a multiple of {share} (horizon {task.horizon} x {learning.episodes} episodes), "
            f"not {learning.steps}",
        )
        options = tuple(sorted(config.method_options.items()))
        return cls(task, config.method, options, config.channel, config.networks, learning)

    @property
    def iterations(self) -> int:
        """Iterations of a whole run."""
        return self.learning.steps // self.steps_per_iteration

    @property
    def steps_per_iteration(self) -> int:
        return self.task.horizon * self.learning.episodes

    def team(self, key: Array) -> Team:
        """A freshly initialised team."""
        task = self.task
        shape = Shape(task.agents, task.observation_size, task.actions, task.horizon)
        return make_team(key, shape, self.method, dict(self.options), self.channel, self.networks)


class RunState(NamedTuple):
    """Everything that a run is, between two iterations."""

    networks: maddpg.Networks
    optimisers: Optimisers
    ring: Ring
    key: Array
    steps: Array


def init(program: Program, key: Array) -> RunState:
    """The state of a run before its first step."""
    team_key, critic_key, shape_key, key = jax.random.split(key, 4)
    team, task, networks = program.team(team_key), program.task, program.networks
    learned = maddpg.init(critic_key, team, task.observation_size, networks, program.learning)
    one = jax.eval_shape(lambda k: rollout(task, team, quiet(task.agents, team.channel.spec), k, 1).episode, shape_key)
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), one)
    # A run that collects fewer episodes than the buffer holds needs no more slots than that.
    slots = min(program.learning.buffer, program.learning.steps // task.horizon)
    return RunState(*learned, replay.empty(slots, one), key, jnp.zeros((), jnp.int32))


def quiet(agents: int, channel: Channel | None = None) -> Level:
    """No noise at all, in a channel like this."""
    return levels(channel or Channel(), (0.0,) * agents)


def exploration(learning: Learning, steps: Array) -> Array:
    """Probability of a random action after so many steps."""
    share = jnp.clip(steps / max(learning.explore_steps, 1), 0.0, 1.0)
    return learning.explore_start + share * (learning.explore_end - learning.explore_start)


def pace(learning: Learning, steps: Array) -> Array:
    """Share of the learning rate that applies after so many steps."""
    if learning.decay == 0:
        return jnp.ones(())
    return jnp.clip((1 - steps / learning.steps) / learning.decay, 0.0, 1.0)


def iterate(program: Program, state: RunState, table: Level) -> tuple[RunState, dict[str, Array]]:
    """Collect fresh episodes side by side and update all agents from the replay.

    The noise level of each episode is drawn from a table (row, agent), which has one row unless levels are mixed.
    """
    learning = program.learning
    episode_key, update_key, key = jax.random.split(state.key, 3)
    explore = exploration(learning, state.steps)
    fresh = rollout(program.task, state.networks.team, table, episode_key, learning.episodes, explore)
    ring = replay.add(state.ring, fresh.episode)

    def learn(carry: tuple[maddpg.Networks, Optimisers], k: Array):
        networks, optimisers, report = maddpg.update(*carry, ring, k, table, learning, pace(learning, state.steps))
        return (networks, optimisers), report

    carry = (state.networks, state.optimisers)
    if learning.updates == 1:
        carry, report = learn(carry, update_key)
    else:
        carry, report = jax.lax.scan(learn, carry, jax.random.split(update_key, learning.updates))
        report = jax.tree.map(lambda x: jnp.mean(x, axis=0), report)
    return RunState(*carry, ring, key, state.steps + program.steps_per_iteration), report


def evaluate(program: Program, team: Team, level: Level, episodes: int) -> Array:
    """Returns (episode,) of greedy episodes on the common starts."""
    key = jax.random.key(EVALUATION_SEED)
    return returns(rollout(program.task, team, level, key, episodes, greedy=True).episode)


def advance(
    program: Program, state: RunState, table: Level, level: Level, iterations: Array
) -> tuple[RunState, dict[str, Array]]:
    """So many iterations (traced) at levels from the table, then an evaluation at the level of the budget.

    Reports are means over the iterations.
    """
    _, shapes = jax.eval_shape(lambda s: iterate(program, s, table), state)
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def step(_: Array, carry: tuple[RunState, Any]) -> tuple[RunState, Any]:
        state, total = carry
        state, report = iterate(program, state, table)
        return state, jax.tree.map(jnp.add, total, report)

    state, total = jax.lax.fori_loop(0, iterations, step, (state, zero))
    team, learning = state.networks.team, program.learning
    report = {name: value / iterations for name, value in total.items()}
    scores = evaluate(program, team, level, learning.evaluation_episodes)
    report |= {"return": jnp.mean(scores)}
    if protocol.find(program.method).speaks:
        episode = pick(replay.sample(state.ring, jax.random.key(EVALUATION_SEED), 1), 0)
        report |= maddpg.describe(team, episode, level)
    return state, report
