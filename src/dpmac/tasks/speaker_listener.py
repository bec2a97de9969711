"""MPE's speaker and listener: one agent sees nothing but which landmark is meant, the other one has to walk there."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.config import check_choice
from dpmac.tasks import particles
from dpmac.tasks.base import Body, Scene, check_count
from dpmac.tasks.particles import Bodies, Convention, Points

LANDMARKS = 3
COLOURS = ((0.65, 0.15, 0.15), (0.15, 0.65, 0.15), (0.15, 0.15, 0.65))
SPEAKER, LISTENER = 0, 1


class SpeakerState(NamedTuple):
    bodies: Bodies
    """The listener alone, (1,); the speaker stands still and sees nothing."""
    landmarks: Points
    goal: jax.Array
    """Index () of the landmark that is meant."""


@dataclasses.dataclass(frozen=True)
class SpeakerListener:
    """`simple_speaker_listener` of the multi-agent particle environments, without its built-in chat channel. The
    speaker's inputs are the secret and nothing else, and nobody sees anybody walk: nothing but a message can tell."""

    convention: Convention = "openai"
    """How time is integrated."""
    horizon: int = 25

    name: ClassVar[str] = "speaker-listener"
    differentiable: ClassVar[bool] = True
    agents: ClassVar[int] = 2
    symbols: ClassVar[int] = LANDMARKS
    actions: ClassVar[int] = particles.ACTIONS
    observation_size: ClassVar[int] = 2 + 2 * LANDMARKS + LANDMARKS
    reward_unit: ClassVar[str] = "team: minus the squared distance of the listener to the goal"
    observers: ClassVar[Mapping[str, str]] = {
        "goal": "Only the speaker, agent 0, observes the goal. The listener, agent 1, has no secret. Its walk, once "
        "informed, reveals the goal to anyone who sees it.",
    }

    def __post_init__(self) -> None:
        check_choice("convention", self.convention, Convention)
        check_count("horizon", self.horizon, 1, 10_000)

    def reset(self, key: jax.Array) -> SpeakerState:
        place_key, goal_key = jax.random.split(key)
        listener, landmarks = particles.uniform_points(place_key, 1, LANDMARKS)
        return SpeakerState(particles.at_rest(listener), landmarks, jax.random.randint(goal_key, (), 0, LANDMARKS))

    def observe(self, state: SpeakerState) -> jax.Array:
        """The speaker: the colour of the goal. The listener: its velocity and the relative landmarks. Each has zeros
        where the other one has numbers."""
        bodies = state.bodies
        seen = particles.observation([bodies.vx, bodies.vy], list(particles.pairs(bodies, state.landmarks)))[0]
        colour = jnp.asarray(COLOURS)[state.goal]
        speaker, listener = jnp.append(jnp.zeros_like(seen), colour), jnp.append(seen, jnp.zeros_like(colour))
        return jnp.stack([speaker, listener])

    def step(self, state: SpeakerState, actions: jax.Array) -> tuple[SpeakerState, jax.Array]:
        """The speaker's action does nothing."""
        bodies = particles.glide(state.bodies, actions[LISTENER:], self.convention)
        x, y = state.landmarks.x[state.goal], state.landmarks.y[state.goal]
        far = (bodies.x[0] - x) ** 2 + (bodies.y[0] - y) ** 2
        return state._replace(bodies=bodies), jnp.full(self.agents, -far)

    def informed(self, state: SpeakerState, belief: jax.Array) -> jax.Array:
        """The listener walks to where the goal is on average, by what the speaker is believed to see."""
        x, y = belief[SPEAKER] @ state.landmarks.x, belief[SPEAKER] @ state.landmarks.y
        walk = particles.steer(state.bodies, Points(x[None], y[None]))
        return jnp.concatenate([jnp.zeros_like(walk), walk])

    def scripted(self, state: SpeakerState) -> jax.Array:
        """The listener walks to the goal."""
        return self.informed(state, jax.nn.one_hot(jnp.stack([state.goal] * 2), LANDMARKS))

    def secrets(self, state: SpeakerState) -> dict[str, jax.Array]:
        """`goal`: the index that the speaker sees; 0 for the listener, who sees none."""
        return {"goal": jnp.stack([state.goal, jnp.zeros_like(state.goal)])}

    def with_secrets(self, state: SpeakerState, secrets: jax.Array) -> SpeakerState:
        return state._replace(goal=secrets[SPEAKER])

    def scene(self, state: SpeakerState) -> Scene:
        marks = zip(state.landmarks.x.tolist(), state.landmarks.y.tolist(), COLOURS, strict=True)
        own = COLOURS[int(state.goal)]
        return Scene(
            (
                Body(0.0, -1.15, 0.05, own, "0"),
                Body(float(state.bodies.x[0]), float(state.bodies.y[0]), 0.075, own, "1"),
            ),
            tuple(Body(x, y, 0.08, colour, shape="square") for x, y, colour in marks),
            legend="0: speaker, below; 1: listener, in the colour of its goal; square: landmark",
        )
