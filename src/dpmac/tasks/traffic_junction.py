"""Traffic junction: cars cross a junction that none of them can see, each on a route that it alone knows."""

import dataclasses
import math
from collections.abc import Mapping
from functools import cache
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmac.config import require
from dpmac.tasks.base import Body, Scene, check_count

ROUTES = 3
"""Right, straight on, left."""
TURNS = (((1, 0),), ((1, 0), (1, 1)), ((1, 0), (1, 1), (0, 1)))
"""Cells of the junction that a car from the south takes; it drives on the right, and the junction is x, y in {0, 1}."""
LEAVES = ((1, 0), (0, 1), (-1, 0))
"""Where it then drives to."""
BRAKE, GAS = 0, 1
GREY = (0.85, 0.85, 0.85)
COLOURS = ((0.85, 0.35, 0.35), (0.35, 0.55, 0.85), (0.35, 0.75, 0.35), (0.85, 0.75, 0.3))


class TrafficState(NamedTuple):
    progress: jax.Array
    """(car,) cells driven; below 0 it has not arrived yet, and at the end of its route it has left."""
    route: jax.Array
    """(car,) 0 right, 1 straight on, 2 left."""
    waited: jax.Array
    """(car,) steps since it arrived."""
    gas: jax.Array
    """(car,) whether it drove in the last step."""
    nudge: jax.Array
    """(2, car) zeros with a gradient: how far it would be behind if it had braked, and ahead if it had not."""


