"""Audits of trained teams: what their channels really let out, beside what their statement claims.

Two kinds of evidence. White-box checks look at real episodes, at each message right before the noise and as it left.
Canaries are two episodes of one agent's inputs that its trained sender tells apart as well as it can; whole transcripts
of many such episodes give a lower bound on ε, which refutes a claim that lies below it. NumPy arrays go to `privacy`.

There are two paths to look at. What leaves in a run is *simulated*, inside compiled programs. What leaves *deployed*
agents goes through a `privacy.Measurement`, with noise from the operating system: the senders' messages are taken from
compiled episodes, and each is then released by a measurement as a deployed agent would release it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac import privacy
from dpmac.agents import protocol
from dpmac.agents.mechanisms import Mechanism, NoiseScale, mechanism, noise_scale
from dpmac.agents.team import Team, pick
from dpmac.config import Channel, Neighbours, Release, require
from dpmac.privacy import Bound, Canary, Check, Measurement
from dpmac.privacy.audit import Sampler
from dpmac.runner import train
from dpmac.runner.noise import noise_scales
from dpmac.runner.population import Loaded
from dpmac.runner.train import Program
from dpmac.tasks import advance, allowed

PATHS = ("simulated", "deployed")
"""What can be looked at."""
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


class Said(NamedTuple):
    """Messages of one greedy episode."""

    before: Array
    """(use, agent, copy, number) right before the noise."""
    left: Array
    """(use, agent, copy, number) as they left."""
    made: Array
    """(time, agent, number) as the senders made them, before clipping or choosing; of every step."""
    states: Any
    """(time, …) of the world."""


def said(world: Any, team: Team, scale: NoiseScale, key: Array) -> Said:
    """What a team says in a world."""
    start_key, draw_key = jax.random.split(key)
    draws, spec = team.noise_draws(draw_key), team.channel.spec
    still, unnoised = team.channel.noiseless(draws.channel, scale)
    quiet = draws._replace(channel=still)

    def step(both: tuple[Any, Any], _: None):
        state, carry = both
        observations = world.observe(state)
        logits, carry = team.listen(carry, observations, draws, scale)
        actions = team.policy.best(logits, allowed(world, state))
        use = carry.time if spec.sample_rate else jnp.asarray(np.cumsum(team.sends) - 1)[carry.time]
        made = team.compose(observations, actions, carry.projected, pick(draws.sender, use))
        unsaid = carry._replace(released=jnp.zeros_like(carry.released))
        before = team.speak(unsaid, observations, actions, quiet, unnoised).released
        carry = team.speak(carry, observations, actions, draws, scale)
        return (advance(world, state, actions)[0], carry), (before, carry.released, carry.recipients, made, state)

    carry = (world.reset(start_key), team.start())
    _, (before, left, recipients, made, states) = jax.lax.scan(step, carry, None, team.horizon)
    steps = np.flatnonzero(team.sends)
    before, left, recipients = before[steps], left[steps], recipients[steps]
    if spec.copies == 1:
        return Said(before[:, :, None], left[:, :, None], made, states)
    received = jnp.argsort(~recipients, axis=-1, stable=True)[..., : spec.sent, None]
    return Said(
        jnp.take_along_axis(before, received, axis=2), jnp.take_along_axis(left, received, axis=2), made, states
    )


@partial(jax.jit, static_argnums=(0, 4))
def rollouts(program: Program, team: Team, scale: NoiseScale, key: Array, episodes: int) -> Said:
    """`said` in real episodes (episode, …)."""
    return jax.vmap(lambda k: said(program.task, team, scale, k))(jax.random.split(key, episodes))


@partial(jax.jit, static_argnums=(3, 4))
def transcripts(
    team: Team, scale: NoiseScale, key: Array, agent: int, episodes: int, observations: Array
) -> tuple[Array, Array]:
    """What one agent lets out (episode, use, copy, number) in a world of these observations (T + 1, agent, feature),
    and what its sender made (episode, time, number)."""

    def one(key: Array) -> tuple[Array, Array]:
        found = said(Script(observations), team, scale, key)
        return found.left[:, agent], found.made[:, agent]

    return jax.vmap(one)(jax.random.split(key, episodes))


# The deployed path ----------------------------------------------------------------------------------------------------


class Tally:
    """An account in memory, which refuses nothing: audits release what nobody has lived."""

    def __init__(self) -> None:
        self.charges = 0

    def charge(self, releases: Mapping[int, Release], /) -> None:
        self.charges += len(releases)


def deployed(release: Release, made: np.ndarray, others: int) -> np.ndarray:
    """What leaves (episode, use, copy, number) through a measurement for what a sender made (episode, time, number).

    Noise comes from the operating system, so that no seed repeats it. A release without a charge is an error.
    """
    account, spec = Tally(), release.channel
    measurement = Measurement(account, 0, release, made.shape[-1], others)
    left = []
    for episode in made:
        measurement.begin()
        sent = [measurement.release(step, message) for step, message in enumerate(episode)]
        told = [one for one in sent if one is not None]
        left.append([one.copies[:1] if spec.copies == 1 else one.copies[one.recipients] for one in told])
    telling = sum(rate > 0 for rate in spec.rates(release.horizon))
    due = min(telling, measurement.charges)
    assert account.charges == due * len(made), "a deployed message left without a charge"
    return np.array(left)


def paths_of(path: str, channel: Channel) -> tuple[str, ...]:
    """The paths that are looked at; what is never deployed, such as noise at the receivers, has one."""
    require(path in (*PATHS, "both"), f"path must be deployed, simulated or both, not {path}")
    if path != "both":
        return (path,)
    return PATHS if channel.place == "sender" and channel.rounds == 1 else PATHS[:1]


# A channel by itself --------------------------------------------------------------------------------------------------


def audit_channel(
    release: Release,
    size: int,
    delta: float,
    episodes: int,
    confidence: float,
    seed: int = 0,
    distribution_free: bool = False,
    path: str = "simulated",
) -> Bound:
    """The bound on ε of a channel that agents use, at its worst-case inputs."""
    canary = privacy.canary(release, size)
    sample = (shipped if path == "simulated" else shipped_deployed)(release, canary, size)
    if distribution_free:
        statistic = privacy.audit.matched(canary.direction)
        return privacy.audit_channel(sample, delta, episodes, confidence, statistic, seed)
    tighter = privacy.mechanisms.of(release.channel).audit
    return tighter(sample, delta, episodes, release.noise, canary.direction, confidence, seed)


def shipped(release: Release, canary: Canary, size: int) -> Sampler:
    """Transcripts (episode, use, copy, feature) of the simulated channel at the canary's inputs."""
    channel = mechanism(release.channel, size)
    scale = jax.tree.map(lambda leaf: leaf[0], noise_scale(release.channel, (release.noise,)))

    def transcript(key: Array, messages: Array) -> Array:
        draws = channel.draw(key, canary.direction.shape[:2])
        copies = jax.vmap(lambda message, c: channel.release(message, c, scale), in_axes=(None, 0))
        return channel.held(jax.vmap(copies)(channel.windows(messages), draws))

    many = jax.jit(jax.vmap(transcript, in_axes=(0, None)))

    def sample(side: int, episodes: int, rng: np.random.Generator) -> np.ndarray:
        keys = jax.random.split(jax.random.key(rng.integers(2**32)), episodes)
        return np.asarray(many(keys, jnp.asarray(canary.second if side else canary.first)))

    return sample


