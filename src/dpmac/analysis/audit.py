"""Audits of trained teams: what their channels really let out, beside what their statement claims.

Two kinds of evidence. White-box checks look at real episodes, at each message right before the noise and as it left.
Canaries are two episodes of one agent's inputs that its trained sender tells apart as well as it can; whole transcripts
of many such episodes give a lower bound on ε, which refutes a claim that lies below it. NumPy arrays go to `privacy`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac import privacy
from dpmac.agents import protocol
from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.team import Team
from dpmac.config import Release, require
from dpmac.privacy import Bound, Check
from dpmac.runner import train
from dpmac.runner.noise import noise_scales
from dpmac.runner.population import Loaded
from dpmac.runner.train import Program

CANDIDATES, TRIALS = 128, 8
"""Inputs among which the two canaries are sought, and episodes that each is tried in."""
SCALE = 1e3
"""Length of made-up inputs: far beyond all others, so that the sender's own spread drowns and clipping shows."""


class Script(NamedTuple):
    """A world that shows what is written (T + 1, agent, feature), whatever the agents do."""

    observations: Array

    def reset(self, key: Array) -> Array:
        del key
        return jnp.zeros((), jnp.int32)

    def observe(self, state: Array) -> Array:
        return self.observations[state]

    def step(self, state: Array, actions: Array) -> tuple[Array, None]:
        del actions
        return state + 1, None


def said(world: Any, team: Team, scale: NoiseScale, key: Array) -> tuple[Array, Array]:
    """Messages of one greedy episode right before the noise and as they left, (use, agent, copy, number) each."""
    start_key, draw_key = jax.random.split(key)
    draws, spec = team.noise_draws(draw_key), team.channel.spec
    still, unnoised = team.channel.noiseless(draws.channel, scale)
    quiet = draws._replace(channel=still)

    def step(both: tuple[Any, Any], _: None):
        state, carry = both
        observations = world.observe(state)
        logits, carry = team.listen(carry, observations, draws, scale)
        actions = jnp.argmax(logits, axis=-1)
        before = team.speak(carry, observations, actions, quiet, unnoised).released
        carry = team.speak(carry, observations, actions, draws, scale)
        return (world.step(state, actions)[0], carry), (before, carry.released, carry.recipients)

    carry = (world.reset(start_key), team.start())
    _, (before, left, recipients) = jax.lax.scan(step, carry, None, team.horizon)
    steps = np.flatnonzero(team.sends)
    before, left, recipients = before[steps], left[steps], recipients[steps]
    if spec.copies == 1:
        return before[:, :, None], left[:, :, None]
    received = jnp.argsort(~recipients, axis=-1, stable=True)[..., : spec.sent, None]
    return jnp.take_along_axis(before, received, axis=2), jnp.take_along_axis(left, received, axis=2)


@partial(jax.jit, static_argnums=(0, 4))
def rollouts(program: Program, team: Team, scale: NoiseScale, key: Array, episodes: int) -> tuple[Array, Array]:
    """`said` in real episodes (episode, …)."""
    return jax.vmap(lambda k: said(program.task, team, scale, k))(jax.random.split(key, episodes))


@partial(jax.jit, static_argnums=(3, 4))
def transcripts(team: Team, scale: NoiseScale, key: Array, agent: int, episodes: int, observations: Array) -> Array:
    """What one agent lets out (episode, use, copy, number) in a world of these observations (T + 1, agent, feature)."""
    keys = jax.random.split(key, episodes)
    return jax.vmap(lambda k: said(Script(observations), team, scale, k)[1][:, agent])(keys)


# White-box checks -----------------------------------------------------------------------------------------------------


def white_box(
    program: Program, team: Team, scale: NoiseScale, noise: tuple[float, ...], episodes: int, seed: int
) -> list[Check]:
    """Checks of every message that the private agents of a team let out in real episodes."""
    spec, private = team.channel.spec, [agent for agent, amount in enumerate(noise) if amount > 0]
    before, left = (
        np.asarray(part)[:, :, private] for part in rollouts(program, team, scale, jax.random.key(seed), episodes)
    )
    before, amounts = before[:, :, :, 0], np.array([noise[agent] for agent in private])
    return privacy.mechanisms.of(spec).white_box(before, left, amounts)


# Canaries -------------------------------------------------------------------------------------------------------------


def scripts(program: Program, team: Team, scale: NoiseScale, agent: int, key: Array) -> Array:
    """Worlds (candidate, T + 1, agent, feature) in which one agent sees the same thing all the time.

    Half of what it sees are real observations of its own, half random directions of great length.
    """
    task, half = program.task, CANDIDATES // 2
    episode_key, made_key, pick_key = jax.random.split(key, 3)
    seen = simulated(program, team, scale, episode_key)
    real = seen[:, :-1, agent].reshape(-1, task.observation_size)
    real = real[jax.random.choice(pick_key, len(real), (half,), replace=len(real) < half)]
    made = SCALE * jax.random.normal(made_key, (CANDIDATES - half, task.observation_size))
    shown = jnp.concatenate([real, made])[:, None]
    return jnp.tile(seen[0], (CANDIDATES, 1, 1, 1)).at[:, :, agent].set(shown)