@cache
def paths(arm: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells (car, route, step, 2) of all routes, car i coming from the i-th arm of the junction, and how many each
    route has (route,). The last cell stands once more at the end, and for what is missing to the longest route."""
    south = []
    for turn, leave in zip(TURNS, LEAVES, strict=True):
        after = [np.add(turn[-1], np.multiply(step, leave)) for step in range(1, arm + 1)]
        south.append([*((1, y) for y in range(-arm, 0)), *turn, *after])
    counts = np.array([len(cells) for cells in south])
    cells = np.array([cells + [cells[-1]] * (max(counts) + 1 - len(cells)) for cells in south], float)
    turned = [cells]
    for _ in range(3):  # a quarter to the left around the middle of the junction
        turned.append(np.stack([1 - turned[-1][..., 1], turned[-1][..., 0]], axis=-1))
    return np.stack(turned), counts


@dataclasses.dataclass(frozen=True)
class TrafficJunction:
    """The task of CommNet (Sukhbaatar et al. 2016) and IC3Net (Singh et al. 2019) with one junction of two roads of two
    lanes, a car from each arm, and no vision: a car sees its own place, its route and its last action. Two cars in one
    cell collide, and drive on."""

    agents: int = 4
    """Cars, each from an arm of its own."""
    arrivals: int = 8
    """Number of first steps at which a car may arrive, all equally likely. A car knows nothing before."""
    arm: int = 3
    """Cells of a road before and behind the junction."""
    crash: float = 10.0
    """Cost of a step in a cell with other cars."""
    wait: float = 0.01
    """Cost of a step for each step since the car arrived."""
    horizon: int = 20

    name: ClassVar[str] = "traffic-junction"
    differentiable: ClassVar[bool] = True
    actions: ClassVar[int] = 2
    symbols: ClassVar[int] = ROUTES
    reward_unit: ClassVar[str] = "mean over cars of minus what collisions and time cost"
    observers: ClassVar[Mapping[str, str]] = {
        "route": "Only the car itself observes its route, from its arrival on. Where it drives reveals it to anyone "
        "who sees the junction. When others brake reveals that they are informed.",
    }

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 2, 4)
        check_count("arrivals", self.arrivals, 1, 1000)
        check_count("arm", self.arm, 1, 100)
        check_count("horizon", self.horizon, 1, 10_000)
        for name in ("crash", "wait"):
            value = getattr(self, name)
            require(math.isfinite(value) and value >= 0, f"{name} must be a finite number from 0, not {value}")

    @property
    def observation_size(self) -> int:
        return 5 + ROUTES + self.agents

    def reset(self, key: jax.Array) -> TrafficState:
        route_key, arrival_key = jax.random.split(key)
        route = jax.random.randint(route_key, (self.agents,), 0, ROUTES)
        ahead = jax.random.randint(arrival_key, (self.agents,), 0, self.arrivals)
        stands = jnp.zeros(self.agents, bool)
        return TrafficState(-ahead, route, (ahead == 0).astype(int), stands, jnp.zeros((2, self.agents)))

    def under_way(self, state: TrafficState) -> jax.Array:
        """(car,) whether it has arrived and not yet left."""
        return (state.progress >= 0) & (state.progress < jnp.asarray(paths(self.arm)[1])[state.route])

    def cells(self, state: TrafficState) -> jax.Array:
        """Where cars are (car, 2), or will be, or were last."""
        cells = jnp.asarray(paths(self.arm)[0], jnp.float32)[jnp.arange(self.agents), state.route]
        return cells[jnp.arange(self.agents), jnp.clip(state.progress, 0, cells.shape[1] - 1)]

    def observe(self, state: TrafficState) -> jax.Array:
        """Whether it is under way, where, for how long, whether it drove last, its route, and which car it is; all
        zeros but the last unless it is under way."""
        here = self.under_way(state)[:, None]
        place = self.cells(state) / (self.arm + 1)
        route, own = jax.nn.one_hot(state.route, ROUTES), jnp.eye(self.agents)
        rest = [place, (state.waited / self.horizon)[:, None], 1.0 * state.gas[:, None], route]
        return jnp.concatenate([1.0 * here, jnp.where(here, jnp.concatenate(rest, axis=1), 0.0), own], axis=1)

    def collided(self, state: TrafficState) -> jax.Array:
        """(car,) whether it is in a cell with others."""
        cells, here = self.cells(state), self.under_way(state)
        same = jnp.all(cells[:, None] == cells[None], axis=-1) & ~jnp.eye(self.agents, dtype=bool)
        return here & jnp.any(same & here[None], axis=1)

    def costs(self, state: TrafficState) -> jax.Array:
        """(car,) what it costs to be where cars are."""
        return self.crash * self.collided(state) + self.wait * state.waited * self.under_way(state)

    def step(self, state: TrafficState, actions: jax.Array) -> tuple[TrafficState, jax.Array]:
        """`actions` (car,), or weights (car, 2) on brake and gas. Who has not arrived yet comes nearer by itself.

        The gradient of a weight is the difference that the other action would have made, all others being as they were.
        """
        here, coming = self.under_way(state), state.progress < 0
        weight = actions[:, GAS] if actions.ndim == 2 else actions
        gas = here & (weight > 0.5)
        progress = state.progress + (gas | coming)
        after = state._replace(progress=progress, waited=state.waited + (progress >= 0), gas=gas)
        costs = self.costs(after)
        if actions.ndim == 1:
            return after, -costs
        change = weight - jax.lax.stop_gradient(weight)
        # One step behind a car that has left, it leaves as well.
        nudge = jnp.where(here, state.nudge + jnp.stack([gas * change, ~gas * change]), 0.0)
        each = jnp.eye(self.agents, dtype=int)
        behind, ahead = (
            jax.vmap(lambda one, way=way: self.costs(after._replace(progress=progress + way * one)))(each)
            for way in (-1, 1)
        )
        slope = nudge[0] @ (costs - behind) + nudge[1] @ (ahead - costs)
        return after._replace(nudge=nudge), -costs - slope

    def scripted(self, state: TrafficState) -> jax.Array:
        """A car waits at its arm until its whole way is free of those that are driving, and of those before it in the
        order of arms that may go now; then it never brakes."""
        ahead = [state._replace(progress=state.progress + step) for step in range(1, len(paths(self.arm)[0][0, 0]))]
        cells = jnp.stack([jnp.where(self.under_way(then)[:, None], self.cells(then), jnp.nan) for then in ahead])
        meets = jnp.any(jnp.all(cells[:, :, None] == cells[:, None], axis=-1), axis=0)
        drives = (state.progress > 0) & self.under_way(state)
        for car in range(self.agents):
            drives = drives.at[car].set(drives[car] | ~jnp.any(meets[car] & drives & (jnp.arange(self.agents) != car)))
        return (drives & self.under_way(state)).astype(int)

    def secrets(self, state: TrafficState) -> dict[str, jax.Array]:
        """`route`: 0 right, 1 straight on, 2 left."""
        return {"route": state.route}

    def with_secrets(self, state: TrafficState, secrets: jax.Array) -> TrafficState:
        return state._replace(route=secrets)

    def scene(self, state: TrafficState) -> Scene:
        here = np.asarray(self.under_way(state))
        cells, scale = np.asarray(self.cells(state)) - 0.5, 1 / (self.arm + 1)
        waits = np.array([[0.95, -0.95], [0.95, 0.95], [-0.95, 0.95], [-0.95, -0.95]])
        places = np.where(here[:, None], cells * scale, waits[: self.agents])
        road = np.unique(paths(self.arm)[0].reshape(-1, 2), axis=0) - 0.5
        return Scene(
            tuple(
                Body(x, y, 0.4 * scale, COLOURS[i], "RSL"[int(state.route[i])])
                for i, (x, y) in enumerate(places.tolist())
            ),
            tuple(Body(x * scale, y * scale, 0.48 * scale, GREY, shape="square") for x, y in road.tolist()),
            legend="disc: car, with its route (right, straight on, left); in a corner: not on the road",
        )