def shipped_deployed(release: Release, canary: Canary, size: int) -> Sampler:
    """The same through the measurement of a deployed agent."""
    spec, uses = release.channel, len(canary.first)
    steps = np.arange(0, release.horizon, spec.period or release.horizon)[:uses]
    made = np.zeros((2, release.horizon, mechanism(spec, size).size), np.float32)
    made[0, steps], made[1, steps] = canary.first, canary.second

    def sample(side: int, episodes: int, rng: np.random.Generator) -> np.ndarray:
        del rng
        left = deployed(release, np.broadcast_to(made[side], (episodes, *made.shape[1:])), max(1, spec.copies))
        return left[:, :uses]

    return sample


# White-box checks -----------------------------------------------------------------------------------------------------


def white_box(
    program: Program,
    team: Team,
    scale: NoiseScale,
    noise: tuple[float, ...],
    episodes: int,
    seed: int,
    path: str = "simulated",
) -> list[Check]:
    """Checks of every message that the private agents of a team let out in real episodes.

    Of deployed senders that sample their past there are none: which messages were drawn stays inside the measurement.
    """
    spec, private = team.channel.spec, [agent for agent, amount in enumerate(noise) if amount > 0]
    found = jax.device_get(rollouts(program, team, scale, jax.random.key(seed), episodes))
    before, left = found.before[:, :, private, 0], found.left[:, :, private]
    if path == "deployed":
        if spec.sample_rate or not team.members.protocol.deployable:
            return []
        releases = [Release(spec, noise[agent], team.horizon) for agent in private]
        each = zip(releases, private, strict=True)
        left = np.stack([deployed(one, found.made[:, :, agent], team.agents - 1) for one, agent in each], axis=2)
    amounts = np.array([noise[agent] for agent in private])
    return all_checks(spec, before, left, amounts, path)


