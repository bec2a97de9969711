"""Drift: each agent sees a number that drifts during the episode, and the next agent has to follow it."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.config import require
from dpmac.tasks.base import Body, Scene, check_count

REACH = 2.0
"""Agents point within [−2, 2], in standard deviations of the stream."""
CUT = 2.0
"""Increments, and the first value, are cut at so many of their standard deviations."""


class DriftState(NamedTuple):
    path: jax.Array
    """(time + 1, agent): what each agent sees, from the first step to the end; nobody sees what lies ahead."""
    added: jax.Array
    """(time + 1, agent): what each step adds, the first value to begin with."""
    time: jax.Array
    pointed: jax.Array
    """Where each agent has pointed last (agent,)."""


@dataclasses.dataclass(frozen=True)
class Drift:
    """The secret is a stream s_t = ρ·s_{t−1} + u_t of variance about 1 that one agent alone sees. The agent after it
    points at one of a few spots, and pays the squared distance to where the stream stands when it points. Who is told
    once knows less and less."""

    agents: int = 2
    decay: float = 0.98
    """ρ: how much of the stream is left after a step."""
    spots: int = 9
    """Places that can be pointed at, evenly over [−2, 2]."""
    start: float = 1.0
    """Standard deviation of the first value, before it is cut. 0: all streams start at 0, and all agents know it."""
    horizon: int = 25

    name: ClassVar[str] = "drift"
    differentiable: ClassVar[bool] = True
    secret_dimensions: ClassVar[int] = 1
    observation_size: ClassVar[int] = 3
    increments: ClassVar[tuple[int, ...]] = (2,)
    reward_unit: ClassVar[str] = "mean over agents of minus the mean squared distance from where one points"
    observers: ClassVar[Mapping[str, str]] = {
        "stream": "Only the agent itself observes its stream. Where the next agent points, once informed, reveals it "
        "to anyone who sees that agent.",
    }

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 2, 256)
        require(0 <= self.decay < 1, f"decay must lie in [0, 1), not {self.decay}")
        check_count("spots", self.spots, 2, 1024)
        require(0 <= self.start <= 1, f"start must lie in [0, 1], not {self.start}")
        check_count("horizon", self.horizon, 1, 10_000)

    @property
    def actions(self) -> int:
        return self.spots

    def reset(self, key: jax.Array) -> DriftState:
        drawn = jnp.clip(jax.random.normal(key, (self.horizon + 1, self.agents)), -CUT, CUT)
        added = jnp.concatenate([self.start * drawn[:1], (1 - self.decay**2) ** 0.5 * drawn[1:]])

        def move(now: jax.Array, increment: jax.Array) -> tuple[jax.Array, jax.Array]:
            now = self.decay * now + increment
            return now, now

        _, path = jax.lax.scan(move, jnp.zeros(self.agents), added)
        return DriftState(path, added, jnp.zeros((), jnp.int32), jnp.zeros(self.agents))

    def observe(self, state: DriftState) -> jax.Array:
        """Where the own stream stands, the share of the episode that is over, and what this step has added."""
        gone = jnp.broadcast_to(state.time / self.horizon, (self.agents,))
        return jnp.stack([state.path[state.time], gone, state.added[state.time]], axis=-1).astype(jnp.float32)

    def sought(self, state: DriftState) -> jax.Array:
        """(agent,) where the stream of the agent before stands."""
        return jnp.roll(state.path[state.time], 1)

    def step(self, state: DriftState, actions: jax.Array) -> tuple[DriftState, jax.Array]:
        """`actions` (agent,), or weights (agent, spot)."""
        spots = jnp.linspace(-REACH, REACH, self.spots)
        pointed = actions @ spots if actions.ndim == 2 else spots[actions]
        rewards = -((pointed - self.sought(state)) ** 2) / self.horizon
        return state._replace(time=state.time + 1, pointed=pointed), rewards

    def scripted(self, state: DriftState) -> jax.Array:
        """The spot nearest to where the stream stands."""
        place = (jnp.clip(self.sought(state), -REACH, REACH) + REACH) / (2 * REACH)
        return jnp.rint(place * (self.spots - 1)).astype(int)

    def secrets(self, state: DriftState) -> dict[str, jax.Array]:
        """`stream`: where the stream of agent i stands."""
        return {"stream": state.path[state.time]}

    def scene(self, state: DriftState) -> Scene:
        height = [0.5 - (i + 0.5) / self.agents for i in range(self.agents)]
        blue, grey = (0.35, 0.55, 0.85), (0.6, 0.6, 0.6)
        pointed, sought = (state.pointed / REACH).tolist(), (self.sought(state) / REACH).tolist()
        return Scene(
            tuple(Body(x, y, 0.05, blue, f"{i}") for i, (x, y) in enumerate(zip(pointed, height, strict=True))),
            tuple(Body(x, y, 0.05, grey, shape="square") for x, y in zip(sought, height, strict=True)),
            legend="disc: where an agent points; square: the stream that it has to follow",
        )
