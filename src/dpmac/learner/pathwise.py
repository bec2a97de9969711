"""Pathwise: the return itself is differentiated, through the task's dynamics, the actions and the channel.

There is no critic and no replay. It uses a model of the world, the task's own `step`, in training only; the team that
it trains acts on observations and messages as every other. Actions and symbols are discrete in the forward pass and
soft in the backward pass (straight-through), so what is played is exactly what a deployed team would do.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.protocol import Protocol
from dpmac.agents.team import Team
from dpmac.config import positive, require
from dpmac.learner.base import Clock, Learner, Rollout
from dpmac.learner.rollout import returns
from dpmac.tasks import abilities


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

    def __post_init__(self) -> None:
        for name in ("learning_rate", "gradient_norm"):
            value = getattr(self, name)
            require(positive(value), f"{name} must be a finite number above 0, not {value}")
        require(0 <= self.decay <= 1, f"decay must lie in [0, 1], not {self.decay}")
        require(self.logit_penalty >= 0, f"logit_penalty must be at least 0, not {self.logit_penalty}")

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

        def loss(team: Team) -> tuple[Array, dict[str, Array]]:
            trace = play(team, noise, key, relaxed=True)
            earned = jnp.mean(returns(trace.episode))
            penalty = jnp.mean(jnp.square(trace.logits))
            return self.logit_penalty * penalty - earned / play.task.horizon, {"played_return": earned}

        gradient, report = jax.grad(loss, has_aux=True)(state.team)
        change, optimiser = jax.vmap(self.optimiser.update)(state.team.tied(gradient), state.optimiser)
        share = 1 - clock.steps / clock.total
        scale = jnp.clip(share / self.decay, 0.0, 1.0) if self.decay else jnp.ones(())
        return State(eqx.apply_updates(state.team, jax.tree.map(lambda x: scale * x, change)), optimiser), report