def rare_inputs(
    team: Team, scale: NoiseScale, noise: tuple[float, ...], episodes: int, seed: int, path: str
) -> list[Check]:
    """The same checks of messages that real episodes hardly hold, each kind at a step of its own."""
    if team.channel.spec.place == "receiver":
        return []
    channel, private = team.channel, [agent for agent, amount in enumerate(noise) if amount > 0]
    kinds, amounts = kinds_of(channel.size), np.array([noise[agent] for agent in private])
    alone = replace(channel.spec, period=1, copies=1, sample_rate=0.0, recipient_rate=1.0)
    scales = jax.tree.map(lambda leaf: leaf[np.array(private)], scale)

    keys = jax.random.split(jax.random.key(seed), episodes)
    before, left = jax.device_get(released(channel, jnp.asarray(kinds), scales, keys, len(private)))
    if path == "deployed":
        made = np.broadcast_to(kinds, (episodes, *kinds.shape))
        each = [deployed(Release(alone, amount, len(kinds)), made, 1)[:, :, 0] for amount in amounts]
        left = np.stack(each, axis=2)
    found = all_checks(alone, before, left[:, :, :, None], amounts, path)
    return [check._replace(name=f"rare inputs: {check.name}") for check in found]


def all_checks(spec: Channel, before: np.ndarray, left: np.ndarray, noise: np.ndarray, path: str) -> list[Check]:
    """Checks of a mechanism for noise of this path."""
    host = privacy.mechanisms.of(spec)
    return host.white_box(before, left, noise) + (host.check_exact(before, left, noise) if path == "deployed" else [])


@partial(jax.jit, static_argnums=4)
def released(channel: Mechanism, messages: Array, scales: NoiseScale, keys: Array, agents: int) -> tuple[Array, Array]:
    """Messages (use, number) of agents right before the noise (episode, use, agent, number), and as they left.

    They are an argument: as constants they would be simplified, by other arithmetic than that of a run.
    """

    def one(message: Array, draws: Any, scale: NoiseScale) -> tuple[Array, Array]:
        return channel.release(message, *channel.noiseless(draws, scale)), channel.release(message, draws, scale)

    draws, messages = jax.vmap(lambda key: channel.draw(key, (len(messages), agents)))(keys), channel.windows(messages)
    each = jax.vmap(jax.vmap(one, in_axes=(None, 0, 0)), in_axes=(0, 0, None))
    before, left = jax.vmap(each, in_axes=(None, 0, None))(messages, draws, scales)
    return before, jax.vmap(channel.held)(left)


def kinds_of(size: int) -> np.ndarray:
    """Rare messages (kind, number): none, ties, the longest and the shortest, and such that hold no number."""
    same = [0.0, -0.0, 1.0, -1.0, 1e-42, 1e-38, 3e38, np.inf, -np.inf, np.nan]
    first = [3e38, -3e38, 1e-38, np.inf, np.nan]
    rows = [np.full(size, value) for value in same] + [value * (np.arange(size) == 0) for value in first[:3]]
    rows += [np.where(np.arange(size) == 0, value, 0.5) for value in first[3:]]
    return np.array(rows, np.float32)


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
        before = jax.vmap(lambda k: said(Script(observations), team, scale, k).before[:, agent, 0])(keys)
        return jnp.mean(team.channel.clipped(before), axis=0)

    return jax.lax.map(one, worlds)


class Pair(NamedTuple):
    """Two worlds that differ in one agent's inputs alone."""

    worlds: Array
    """(side, T + 1, agent, feature)."""
    direction: np.ndarray
    """(use, copy, number) of the expected difference between transcripts."""


