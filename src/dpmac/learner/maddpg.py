"""MADDPG for a team that communicates: central critics, recurrent actors, straight-through Gumbel actions.

The learner knows protocols only through `Team`. The loss of agent i is -Q_i with its own action taken from its policy
and those of the others from the replay. Its gradient reaches agent i's actor and receiver and, through what it
received, the senders of the others. Axes inside an update: (time, agent, episode, feature), as the recurrent layer
takes them.
"""

import dataclasses
import math
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from dpmac.agents.layers import Critic, fill
from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.policy import Policy
from dpmac.agents.protocol import Protocol
from dpmac.agents.team import NoiseDraws, Team, pick
from dpmac.config import positive, require, whole
from dpmac.learner import replay
from dpmac.learner.base import Clock, Learner, Rollout, check_reaches_horizon, shapes, stepped, traced
from dpmac.learner.private import Private, size_of
from dpmac.learner.replay import Episode, Ring
from dpmac.tasks import abilities


class LearnerNetworks(NamedTuple):
    """What is learned, and the Polyak averages that it learns from."""

    team: Team
    critics: Critic
    target_team: Team
    target_critics: Critic


class Optimisers(NamedTuple):
    """States of the optimisers, one for each agent."""

    team: Any
    critics: Any


class State(NamedTuple):
    """Everything that MADDPG learns with."""

    networks: LearnerNetworks
    optimisers: Optimisers
    ring: Ring


