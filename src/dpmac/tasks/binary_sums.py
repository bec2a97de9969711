"""Binary sums, the smallest probe of communication: tell a bit, then guess the sum of everybody's."""

import dataclasses
from collections.abc import Mapping
from functools import reduce
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmac.config import require
from dpmac.tasks.base import Scene, check_count
from dpmac.tasks.probes import COLOURS, ring


class SumState(NamedTuple):
    time: jax.Array
    bits: jax.Array
    """(agent,)"""


@dataclasses.dataclass(frozen=True)
class BinarySums:
    """Every agent holds a bit and gets minus the absolute error of its guess, an action from 0 to N.

    The first step, when no message can have arrived, pays nothing; with two steps there is one message that counts.
    """

    agents: int = 3
    prior: float = 0.5
    """P(b = 1) of each bit."""
    horizon: int = 2

    name: ClassVar[str] = "binary-sums"
    observation_size: ClassVar[int] = 3
    reward_unit: ClassVar[str] = "mean over agents of minus the absolute error of the guessed sum"
    observers: ClassVar[Mapping[str, str]] = {"bit": "Each agent alone observes its own bit."}

    def __post_init__(self) -> None:
        check_count("agents", self.agents, 2, 64)
        check_count("horizon", self.horizon, 2, 10_000)
        require(0 <= self.prior <= 1, f"prior must lie in [0, 1], not {self.prior}")

    @property
    def actions(self) -> int:
        return self.agents + 1

    @property
    def optimal_return(self) -> float:
        return self.best_return(0.0)

    @property
    def silent_return(self) -> float:
        return self.best_return(1.0)

    def best_return(self, p: float) -> float:
        """The best return where every bit is told once, by randomised response: with probability p a coin instead.

        >>> BinarySums().best_return(0.0), BinarySums().best_return(1.0)
        (0.0, -0.5)
        """
        others, error = self.agents - 1, 0.0
        say_one = self.prior * (1 - p / 2) + (1 - self.prior) * p / 2
        one_if_one = self.prior * (1 - p / 2) / say_one if say_one > 0 else 0.0
        one_if_zero = self.prior * p / 2 / (1 - say_one) if say_one < 1 else 0.0
        for heard, chance in enumerate(sum_of_bits([say_one] * others)):
            posterior = sum_of_bits([one_if_one] * heard + [one_if_zero] * (others - heard))
            errors = np.abs(np.arange(others + 1)[:, None] - np.arange(others + 1)) @ posterior
            error += chance * errors.min()
        return 0.0 - (self.horizon - 1) * float(error)  # 0 rather than −0

    def reset(self, key: jax.Array) -> SumState:
        return SumState(
            jnp.zeros((), jnp.int32), jax.random.bernoulli(key, self.prior, (self.agents,)).astype(jnp.int32)
        )

    def observe(self, state: SumState) -> jax.Array:
        """The bit as one of two ones; whether this is the first step."""
        first = jnp.full((self.agents, 1), state.time == 0, jnp.float32)
        return jnp.concatenate([jax.nn.one_hot(state.bits, 2), first], axis=1)

    def step(self, state: SumState, actions: jax.Array) -> tuple[SumState, jax.Array]:
        error = jnp.abs(actions - jnp.sum(state.bits)).astype(jnp.float32)
        return state._replace(time=state.time + 1), jnp.where(state.time > 0, -error, 0.0)

    def scripted(self, state: SumState) -> jax.Array:
        return jnp.full(self.agents, jnp.sum(state.bits))

    def secrets(self, state: SumState) -> dict[str, jax.Array]:
        return {"bit": state.bits}

    def scene(self, state: SumState) -> Scene:
        bits = state.bits.tolist()
        return ring([COLOURS[bit] for bit in bits], [f"{bit}" for bit in bits])


def sum_of_bits(chances: list[float]) -> np.ndarray:
    """Distribution (sum,) of the sum of independent bits, each 1 with its chance."""
    return reduce(np.convolve, ([1 - chance, chance] for chance in chances), np.ones(1))
