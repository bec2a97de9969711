"""Place: each agent knows a place on a line, a number, and the others have to point at it."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.tasks.base import Body, Scene, check_count


class PlaceState(NamedTuple):
    known: jax.Array
    """The place (agent,) that each agent knows, uniform on [−1, 1]."""
    time: jax.Array
    pointed: jax.Array
    """Where each agent has pointed last (agent,)."""


@dataclasses.dataclass(frozen=True)
class Place:
    """The secret is a number, so that what a message tells of it has no natural alphabet: a code has to be found.
    Agents point at one of a few spots of the line; from the second step on they pay the squared distance to the place
    that the agent before them knows. An episode of two steps earns minus the mean squared error."""

    agents: int = 2
    spots: int = 9
    """Places that can be pointed at, evenly over [−1, 1]."""
    horizon: int = 2

    name: ClassVar[str] = "place"
    differentiable: ClassVar[bool] = True
    secret_dimensions: ClassVar[int] = 1
    observation_size: ClassVar[int] = 2
    reward_unit: ClassVar[str] = "mean over agents of minus the squared distance from where one points to the place"
    observers: ClassVar[Mapping[str, str]] = {
        "place": "Only the agent itself observes its place. Where the next agent points, once informed, reveals it to "
        "anyone who sees that agent.",
    }

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 2, 256)
        check_count("spots", self.spots, 2, 1024)
        check_count("horizon", self.horizon, 2, 10_000)

    @property
    def actions(self) -> int:
        return self.spots

    def reset(self, key: jax.Array) -> PlaceState:
        known = jax.random.uniform(key, (self.agents,), minval=-1.0, maxval=1.0)
        return PlaceState(known, jnp.zeros((), jnp.int32), jnp.zeros(self.agents))

    def observe(self, state: PlaceState) -> jax.Array:
        """The own place, and whether a message can have arrived."""
        late = jnp.broadcast_to(state.time > 0, state.known.shape)
        return jnp.stack([state.known, late.astype(jnp.float32)], axis=-1)

    def step(self, state: PlaceState, actions: jax.Array) -> tuple[PlaceState, jax.Array]:
        """`actions` (agent,), or weights (agent, spot)."""
        spots = jnp.linspace(-1.0, 1.0, self.spots)
        pointed = actions @ spots if actions.ndim == 2 else spots[actions]
        error = (pointed - jnp.roll(state.known, 1)) ** 2
        rewards = jnp.where(state.time > 0, -error, 0.0)
        return PlaceState(state.known, state.time + 1, pointed), rewards

    def scripted(self, state: PlaceState) -> jax.Array:
        """The spot nearest to the place that the agent before knows."""
        return jnp.rint((jnp.roll(state.known, 1) + 1) / 2 * (self.spots - 1)).astype(int)

    def secrets(self, state: PlaceState) -> dict[str, jax.Array]:
        """`place`: the number that agent i knows."""
        return {"place": state.known}

    def scene(self, state: PlaceState) -> Scene:
        height = [0.5 - (i + 0.5) / self.agents for i in range(self.agents)]
        blue, grey = (0.35, 0.55, 0.85), (0.6, 0.6, 0.6)
        pointed, sought = state.pointed.tolist(), jnp.roll(state.known, 1).tolist()
        return Scene(
            tuple(Body(x, y, 0.05, blue, f"{i}") for i, (x, y) in enumerate(zip(pointed, height, strict=True))),
            tuple(Body(x, y, 0.05, grey, shape="square") for x, y in zip(sought, height, strict=True)),
            legend="disc: where an agent points; square: the place that it has to point at",
        )
