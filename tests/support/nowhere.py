"""Tasks of a user that go wrong."""

import dataclasses

import jax.numpy as jnp

from dpmac.tasks.probes import ProbeListen


@dataclasses.dataclass(frozen=True)
class Blind(ProbeListen):
    """From the third step on, agents observe NaN."""

    name = "blind"

    def observe(self, state):
        return jnp.where(state.time > 1, jnp.nan, super().observe(state))
