"""Cooperative navigation: a team covers landmarks without running into each other."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.config import check_choice, require
from dpmac.tasks import particles
from dpmac.tasks.assignment import assign
from dpmac.tasks.base import Body, Scene, check_count, check_radius
from dpmac.tasks.particles import Bodies, Convention, Points

RADIUS = 0.15


class CNState(NamedTuple):
    bodies: Bodies
    landmarks: Points


@dataclasses.dataclass(frozen=True)
class CN:
    """Agents that collide, and landmarks to cover; everyone sees everything within the view radius."""

    agents: int = 3
    landmarks: int = 3
    convention: Convention = "openai"
    """Integration and reward: `openai` sums over agents and counts each agent as touching itself, shared; `mpe2` gives
    each agent half its own collisions and half the distances of the landmarks."""
    landmark_range: float = 1.0
    """Landmarks start on this share of the square on which agents start: 1 in OpenAI's package, 0.8 in the paper's
    release."""
    view_radius: float = math.inf
    """Landmarks and agents beyond it are hidden."""
    horizon: int = 25
    continuous: bool = False
    """Whether an action is a push along x and one along y, each in [-1, 1], instead of one of five."""

    name: ClassVar[str] = "cn"
    differentiable: ClassVar[bool] = True
    observers: ClassVar[Mapping[str, str]] = {
        "position": "The position of each agent is observed by itself, and by every agent within the view radius as a "
        "difference to its own.",
    }

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 1, 256)
        check_count("landmarks", self.landmarks, 1, 256)
        check_choice("convention", self.convention, Convention)
        require(0 < self.landmark_range <= 1, f"landmark_range must lie in (0, 1], not {self.landmark_range}")
        check_radius(self.view_radius)
        check_count("horizon", self.horizon, 1, 10_000)

    @property
    def actions(self) -> int:
        return 2 if self.continuous else particles.ACTIONS

    @property
    def observation_size(self) -> int:
        return 4 + particles.seen_size(self.landmarks + self.agents - 1, self.view_radius)

    @property
    def reward_unit(self) -> str:
        if self.convention == "openai":
            return "team: sum over agents of minus the landmarks' distances, minus 1 per contact (itself included)"
        return "mean over agents of mpe2's reward: half of minus its contacts, half of minus the landmarks' distances"

    def reset(self, key: jax.Array) -> CNState:
        agents, landmarks = particles.uniform_points(key, self.agents, self.landmarks)
        share = self.landmark_range
        return CNState(particles.at_rest(agents), Points(share * landmarks.x, share * landmarks.y))

    def observe(self, state: CNState) -> jax.Array:
        """Own velocity, own position, relative landmarks, relative others."""
        bodies = state.bodies
        landmarks = particles.seen(*particles.pairs(bodies, state.landmarks), self.view_radius)
        dx, dy = particles.pairs(bodies, bodies)
        others = particles.seen(particles.others(dx), particles.others(dy), self.view_radius)
        return particles.observation([bodies.vx, bodies.vy, bodies.x, bodies.y], landmarks, others)

    def step(self, state: CNState, actions: jax.Array) -> tuple[CNState, jax.Array]:
        ux, uy = (actions[:, 0], actions[:, 1]) if self.continuous else particles.push(actions)
        fx, fy = particles.contact_forces(state.bodies, RADIUS)
        bodies = particles.integrate(state.bodies, particles.GAIN * ux + fx, particles.GAIN * uy + fy, self.convention)
        state = state._replace(bodies=bodies)
        return state, self.rewards(state)

    def rewards(self, state: CNState) -> jax.Array:
        bodies = state.bodies
        far = jnp.sum(particles.nearest(*particles.pairs(bodies, state.landmarks), axis=0))
        contacts = particles.contacts(bodies, RADIUS)
        if self.convention == "openai":
            return jnp.full(self.agents, -self.agents * far - jnp.sum(contacts + 1))
        return -0.5 * contacts - 0.5 * far

    def scripted(self, state: CNState) -> jax.Array:
        """Agents and landmarks are paired so that the sum of distances is least; who has no landmark stays."""
        bodies, landmarks = state.bodies, state.landmarks
        cost = particles.distance(*particles.pairs(bodies, landmarks))
        if self.agents <= self.landmarks:
            own = assign(cost)
            goal = Points(landmarks.x[own], landmarks.y[own])
        else:
            owner = assign(cost.T)
            goal = Points(bodies.x.at[owner].set(landmarks.x), bodies.y.at[owner].set(landmarks.y))
        chosen = particles.steer(bodies, goal)
        return jnp.stack(particles.push(chosen), axis=-1) if self.continuous else chosen

    def secrets(self, state: CNState) -> dict[str, jax.Array]:
        """`position`: (agent, 2), each agent's own."""
        return {"position": jnp.stack([state.bodies.x, state.bodies.y], axis=1)}

    def scene(self, state: CNState) -> Scene:
        places = zip(state.bodies.x.tolist(), state.bodies.y.tolist(), strict=True)
        marks = zip(state.landmarks.x.tolist(), state.landmarks.y.tolist(), strict=True)
        agents = tuple(Body(x, y, RADIUS, (0.35, 0.35, 0.85), f"{i}") for i, (x, y) in enumerate(places))
        return Scene(
            agents,
            tuple(Body(x, y, 0.05, (0.25, 0.25, 0.25), shape="square") for x, y in marks),
            legend="disc: agent; square: landmark",
        )
