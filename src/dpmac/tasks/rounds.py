"""Multiple-round sums: agents give away savings under a privacy level; each has a reward of its own."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.config import require
from dpmac.tasks.base import Body, Scene, check_count


class RoundsState(NamedTuple):
    time: jax.Array
    savings: jax.Array
    """x (agent,)"""


@dataclasses.dataclass(frozen=True)
class Rounds:
    """In each round agent i gives b_i ≤ x_i under p_i, gets Σ_j (1 − p_j)b_j + αx_i + βp_i, and keeps x_i − b_i.

    Whoever has more than β waits at full privacy and gives everything in the last round without any; whoever has less
    keeps it. That is best whatever others do. By default never sharing and always sharing return 30 % less or worse.
    """

    agents: int = 3
    alpha: float = 0.3
    """α: what savings of 1 earn in a round."""
    beta: float = 0.4
    """β: what full privacy is worth in a round."""
    poorest: float = 0.2
    richest: float = 1.4
    """Savings are drawn uniformly between these."""
    gifts: int = 3
    """Shares of its savings that an agent can give: so many from 0 to 1, evenly spaced."""
    levels: int = 3
    """Privacy levels p that it can choose: so many from 0 to 1, evenly spaced."""
    horizon: int = 5

    name: ClassVar[str] = "rounds"
    observation_size: ClassVar[int] = 3
    reward_unit: ClassVar[str] = (
        "mean over agents of gifts received in the open + interest on savings + worth of privacy"
    )
    observers: ClassVar[Mapping[str, str]] = {
        "saving": "Each agent alone observes its own savings; the gifts in everybody's reward tell of them.",
    }

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 2, 256)
        check_count("gifts", self.gifts, 2, 64)
        check_count("levels", self.levels, 2, 64)
        check_count("horizon", self.horizon, 1, 10_000)
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            require(math.isfinite(value) and value >= 0, f"{name} must be a finite number from 0, not {value}")
        ordered = 0 <= self.poorest <= self.richest < math.inf
        require(ordered, f"0 ≤ poorest ≤ richest must hold, not poorest {self.poorest} and richest {self.richest}")

    @property
    def actions(self) -> int:
        return self.gifts * self.levels

    @property
    def equilibrium_return(self) -> float:
        """The expected return where everybody plays the equilibrium.

        >>> round(Rounds().equilibrium_return, 4)
        5.1167
        """
        width = self.richest - self.poorest
        middle = (self.richest + self.poorest) / 2
        bar = min(max(self.beta, self.poorest), self.richest)  # who starts above it gives
        share = (self.richest - bar) / width if width > 0 else float(middle > self.beta)
        given = share * (self.richest + bar) / 2
        return self.agents * given + self.alpha * middle * self.horizon + self.beta * (self.horizon - share)

    def reset(self, key: jax.Array) -> RoundsState:
        savings = jax.random.uniform(key, (self.agents,), minval=self.poorest, maxval=self.richest)
        return RoundsState(jnp.zeros((), jnp.int32), savings)

    def observe(self, state: RoundsState) -> jax.Array:
        """Own savings, the share of the rounds that is left, whether this is the last one."""
        left = (self.horizon - state.time) / self.horizon
        last = (state.time == self.horizon - 1).astype(jnp.float32)
        return jnp.stack([state.savings, jnp.full(self.agents, left), jnp.full(self.agents, last)], axis=1)

    def decode(self, savings: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Gift b and privacy level p (…, agent) that actions mean for an agent with these savings."""
        share = (actions // self.levels) / (self.gifts - 1)  # exactly 1 at the top, so that nobody gives too much
        return savings * share, (actions % self.levels) / (self.levels - 1)

    def step(self, state: RoundsState, actions: jax.Array) -> tuple[RoundsState, jax.Array]:
        b, p = self.decode(state.savings, actions)
        rewards = jnp.sum((1 - p) * b) + self.alpha * state.savings + self.beta * p
        return RoundsState(state.time + 1, state.savings - b), rewards

    def scripted(self, state: RoundsState) -> jax.Array:
        """The equilibrium."""
        give_all, keep_all = (self.gifts - 1) * self.levels, self.levels - 1
        now = (state.time == self.horizon - 1) & (state.savings > self.beta)
        return jnp.where(now, give_all, keep_all)

    def secrets(self, state: RoundsState) -> dict[str, jax.Array]:
        return {"saving": state.savings}

    def scene(self, state: RoundsState) -> Scene:
        """Agents in a row; the disc's area is what an agent still has."""
        most = max(self.richest, 1e-9)
        width = 2 / self.agents
        return Scene(
            tuple(
                Body(width * (i + 0.5) - 1, 0.0, 0.02 + 0.4 * width * math.sqrt(x / most), (0.4, 0.7, 0.5), f"{x:.2f}")
                for i, x in enumerate(state.savings.tolist())
            )
        )