def canaries(
    program: Program, team: Team, scale: NoiseScale, agent: int, seed: int, neighbours: Neighbours = "inputs"
) -> Pair:
    """The two worlds whose messages lie farthest apart, among those that are neighbours."""
    script_key, message_key = jax.random.split(jax.random.key(seed))
    worlds = scripts(program, team, scale, agent, script_key)
    if neighbours == "increment":  # they may differ in the first increment, and in all that is no increment
        own = np.array(team.increments)[:, None]
        worlds = worlds.at[:, 1:, agent, own].set(worlds[-1:, 1:, agent, own])  # a long one, for the spread to drown
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
    path: str = "simulated",
) -> Bound:
    """A bound on one agent's ε from transcripts of a whole unit: all releases of an episode, or the first alone.

    One attacker knows in which direction the messages differ, the other has to learn it and finds what is unexpected.
    """
    spec, direction = release.channel, pair.direction
    uses = 1 if release.unit == "message" else len(direction)
    require(bool(np.any(direction[:uses])), "this sender says the same whatever it sees, so there is nothing to audit")

    def sample(side: int, count: int, rng: np.random.Generator) -> np.ndarray:
        key = jax.random.key(rng.integers(2**32))
        left, made = jax.device_get(transcripts(team, scale, key, agent, count, pair.worlds[side]))
        whole = replace(release, unit="episode", neighbours="inputs")
        return (left if path == "simulated" else deployed(whole, made, team.agents - 1))[:, :uses]

    each = 1 - (1 - confidence) / 2  # the better of two attackers is taken
    fitted = privacy.audit_channel(sample, delta, episodes, each, seed=seed)
    if spec.place == "receiver":
        statistic = privacy.audit.matched(direction[:uses])
        known = privacy.audit_channel(sample, delta, episodes, each, statistic, seed + 1)
    else:
        tighter = privacy.mechanisms.of(spec).audit
        known = tighter(sample, delta, episodes, release.noise, direction[:uses], each, seed + 1)
    return max(known, fitted, key=lambda bound: bound.epsilon)._replace(confidence=confidence)


def audit(
    loaded: Loaded,
    episodes: int,
    confidence: float,
    seed: int,
    path: str = "simulated",
    deployed_episodes: int | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> list[dict[str, Any]]:
    """An entry for each budget, seed, private agent and path of a run; all verdicts hold together with this confidence.

    A deployed transcript takes milliseconds: there may be fewer of them. `tell` is told of each agent before its turn.
    """
    require(0.5 <= confidence < 1, f"confidence must lie in [0.5, 1), not {confidence}")
    require(protocol.find(loaded.config.method).speaks, f"method {loaded.config.method} sends nothing to audit")
    horizon, agents, spec = loaded.program.task.horizon, loaded.program.task.agents, loaded.config.channel
    require(spec.rounds == 1, f"audits follow one exchange a step, not {spec.rounds} rounds")
    noise = [noise_scales(run.budget, spec, agents, horizon) for run in loaded.runs]
    audited = sum(amount > 0 for amounts in noise for amount in amounts)
    require(audited > 0, "no agent of this run has a finite budget, so there is no claim to audit")
    paths = paths_of(path, spec)
    half = privacy.family_confidence(2, confidence)  # one for the bounds, one for the checks
    each = privacy.family_confidence(audited * len(paths), half)
    counts = {"simulated": episodes, "deployed": episodes if deployed_episodes is None else deployed_episodes}
    for one in paths:  # before anything is sampled
        privacy.audit.check_audit(loaded.runs[0].budget.delta, counts[one], each, seed)
    entries = []
    for index, run in enumerate(loaded.runs):
        if not any(noise[index]):
            continue
        team, scale = loaded.one(index)
        checked = {}
        for one in paths:
            sampled = max(8, min(counts[one] // 50, 200))
            found = white_box(loaded.program, team, scale, noise[index], sampled, seed, one)
            found += rare_inputs(team, scale, noise[index], sampled, seed, one)
            family = privacy.family_confidence(len(loaded.runs) * len(paths), half)
            checked[one] = len(found), privacy.failures(found, family)
        for agent, amount in enumerate(noise[index]):
            if amount == 0:
                continue
            tell(f"auditing budget {run.label}, seed {run.seed}, agent {agent}")
            release = Release(spec, amount, horizon, run.budget.unit, run.budget.neighbours)
            pair = canaries(loaded.program, team, scale, agent, seed, run.budget.neighbours)
            for one in paths:
                bound = lower_bound(team, scale, agent, pair, release, run.budget.delta, counts[one], each, seed, one)
                checks, failed = checked[one]
                entries.append(
                    {
                        "budget": run.label,
                        "seed": run.seed,
                        "agent": agent,
                        "path": one,
                        "unit": run.budget.unit,
                        "neighbours": run.budget.neighbours,
                        **privacy.verdict(run.budget.of(agents)[agent], bound),
                        "exact_epsilon": privacy.epsilon(release, run.budget.delta),
                        "checks": checks,
                        "failed_checks": [f"{check.name}: {check.detail}" for check in failed],
                    }
                )
    return entries
