"""MAPPO for a team that communicates: clipped policy gradients of recurrent actors, central value functions.

Messages are part of the policy. An update replays each fresh episode with the noise draws that it was played with, so
the gradient of agent i's loss reaches its actor and receiver and, through what it received, the senders of the others.
Axes inside an update: (time, agent, episode, feature).
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from dpmac.agents.layers import Critic, fill
from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.protocol import Protocol
from dpmac.agents.team import NoiseDraws, Team
from dpmac.config import positive, require, whole
from dpmac.learner.base import Clock, Learner, Rollout, check_reaches_horizon, shapes, stepped, traced
from dpmac.learner.private import Private, size_of
from dpmac.learner.replay import Episode, by_time
from dpmac.tasks import Task, abilities


class Spread(NamedTuple):
    """Running mean and mean square of returns, for values of mean 0 and deviation 1."""

    mean: Array
    square: Array
    weight: Array
    """How much was seen, from 0 to 1; what is missing to 1 is bias of the start."""

    @property
    def moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation of what was seen."""
        weight = jnp.maximum(self.weight, 1e-8)
        mean = self.mean / weight
        return mean, jnp.sqrt(jnp.maximum(self.square / weight - mean**2, 1e-4))

    def updated(self, values: Array, rate: float, live: Array | None = None) -> "Spread":
        new = Spread(jnp.mean(values, where=live), jnp.mean(values**2, where=live), jnp.ones(()))
        return jax.tree.map(lambda old, now: old + rate * (now - old), self, new)


class State(NamedTuple):
    """Everything that MAPPO learns with."""

    team: Team
    critics: Critic
    optimisers: Any
    """(team, critics), one of each for each agent."""
    spread: Spread


