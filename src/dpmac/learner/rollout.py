"""Episodes of a team in a task."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dpmac.agents.mechanisms import NoiseScale, clip_to_norm, draw_rows
from dpmac.agents.recurrent import unrolled
from dpmac.agents.team import Given, Team
from dpmac.learner.replay import Episode
from dpmac.tasks import Task, abilities, advance, allowed, each_episode


class Trace(NamedTuple):
    """An episode with everything that was said."""

    episode: Episode
    states: Any
    """(T, …) of the task, before each step."""
    released: Array
    """(T, agent, …) what had left each agent after each step."""
    logits: Array
    """(T, agent, action) the actors' outputs."""
    raw: Array
    """(T, agent, message) the last messages before the channel, for learners alone."""


class Randomness(NamedTuple):
    """Everything random about one episode but the task's own."""

    start: Array
    """Key of the first state."""
    draws: Array
    """Data of the key of the messages' noise draws."""
    gumbel: Array
    """(T, agent, action) noise of the policy; no actions at all where they are greedy."""
    wander: Array
    """(T, agent) whether an action is random, and which."""
    uniform: Array
    jitter: Array
    """(use, agent, message) what is added to messages before the channel; nothing but in training."""


def rollout(
    task: Task,
    team: Team,
    table: NoiseScale,
    key: Array,
    episodes: int,
    explore: Array | float = 0.0,
    greedy: bool = False,
    relaxed: bool = False,
    jitter: float = 0.0,
    given: Given | None = None,
    among: int = 0,
    first: Array | int = 0,
    draw_key: Array | None = None,
) -> Trace:
    """Play episodes (episode, …) from fresh starts.

    Actions are samples of the policy, or uniform with probability `explore`; greedy ones are neither. Relaxed
    ones are the same samples with a soft gradient, as weights on all actions, in tasks that can be differentiated. The
    noise scale is (agent,), or drawn for each episode from a table (row, agent). A learner may explore symbols by
    Gumbel noise of this scale on their scores (`jitter`), or say what is released whatever is sent (`given`). Where
    `among` is given, greedy episodes are those from the `first` on among that many of the key, round and round.
    Noise is drawn from `draw_key` where it is given, so that the same starts can be played with other noise.
    """
    start_key, own_key, gumbel_key, explore_key = jax.random.split(key, 4)
    noise_key = own_key if draw_key is None else draw_key
    explore_key, jitter_key = jax.random.split(explore_key) if jitter else (explore_key, explore_key)
    shape = (episodes, task.horizon, task.agents)
    keys, starts = jax.random.split(noise_key, among or episodes), jax.random.split(start_key, among or episodes)
    if among:
        place = (first + jnp.arange(episodes)) % among
        keys, starts = keys[place], starts[place]
    scale = draw_rows(table, keys) if table.value.ndim == 2 else table
    if scale.value.ndim == 1:
        scale = jax.tree.map(lambda x: jnp.broadcast_to(x, (episodes, *x.shape)), scale)
    gumbel = jnp.zeros((*shape, 0)) if greedy else team.policy.noise(gumbel_key, shape)
    uniforms = jnp.zeros((*shape, 0)) if greedy else jax.random.uniform(explore_key, (*shape, 2))
    wander, uniform = (
        (uniforms[..., 0] < explore, (uniforms[..., 1] * task.actions).astype(int)) if not greedy else (uniforms,) * 2
    )
    messages = (episodes, team.uses, task.agents, team.channel.size if jitter else 0)
    extra = jitter * jax.random.gumbel(jitter_key, messages) if jitter else jnp.zeros(messages)
    random = Randomness(starts, jax.random.key_data(keys), gumbel, wander, uniform, extra)
    return each_episode(task, partial(play, task, team, greedy, relaxed, given), scale, random)


