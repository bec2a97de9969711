"""An audit of private training: canary sources, one run, and what a witness of every update can tell about them.

Each canary source flips a coin, and takes part or does not (Steinke, Nasr, Jagielski 2023). Its gradients are as loud
as the clip allows. The witness knows everything but the coins, the noise and what is sampled: weights, episodes, and
what every source would contribute. It scores each canary by how much of its gradient is in the releases. jax_privacy
turns the scores into a lower bound on ε; a training that keeps its claim keeps the bound below it.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from scipy.special import chdtr, chdtrc

from dpmac import privacy
from dpmac.config import RunConfig, check_seed, require, whole
from dpmac.learner.base import Clock, Rollout
from dpmac.learner.private import Private
from dpmac.learner.rollout import Trace
from dpmac.runner import train
from dpmac.runner.noise import tables_of
from dpmac.runner.train import CLIP, NOISE, Program, RunState

LOUD = 1e4
"""What a canary's gradients are multiplied by before they are clipped: a source may answer with any reward."""


class Watched(Private):
    """Private gradients with canaries, whose releases are kept beside what each canary would contribute."""

    def watch(self, places: Array, present: Array) -> "Watched":
        """This with canaries at places (canary,) that are present (canary,) or absent."""
        self.places, self.present, self.seen = places, present, []
        return self

    def release(self, gradient: Any, networks: Any, taken: Array, size: int) -> tuple[Any, dict[str, Array]]:
        def loud(networks: Any, place: Array) -> Any:
            scale = jnp.where(jnp.any(place == self.places), LOUD, 1.0)
            return jax.tree.map(lambda x: scale * x, gradient(networks, place))

        def total(mask: Array) -> Array:
            return self.step(len(taken)) * ravel_pytree(self.clipped_sum(loud, networks, mask)[0])[0]

        alone = self.places[:, None] == jnp.arange(len(taken))
        others, each = jnp.split(jax.lax.map(total, jnp.vstack([taken & ~alone.any(0), alone])), [1])
        there = taken.at[self.places].set(taken[self.places] & self.present)
        released, report = super().release(loud, networks, there, size)
        entered = self.clipped_sum(lambda *_: [jnp.full(1, self.clip / 2)], networks, taken)[0][0][0]
        entered = jnp.round(entered * self.step(len(taken)) / (self.clip / 2))
        self.seen.append((size * ravel_pytree(released)[0] - others[0], each, entered))
        return released, report


@dataclasses.dataclass(frozen=True)
class Altered(Rollout):
    """Plays episodes of which some have other rewards."""

    places: Array
    factor: Array

    def __call__(self, *given: Any, **named: Any) -> Trace:
        trace = super().__call__(*given, **named)
        rewards = trace.episode.rewards.at[self.places].multiply(self.factor)
        return trace._replace(episode=trace.episode._replace(rewards=rewards))


def audit(
    config: RunConfig,
    updates: int = 500,
    canaries: int = 1,
    confidence: float = 0.99,
    seed: int = 0,
    watched: type[Watched] = Watched,
) -> list[dict[str, Any]]:
    """Train anew for so many updates with so many canaries (one-pass learners: in every update, others in a replay all
    the time), and compare what a witness found out with the claim."""
    program = Program.of(config)
    require(program.microbatch > 0, "this run was not trained privately: there is no claim to audit")
    require(config.private.train_epsilon != float("inf"), "no noise was asked for: there is no claim to audit")
    require(program.learner.updates(program.rollout) == 1, "an audit watches one update an iteration")
    require(whole(updates, 1), f"updates must be a whole number from 1, not {updates}")
    use, most = program.use, program.training.episodes
    require(whole(canaries, 1, most), f"canaries must be a whole number from 1 to {most}, the episodes of an update")
    total = canaries * (updates if use.once else 1)
    require(total >= 20, f"an audit needs 20 canaries or more in all, not {total}")
    require(0.5 <= confidence < 1, f"confidence must lie in [0.5, 1), not {confidence}")
    check_seed(seed)
    included, scores, drawn = scored(program, config, updates if use.once else use.updates, canaries, seed, watched)
    from jax_privacy.auditing import CanaryScoreAuditor

    delta = config.private.train_delta
    require(bool(included.any() and not included.all()), "all coins fell alike: more canaries are needed")
    found = CanaryScoreAuditor(scores[included], scores[~included]).epsilon_one_run(1 - confidence, delta)
    bound = privacy.Bound(float(found), delta, confidence, len(scores), "one run, canary sources")
    assert config.private.train_epsilon is not None
    answer = privacy.verdict(config.private.train_epsilon, bound)
    answer["canaries"] = answer.pop("episodes")
    others = {}
    if not rewards_ignored(program, config, canaries, seed, watched, present=True):
        absent = rewards_ignored(program, config, canaries, seed, watched, present=False)
        others["rewards of absent sources changed"] = absent
    if not use.once:
        stored = np.minimum(
            most * np.arange(1, len(drawn) + 1), round(program.learner.batch_size(program.rollout) / use.rate)
        )
        others["numbers of sampled episodes"] = poisson_like(drawn, stored, use.rate) > 1 - confidence
    return [
        answer,
        *({"method": name, "verdict": "consistent" if good else "refuted"} for name, good in others.items()),
    ]