@dataclasses.dataclass(frozen=True)
class Maddpg(Learner):
    """MADDPG; the paper's and the released settings by default."""

    updates_per_episode: float = 0.25
    """The update ratio: updates of all agents for each fresh episode. The paper's is 1."""
    batch: int = 0
    """Episodes in a minibatch; 0: the paper's, which is 128, and 256 on pp."""
    buffer: int = 10_000
    """Episodes that the replay holds."""
    discount: float = traced(0.99)
    """Weight of a reward one step later."""
    learning_rate: float = traced(7e-4)
    """Learning rate of Adam, for all networks."""
    decay: float = 0.0
    """Final share of the run over which the learning rate falls linearly to zero."""
    tau: float = traced(0.005)
    """τ of Polyak averaging: weight of the online networks in the targets at each update."""
    standardise: bool = True
    """Whether critics learn rewards standardised to mean 0 and deviation 1 over the replay."""
    gradient_norm: float = traced(1.0)
    """Gradients of each agent are clipped to this norm."""
    logit_penalty: float = traced(1e-3)
    """Weight of the mean squared logit in the actor's loss; it keeps the policy from becoming deterministic too
    early."""
    explore_start: float = 1.0
    """Probability of a random action at the start."""
    explore_end: float = 0.05
    """Probability of a random action after `explore_steps`."""
    explore_steps: int | None = None
    """Environment steps over which that probability falls linearly; by default 50000, or half of a run shorter than
    100000 steps."""
    bootstrap_horizon: bool = False
    """Whether values are bootstrapped at the time limit, instead of treating it as terminal (as released)."""
    replay_noise: bool = True
    """Whether episodes are replayed with their original noise, instead of fresh noise each time."""
    recurrent_critic: bool = False
    """Whether critics have a recurrent layer."""
    critic_layers: int = 1
    """Layers of critics before the recurrent one."""
    critic_norm: bool = False
    """Whether critics normalise their inputs and every layer."""
    clock: bool = False
    """Whether critics observe the time step, on which values in a finite episode depend."""

    gives_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(whole(self.batch, 0), f"batch must be a whole number from 1, or 0, not {self.batch}")
        require(
            whole(self.critic_layers, 1, 16), f"critic_layers must be a whole number from 1, not {self.critic_layers}"
        )
        require(whole(self.buffer, 1), f"buffer must be a whole number from 1, not {self.buffer}")
        for name in ("learning_rate", "gradient_norm"):
            value = getattr(self, name)
            require(positive(value), f"{name} must be a finite number above 0, not {value}")
        for name in ("discount", "tau", "explore_start", "explore_end", "decay"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} must lie in [0, 1], not {value}")
        require(self.logit_penalty >= 0, f"logit_penalty must be at least 0, not {self.logit_penalty}")
        steps = self.explore_steps
        require(steps is None or whole(steps, 0), f"explore_steps must be a whole number from 0, not {steps}")

    def check(self, protocol: type[Protocol], play: Rollout) -> None:
        super().check(protocol, play)
        if self.bootstrap_horizon:
            check_reaches_horizon(play.task)
        require(
            not ((self.recurrent_critic or self.clock) and protocol.needs_values),
            f"{protocol.__name__} needs the values of single actions, which critics with a hidden state or a clock do "
            "not give",
        )
        require(
            not (abilities(play.task).continuous and protocol.needs_values),
            f"{protocol.__name__} needs the values of single actions, and those of {play.task.name} are continuous",
        )
        require(
            self.buffer >= play.episodes,
            f"buffer ({self.buffer}) must hold the episodes of one iteration ({play.episodes})",
        )
        updates = self.updates_per_episode * play.episodes
        require(
            1 <= updates < math.inf and updates == round(updates),
            f"updates-per-episode x episodes must be a whole number from 1, not {updates:g}",
        )

    def init(self, key: Array, team: Team, play: Rollout, total: int) -> State:
        task = play.task
        inputs = team.agents * (task.observation_size + team.actions)
        critic = Critic(
            inputs,
            team.width,
            self.recurrent_critic,
            team.horizon if self.clock else 0,
            self.critic_layers,
            self.critic_norm,
        )
        critics = jax.vmap(fill, in_axes=(0, None))(jax.random.split(key, team.agents), critic)
        start = jax.vmap(self.optimiser.init)
        one = jax.eval_shape(lambda k: pick(Rollout(task, 1)(team, team.free, k).episode, 0), key)._replace(world=None)
        # A run that collects fewer episodes than the buffer holds needs no more slots than that.
        slots = min(self.buffer, total)
        networks = LearnerNetworks(team, critics, team, critics)
        return State(networks, Optimisers(start(team), start(critics)), replay.empty(slots, one))

    def iterate(
        self, state: State, play: Rollout, noise: NoiseScale, clock: Clock, key: Array
    ) -> tuple[State, dict[str, Array]]:
        """Add fresh episodes to the replay and update all agents from minibatches of it."""
        episode_key, update_key = jax.random.split(key)
        fresh = play(state.networks.team, noise, episode_key, self.exploration(clock))
        ring = replay.add(state.ring, fresh.episode._replace(world=None))
        scale = clock.rate_scale(self.decay)

        def learn(carry: tuple[LearnerNetworks, Optimisers], k: Array):
            networks, optimisers, report = update(self, *carry, ring, k, self.batch_size(play), scale)
            return (networks, optimisers), report

        carry = (state.networks, state.optimisers)
        if self.updates(play) == 1:
            carry, report = learn(carry, update_key)
        else:
            carry, report = jax.lax.scan(learn, carry, jax.random.split(update_key, self.updates(play)))
            report = jax.tree.map(lambda x: jnp.mean(x, axis=0), report)
        return State(*carry, ring), report

    def without_leaks(self) -> "Maddpg":
        return dataclasses.replace(self, standardise=False)

    def private_use(self, protocol: type[Protocol], team: Team, play: Rollout, total: int) -> tuple[float, int, int]:
        require(
            not self.standardise,
            "private training cannot standardise rewards over the replay: standardise must be false",
        )
        require(
            protocol.auxiliary is Protocol.auxiliary,
            f"private training cannot serve {protocol.__name__}, whose own loss mixes the episodes of a batch",
        )
        slots, count = min(self.buffer, total), self.batch_size(play)
        require(
            count <= slots,
            f"private training draws batch ({count}) of the replay's {slots} episodes on average, and needs as many",
        )
        numbers = team.parameters + size_of(shapes(self, team, play, total).networks.critics)
        return count / slots, math.ceil(slots / play.episodes) * self.updates(play), numbers

    def iterate_privately(
        self, state: State, play: Rollout, noise: NoiseScale, clock: Clock, key: Array, private: Private
    ) -> tuple[State, dict[str, Array]]:
        """Add fresh episodes to the replay; each update draws every stored one by itself, with the same probability
        however full the replay is."""
        episode_key, update_key = jax.random.split(key)
        fresh = play(state.networks.team, noise, episode_key, self.exploration(clock))
        ring = replay.add(state.ring, fresh.episode._replace(world=None))
        scale, count = clock.rate_scale(self.decay), self.batch_size(play)

        def learn(carry: tuple[LearnerNetworks, Optimisers], keys: tuple[Array, Array]):
            networks, optimisers, report = private_update(
                self, *carry, ring, keys[0], count, scale, private.keyed(keys[1])
            )
            return (networks, optimisers), report

        carry, many = (state.networks, state.optimisers), self.updates(play)
        if many == 1:
            carry, report = learn(carry, (update_key, private.noise_key))
        else:
            keys = jax.random.split(update_key, many), jax.random.split(private.noise_key, many)
            carry, reports = jax.lax.scan(learn, carry, keys)
            report = jax.tree.map(lambda x: jnp.mean(x, axis=0), reports)
        return State(*carry, ring), report

    def team(self, state: State) -> Team:
        return state.networks.team

    @property
    def optimiser(self) -> Any:
        """Adam on gradients clipped to a norm; one for each agent's actor with protocol, one for each critic."""
        return optax.chain(optax.clip_by_global_norm(self.gradient_norm), optax.adam(self.learning_rate))

    def exploration(self, clock: Clock) -> Array:
        """Probability of a random action."""
        explored = self.explored(clock.total)
        share = jnp.clip(clock.steps / explored, 0.0, 1.0) if explored else jnp.ones(())
        return self.explore_start + share * (self.explore_end - self.explore_start)

    def explored(self, total: int) -> int:
        """Environment steps over which exploration falls, in a run of so many."""
        return min(50_000, total // 2) if self.explore_steps is None else self.explore_steps

    def settled(self, play: Rollout, total: int) -> "Maddpg":
        return dataclasses.replace(self, batch=self.batch_size(play), explore_steps=self.explored(total))

    def batch_size(self, play: Rollout) -> int:
        return self.batch or abilities(play.task).paper_batch

    def updates(self, play: Rollout) -> int:
        return round(self.updates_per_episode * play.episodes)

    def operations(self, state: State) -> float:
        """Matrix products: forward of target team and critics, forward and backward of both, and the actors' gradient
        through the critics."""

        def weights(tree: Any) -> int:
            return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree) if len(leaf.shape) == 3)

        return (
            2.0 * (4 * weights(state.networks.team) + 6 * weights(state.networks.critics)) / state.networks.team.agents
        )

    def parts(self, state: State, play: Rollout, noise: NoiseScale) -> dict[str, Any]:
        networks, key = state.networks, jax.random.key(0)
        count = self.batch_size(play)
        ring = state.ring._replace(added=jnp.asarray(count))
        batch = replay.by_time(replay.sample(ring, key, count))
        gumbel = jnp.zeros((*batch.rewards.shape, networks.team.actions))

        def draws() -> NoiseDraws:
            return networks.team.draw(key, count)

        def actor() -> Any:
            given = (batch, draws(), gumbel, batch.scale, self.logit_penalty)
            return jax.grad(actor_loss, has_aux=True)(networks.team, networks.critics, *given)

        return {
            "episodes": lambda: play(networks.team, noise, key, 0.1).episode,
            "draws": draws,
            "target": lambda: targets(self, networks, batch, draws(), batch.scale),
            "critic": lambda: jax.grad(critic_loss)(networks.critics, batch, batch.rewards, networks.team.policy),
            "actor": actor,
        }


