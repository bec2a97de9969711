"""Alarm: each agent sees when something begins, and the next agent has to be at its post from then on, not before."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.tasks.base import Body, Scene, check_count


class AlarmState(NamedTuple):
    moment: jax.Array
    """(agent,) the step at which what an agent sees begins."""
    time: jax.Array
    posted: jax.Array
    """(agent,) whether an agent was at its post in the last step."""


@dataclasses.dataclass(frozen=True)
class Alarm:
    """The secret is a moment. All steps of the episode are equally likely. From then on an agent sees that it has
    begun. A message can tell the next agent one step later. In every step an agent is at its post (action 1) or not. It
    is right if it is there exactly from the step at which a message could have told it."""

    agents: int = 2
    horizon: int = 12

    name: ClassVar[str] = "alarm"
    differentiable: ClassVar[bool] = True
    actions: ClassVar[int] = 2
    observation_size: ClassVar[int] = 2
    reward_unit: ClassVar[str] = "mean over agents of the share of steps in which it was right"
    observers: ClassVar[Mapping[str, str]] = {
        "beginning": "Only one agent observes that something has begun, from that moment on. The step at which the "
        "next agent goes to its post reveals the moment to anyone who sees that agent.",
    }

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 2, 256)
        check_count("horizon", self.horizon, 2, 10_000)

    @property
    def symbols(self) -> int:
        return self.horizon

    @property
    def silent_return(self) -> float:
        """Of a team that is told nothing: at its post in the second half."""
        return sum(max(t, self.horizon - t) for t in range(self.horizon)) / self.horizon**2

    def reset(self, key: jax.Array) -> AlarmState:
        moment = jax.random.randint(key, (self.agents,), 0, self.horizon)
        return AlarmState(moment, jnp.zeros((), jnp.int32), jnp.zeros(self.agents))

    def observe(self, state: AlarmState) -> jax.Array:
        """Whether it has begun, and the share of the episode that is over."""
        gone = jnp.broadcast_to(state.time / self.horizon, (self.agents,))
        return jnp.stack([state.moment <= state.time, gone], axis=-1).astype(jnp.float32)

    def scripted(self, state: AlarmState) -> jax.Array:
        """At the post from the step after the moment of the agent before."""
        return (jnp.roll(state.moment, 1) < state.time).astype(int)

    def step(self, state: AlarmState, actions: jax.Array) -> tuple[AlarmState, jax.Array]:
        """`actions` (agent,), or weights (agent, 2)."""
        posted = actions[:, 1] if actions.ndim == 2 else actions.astype(jnp.float32)
        due = self.scripted(state)
        return AlarmState(state.moment, state.time + 1, posted), jnp.where(due, posted, 1 - posted) / self.horizon

    def secrets(self, state: AlarmState) -> dict[str, jax.Array]:
        """`beginning`: the step at which what agent i sees begins."""
        return {"beginning": state.moment}

    def with_secrets(self, state: AlarmState, secrets: jax.Array) -> AlarmState:
        return state._replace(moment=secrets)

    def scene(self, state: AlarmState) -> Scene:
        height = [0.5 - (i + 0.5) / self.agents for i in range(self.agents)]
        red, blue, grey = (0.85, 0.35, 0.35), (0.35, 0.55, 0.85), (0.8, 0.8, 0.8)
        posted, due = state.posted.tolist(), self.scripted(state).tolist()
        return Scene(
            tuple(Body(0.5 * x, height[i], 0.06, blue, f"{i}") for i, x in enumerate(posted)),
            tuple(Body(0.5, height[i], 0.08, red if on else grey, shape="square") for i, on in enumerate(due)),
            legend="disc: an agent, at its post to the right; square: red where it has to be there",
        )