@dataclasses.dataclass(frozen=True)
class Mappo(Learner):
    """MAPPO; settings of Yu et al. (2022) by default, for whole episodes."""

    epochs: int = 5
    """Passes over the fresh episodes in one iteration."""
    minibatches: int = 1
    """Minibatches in each pass."""
    clip: float = traced(0.2)
    """Range around 1 to which the probability ratio is clipped."""
    entropy: float = traced(0.01)
    """Weight of the policies' entropy at the start."""
    entropy_end: float = traced(0.001)
    """Weight of the policies' entropy at the end, reached linearly."""
    discount: float = traced(0.99)
    """Weight of a reward one step later."""
    trace: float = traced(0.95)
    """λ of generalised advantage estimates."""
    learning_rate: float = traced(7e-4)
    """Learning rate of Adam, for all networks."""
    decay: float = 0.0
    """Final share of the run over which the learning rate falls linearly to zero."""
    gradient_norm: float = traced(1.0)
    """Gradients of each agent are clipped to this norm."""
    spread_rate: float = traced(0.01)
    """Rate at which the normalisation of values follows the returns."""
    value_scale: float = traced(1.0)
    """Standard deviation of returns where `spread_rate` is 0, as in private training, which may not measure it."""
    bootstrap_horizon: bool = False
    """Whether values are bootstrapped at the time limit, instead of treating it as terminal."""
    recurrent_critic: bool = False
    """Whether value functions have a recurrent layer."""
    no_clock: bool = False
    """Whether value functions do not observe the time step."""

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches"):
            value = getattr(self, name)
            require(whole(value, 1), f"{name} must be a whole number from 1, not {value}")
        for name in ("learning_rate", "gradient_norm", "clip", "value_scale"):
            value = getattr(self, name)
            require(positive(value), f"{name} must be a finite number above 0, not {value}")
        for name in ("discount", "trace", "decay", "spread_rate"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} must lie in [0, 1], not {value}")
        for name in ("entropy", "entropy_end"):
            value = getattr(self, name)
            require(value >= 0, f"{name} must be at least 0, not {value}")

    def check(self, protocol: type[Protocol], play: Rollout) -> None:
        super().check(protocol, play)
        if self.bootstrap_horizon:
            check_reaches_horizon(play.task)
        require(
            play.episodes % self.minibatches == 0,
            f"episodes ({play.episodes}) must be a multiple of minibatches ({self.minibatches})",
        )

    def init(self, key: Array, team: Team, play: Rollout, total: int) -> State:
        horizon = 0 if self.no_clock else team.horizon
        inputs = team.agents * play.task.observation_size + world_size(play.task)
        critic = Critic(inputs, team.width, self.recurrent_critic, horizon)
        critics = jax.vmap(fill, in_axes=(0, None))(jax.random.split(key, team.agents), critic)
        start = jax.vmap(self.optimiser.init)
        return State(team, critics, (start(team), start(critics)), Spread(*jnp.zeros(3)))

    @property
    def optimiser(self) -> Any:
        return optax.chain(optax.clip_by_global_norm(self.gradient_norm), optax.adam(self.learning_rate, eps=1e-5))

    def team(self, state: State) -> Team:
        return state.team

    def spread(self, state: State) -> Spread:
        """As measured so far, or as `value_scale` says."""
        known = Spread(*map(jnp.asarray, (0.0, self.value_scale**2, 1.0)))
        return jax.tree.map(partial(jnp.where, self.spread_rate > 0), state.spread, known)

    def batch_size(self, play: Rollout) -> int:
        return play.episodes // self.minibatches

    def updates(self, play: Rollout) -> int:
        return self.epochs * self.minibatches

    def iterate(
        self, state: State, play: Rollout, noise: NoiseScale, clock: Clock, key: Array
    ) -> tuple[State, dict[str, Array]]:
        """Play fresh episodes, estimate advantages once, and make several epochs of clipped updates on them."""
        play_key, order_key = jax.random.split(key)
        state = state._replace(spread=self.spread(state))
        fresh = play(state.team, noise, play_key)
        batch = by_time(fresh.episode)
        live = batch.live
        old = state.team.policy.log_probability(jnp.moveaxis(fresh.logits, 0, 2), batch.actions, batch.choices)
        advantages, returns = self.advantages(state, batch)
        spread = state.spread.updated(returns, self.spread_rate, live)
        mean, deviation = spread.moments
        centred = (advantages - jnp.mean(advantages, where=live)) / (jnp.std(advantages, where=live) + 1e-8)
        lessons = Lessons(batch, old, centred, (returns - mean) / deviation)
        share = clock.steps / clock.total
        entropy = self.entropy + share * (self.entropy_end - self.entropy)
        rate_scale = clock.rate_scale(self.decay)
        orders = jax.vmap(lambda k: jax.random.permutation(k, play.episodes))(jax.random.split(order_key, self.epochs))

        def learn(carry: tuple[Team, Critic, Any], places: Array):
            return update(self, *carry, lessons.of(places), entropy, rate_scale)

        carry = (state.team, state.critics, state.optimisers)
        places = orders.reshape(self.updates(play), -1)
        (team, critics, optimisers), report = jax.lax.scan(learn, carry, places)
        report = jax.tree.map(lambda x: jnp.mean(x, axis=0), report)
        return State(team, critics, optimisers, spread), report

    def without_leaks(self) -> "Mappo":
        return dataclasses.replace(self, epochs=1, minibatches=1, spread_rate=0.0)

    def private_use(self, protocol: type[Protocol], team: Team, play: Rollout, total: int) -> tuple[float, int, int]:
        once = self.epochs == self.minibatches == 1
        require(once, "private training makes one pass: epochs and minibatches must be 1")
        require(
            self.spread_rate == 0,
            "private training cannot normalise values by the returns of a batch: spread_rate must be 0, and "
            "value_scale says how far returns deviate",
        )
        return 1.0, 1, team.parameters + size_of(shapes(self, team, play, total).critics)

    def iterate_privately(
        self, state: State, play: Rollout, noise: NoiseScale, clock: Clock, key: Array, private: Private
    ) -> tuple[State, dict[str, Array]]:
        """Play fresh episodes and make one update. Returns and advantages are in units of `value_scale`, and no number
        of one episode depends on another."""
        fresh = play(state.team, noise, key)
        given = state._replace(spread=self.spread(state))
        entropy = self.entropy + clock.steps / clock.total * (self.entropy_end - self.entropy)

        def gradient(networks: tuple[Team, Critic], place: Array) -> tuple[Team, Critic]:
            team, critics = networks
            one = jax.tree.map(lambda x: x[place][None], (fresh.episode, fresh.logits))
            batch = by_time(one[0])
            advantages, returns = self.advantages(given, batch)
            old = team.policy.log_probability(jnp.moveaxis(one[1], 0, 2), batch.actions, batch.choices)
            lessons = Lessons(batch, old, advantages / self.value_scale, returns / self.value_scale)
            draws = jax.vmap(team.noise_draws)(jax.random.wrap_key_data(batch.draws))
            slope = jax.grad(lambda team: policy_loss(self, team, lessons, draws, entropy)[0])(team)
            return team.joint(slope), jax.grad(lambda critics: value_loss(self, critics, lessons))(critics)

        networks = state.team, state.critics
        slopes, report = private.release(gradient, networks, jnp.ones(play.episodes, bool), play.episodes)
        team, critics, optimisers = moved(self, networks, slopes, state.optimisers, clock.rate_scale(self.decay))
        return State(team, critics, optimisers, state.spread), report

    def values(self, critics: Critic, observations: Array, world: Array | None = None) -> Array:
        """Normalised values (time, agent, episode) of everybody's observations (time, agent, episode, feature), and
        where there is one of the world (time, 1, episode, feature)."""
        joint = jnp.moveaxis(observations, 1, 2)
        joint = joint.reshape(*joint.shape[:2], -1)
        if world is not None:
            joint = jnp.concatenate([joint, world[:, 0]], axis=-1)
        return jax.vmap(lambda critic: critic(joint), out_axes=1)(critics)

    def advantages(self, state: State, batch: Episode) -> tuple[Array, Array]:
        """Generalised advantage estimates and λ-returns (T, agent, episode), in units of the reward."""
        mean, deviation = state.spread.moments
        values = self.values(state.critics, batch.observations, batch.world) * deviation + mean
        if not self.bootstrap_horizon:
            values = values.at[-1].set(0.0)
        if batch.over is not None:
            values = jnp.where(batch.over, 0.0, values)
        errors = batch.rewards + self.discount * values[1:] - values[:-1]

        def back(later: Array, error: Array) -> tuple[Array, Array]:
            now = error + self.discount * self.trace * later
            return now, now

        _, found = jax.lax.scan(back, jnp.zeros_like(errors[0]), errors, reverse=True)
        return found, found + values[:-1]


