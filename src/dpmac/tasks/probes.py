"""Probes: tiny tasks whose best return is known in closed form, to test critics, memory and messages one at a time.

Each says what the best team can get (`optimal_return`) and what the best team without messages can get
(`silent_return`), both in expectation.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.config import require
from dpmac.tasks.base import Body, Scene, check_count

COLOURS = ((0.85, 0.35, 0.35), (0.35, 0.55, 0.85), (0.35, 0.75, 0.35), (0.85, 0.75, 0.3))


def ring(colours: list[tuple[float, float, float]], labels: list[str]) -> Scene:
    """Agents in a circle."""
    turn = [2 * math.pi * i / len(colours) for i in range(len(colours))]
    return Scene(
        tuple(
            Body(0.7 * math.cos(angle), 0.7 * math.sin(angle), 0.12, colour, label)
            for angle, colour, label in zip(turn, colours, labels, strict=True)
        )
    )


class ValueState(NamedTuple):
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class ProbeValue:
    """Every step pays the same, whatever is done: a critic has to find the discounted sum."""

    agents: int = 2
    pay: float = 1.0
    """The team's reward in each step."""
    horizon: int = 5

    name: ClassVar[str] = "probe-value"
    differentiable: ClassVar[bool] = True
    actions: ClassVar[int] = 2
    observation_size: ClassVar[int] = 2
    reward_unit: ClassVar[str] = "team: a constant"
    observers: ClassVar[Mapping[str, str]] = {"time": "Everybody observes the time."}

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 1, 256)
        check_count("horizon", self.horizon, 1, 10_000)
        require(math.isfinite(self.pay), f"pay must be a finite number, not {self.pay}")

    @property
    def optimal_return(self) -> float:
        return self.pay * self.horizon

    @property
    def silent_return(self) -> float:
        return self.optimal_return

    def value(self, time: int, discount: float) -> float:
        """The discounted sum of rewards from a time on, where the horizon is terminal.

        >>> ProbeValue(horizon=3).value(time=1, discount=0.5)
        1.5
        """
        return sum(self.pay * discount**k for k in range(self.horizon - time))

    def reset(self, key: jax.Array) -> ValueState:
        del key  # nothing here is left to chance
        return ValueState(jnp.zeros((), jnp.int32))

    def observe(self, state: ValueState) -> jax.Array:
        """One, and the share of the episode that is left."""
        left = 1 - state.time / self.horizon
        return jnp.tile(jnp.stack([jnp.ones_like(left), left]), (self.agents, 1))

    def step(self, state: ValueState, actions: jax.Array) -> tuple[ValueState, jax.Array]:
        del actions
        return ValueState(state.time + 1), jnp.full(self.agents, self.pay, jnp.float32)

    def scripted(self, state: ValueState) -> jax.Array:
        return jnp.zeros(self.agents, jnp.int32) * state.time

    def secrets(self, state: ValueState) -> dict[str, jax.Array]:
        return {"time": jnp.full(self.agents, state.time)}

    def scene(self, state: ValueState) -> Scene:
        return ring([COLOURS[1]] * self.agents, [f"t={int(state.time)}"] * self.agents)


class SymbolState(NamedTuple):
    time: jax.Array
    symbols: jax.Array
    """(agent,) what each agent may be shown now."""
    previous: jax.Array
    """(agent,) what it was one step ago."""
    key: jax.Array


