"""Predator and prey: slow predators, who learn, surround quick preys, who follow a script."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.config import check_choice
from dpmac.tasks import particles
from dpmac.tasks.assignment import assign
from dpmac.tasks.base import Body, Scene, check_count, check_radius
from dpmac.tasks.particles import Bodies, Convention, Points

Reading = Literal["preys", "predators"]
Fence = Literal["adds", "replaces"]
Others = Literal["index", "nearest"]

PREDATOR_RADIUS = 0.04
PREY_RADIUS = 0.05
PREY_GAIN = 7.0
FENCE = 0.8
"""Where a prey turns round."""
FENCE_PUSH = 2.0
LOOK_AHEAD = 0.3
"""Seconds by which the scripted predators aim ahead of a prey."""


class PPState(NamedTuple):
    predators: Bodies
    preys: Bodies


@dataclasses.dataclass(frozen=True)
class PP:
    """Predators collide with each other; preys collide with nothing."""

    predators: int = 3
    preys: int = 2
    reward: Reading = "preys"
    """Distances are summed over `preys` (to the nearest predator: I2C's code) or over `predators` (to the nearest prey:
    the paper's text)."""
    fence: Fence = "adds"
    """Beyond the fence, the push back inwards `adds` to a prey's flight (I2C's code and the paper's release), or
    `replaces` it (version 0.1 of this package)."""
    others: Others = "index"
    """Other predators are observed in the order of their `index`, or the `nearest` first (the paper's release)."""
    convention: Convention = "openai"
    """Integration."""
    view_radius: float = math.inf
    """Preys and predators beyond it are hidden."""
    horizon: int = 40

    name: ClassVar[str] = "pp"
    differentiable: ClassVar[bool] = True
    paper_batch: ClassVar[int] = 256
    actions: ClassVar[int] = particles.ACTIONS
    observers: ClassVar[Mapping[str, str]] = {
        "position": "The position of each predator is observed by itself, and by every predator within the view radius "
        "as a difference to its own.",
    }

    def __post_init__(self) -> None:
        check_count("predators", self.predators, 1, 256)
        check_count("preys", self.preys, 1, 256)
        check_choice("reward", self.reward, Reading)
        check_choice("fence", self.fence, Fence)
        check_choice("others", self.others, Others)
        check_choice("convention", self.convention, Convention)
        check_radius(self.view_radius)
        check_count("horizon", self.horizon, 1, 10_000)

    @property
    def agents(self) -> int:
        return self.predators

    @property
    def observation_size(self) -> int:
        return 4 + particles.seen_size(1 + self.predators - 1, self.view_radius)

    @property
    def reward_unit(self) -> str:
        nearest = {"preys": "preys to the nearest predator", "predators": "predators to the nearest prey"}[self.reward]
        return f"team: minus the distances of the {nearest}, minus 1 per touching pair of predators"

    def reset(self, key: jax.Array) -> PPState:
        predators, preys = particles.uniform_points(key, self.predators, self.preys)
        return PPState(particles.at_rest(predators), particles.at_rest(preys))

    def observe(self, state: PPState) -> jax.Array:
        """Own velocity, own position, the nearest prey, relative other predators."""
        predators = state.predators
        nearest = [value[:, None] for value in nearest_of(predators, state.preys)]
        dx, dy = particles.pairs(predators, predators)
        dx, dy = particles.others(dx), particles.others(dy)
        if self.others == "nearest":
            order = jnp.argsort(particles.distance(dx, dy), axis=1)
            dx, dy = (jnp.take_along_axis(x, order, axis=1) for x in (dx, dy))
        others = particles.seen(dx, dy, self.view_radius)
        own = [predators.vx, predators.vy, predators.x, predators.y]
        return particles.observation(own, particles.seen(nearest[0], nearest[1], self.view_radius), others)

    def step(self, state: PPState, actions: jax.Array) -> tuple[PPState, jax.Array]:
        ux, uy = particles.push(actions)
        fx, fy = particles.contact_forces(state.predators, PREDATOR_RADIUS)
        flight_x, flight_y = flight(state, self.fence)
        predators = particles.integrate(
            state.predators, particles.GAIN * ux + fx, particles.GAIN * uy + fy, self.convention
        )
        preys = particles.integrate(state.preys, PREY_GAIN * flight_x, PREY_GAIN * flight_y, self.convention)
        state = PPState(predators, preys)
        return state, self.rewards(state)

    def rewards(self, state: PPState) -> jax.Array:
        dx, dy = particles.pairs(state.predators, state.preys)
        far = jnp.sum(particles.nearest(dx, dy, axis=0 if self.reward == "preys" else 1))
        touching_pairs = jnp.sum(particles.contacts(state.predators, PREDATOR_RADIUS)) / 2
        return jnp.full(self.predators, -far - touching_pairs)

    def scripted(self, state: PPState) -> jax.Array:
        """Predators aim ahead of the preys: one for each prey so that the sum of distances is least, the rest at the
        nearest."""
        predators, preys = state.predators, state.preys
        ahead = Points(preys.x + LOOK_AHEAD * preys.vx, preys.y + LOOK_AHEAD * preys.vy)
        gap = particles.distance(*particles.pairs(predators, ahead))
        if self.predators <= self.preys:
            chosen = assign(gap)
        else:
            chosen = jnp.argmin(gap, axis=1).at[assign(gap.T)].set(jnp.arange(self.preys))
        return particles.steer(predators, Points(ahead.x[chosen], ahead.y[chosen]))

    def secrets(self, state: PPState) -> dict[str, jax.Array]:
        """`position`: (agent, 2), each predator's own."""
        return {"position": jnp.stack([state.predators.x, state.predators.y], axis=1)}

    def scene(self, state: PPState) -> Scene:
        places = zip(state.predators.x.tolist(), state.predators.y.tolist(), strict=True)
        preys = zip(state.preys.x.tolist(), state.preys.y.tolist(), strict=True)
        agents = tuple(Body(x, y, PREDATOR_RADIUS, (0.85, 0.35, 0.35), f"{i}") for i, (x, y) in enumerate(places))
        greens = tuple(Body(x, y, PREY_RADIUS, (0.35, 0.75, 0.35)) for x, y in preys)
        return Scene(agents, greens, legend="numbered: predator; green: prey")


def nearest_of(a: Bodies, b: Bodies) -> tuple[jax.Array, jax.Array]:
    """Differences (a,) along x and y from each of `a` to the nearest of `b`; the first of equals."""
    dx, dy = particles.pairs(a, b)
    best_x, best_y = dx[:, 0], dy[:, 0]
    best = particles.distance(best_x, best_y)
    for j in range(1, dx.shape[1]):
        gap = particles.distance(dx[:, j], dy[:, j])
        closer = gap < best
        best_x, best_y = jnp.where(closer, dx[:, j], best_x), jnp.where(closer, dy[:, j], best_y)
        best = jnp.where(closer, gap, best)
    return best_x, best_y


def flight(state: PPState, fence: Fence = "adds") -> tuple[jax.Array, jax.Array]:
    """Directions (prey,) and (prey,) in which the preys push: one unit along the dominant axis away from the nearest
    predator; beyond the fence also, or instead, two units back along the dominant axis of the place; nothing at all
    when that predator touches."""
    preys = state.preys
    dx, dy = nearest_of(preys, state.predators)
    free = particles.distance(dx, dy) >= PREDATOR_RADIUS + PREY_RADIUS
    ux, uy = along_dominant_axis(-dx, -dy)
    back_x, back_y = along_dominant_axis(-preys.x, -preys.y)
    outside = jnp.maximum(jnp.abs(preys.x), jnp.abs(preys.y)) > FENCE
    if fence == "replaces":
        ux, uy = jnp.where(outside, 0, ux), jnp.where(outside, 0, uy)
    push = jnp.where(outside, FENCE_PUSH, 0)
    return jnp.where(free, ux + push * back_x, 0), jnp.where(free, uy + push * back_y, 0)


def along_dominant_axis(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The unit vector along the longer of the two components."""
    along_x = jnp.abs(x) >= jnp.abs(y)
    return jnp.where(along_x, jnp.sign(x), 0), jnp.where(along_x, 0, jnp.sign(y))