def standardised(batch: Episode, ring: Ring) -> Episode:
    """The batch with the mean of all rewards in the ring as 0 and their deviation as 1.

    All episodes are of one length, so this moves the values of all policies alike, and spares critics large numbers.
    Where episodes end, another 0 would make longer ones better or worse: there rewards are scaled alone.
    """
    rewards, over = ring.episodes.rewards, ring.episodes.over
    there = (jnp.arange(len(rewards)) < ring.added)[:, None, None]
    live = there if over is None else there & ~over[:, :-1]
    mean = jnp.mean(rewards, where=live) if over is None else 0.0
    variance = jnp.mean(jnp.square(rewards - mean), where=live)
    return batch._replace(rewards=(batch.rewards - mean) * jax.lax.rsqrt(jnp.maximum(variance, 1e-6)))


def values(critics: Critic, observations: Array, actions: Array, recorded: Array | None = None) -> Array:
    """Q (time, agent, episode) of every critic: observations (time, agent, episode, feature), one-hot actions.

    Actions are (time, agent, episode, action) for all critics alike, or (critic, time, agent, episode, action);
    recorded ones are those of the past, where that differs.
    """
    shape = (critics.value.weight.shape[0], *observations.shape[:-1])

    def joint(actions: Array) -> Array:
        given = [jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (observations, actions)]
        together = jnp.moveaxis(jnp.concatenate(given, axis=-1), 2, 3)
        return together.reshape(*together.shape[:3], -1)

    past = None if recorded is None else joint(recorded)
    return jax.vmap(lambda critic, x, past: critic(x, past), out_axes=1)(critics, joint(actions), past)


