"""Pathwise: the return itself is differentiated, through the task's dynamics, the actions and the channel.

There is no critic and no replay. It uses a model of the world, the task's own `step`, in training only; the team that
it trains acts on observations and messages as every other. Actions and symbols are discrete in the forward pass and
soft in the backward pass (straight-through), so what is played is exactly what a deployed team would do.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.protocol import Protocol
from dpmac.agents.team import Given, Team, pick
from dpmac.config import positive, require
from dpmac.learner.base import Clock, Learner, Rollout
from dpmac.learner.rollout import Trace, returns, rollout
from dpmac.tasks import abilities

MOST_OUTCOMES = 81
"""Joint outcomes of a channel over which returns are averaged at most."""


class State(NamedTuple):
    """Everything that it learns with."""

    team: Team
    optimiser: Any
    """One for each agent."""


@dataclasses.dataclass(frozen=True)
class Pathwise(Learner):
    """Gradient ascent on the return; for tasks that declare themselves differentiable."""

    learning_rate: float = 3e-3
    decay: float = 0.5
    """Share of the run, at its end, over which the learning rate falls to zero in a straight line."""
    gradient_norm: float = 1.0
    """Gradients of each agent are clipped to this norm."""
    logit_penalty: float = 1e-3
    """Weight of the mean squared logit, which keeps the backward pass from vanishing."""
    score_penalty: float = 1e-3
    """Weight of the mean squared message before the channel."""
    jitter: float = 1.0
    """Scale of Gumbel noise on the scores of symbols in training, by which codes are explored."""
    expectation: float = 0.5
    """Share of the run, at its end, in which the return is averaged exactly over everything that a channel of few
    symbols, used once, may release; before that, and for other channels, releases are sampled."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "gradient_norm"):
            value = getattr(self, name)
            require(positive(value), f"{name} must be a finite number above 0, not {value}")
        for name in ("decay", "expectation"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} must lie in [0, 1], not {value}")
        for name in ("logit_penalty", "score_penalty", "jitter"):
            value = getattr(self, name)
            require(value >= 0, f"{name} must be at least 0, not {value}")

    def check(self, protocol: type[Protocol], play: Rollout) -> None:
        super().check(protocol, play)
        require(
            abilities(play.task).differentiable,
            f"the pathwise learner differentiates through the task, and {play.task.name} does not declare itself "
            "differentiable",
        )

    def init(self, key: Array, team: Team, play: Rollout, total: int) -> State:
        return State(team, jax.vmap(self.optimiser.init)(team))

    @property
    def optimiser(self) -> Any:
        return optax.chain(optax.clip_by_global_norm(self.gradient_norm), optax.adam(self.learning_rate))

    def team(self, state: State) -> Team:
        return state.team

    def iterate(
        self, state: State, play: Rollout, noise: NoiseScale, clock: Clock, key: Array
    ) -> tuple[State, dict[str, Array]]:
        """One step up the gradient of the mean return of fresh episodes."""

        def sampled(team: Team) -> tuple[Array, dict[str, Array]]:
            trace = rollout(play.task, team, noise, key, play.episodes, relaxed=True, jitter=self.jitter_of(team))
            return self.loss(trace, jnp.mean(returns(trace.episode)), play.task.horizon)

        def expected(team: Team) -> tuple[Array, dict[str, Array]]:
            outcomes = joint_outcomes(team)
            count = max(1, play.episodes // len(outcomes))

            def one(released: Array) -> Trace:
                return rollout(play.task, team, noise, key, count, relaxed=True, given=Given(released[None]))

            trace = jax.vmap(one)(outcomes)
            chosen = jnp.argmax(outcomes, axis=-1)
            law: Any = jax.vmap(jax.vmap(team.channel.law))(trace.raw[0, :, 0], pick(trace.episode.scale, 0))
            weights = jnp.prod(law[:, jnp.arange(team.agents), chosen], axis=-1)
            earned = jnp.mean(jnp.sum(weights.T * returns(trace.episode), axis=0))
            return self.loss(trace, earned, play.task.horizon)

        slope = partial(jax.grad, has_aux=True)
        if self.expects(state.team):
            late = clock.steps >= (1 - self.expectation) * clock.total
            gradient, report = jax.lax.cond(late, slope(expected), slope(sampled), state.team)
        else:
            gradient, report = slope(sampled)(state.team)
        change, optimiser = jax.vmap(self.optimiser.update)(state.team.tied(gradient), state.optimiser)
        scale = jnp.clip((1 - clock.steps / clock.total) / self.decay, 0.0, 1.0) if self.decay else jnp.ones(())
        return State(eqx.apply_updates(state.team, jax.tree.map(lambda x: scale * x, change)), optimiser), report

    def loss(self, trace: Trace, earned: Array, horizon: int) -> tuple[Array, dict[str, Array]]:
        """Minus the return of a step, and penalties on large logits and scores, which would end the backward pass."""
        penalty = self.logit_penalty * jnp.mean(jnp.square(trace.logits))
        penalty += self.score_penalty * jnp.mean(jnp.square(trace.raw)) if trace.raw.size else 0.0
        return penalty - earned / horizon, {"played_return": earned}

    def jitter_of(self, team: Team) -> float:
        """Gumbel noise on scores of symbols; vectors have none."""
        return self.jitter if team.channel.size and team.channel.host.alphabet else 0.0

    def expects(self, team: Team) -> bool:
        """Whether the return can be averaged over all that the channel may release in an episode."""
        spec, size = team.channel.spec, team.channel.size
        law = jax.eval_shape(lambda: team.channel.law(jnp.zeros(size), pick(team.free, 0))) if size else None
        once = spec.copies == team.uses == 1 and spec.place == "sender" and not spec.sample_rate
        return self.expectation > 0 and law is not None and once and size**team.agents <= MOST_OUTCOMES


def joint_outcomes(team: Team) -> Array:
    """Everything (outcome, agent, symbol) that a channel which releases one symbol of each agent may release."""
    symbols = np.indices((team.channel.size,) * team.agents).reshape(team.agents, -1).T
    return jax.nn.one_hot(symbols, team.channel.size)
