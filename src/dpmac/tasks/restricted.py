"""Probes of what a task may restrict: how long an episode is, and which actions are allowed.

Whoever ignores the restriction earns another return than the best one that is allowed, which is known in closed form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.tasks.base import Scene, check_count
from dpmac.tasks.probes import COLOURS, ring


class EndState(NamedTuple):
    time: jax.Array
    good: jax.Array
    """Steps that pay."""
    left: jax.Array
    """1.0 once somebody has left, else 0.0."""


@dataclass(frozen=True)
class ProbeEnd:
    """A step pays 1 until a time that everybody is told in the step before, and costs 1 from then on; when anybody
    leaves (action 1), the episode is over after that step."""

    agents: int = 2
    horizon: int = 5

    name: ClassVar[str] = "probe-end"
    differentiable: ClassVar[bool] = True
    actions: ClassVar[int] = 2
    observation_size: ClassVar[int] = 2
    reward_unit: ClassVar[str] = "team: 1 a good step, -1 a bad one"
    observers: ClassVar[Mapping[str, str]] = {"last": "Everybody observes whether the next step will cost."}

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 1, 256)
        check_count("horizon", self.horizon, 1, 10_000)

    @property
    def optimal_return(self) -> float:
        """Of a team that leaves in the last good step, which is any of the steps alike."""
        return (self.horizon + 1) / 2

    @property
    def silent_return(self) -> float:
        return self.optimal_return

    def value(self, left: int, discount: float) -> float:
        """The discounted sum of rewards of the best team when so many good steps are left.

        >>> ProbeEnd().value(left=2, discount=0.5)
        1.5
        """
        return sum(discount**k for k in range(left))

    def reset(self, key: jax.Array) -> EndState:
        return EndState(jnp.zeros((), jnp.int32), jax.random.randint(key, (), 1, self.horizon + 1), jnp.zeros(()))

    def last(self, state: EndState) -> jax.Array:
        return state.time + 1 >= state.good

    def over(self, state: EndState) -> jax.Array:
        return state.left

    def observe(self, state: EndState) -> jax.Array:
        """One, and whether the next step will cost."""
        return jnp.tile(jnp.stack([jnp.ones(()), 1.0 * self.last(state)]), (self.agents, 1))

    def step(self, state: EndState, actions: jax.Array) -> tuple[EndState, jax.Array]:
        given = actions if actions.ndim == 2 else jax.nn.one_hot(actions, self.actions)
        reward = jnp.where(state.time < state.good, 1.0, -1.0)
        return EndState(state.time + 1, state.good, 1 - jnp.prod(given[:, 0])), jnp.full(self.agents, reward)

    def scripted(self, state: EndState) -> jax.Array:
        return jnp.full(self.agents, self.last(state)).astype(jnp.int32)

    def secrets(self, state: EndState) -> dict[str, jax.Array]:
        return {"last": jnp.full(self.agents, self.last(state)).astype(jnp.int32)}

    def scene(self, state: EndState) -> Scene:
        text = "over" if state.left else f"{int(state.good - state.time)} left"
        return ring([COLOURS[0] if state.left else COLOURS[2]] * self.agents, [text] * self.agents)


class MaskState(NamedTuple):
    right: jax.Array
    """(agent,) the action that pays 1."""
    masked: jax.Array
    """(agent,) whether it is not allowed."""
    key: jax.Array


@dataclass(frozen=True)
class ProbeMask:
    """Each agent is shown which of its actions pays 1; the next one pays 1/2, and the others nothing. Half of the time
    the one that pays 1 is not allowed, which nobody sees but by the mask; `step` would pay for it all the same."""

    agents: int = 2
    actions: int = 3
    horizon: int = 5

    name: ClassVar[str] = "probe-mask"
    differentiable: ClassVar[bool] = True
    reward_unit: ClassVar[str] = "team: mean of what the actions pay"
    observers: ClassVar[Mapping[str, str]] = {"right": "Each agent alone observes which of its actions pays."}

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 1, 256)
        check_count("actions", self.actions, 2, 127)
        check_count("horizon", self.horizon, 1, 10_000)

    @property
    def observation_size(self) -> int:
        return self.actions

    @property
    def optimal_return(self) -> float:
        """With an action that is not allowed it would be the horizon."""
        return 0.75 * self.horizon

    @property
    def silent_return(self) -> float:
        return self.optimal_return

    def drawn(self, key: jax.Array) -> MaskState:
        key, right_key, mask_key = jax.random.split(key, 3)
        right = jax.random.randint(right_key, (self.agents,), 0, self.actions)
        return MaskState(right, jax.random.bernoulli(mask_key, 0.5, (self.agents,)), key)

    def reset(self, key: jax.Array) -> MaskState:
        return self.drawn(key)

    def available(self, state: MaskState) -> jax.Array:
        return (jnp.arange(self.actions) != state.right[:, None]) | ~state.masked[:, None]

    def observe(self, state: MaskState) -> jax.Array:
        return jax.nn.one_hot(state.right, self.actions)

    def step(self, state: MaskState, actions: jax.Array) -> tuple[MaskState, jax.Array]:
        given = actions if actions.ndim == 2 else jax.nn.one_hot(actions, self.actions)
        best = jax.nn.one_hot(state.right, self.actions)
        pay = jnp.mean(jnp.sum(given * (best + 0.5 * jnp.roll(best, 1, axis=-1)), axis=-1))
        return self.drawn(state.key), jnp.full(self.agents, pay)

    def scripted(self, state: MaskState) -> jax.Array:
        return (state.right + state.masked) % self.actions

    def secrets(self, state: MaskState) -> dict[str, jax.Array]:
        return {"right": state.right}

    def scene(self, state: MaskState) -> Scene:
        labels = [f"{int(right)}{'!' if mask else ''}" for right, mask in zip(state.right, state.masked, strict=True)]
        return ring([COLOURS[int(right) % len(COLOURS)] for right in state.right], labels)