def targets(learner: Maddpg, networks: LearnerNetworks, batch: Episode, draws: NoiseDraws, scale: NoiseScale) -> Array:
    """TD targets (T, agent, episode) from the target networks' greedy next actions."""
    observations = batch.observations if learner.bootstrap_horizon else batch.observations[:-1]
    logits = networks.target_team.unroll(observations, batch.actions, draws, scale)
    policy, available = networks.target_team.policy, batch.available
    greedy = policy.coded(policy.best(logits, None if available is None else available[: len(logits)]))
    recorded = greedy.at[:-1].set(policy.coded(batch.actions[: len(greedy) - 1]))
    following = values(networks.target_critics, observations, greedy, recorded)[1:]
    if not learner.bootstrap_horizon:
        following = jnp.concatenate([following, jnp.zeros_like(batch.rewards[:1])])
    if batch.over is not None:
        following = jnp.where(batch.over[1:], 0.0, following)
    return batch.rewards + learner.discount * following


def critic_loss(critics: Critic, batch: Episode, target: Array, policy: Policy) -> Array:
    """Squared TD error, averaged over time and episodes and summed over critics."""
    errors = values(critics, batch.observations[:-1], policy.coded(batch.actions)) - target
    return jnp.sum(jnp.mean(jnp.square(errors), axis=(0, 2), where=batch.live))


def actor_loss(
    team: Team, critics: Critic, batch: Episode, draws: NoiseDraws, gumbel: Array, scale: NoiseScale, penalty: float
) -> tuple[Array, Array]:
    """-Q_i of each agent's own action, averaged over time and episodes and summed over agents, and large logits.

    With it the logits (T, agent, episode, action).
    """
    observations = batch.observations[:-1]
    logits = team.unroll(observations, batch.actions, draws, scale)
    own = team.policy.relaxed(logits, gumbel, batch.choices)
    recorded = team.policy.coded(batch.actions)
    mine = jnp.eye(team.agents, dtype=bool)[:, None, :, None, None]
    q = values(critics, observations, jnp.where(mine, own, recorded), recorded)
    loss = penalty * jnp.mean(jnp.square(logits), axis=-1) - q
    return jnp.sum(jnp.mean(loss, axis=(0, 2), where=batch.live)), logits


def actor_noise(team: Team, batch: Episode, key: Array) -> Array:
    """Of the actors' own actions: the gradient of a choice is that of a sample; numbers are those without noise."""
    return jnp.zeros(()) if team.continuous else team.policy.noise(key, batch.rewards.shape)


