"""MADDPG for a team that talks: central critics, decentralised recurrent actors, straight-through Gumbel actions.

The learner knows protocols only through `Team`. The loss of agent i is -Q_i with its own action taken from its policy
and those of the others from the replay; its gradient reaches agent i's actor and receiver, and through what it heard
the senders of the others. Axes inside an update: (time, agent, episode, feature), as the recurrent layer wants them.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from dpmac.agents.layers import Critic, fill
from dpmac.agents.mechanisms import Level, clip_to_norm, draw_levels, straight_through
from dpmac.agents.team import Chance, Team
from dpmac.config import Learning, require
from dpmac.config import Networks as Sizes
from dpmac.learner import replay
from dpmac.learner.replay import Episode, Ring


class Networks(NamedTuple):
    """What is learned, and the slow copies that it learns from."""

    team: Team
    critics: Critic
    target_team: Team
    target_critics: Critic


class Optimisers(NamedTuple):
    """States of the optimisers, one for each agent."""

    team: Any
    critics: Any


def optimiser(learning: Learning) -> Any:
    """Adam on gradients clipped to a norm; one for each agent's actor with protocol, one for each critic."""
    return optax.chain(optax.clip_by_global_norm(learning.gradient_norm), optax.adam(learning.learning_rate))


def init(key: Array, team: Team, observation_size: int, sizes: Sizes, learning: Learning):
    """Networks and optimiser states around a fresh team."""
    require(
        not ((sizes.recurrent_critic or sizes.clock) and team.members.protocol.needs_values),
        f"{type(team.members.protocol).__name__} needs the values of single actions, which critics with a memory or a "
        "clock do not give",
    )
    inputs = team.agents * (observation_size + team.actions)
    critic = Critic(inputs, sizes.hidden, sizes.recurrent_critic, team.horizon if sizes.clock else 0)
    critics = jax.vmap(fill, in_axes=(0, None))(jax.random.split(key, team.agents), critic)
    start = jax.vmap(optimiser(learning).init)
    return Networks(team, critics, team, critics), Optimisers(start(team), start(critics))


def minibatch(ring: Ring, key: Array, count: int) -> Episode:
    """Episodes drawn from the ring, their axes turned from (episode, time, agent, …) to (time, agent, episode, …)."""
    batch = replay.sample(ring, key, count)
    turned = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), batch._replace(chance=None))
    return turned._replace(chance=batch.chance)


def standardised(batch: Episode, ring: Ring) -> Episode:
    """The batch with the mean of all rewards in the ring as 0 and their deviation as 1.

    All episodes are of one length, so this moves the values of all policies alike, and spares critics large numbers.
    """
    rewards = ring.episodes.rewards
    count = jnp.minimum(ring.added, len(rewards)) * rewards[0].size  # slots that are still empty hold zeros
    mean = jnp.sum(rewards) / count
    variance = jnp.sum(jnp.square(rewards)) / count - mean**2
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

    past = joint(actions if recorded is None else recorded)
    return jax.vmap(lambda critic, x, past: critic(x, past), out_axes=1)(critics, joint(actions), past)


def targets(networks: Networks, batch: Episode, chance: Chance, level: Level, learning: Learning) -> Array:
    """TD targets (T, agent, episode) from the target networks' greedy next actions."""
    observations = batch.observations[:-1] if learning.terminal_horizon else batch.observations
    logits = networks.target_team.unroll(observations, batch.actions, chance, level)
    greedy = jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1])
    recorded = greedy.at[:-1].set(jax.nn.one_hot(batch.actions[: len(greedy) - 1], logits.shape[-1]))
    following = values(networks.target_critics, observations, greedy, recorded)[1:]
    if learning.terminal_horizon:
        following = jnp.concatenate([following, jnp.zeros_like(batch.rewards[:1])])
    return batch.rewards + learning.discount * following


def critic_loss(critics: Critic, batch: Episode, target: Array, actions: int) -> Array:
    """Squared TD error, averaged over time and episodes and summed over critics."""
    errors = values(critics, batch.observations[:-1], jax.nn.one_hot(batch.actions, actions)) - target
    return jnp.sum(jnp.mean(jnp.square(errors), axis=(0, 2)))


