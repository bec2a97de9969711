"""Midway: each agent has been told of one landmark, and has to stand in the middle of those that the others know."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.config import check_choice
from dpmac.tasks import ccn, particles
from dpmac.tasks.base import Scene, check_count, check_radius
from dpmac.tasks.ccn import Order, coloured, scattered
from dpmac.tasks.particles import Bodies, Convention, Points

COLOURS = (*ccn.COLOURS, (0.7, 0.6, 0.2), (0.5, 0.3, 0.7))


class MidwayState(NamedTuple):
    bodies: Bodies
    landmarks: Points
    known: jax.Array
    """Index (agent,) of the landmark that each agent has been told of."""


@dataclasses.dataclass(frozen=True)
class Midway:
    """CCN for any number of agents: with two, each has to reach the landmark that only the other one knows. Nobody
    sees anybody else, so that nothing but messages can tell."""

    agents: int = 3
    landmarks: int = 3
    convention: Convention = "openai"
    """How time is integrated."""
    view_radius: float = math.inf
    """Landmarks beyond it are hidden."""
    order: Order = "random"
    """How landmarks are numbered: at random, or by their distance from the middle of all, the farthest first."""
    horizon: int = 25

    name: ClassVar[str] = "midway"
    differentiable: ClassVar[bool] = True
    actions: ClassVar[int] = particles.ACTIONS
    reward_unit: ClassVar[str] = "team: minus the sum over agents of the squared distance to its place"
    observers: ClassVar[Mapping[str, str]] = {
        "landmark": "Only the agent itself observes its landmark. The walks of the informed others reveal it to anyone "
        "who sees them.",
    }

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 2, 256)
        check_count("landmarks", self.landmarks, 2, 256)
        check_choice("convention", self.convention, Convention)
        check_radius(self.view_radius)
        check_choice("order", self.order, Order)
        check_count("horizon", self.horizon, 1, 10_000)

    @property
    def symbols(self) -> int:
        return self.landmarks

    @property
    def observation_size(self) -> int:
        return 2 + particles.seen_size(self.landmarks, self.view_radius) + self.landmarks

    def reset(self, key: jax.Array) -> MidwayState:
        return MidwayState(*scattered(key, self.agents, self.landmarks, self.order))

    def observe(self, state: MidwayState) -> jax.Array:
        """Own velocity, relative landmarks, and one number for each landmark: 0.75 at the one that is known, else
        0.25."""
        bodies = state.bodies
        landmarks = particles.seen(*particles.pairs(bodies, state.landmarks), self.view_radius)
        marked = 0.25 + 0.5 * jax.nn.one_hot(state.known, self.landmarks)
        return particles.observation([bodies.vx, bodies.vy], landmarks, [marked])

    def step(self, state: MidwayState, actions: jax.Array) -> tuple[MidwayState, jax.Array]:
        state = state._replace(bodies=particles.glide(state.bodies, actions, self.convention))
        return state, self.rewards(state)

    def place(self, state: MidwayState, belief: jax.Array) -> Points:
        """The middle (agent,) of what the others are believed (agent, landmark) to know."""
        x, y = belief @ state.landmarks.x, belief @ state.landmarks.y
        others = self.agents - 1
        return Points((jnp.sum(x) - x) / others, (jnp.sum(y) - y) / others)

    def rewards(self, state: MidwayState) -> jax.Array:
        goal, bodies = self.place(state, jax.nn.one_hot(state.known, self.landmarks)), state.bodies
        return jnp.full(self.agents, -jnp.sum((bodies.x - goal.x) ** 2 + (bodies.y - goal.y) ** 2))

    def shares(self, state: MidwayState, belief: jax.Array) -> jax.Array:
        """Minus the squared distance to the mean of its place, minus the variance of its place."""
        marks, bodies, goal = state.landmarks, state.bodies, self.place(state, belief)
        x, y = (belief @ mark for mark in marks)
        spread = jnp.sum(belief * ((marks.x - x[:, None]) ** 2 + (marks.y - y[:, None]) ** 2), axis=-1)
        variance = (jnp.sum(spread) - spread) / (self.agents - 1) ** 2
        return -((bodies.x - goal.x) ** 2 + (bodies.y - goal.y) ** 2 + variance)

    def informed(self, state: MidwayState, belief: jax.Array) -> jax.Array:
        """Each agent walks to where its place is on average."""
        return particles.steer(state.bodies, self.place(state, belief))

    def scripted(self, state: MidwayState) -> jax.Array:
        """Each agent walks to its place."""
        return self.informed(state, jax.nn.one_hot(state.known, self.landmarks))

    def secrets(self, state: MidwayState) -> dict[str, jax.Array]:
        """`landmark`: the index that agent i has been told of."""
        return {"landmark": state.known}

    def with_secrets(self, state: MidwayState, secrets: jax.Array) -> MidwayState:
        return state._replace(known=secrets)

    def scene(self, state: MidwayState) -> Scene:
        colours = [COLOURS[index % len(COLOURS)] for index in range(self.landmarks)]
        return coloured(state.bodies, state.landmarks, state.known, colours)