def update(
    learner: Maddpg,
    networks: LearnerNetworks,
    optimisers: Optimisers,
    ring: Ring,
    key: Array,
    count: int,
    rate_scale: Array | float = 1.0,
) -> tuple[LearnerNetworks, Optimisers, dict[str, Array]]:
    """One update of all agents from a minibatch of so many episodes, and what to report of it.

    Episodes are replayed with the noise draws and at the noise scales that they were played with; on demand with fresh
    draws.
    """
    batch_key, gumbel_key, auxiliary_key, *others = jax.random.split(key, 3 if learner.replay_noise else 4)
    team, step = networks.team, partial(stepped, learner.optimiser, scale=rate_scale)
    batch = replay.by_time(replay.sample(ring, batch_key, count))
    if learner.standardise:
        batch = standardised(batch, ring)
    keys, scale = jax.random.wrap_key_data(batch.draws), batch.scale
    if not learner.replay_noise:
        keys = jax.random.split(others[0], count)
    draws = jax.vmap(team.noise_draws)(keys)
    target = targets(learner, networks, batch, draws, scale)
    loss, gradient = jax.value_and_grad(critic_loss)(networks.critics, batch, target, team.policy)
    critics, critic_state = step(networks.critics, gradient, optimisers.critics)
    gumbel = actor_noise(team, batch, gumbel_key)

    def team_loss(team: Team) -> tuple[Array, dict[str, Array]]:
        loss, logits = actor_loss(team, critics, batch, draws, gumbel, scale, learner.logit_penalty)
        extra, report = team.members.protocol.auxiliary(
            team.members, batch, logits, partial(values, critics), auxiliary_key
        )
        return loss + extra, report

    (actor, report), gradient = jax.value_and_grad(team_loss, has_aux=True)(team)
    team, team_state = step(team, team.tied(gradient), optimisers.team)
    report |= {"critic_loss": loss / team.agents, "actor_loss": actor / team.agents}
    return followed(learner, networks, team, critics), Optimisers(team_state, critic_state), report


def followed(learner: Maddpg, networks: LearnerNetworks, team: Team, critics: Critic) -> LearnerNetworks:
    """Networks with this team and these critics, which the targets follow by Polyak averaging."""

    def polyak(average: Any, online: Any) -> Any:
        return jax.tree.map(lambda old, new: old + learner.tau * (new - old), average, online)

    return LearnerNetworks(team, critics, polyak(networks.target_team, team), polyak(networks.target_critics, critics))


def private_update(
    learner: Maddpg,
    networks: LearnerNetworks,
    optimisers: Optimisers,
    ring: Ring,
    key: Array,
    count: int,
    rate_scale: Array,
    private: Private,
) -> tuple[LearnerNetworks, Optimisers, dict[str, Array]]:
    """One update of all agents from a Poisson sample of so many episodes on average.

    Critics and actors step from the same networks, for both of their gradients leave in one release.
    """
    step, slots = partial(stepped, learner.optimiser, scale=rate_scale), len(ring.episodes.rewards)

    def gradient(online: tuple[Team, Critic], slot: Array) -> tuple[Team, Critic]:
        team, critics = online
        batch = replay.by_time(jax.tree.map(lambda x: x[slot][None], ring.episodes))
        draw_key, gumbel_key = jax.random.split(jax.random.fold_in(key, slot))
        keys = jax.random.wrap_key_data(batch.draws) if learner.replay_noise else draw_key[None]
        draws = jax.vmap(team.noise_draws)(keys)
        target = targets(learner, networks, batch, draws, batch.scale)
        gumbel = actor_noise(team, batch, gumbel_key)
        given = (critics, batch, draws, gumbel, batch.scale, learner.logit_penalty)
        slope = jax.grad(lambda team: actor_loss(team, *given)[0])(team)
        return team.joint(slope), jax.grad(critic_loss)(critics, batch, target, team.policy)

    stored = jnp.arange(slots) < ring.added
    taken = private.drawn(slots, count / slots) & stored
    (slope, critic_slope), report = private.release(gradient, (networks.team, networks.critics), taken, count)
    team, team_state = step(networks.team, networks.team.tied(slope), optimisers.team)
    critics, critic_state = step(networks.critics, critic_slope, optimisers.critics)
    return followed(learner, networks, team, critics), Optimisers(team_state, critic_state), report
