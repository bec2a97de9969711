"""Cooperative communication and navigation: each agent is to reach a landmark that only the other one knows."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.config import check_choice
from dpmac.tasks import particles
from dpmac.tasks.base import Body, Scene, check_count, check_radius
from dpmac.tasks.particles import Bodies, Convention, Points

LANDMARKS = 3
LANDMARK_SPREAD = 0.8
"""Landmarks start on this share of the square on which agents start."""
Order = Literal["random", "spread"]
COLOURS = ((0.75, 0.25, 0.25), (0.25, 0.75, 0.25), (0.25, 0.25, 0.75))


class CCNState(NamedTuple):
    bodies: Bodies
    landmarks: Points
    target: jax.Array
    """Index (agent,) of each agent's own target, which it does not see."""


@dataclasses.dataclass(frozen=True)
class CCN:
    """Two agents, three coloured landmarks. The built-in chat channel of the original is not used."""

    convention: Convention = "openai"
    """Integration and reward: `openai` squared distances, shared; `mpe2` half own share, half the mean of distances."""
    view_radius: float = math.inf
    """Landmarks beyond it are hidden."""
    order: Order = "random"
    """How landmarks are numbered: at random, or by their distance from the middle of all, the farthest first. Then what
    a symbol means can depend on the scene although the code is the same in all scenes."""
    horizon: int = 25

    name: ClassVar[str] = "ccn"
    differentiable: ClassVar[bool] = True
    agents: ClassVar[int] = 2
    symbols: ClassVar[int] = LANDMARKS
    actions: ClassVar[int] = particles.ACTIONS
    observers: ClassVar[Mapping[str, str]] = {
        "target": "Only the other agent observes the target of an agent. The walk of an informed agent reveals it to "
        "anyone who sees that agent move.",
    }

    def __post_init__(self) -> None:
        check_choice("convention", self.convention, Convention)
        check_radius(self.view_radius)
        check_choice("order", self.order, Order)
        check_count("horizon", self.horizon, 1, 10_000)

    @property
    def observation_size(self) -> int:
        return 2 + particles.seen_size(LANDMARKS, self.view_radius) + LANDMARKS

    @property
    def reward_unit(self) -> str:
        if self.convention == "openai":
            return "team: minus the sum over agents of the squared distance to its target"
        return "mean over agents of mpe2's reward: minus the mean distance to the targets"

    def reset(self, key: jax.Array) -> CCNState:
        return CCNState(*scattered(key, self.agents, LANDMARKS, self.order))

    def observe(self, state: CCNState) -> jax.Array:
        """Own velocity, relative landmarks, the colour of the other agent's target."""
        bodies = state.bodies
        landmarks = particles.seen(*particles.pairs(bodies, state.landmarks), self.view_radius)
        colour = jnp.asarray(COLOURS)[state.target[::-1]]
        return particles.observation([bodies.vx, bodies.vy], landmarks, [colour])

    def step(self, state: CCNState, actions: jax.Array) -> tuple[CCNState, jax.Array]:
        state = state._replace(bodies=particles.glide(state.bodies, actions, self.convention))
        return state, self.rewards(state)

    def goal(self, state: CCNState) -> Points:
        """Position of each agent's own target."""
        return Points(state.landmarks.x[state.target], state.landmarks.y[state.target])

    def rewards(self, state: CCNState) -> jax.Array:
        goal, bodies = self.goal(state), state.bodies
        square = (bodies.x - goal.x) ** 2 + (bodies.y - goal.y) ** 2
        if self.convention == "openai":
            return jnp.full(self.agents, -jnp.sum(square))
        far = jnp.sqrt(square)  # in mpe2 an agent answers for the one whose target it sees
        return -0.5 * far[::-1] - 0.5 * jnp.mean(far)

    def shares(self, state: CCNState, belief: jax.Array) -> jax.Array:
        """Minus the mean of its squared distance to its target, or of half the distance."""
        dx, dy = particles.pairs(state.bodies, state.landmarks)
        square = dx**2 + dy**2
        cost = square if self.convention == "openai" else jnp.sqrt(square) / self.agents
        return -jnp.sum(belief[::-1] * cost, axis=-1)

    def informed(self, state: CCNState, belief: jax.Array) -> jax.Array:
        """Each agent walks to where its target is on average, by what the other one is believed to see."""
        x, y = belief[::-1] @ state.landmarks.x, belief[::-1] @ state.landmarks.y
        return particles.steer(state.bodies, Points(x, y))

    def scripted(self, state: CCNState) -> jax.Array:
        """Each agent walks to its own target."""
        return particles.steer(state.bodies, self.goal(state))

    def secrets(self, state: CCNState) -> dict[str, jax.Array]:
        """`target`: the index that agent i sees, the other agent's."""
        return {"target": state.target[::-1]}

    def with_secrets(self, state: CCNState, secrets: jax.Array) -> CCNState:
        return state._replace(target=secrets[::-1])

    def scene(self, state: CCNState) -> Scene:
        return coloured(state.bodies, state.landmarks, state.target, COLOURS)


def scattered(key: jax.Array, agents: int, landmarks: int, order: Order) -> tuple[Bodies, Points, jax.Array]:
    """Agents at rest, landmarks nearer to the middle, and the index (agent,) of one of them for each agent."""
    place_key, index_key = jax.random.split(key)
    places, marks = particles.uniform_points(place_key, agents, landmarks)
    marks = Points(LANDMARK_SPREAD * marks.x, LANDMARK_SPREAD * marks.y)
    if order == "spread":
        far = (marks.x - jnp.mean(marks.x)) ** 2 + (marks.y - jnp.mean(marks.y)) ** 2
        marks = Points(*(part[jnp.argsort(-far)] for part in marks))
    return particles.at_rest(places), marks, jax.random.randint(index_key, (agents,), 0, landmarks)


def coloured(
    bodies: Bodies, landmarks: Points, index: jax.Array, colours: Sequence[tuple[float, float, float]]
) -> Scene:
    """Landmarks in their colours, and each agent in that of its own (agent,)."""
    places = zip(bodies.x.tolist(), bodies.y.tolist(), index.tolist(), strict=True)
    agents = tuple(Body(x, y, 0.05, colours[own], f"{i}") for i, (x, y, own) in enumerate(places))
    marks = zip(landmarks.x.tolist(), landmarks.y.tolist(), colours, strict=True)
    squares = tuple(Body(x, y, 0.08, colour, shape="square") for x, y, colour in marks)
    return Scene(agents, squares, legend="disc: agent, in the colour of its target; square: landmark")