@dataclasses.dataclass(frozen=True)
class SymbolProbe(ABC):
    """Agents who were asked have to name a symbol. A step pays the share of right answers; the first step, when no
    message can have arrived, pays nothing."""

    symbols: int = 2
    """How many symbols there are; also the number of actions."""
    horizon: int = 5

    differentiable: ClassVar[bool] = True
    agents: ClassVar[int] = 2
    fresh: ClassVar[bool] = False
    reward_unit: ClassVar[str] = "team: share of right answers"
    name: ClassVar[str]
    observers: ClassVar[Mapping[str, str]]

    def __post_init__(self) -> None:
        check_count("symbols", self.symbols, 2, 64)
        check_count("horizon", self.horizon, 2, 10_000)
        check_count("agents", self.agents, 1, 256)

    @abstractmethod
    def shown(self, state: SymbolState) -> jax.Array:
        """Whether each agent (agent,) sees its symbol now."""

    @abstractmethod
    def answers(self, state: SymbolState) -> jax.Array:
        """The right answer of each agent (agent,); -1 for those who are not asked."""

    def share(self, right: jax.Array, asked: jax.Array) -> jax.Array:
        """What a step pays for answers that are right (agent,), 1 or 0, or to this degree."""
        return jnp.sum(right) / jnp.sum(asked)

    @property
    def actions(self) -> int:
        return self.symbols

    @property
    def observation_size(self) -> int:
        return self.symbols + 1

    @property
    def optimal_return(self) -> float:
        return self.horizon - 1.0

    @property
    def silent_return(self) -> float:
        return (self.horizon - 1) / self.symbols

    def reset(self, key: jax.Array) -> SymbolState:
        key, draw_key = jax.random.split(key)
        symbols = self.draw(draw_key)
        return SymbolState(jnp.zeros((), jnp.int32), symbols, symbols, key)

    def draw(self, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (self.agents,), 0, self.symbols)

    def observe(self, state: SymbolState) -> jax.Array:
        """The symbol as one of so many ones, or zeros where it is not shown; whether this is the first step."""
        symbol = jax.nn.one_hot(state.symbols, self.symbols) * self.shown(state)[:, None]
        first = jnp.full((self.agents, 1), state.time == 0, jnp.float32)
        return jnp.concatenate([symbol, first], axis=1)

    def step(self, state: SymbolState, actions: jax.Array) -> tuple[SymbolState, jax.Array]:
        answers = self.answers(state)
        # Weights (agent, action) are right to the degree that they are on the answer; -1 has none.
        given = actions if actions.ndim == 2 else jax.nn.one_hot(actions, self.actions)
        share = self.share(jnp.sum(given * jax.nn.one_hot(answers, self.actions), axis=1), answers >= 0)
        reward = jnp.where(state.time > 0, share, 0.0).astype(jnp.float32)
        key, draw_key = jax.random.split(state.key)
        symbols = self.draw(draw_key) if self.fresh else state.symbols
        return SymbolState(state.time + 1, symbols, state.symbols, key), jnp.full(self.agents, reward)

    def scripted(self, state: SymbolState) -> jax.Array:
        return jnp.maximum(self.answers(state), 0)

    def secrets(self, state: SymbolState) -> dict[str, jax.Array]:
        """`symbol`: what each agent is shown, -1 where nothing is."""
        return {"symbol": jnp.where(self.shown(state), state.symbols, -1)}

    def scene(self, state: SymbolState) -> Scene:
        symbols = [int(symbol) for symbol in state.symbols]
        return ring([COLOURS[symbol % len(COLOURS)] for symbol in symbols], [f"{symbol}" for symbol in symbols])


@dataclasses.dataclass(frozen=True)
class ProbeMemory(SymbolProbe):
    """Each agent is shown a symbol in the first step alone, and has to name it in every later one."""

    agents: int = 2  # pyright: ignore[reportIncompatibleVariableOverride]

    name: ClassVar[str] = "probe-memory"
    observers: ClassVar[Mapping[str, str]] = {"symbol": "Each agent observes its own symbol, in the first step."}

    @property
    def silent_return(self) -> float:
        return self.optimal_return

    def shown(self, state: SymbolState) -> jax.Array:
        return jnp.full(self.agents, state.time == 0)

    def answers(self, state: SymbolState) -> jax.Array:
        return state.symbols


@dataclasses.dataclass(frozen=True)
class ProbeListen(SymbolProbe):
    """Agent 0 is shown a symbol, agent 1 has to name the one of the step before: what a message can tell it in time."""

    fresh: bool = False  # pyright: ignore[reportIncompatibleVariableOverride]
    """Whether every step draws a new symbol: then the message of exactly the step before is needed."""

    name: ClassVar[str] = "probe-listen"
    observers: ClassVar[Mapping[str, str]] = {"symbol": "Agent 0 alone observes the symbol."}

    def shown(self, state: SymbolState) -> jax.Array:
        return jnp.arange(self.agents) == 0

    def answers(self, state: SymbolState) -> jax.Array:
        return jnp.stack([-jnp.ones_like(state.previous[0]), state.previous[0]])


@dataclasses.dataclass(frozen=True)
class ProbeNeighbour(SymbolProbe):
    """Every agent is shown a symbol of its own and has to name that of the next agent in the ring; what the others say
    does not matter."""

    agents: int = 3  # pyright: ignore[reportIncompatibleVariableOverride]

    name: ClassVar[str] = "probe-neighbour"
    observers: ClassVar[Mapping[str, str]] = {"symbol": "Each agent alone observes its own symbol."}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("agents", self.agents, 3, 256)

    def shown(self, state: SymbolState) -> jax.Array:
        return jnp.ones(self.agents, bool)

    def answers(self, state: SymbolState) -> jax.Array:
        return jnp.roll(state.previous, -1)


@dataclasses.dataclass(frozen=True)
class ProbePartner(SymbolProbe):
    """Agents stand in pairs. The first of a pair is shown a symbol, and the pair is right where both name the one of
    the step before: what its partner does matters to an agent, what others do does not."""

    agents: int = 4  # pyright: ignore[reportIncompatibleVariableOverride]

    name: ClassVar[str] = "probe-partner"
    reward_unit: ClassVar[str] = "team: share of pairs that are right"
    observers: ClassVar[Mapping[str, str]] = {"symbol": "The first agent of each pair alone observes its symbol."}

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.agents % 2 == 0, f"agents must be an even number, not {self.agents}")

    def shown(self, state: SymbolState) -> jax.Array:
        return jnp.arange(self.agents) % 2 == 0

    def answers(self, state: SymbolState) -> jax.Array:
        return jnp.repeat(state.previous[::2], 2)

    def share(self, right: jax.Array, asked: jax.Array) -> jax.Array:
        return jnp.mean(jnp.prod(right.reshape(-1, 2), axis=1))