def scored(
    program: Program, config: RunConfig, updates: int, canaries: int, seed: int, watched: type[Watched]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether each canary took part, its score, and how many episodes entered each update."""
    rng, use = np.random.default_rng(seed), program.use
    state, places = train.init(program, jax.random.key(seed)), jnp.arange(canaries)
    table = jax.tree.map(lambda x: x[0], tables_of(config, program, [config.budgets[0]], 1.0))
    coins, found = rng.random(canaries) < 0.5, []
    for _ in range(updates):
        if use.once:
            coins = rng.random(canaries) < 0.5
        state, (rest, each, count) = witnessed(
            program, watched, state, table, places, jnp.asarray(coins), program.settings
        )
        found.append((coins, explained(np.asarray(each, float), np.asarray(rest, float)), int(count)))
    included, scores, drawn = (np.array(part) for part in zip(*found, strict=True))
    return (included.ravel(), scores.ravel(), drawn) if use.once else (included[0], scores.sum(0), drawn)


@partial(jax.jit, static_argnums=(0, 1))
def witnessed(
    program: Program,
    watched: type[Watched],
    state: RunState,
    table: Any,
    places: Array,
    present: Array,
    settings: Any,
    factor: Array | float = 1.0,
) -> tuple[RunState, tuple[Array, Array, Array]]:
    """The state after an iteration; what its release has beyond other episodes, each canary's contribution, and how
    many episodes entered the sum.

    Rewards of the canaries are multiplied by the factor, where a learner plays episodes before it looks at them.
    """
    key, next_key = jax.random.split(state.key)
    now, secret = jax.random.split(state.secret)
    private = watched(settings[CLIP], settings[NOISE], now, program.microbatch, program.use.numbers)
    own = {name: value for name, value in settings.items() if name not in (CLIP, NOISE)}
    clock = Clock(state.steps, program.steps)
    learner, _ = program.learner.given(own).iterate_privately(
        state.learner,
        Altered(program.task, program.training.episodes, places, jnp.asarray(factor)),
        table,
        clock,
        key,
        private.watch(places, present),
    )
    return RunState(learner, next_key, state.steps + program.steps_per_iteration, secret), private.seen[0]


def explained(each: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """How much of each contribution (canary, parameter) is in what was seen (parameter,), by least squares."""
    products = each @ each.T
    ridge = 1e-6 * np.trace(products) / len(products) + 1e-30
    return np.linalg.solve(products + ridge * np.eye(len(products)), each @ rest)


def poisson_like(drawn: np.ndarray, stored: np.ndarray, rate: float) -> float:
    """p-value that updates took (update,) of the stored (update,) episodes each by itself at this rate, by χ²: batches
    of a fixed size vary too little, and a share of what is stored draws too many while the replay fills."""
    spread = float(np.sum((drawn - rate * stored) ** 2 / (rate * (1 - rate) * stored)))
    return float(2 * min(chdtr(len(drawn), spread), chdtrc(len(drawn), spread), 0.5))


def rewards_ignored(
    program: Program, config: RunConfig, canaries: int, seed: int, watched: type[Watched], present: bool
) -> bool:
    """Whether an update, with some sources or without them, is the same to the last bit whatever their rewards are.

    With them, it is so where a learner plays episodes inside of their gradients: nothing else can look at them.
    """
    places, there = jnp.arange(canaries), jnp.full(canaries, present)
    table = jax.tree.map(lambda x: x[0], tables_of(config, program, [config.budgets[0]], 1.0))
    state, seen = train.init(program, jax.random.key(seed)), []
    for factor in (1.0, -1000.0):
        after, _ = witnessed(program, watched, state, table, places, there, program.settings, factor)
        seen.append(jax.tree.leaves(program.learner.team(after.learner)))
    return all(np.array_equal(a, b) for a, b in zip(*seen, strict=True))