def play(
    task: Task, team: Team, greedy: bool, relaxed: bool, given: Given | None, scale: NoiseScale, random: Randomness
) -> Trace:
    """One episode, given everything random about it."""
    draws = team.noise_draws(jax.random.wrap_key_data(random.draws))._replace(jitter=random.jitter)
    if given is not None:
        draws = draws._replace(channel=given)

    policy, over, world = team.policy, abilities(task).over, abilities(task).world

    def choose(logits: Array, available: Array | None, gumbel: Array, wander: Array, uniform: Array) -> Array:
        if greedy:
            return policy.best(logits, available)
        if relaxed:
            return policy.relaxed(logits, gumbel, available)
        sampled = policy.sample(logits, gumbel, available)
        if available is None and sampled.ndim == 1:
            return jnp.where(wander, uniform, sampled)
        wander = wander.reshape(-1, *(1,) * (sampled.ndim - 1))
        return jnp.where(wander, policy.anything(gumbel, available), sampled)

    def noted(state: Any) -> dict[str, Array | None]:
        """What the task says of a state beside the observations, as `Episode` keeps it."""
        ended = None if over is None else jnp.broadcast_to(over(state) > 0, task.agents)
        seen = None if world is None else world(state)[None]
        return {"available": allowed(task, state), "over": ended, "world": seen}

    def step(speaks: bool, both: tuple[Any, Any], now: tuple[Array, Array, Array]):
        state, carry = both
        observations = task.observe(state)
        logits, carry = team.listen(carry, observations, draws, scale)
        notes = noted(state)
        actions = choose(logits, notes["available"], *now)
        carry = (
            team.speak(carry, observations, actions, draws, scale) if speaks else carry._replace(time=carry.time + 1)
        )
        next_state, rewards = advance(task, state, actions)
        taken = policy.stored(actions)
        return (next_state, carry), (observations, taken, rewards, notes, state, carry.released, logits, carry.raw)

    if relaxed and not unrolled():  # on a CPU computing a step twice is faster than keeping all that it computed
        step = jax.checkpoint(step, prevent_cse=False, static_argnums=0)
    carry, now = (task.reset(random.start), team.start()), (random.gumbel, random.wander, random.uniform)
    if team.speaks_once:  # then the steps after the first need no sender
        carry, first = step(True, carry, jax.tree.map(lambda x: x[0], now))
        (last, _), rest = jax.lax.scan(partial(step, False), carry, jax.tree.map(lambda x: x[1:], now))
        played = jax.tree.map(lambda one, all: jnp.concatenate([one[None], all]), first, rest)
    else:
        (last, _), played = jax.lax.scan(partial(step, True), carry, now)
    observations, actions, rewards, notes, states, *said = played
    observations, notes = jax.tree.map(
        lambda all, one: jnp.concatenate([all, one[None]]), (observations, notes), (task.observe(last), noted(last))
    )
    return Trace(Episode(observations, actions, rewards, random.draws, scale, **notes), states, *said)


def returns(episode: Episode) -> Array:
    """Return (…) of episodes: rewards summed over time, averaged over agents (a team's reward is each agent's)."""
    return jnp.mean(jnp.sum(episode.rewards, axis=-2), axis=-1)


def describe(team: Team, episode: Episode, scale: NoiseScale) -> dict[str, Array]:
    """What the senders do in one episode: norms before clipping, share clipped, learned spread, signal to noise."""
    one_hot = team.policy.coded(episode.actions)
    observations = episode.observations[:-1]
    draws = team.noise_draws(jax.random.wrap_key_data(episode.draws))
    projected = jnp.zeros((len(observations), team.agents, team.width))
    if team.members.protocol.sequential:
        projected = jax.vmap(team.project)(team.replay_stepwise(observations, episode.actions, draws, scale))
    sender = jax.tree.map(lambda x: x[0], draws.sender)
    raw = jax.vmap(team.compose, in_axes=(0, 0, 0, None))(observations, episode.actions, projected, sender)
    clipped = clip_to_norm(raw, team.channel.spec.clip_norm)
    norm = jnp.linalg.norm(raw, axis=-1)
    signal = jnp.mean(jnp.sum(jnp.var(clipped, axis=0), axis=-1))
    noise = jnp.mean(team.channel.size * scale.value**2)
    extra = jax.vmap(jax.vmap(lambda member, *given: member.protocol.describe(*given)), in_axes=(None, 0, 0, 0))(
        team.members, observations, one_hot, projected
    )
    return {
        "message_norm": jnp.mean(norm),
        "share_clipped": jnp.mean(norm > team.channel.spec.clip_norm),
        "signal_to_noise": jnp.where(noise > 0, signal / jnp.maximum(noise, 1e-12), jnp.inf),
    } | {name: jnp.mean(value) for name, value in extra.items()}