def actor_loss(
    team: Team, critics: Critic, batch: Episode, chance: Chance, gumbel: Array, level: Level, penalty: float
) -> tuple[Array, Array]:
    """-Q_i of each agent's own action, averaged over time and episodes and summed over agents, and large logits.

    With it the logits (T, agent, episode, action).
    """
    observations = batch.observations[:-1]
    logits = team.unroll(observations, batch.actions, chance, level)
    noisy = logits + gumbel
    own = straight_through(jax.nn.one_hot(jnp.argmax(noisy, axis=-1), team.actions), jax.nn.softmax(noisy))
    recorded = jax.nn.one_hot(batch.actions, team.actions)
    mine = jnp.eye(team.agents, dtype=bool)[:, None, :, None, None]
    q = values(critics, observations, jnp.where(mine, own, recorded), recorded)
    return jnp.sum(jnp.mean(penalty * jnp.mean(jnp.square(logits), axis=-1) - q, axis=(0, 2))), logits


def update(
    networks: Networks,
    optimisers: Optimisers,
    ring: Ring,
    key: Array,
    table: Level,
    learning: Learning,
    pace: Array | float = 1.0,
) -> tuple[Networks, Optimisers, dict[str, Array]]:
    """One update of all agents from a minibatch of episodes, and what to report of it.

    Each episode's noise level is drawn from a table (row, agent), as it was when it was played; the pace scales the
    learning rate.
    """
    batch_key, gumbel_key, auxiliary_key = jax.random.split(key, 3)
    team, step = networks.team, jax.vmap(optimiser(learning).update)
    batch = minibatch(ring, batch_key, learning.batch)
    if learning.standardise:
        batch = standardised(batch, ring)
    keys = jax.random.wrap_key_data(batch.chance)
    chance, level = jax.vmap(team.chance)(keys), draw_levels(table, keys)
    target = targets(networks, batch, chance, level, learning)
    loss, gradient = jax.value_and_grad(critic_loss)(networks.critics, batch, target, team.actions)
    change, critic_state = step(gradient, optimisers.critics, networks.critics)
    critics = eqx.apply_updates(networks.critics, jax.tree.map(lambda x: pace * x, change))
    gumbel = jax.random.gumbel(gumbel_key, (*batch.actions.shape, team.actions))

    def team_loss(team: Team) -> tuple[Array, dict[str, Array]]:
        loss, logits = actor_loss(team, critics, batch, chance, gumbel, level, learning.logit_penalty)
        extra, report = team.members.protocol.auxiliary(
            team.members, batch, logits, partial(values, critics), auxiliary_key
        )
        return loss + extra, report

    (actor, report), gradient = jax.value_and_grad(team_loss, has_aux=True)(team)
    change, team_state = step(gradient, optimisers.team, team)
    team = eqx.apply_updates(team, jax.tree.map(lambda x: pace * x, change))

    def follow(slow: Any, fast: Any) -> Any:
        return jax.tree.map(lambda old, new: old + learning.target_rate * (new - old), slow, fast)

    networks = Networks(team, critics, follow(networks.target_team, team), follow(networks.target_critics, critics))
    report |= {"critic_loss": loss / team.agents, "actor_loss": actor / team.agents}
    return networks, Optimisers(team_state, critic_state), report


def describe(team: Team, episode: Episode, level: Level) -> dict[str, Array]:
    """What the senders do in one episode: norms before clipping, share clipped, learned spread, signal to noise."""
    one_hot = jax.nn.one_hot(episode.actions, team.actions)
    observations = episode.observations[:-1]
    chance = team.chance(jax.random.wrap_key_data(episode.chance))
    read = jnp.zeros((len(observations), team.agents, team.width))
    if team.members.protocol.sequential:
        read = jax.vmap(team.read)(team.replay_stepwise(observations, episode.actions, chance, level))
    sender = jax.tree.map(lambda x: x[0], chance.sender)
    raw = jax.vmap(team.compose, in_axes=(0, 0, 0, None))(observations, episode.actions, read, sender)
    clipped = clip_to_norm(raw, team.channel.spec.clip_norm)
    norm = jnp.linalg.norm(raw, axis=-1)
    signal = jnp.mean(jnp.sum(jnp.var(clipped, axis=0), axis=-1))
    noise = jnp.mean(team.channel.size * level.amount**2)
    extra = jax.vmap(jax.vmap(lambda member, *given: member.protocol.describe(*given)), in_axes=(None, 0, 0, 0))(
        team.members, observations, one_hot, read
    )
    return {
        "message_norm": jnp.mean(norm),
        "share_clipped": jnp.mean(norm > team.channel.spec.clip_norm),
        "signal_to_noise": jnp.where(noise > 0, signal / jnp.maximum(noise, 1e-12), jnp.inf),
    } | {name: jnp.mean(value) for name, value in extra.items()}
