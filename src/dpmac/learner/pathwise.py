"""Pathwise: the return itself is differentiated, through the task's dynamics, the actions and the channel.

There is no critic and no replay. It uses a model of the world, the task's own `step`, in training only; the team that
it trains acts on observations and messages as every other. Actions and symbols are discrete in the forward pass and
soft in the backward pass (straight-through), so what is played is exactly what a deployed team would do.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.protocol import Protocol
from dpmac.agents.team import Given, Team, pick
from dpmac.config import positive, require, whole
from dpmac.learner.base import Clock, Learner, Rollout, stepped, traced
from dpmac.learner.private import Private
from dpmac.learner.rollout import Trace, returns, rollout
from dpmac.tasks import abilities

SCORE_RATE = 0.05
"""Rate at which the score of a start follows what it earns."""
LEAST_JITTER = 0.1
"""To this the jitter falls at the end of a run; with less, the gradient of scores that nearly tie has no bounds."""
SHARE = 0.25
"""What the symbols of an episode weigh beside its gradient in a private release, which clips the two together."""
LEAST_USED = 0.01
"""Private balance does not tell symbols apart that are used less often than this."""
MOST_OUTCOMES = 81
"""Joint outcomes of a channel over which returns are averaged at most."""


class State(NamedTuple):
    """Everything that it learns with; (start, …) everywhere."""

    teams: Team
    optimisers: Any
    """One for each agent."""
    scores: Array
    """(start,) what each start has earned of late; after the trial they stay as they are."""
    usage: Array
    """(start, agent, symbol) how often senders use symbols, as the last private update released it, or no symbols."""


@dataclasses.dataclass(frozen=True)
class Pathwise(Learner):
    """Gradient ascent on the return; for tasks that declare themselves differentiable."""

    learning_rate: float = traced(3e-3)
    """Learning rate of Adam."""
    decay: float = 0.5
    """Final share of the run over which the learning rate falls linearly to zero."""
    gradient_norm: float = traced(1.0)
    """Gradients of each agent are clipped to this norm."""
    logit_penalty: float = traced(1e-3)
    """Weight of the mean squared logit; it keeps gradients from vanishing."""
    score_penalty: float = traced(1e-3)
    """Weight of the mean squared message before the channel."""
    jitter: float = 1.0
    """Scale of the Gumbel noise on the scores of symbols in training, which explores codes."""
    balance: float = 0.1
    """Weight of the entropy of a sender's symbols over the episodes of a batch, while releases are sampled. It
    separates secrets that share a symbol."""
    starts: int = 1
    """Number of teams at the start of a run. They share the fresh episodes until `trial` is over; then only the team
    with the highest return continues. This discards codes that use one symbol for two secrets."""
    trial: float = 0.15
    """Share of the run in which several starts are tried."""
    expectation: float = 0.5
    """Final share of the run in which the return is averaged exactly over all possible releases, for a channel of few
    symbols that is used once, if an iteration has an episode for each. Otherwise releases are sampled."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "gradient_norm"):
            value = getattr(self, name)
            require(positive(value), f"{name} must be a finite number above 0, not {value}")
        require(whole(self.starts, 1, 64), f"starts must be a whole number from 1 to 64, not {self.starts}")
        for name in ("decay", "expectation", "trial"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} must lie in [0, 1], not {value}")
        for name in ("logit_penalty", "score_penalty", "jitter", "balance"):
            value = getattr(self, name)
            require(value >= 0, f"{name} must be at least 0, not {value}")

    def check(self, protocol: type[Protocol], play: Rollout) -> None:
        super().check(protocol, play)
        require(
            abilities(play.task).differentiable,
            f"the pathwise learner differentiates through the task, and {play.task.name} does not declare itself "
            "differentiable",
        )
        require(
            play.episodes >= self.starts,
            f"episodes ({play.episodes}) must be at least as many as starts ({self.starts})",
        )

    def init(self, key: Array, team: Team, play: Rollout, total: int) -> State:
        teams = jax.vmap(lambda index: drawn_again(team, key, index))(jnp.arange(self.starts))
        usage = jnp.broadcast_to(self.even(team), (self.starts, *self.even(team).shape))
        return State(teams, jax.vmap(jax.vmap(self.optimiser.init))(teams), jnp.zeros(self.starts), usage)

    @property
    def optimiser(self) -> Any:
        return optax.chain(optax.clip_by_global_norm(self.gradient_norm), optax.adam(self.learning_rate))

    def team(self, state: State) -> Team:
        return pick(state.teams, jnp.argmax(state.scores))

    def iterate(
        self, state: State, play: Rollout, noise: NoiseScale, clock: Clock, key: Array
    ) -> tuple[State, dict[str, Array]]:
        """One step up the gradient of the mean return of fresh episodes, for all starts or for the best."""

        def trial(state: State) -> tuple[State, dict[str, Array]]:
            count = play.episodes // self.starts
            slope = jax.grad(partial(self.sampled, play, noise, key, count), has_aux=True)
            gradients, reports = jax.vmap(slope)(state.teams)
            teams, optimisers = jax.vmap(partial(self.step, clock))(state.teams, state.optimisers, gradients)
            scores = state.scores + SCORE_RATE * (reports["played_return"] - state.scores)
            return state._replace(teams=teams, optimisers=optimisers, scores=scores), jax.tree.map(jnp.mean, reports)

        def alone(state: State) -> tuple[State, dict[str, Array]]:
            best = jnp.argmax(state.scores)
            team, optimiser = pick((state.teams, state.optimisers), best)
            gradient, report = self.gradient(team, play, noise, clock, key)
            after = self.step(clock, team, optimiser, gradient)
            teams, optimisers = jax.tree.map(
                lambda all, one: all.at[best].set(one), (state.teams, state.optimisers), after
            )
            return state._replace(teams=teams, optimisers=optimisers), report

        if self.starts == 1:
            return alone(state)
        return jax.lax.cond(clock.steps < self.trial * clock.total, trial, alone, state)

    def without_leaks(self) -> "Pathwise":
        return dataclasses.replace(self, starts=1, expectation=0.0)

    def private_use(self, protocol: type[Protocol], team: Team, play: Rollout, total: int) -> tuple[float, int, int]:
        require(self.starts == 1, "private training cannot choose between starts by what they earn: starts must be 1")
        require(
            not self.expects(team, play),
            "private training plays each episode once, not for every outcome of the channel: expectation must be 0",
        )
        return 1.0, 1, team.parameters + self.even(team).size

    def iterate_privately(
        self, state: State, play: Rollout, noise: NoiseScale, clock: Clock, key: Array, private: Private
    ) -> tuple[State, dict[str, Array]]:
        """One step along the noisy gradient of fresh episodes, of which each is played in the gradient itself.

        The symbols of a batch mix its episodes, so they are balanced by how often each was used in the update before.
        That is released beside the gradient, clipped and noised as one vector with it, and so costs nothing of its own.
        A mean over more updates would lag behind, and then usage swings and drowns the code that is to be learned.
        """
        team, optimiser, usage = pick((state.teams, state.optimisers, state.usage), 0)
        keys, even = jax.random.split(key, play.episodes), self.even(team)

        def gradient(team: Team, place: Array) -> tuple[Team, Array]:
            slope, used = jax.grad(partial(self.private_loss, play, noise, keys[place], usage), has_aux=True)(team)
            return team.joint(slope), SHARE * (used - even)

        (found, beyond), report = private.release(gradient, team, jnp.ones(play.episodes, bool), play.episodes)
        after = (*self.step(clock, team, optimiser, found), state.scores[0], even + beyond / SHARE)
        return State(*jax.tree.map(lambda x: x[None], after)), report

    def private_loss(
        self, play: Rollout, noise: NoiseScale, key: Array, usage: Array, team: Team
    ) -> tuple[Array, Array]:
        """The loss of one episode, given the usage (agent, symbol) that was released, and its own usage."""
        trace, loss, _ = self.played(play, noise, key, 1, team)
        used = self.used(team, trace.raw)
        return loss + self.balance * crowding(used, usage), used

    def step(self, clock: Clock, team: Team, optimiser: Any, gradient: Any) -> tuple[Team, Any]:
        """A team and its optimiser after one step along a gradient."""
        return stepped(self.optimiser, team, team.tied(gradient), optimiser, clock.rate_scale(self.decay))

    def gradient(
        self, team: Team, play: Rollout, noise: NoiseScale, clock: Clock, key: Array
    ) -> tuple[Any, dict[str, Array]]:
        """The gradient with sampled releases, or late in the run with their exact mean."""
        sampled = jax.grad(partial(self.sampled, play, noise, key, play.episodes), has_aux=True)
        if not self.expects(team, play):
            return sampled(team)
        left = (1 - clock.steps / clock.total) / self.expectation
        jitter = jnp.maximum(left * self.jitter, min(self.jitter, LEAST_JITTER))
        expected = jax.grad(partial(self.expected, play, noise, key, jitter), has_aux=True)
        return jax.lax.cond(left <= 1, expected, sampled, team)

    def sampled(
        self, play: Rollout, noise: NoiseScale, key: Array, count: int, team: Team
    ) -> tuple[Array, dict[str, Array]]:
        """The loss over so many episodes, in each of which the channel releases what it happens to."""
        trace, loss, report = self.played(play, noise, key, count, team)
        return loss - self.balance * self.spread(team, trace.raw), report

    def played(
        self, play: Rollout, noise: NoiseScale, key: Array, count: int, team: Team
    ) -> tuple[Trace, Array, dict[str, Array]]:
        """So many episodes, and the loss over them but for the balance of symbols."""
        trace = rollout(play.task, team, noise, key, count, relaxed=True, jitter=self.jitter_of(team))
        return trace, *self.loss(trace, jnp.mean(returns(trace.episode)), play.task.horizon)

    def spread(self, team: Team, raw: Array) -> Array:
        """The entropy of the symbols that a sender uses, from its scores (episode, time, agent, symbol)."""
        return jnp.mean(jnp.sum(jax.scipy.special.entr(self.used(team, raw)), axis=-1))

    def used(self, team: Team, raw: Array) -> Array:
        """How often senders use symbols (agent, symbol), as soft as their scores are; no symbols without a balance."""
        even = self.even(team)
        return jnp.mean(jax.nn.softmax(raw), axis=(0, 1)) if even.size else even

    def even(self, team: Team) -> Array:
        """An even usage (agent, symbol) of what is balanced: of nothing without symbols, or where silence is one."""
        symbols = team.channel.size if self.balance and has_symbols(team) and not team.channel.host.whole else 0
        return jnp.full((team.agents, symbols), 1 / max(symbols, 1))

    def expected(
        self, play: Rollout, noise: NoiseScale, key: Array, jitter: Array, team: Team
    ) -> tuple[Array, dict[str, Array]]:
        """The loss over episodes that are each played once for everything that the channel may release.

        Symbols are still explored, by this jitter: what is averaged over is the symbol as well as its noise, so that
        the gradient of the scores is exact. The code becomes sure of itself as the jitter falls.
        """
        outcomes = team.outcomes
        assert outcomes is not None
        count = play.episodes // len(outcomes)

        def one(released: Array) -> Trace:
            return rollout(play.task, team, noise, key, count, relaxed=True, given=Given(released[None]))

        trace = jax.vmap(one)(outcomes)
        law = jax.vmap(jax.vmap(partial(self.law, team, jitter)))(trace.raw[0, :, 0], pick(trace.episode.scale, 0))
        weights = jnp.prod(law[:, jnp.arange(team.agents), jnp.argmax(outcomes, axis=-1)], axis=-1)
        earned = jnp.mean(jnp.sum(weights.T * returns(trace.episode), axis=0))
        return self.loss(trace, earned, play.task.horizon)

    def law(self, team: Team, jitter: Array, scores: Array, scale: NoiseScale) -> Array:
        """Probabilities (symbol,) of what is released for these scores (symbol,), with Gumbel noise of this scale."""
        if not self.jitter:
            return team.channel.law(scores, scale)  # type: ignore[return-value]
        each: Any = jax.vmap(team.channel.law, in_axes=(0, None))(jnp.eye(len(scores)), scale)
        return jax.nn.softmax(scores / jitter) @ each

    def loss(self, trace: Trace, earned: Array, horizon: int) -> tuple[Array, dict[str, Array]]:
        """Minus the return of a step, and penalties on large logits and scores, which would end the backward pass."""
        penalty = self.logit_penalty * jnp.mean(jnp.square(trace.logits))
        penalty += self.score_penalty * jnp.mean(jnp.square(trace.raw)) if trace.raw.size else 0.0
        return penalty - earned / horizon, {"played_return": earned}

    def jitter_of(self, team: Team) -> float:
        """Gumbel noise on scores of symbols; vectors have none."""
        return self.jitter if has_symbols(team) else 0.0

    def expects(self, team: Team, play: Rollout) -> bool:
        """Whether the return can be averaged over all that the channel may release in an episode."""
        if not self.expectation or team.outcomes is None:
            return False
        return len(team.outcomes) <= min(MOST_OUTCOMES, play.episodes)


def has_symbols(team: Team) -> bool:
    """Whether its messages are symbols of an alphabet."""
    return bool(team.channel.size and team.channel.host.alphabet)


def crowding(used: Array, usage: Array) -> Array:
    """How far an episode uses (agent, symbol) what was used often before; its gradient is that of minus
    the entropy where usage is its own."""
    return jnp.mean(jnp.sum(used * jnp.log(jnp.clip(usage, LEAST_USED, 1.0)), axis=-1))


def drawn_again(team: Team, key: Array, index: Array) -> Team:
    """A team like this one with weights of its own: matrices are turned by random signs, the first start stays."""
    leaves, structure = jax.tree.flatten(team)
    keys = jax.random.split(jax.random.fold_in(key, index), len(leaves))
    drawn = [
        jnp.where(index == 0, leaf, leaf * jax.random.rademacher(k, leaf.shape, leaf.dtype)) if leaf.ndim > 2 else leaf
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    made = jax.tree.unflatten(structure, drawn)
    return jax.tree.map(lambda x: x[jnp.zeros(len(x), int)], made) if team.shared else made