class Lessons(NamedTuple):
    """What an iteration learns from: episodes, and beside each action what was worked out once."""

    batch: Episode
    old: Array
    """Log-probabilities (T, agent, episode) of the actions when they were taken."""
    advantages: Array
    returns: Array
    """Normalised targets (T, agent, episode) of the value functions."""

    def of(self, places: Array) -> "Lessons":
        """Those of some of the episodes."""
        return jax.tree.map(lambda x: x[:, :, places], self._replace(batch=None))._replace(batch=self.batch.at(places))


def world_size(task: Task) -> int:
    """Numbers that a task's world has."""
    world = abilities(task).world
    return 0 if world is None else len(jax.eval_shape(lambda key: world(task.reset(key)), jax.random.key(0)))


def policy_loss(
    learner: Mappo, team: Team, lessons: Lessons, draws: NoiseDraws, entropy: Array
) -> tuple[Array, dict[str, Array]]:
    """PPO's clipped loss less entropy, averaged over time and episodes and summed over agents; and what to report."""
    batch, policy = lessons.batch, team.policy
    logits = team.unroll(batch.observations[:-1], batch.actions, draws, batch.scale)
    ratio = jnp.exp(policy.log_probability(logits, batch.actions, batch.choices) - lessons.old)
    near = jnp.clip(ratio, 1 - learner.clip, 1 + learner.clip)
    gain = jnp.minimum(ratio * lessons.advantages, near * lessons.advantages)
    disorder = policy.entropy(logits, batch.choices)
    loss = -jnp.sum(jnp.mean(gain + entropy * disorder, axis=(0, 2), where=batch.live))
    share = jnp.mean(jnp.abs(ratio - 1) > learner.clip)
    return loss, {"actor_loss": loss / team.agents, "entropy": jnp.mean(disorder), "share_ratio_clipped": share}


def update(
    learner: Mappo,
    team: Team,
    critics: Critic,
    optimisers: Any,
    lessons: Lessons,
    entropy: Array,
    rate_scale: Array,
) -> tuple[tuple[Team, Critic, Any], dict[str, Array]]:
    """One update of all agents from some episodes."""
    draws = jax.vmap(team.noise_draws)(jax.random.wrap_key_data(lessons.batch.draws))
    loss, slope = jax.value_and_grad(lambda critics: value_loss(learner, critics, lessons))(critics)
    gradient, report = jax.grad(lambda team: policy_loss(learner, team, lessons, draws, entropy), has_aux=True)(team)
    after = moved(learner, (team, critics), (gradient, slope), optimisers, rate_scale)
    return after, report | {"critic_loss": loss / team.agents}


def value_loss(learner: Mappo, critics: Critic, lessons: Lessons) -> Array:
    """Squared error of normalised values, averaged over time and episodes and summed over agents."""
    batch = lessons.batch
    world = None if batch.world is None else batch.world[:-1]
    errors = learner.values(critics, batch.observations[:-1], world) - lessons.returns
    return jnp.sum(jnp.mean(jnp.square(errors), axis=(0, 2), where=batch.live))


def moved(
    learner: Mappo, networks: tuple[Team, Critic], gradients: Any, optimisers: Any, rate_scale: Array
) -> tuple[Team, Critic, Any]:
    """Team, critics and optimisers after one step along the gradients of the first two."""
    step = partial(stepped, learner.optimiser, scale=rate_scale)
    team, team_state = step(networks[0], networks[0].tied(gradients[0]), optimisers[0])
    critics, critic_state = step(networks[1], gradients[1], optimisers[1])
    return team, critics, (team_state, critic_state)
