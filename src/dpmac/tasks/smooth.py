"""JaxMARL's particles with a gradient, for the learner `pathwise`: the same steps, of actions that may be weighted.

Two things keep JaxMARL's own step from being differentiated. It divides by distances and speeds that are 0 where the
result is not used, and there the backward pass is not a number. And its discrete actions are whole numbers; but each is
a corner of its continuous ones, so weights on actions are a point between these corners.
"""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

ENVIRONMENTS = ("MPE_simple_spread_v3", "MPE_simple_reference_v3")
"""Environments of which tests compare the gradient with differences."""
MOVES = 5
"""Stay, left, right, down, up; every further action is one of these with a word."""


class Smooth:
    """What stands before an environment's own methods."""

    def _get_collision_force(self: Any, idx_a: Array, idx_b: Array, state: Any) -> Array:
        """Nobody pushes itself: ask about another one, and forget the answer."""
        itself = idx_a == idx_b
        other = jnp.where(itself, (idx_b + 1) % self.num_entities, idx_b)
        return jnp.where(itself, 0.0, super()._get_collision_force(idx_a, other, state))  # type: ignore[misc]

    def _integrate_state(
        self: Any, force: Array, place: Array, velocity: Array, mass: Array, moveable: Array, most: Array
    ) -> tuple[Array, Array]:
        """Places and velocities (body, 2) after a step; `most` (body,) is the highest speed, none below 0."""
        after = velocity * (1 - self.damping) + (force / mass[:, None]) * self.dt * moveable[:, None]
        square = jnp.sum(jnp.square(after), axis=-1)
        fast = (most >= 0) & (square > jnp.square(most))
        slowed = after * (most / jnp.sqrt(jnp.where(fast, square, 1.0)))[:, None]
        return place + velocity * self.dt, jnp.where(fast[:, None], slowed, after)


@cache
def twin(env: Any, settings: tuple[tuple[str, Any], ...]) -> Any:
    """The environment that was made with these settings, with a gradient and continuous actions."""
    kind = type(f"Smooth{type(env).__name__}", (Smooth, type(env)), {})
    with jax.ensure_compile_time_eval():  # it may be asked for while a step is traced
        return kind(**{**dict(settings), "action_type": "Continuous"})


def blended(weights: Array, actions: int) -> Array:
    """Weights (agent, action) on the first of so many discrete actions as continuous ones (agent, number): how much of
    each move, then of each word, where there are words.

    >>> blended(jnp.array([[0.0, 0.25, 0.75]]), 50)[0, :7].tolist()
    [0.0, 0.25, 0.75, 0.0, 0.0, 1.0, 0.0]
    """
    each = jnp.pad(weights, ((0, 0), (0, actions - weights.shape[1]))).reshape(len(weights), -1, MOVES)
    moves, words = jnp.sum(each, axis=1), jnp.sum(each, axis=2)
    return moves if actions == MOVES else jnp.concatenate([moves, words], axis=1)