@partial(jax.jit, static_argnums=0)
def simulated(program: Program, team: Team, scale: NoiseScale, key: Array) -> Array:
    """Observations (episode, T + 1, agent, feature) of a few real episodes."""
    return train.rollout(program.task, team, scale, key, CANDIDATES // 4, greedy=True).episode.observations


@partial(jax.jit, static_argnums=2)
def messages(team: Team, scale: NoiseScale, agent: int, worlds: Array, key: Array) -> Array:
    """The mean (candidate, use, number) of what one agent says right before the noise in each of the worlds."""

    def one(observations: Array) -> Array:
        keys = jax.random.split(key, TRIALS)
        before = jax.vmap(lambda k: said(Script(observations), team, scale, k)[0][:, agent, 0])(keys)
        return jnp.mean(team.channel.clipped(before), axis=0)

    return jax.lax.map(one, worlds)


class Pair(NamedTuple):
    """Two worlds that differ in one agent's inputs alone."""

    worlds: Array
    """(side, T + 1, agent, feature)."""
    direction: np.ndarray
    """(use, copy, number) of the expected difference between transcripts."""


def canaries(program: Program, team: Team, scale: NoiseScale, agent: int, seed: int) -> Pair:
    """The two worlds whose messages lie farthest apart."""
    script_key, message_key = jax.random.split(jax.random.key(seed))
    worlds = scripts(program, team, scale, agent, script_key)
    means = np.asarray(messages(team, scale, agent, worlds, message_key), float)
    flat = means.reshape(len(means), -1)
    squares = (flat**2).sum(1)
    first, second = np.unravel_index(np.argmax(squares[:, None] + squares - 2 * flat @ flat.T), (CANDIDATES,) * 2)
    gap = means[first] - means[second]
    return Pair(worlds[np.array([first, second])], np.repeat(gap[:, None], team.channel.spec.sent, axis=1))


def lower_bound(
    team: Team,
    scale: NoiseScale,
    agent: int,
    pair: Pair,
    release: Release,
    delta: float,
    episodes: int,
    confidence: float,
    seed: int,
) -> Bound:
    """A bound on one agent's ε from transcripts of a whole unit: all releases of an episode, or the first alone.

    One attacker knows in which direction the messages differ, the other has to learn it and finds what is unexpected.
    """
    spec, direction = release.channel, pair.direction
    uses = 1 if release.unit == "message" else len(direction)
    require(bool(np.any(direction[:uses])), "this sender says the same whatever it sees, so there is nothing to audit")

    def sample(side: int, count: int, rng: np.random.Generator) -> np.ndarray:
        key = jax.random.key(rng.integers(2**32))
        return np.asarray(transcripts(team, scale, key, agent, count, pair.worlds[side]))[:, :uses]

    each = 1 - (1 - confidence) / 2  # the better of two attackers is taken
    fitted = privacy.audit_channel(sample, delta, episodes, each, seed=seed)
    if spec.place == "receiver":
        statistic = privacy.audit.matched(direction[:uses])
        known = privacy.audit_channel(sample, delta, episodes, each, statistic, seed + 1)
    else:
        tighter = privacy.mechanisms.of(spec).audit
        known = tighter(sample, delta, episodes, release.noise, direction[:uses], each, seed + 1)
    return max(known, fitted, key=lambda bound: bound.epsilon)._replace(confidence=confidence)


def audit(loaded: Loaded, episodes: int, confidence: float, seed: int) -> list[dict[str, Any]]:
    """An entry for each budget, seed and private agent of a run; all verdicts hold together with this confidence."""
    require(0.5 <= confidence < 1, f"confidence must lie in [0.5, 1), not {confidence}")
    require(protocol.find(loaded.config.method).speaks, f"method {loaded.config.method} sends nothing to audit")
    horizon, agents, spec = loaded.program.task.horizon, loaded.program.task.agents, loaded.config.channel
    require(spec.rounds == 1, f"audits follow one exchange a step, not {spec.rounds} rounds")
    noise = [noise_scales(run.budget, spec, agents, horizon) for run in loaded.runs]
    audited = sum(amount > 0 for amounts in noise for amount in amounts)
    require(audited > 0, "no agent of this run has a finite budget, so there is no claim to audit")
    each = privacy.family_confidence(audited, confidence)
    entries = []
    for index, run in enumerate(loaded.runs):
        if not any(noise[index]):
            continue
        team, scale = loaded.one(index)
        checks = white_box(loaded.program, team, scale, noise[index], max(8, min(episodes // 50, 200)), seed)
        failed = privacy.failures(checks, privacy.family_confidence(len(loaded.runs), confidence))
        for agent, amount in enumerate(noise[index]):
            if amount == 0:
                continue
            release = Release(spec, amount, horizon, run.budget.unit)
            pair = canaries(loaded.program, team, scale, agent, seed)
            bound = lower_bound(team, scale, agent, pair, release, run.budget.delta, episodes, each, seed)
            entries.append(
                {
                    "budget": run.label,
                    "seed": run.seed,
                    "agent": agent,
                    "unit": run.budget.unit,
                    **privacy.verdict(run.budget.of(agents)[agent], bound),
                    "exact_epsilon": privacy.epsilon(release, run.budget.delta),
                    "checks": len(checks),
                    "failed_checks": [f"{check.name}: {check.detail}" for check in failed],
                }
            )
    return entries
