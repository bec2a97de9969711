"""Particle physics: discs in the plane, pushed by their actions and by contact, slowed by damping.

Coordinates are arrays of their own (a structure of arrays): axes of length two at the end of every array would keep a
compiler from using the width of a processor.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Convention = Literal["openai", "mpe2"]

DT = 0.1
DAMPING = 0.25
"""Share of the velocity lost in a step."""
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3
"""How softly contact sets in."""
GAIN = 5.0
"""Force of an action; every mass is 1."""
ACTIONS = 5
"""Stay, left, right, down, up."""


class Bodies(NamedTuple):
    """Positions and velocities of moving bodies, each (body,)."""

    x: jax.Array
    y: jax.Array
    vx: jax.Array
    vy: jax.Array


class Points(NamedTuple):
    """Positions of landmarks, each (point,)."""

    x: jax.Array
    y: jax.Array


def uniform_points(key: jax.Array, *counts: int) -> list[Points]:
    """Groups of so many points each, drawn uniformly on [-1, 1]²."""
    x, y = jax.random.uniform(key, (2, sum(counts)), minval=-1, maxval=1)
    ends = np.cumsum(counts)[:-1]
    return [Points(*group) for group in zip(jnp.split(x, ends), jnp.split(y, ends), strict=True)]


def at_rest(points: Points) -> Bodies:
    return Bodies(points.x, points.y, jnp.zeros_like(points.x), jnp.zeros_like(points.y))


def push(actions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Directions (body,) and (body,) along x and y of actions (body,), or of weights (body, action) on all five."""
    if actions.ndim == 2:
        return actions[:, 2] - actions[:, 1], actions[:, 4] - actions[:, 3]
    x = (actions == 2).astype(jnp.float32) - (actions == 1).astype(jnp.float32)
    y = (actions == 4).astype(jnp.float32) - (actions == 3).astype(jnp.float32)
    return x, y


def distance(dx: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.sqrt(dx * dx + dy * dy)


def pairs(a: Bodies | Points, b: Bodies | Points) -> tuple[jax.Array, jax.Array]:
    """Differences (a, b) along x and y: from each of `a` to each of `b`."""
    return b.x[None, :] - a.x[:, None], b.y[None, :] - a.y[:, None]


def ring_pairs(bodies: Bodies, turn: int) -> tuple[jax.Array, jax.Array]:
    """Differences (body,) along x and y from the body `turn` places further round the ring, for each body. Turns from 1
    to half the number of bodies meet every pair once, which is half the work of all (body, body)."""
    return bodies.x - jnp.roll(bodies.x, -turn), bodies.y - jnp.roll(bodies.y, -turn)


def contact_forces(bodies: Bodies, radius: float) -> tuple[jax.Array, jax.Array]:
    """Forces (body,) and (body,) that push discs of one radius apart; two at the very same point do not push."""
    count = len(bodies.x)
    fx, fy = jnp.zeros_like(bodies.x), jnp.zeros_like(bodies.y)
    for turn in range(1, count // 2 + 1):
        dx, dy = ring_pairs(bodies, turn)
        gap = distance(dx, dy)
        penetration = CONTACT_MARGIN * softplus((2 * radius - gap) / CONTACT_MARGIN)
        strength = CONTACT_FORCE * penetration / jnp.maximum(gap, 1e-30)
        px, py = strength * dx, strength * dy
        fx, fy = fx + px, fy + py
        if 2 * turn != count:  # half-way round each pair has been met from both sides
            fx, fy = fx - jnp.roll(px, turn), fy - jnp.roll(py, turn)
    return fx, fy


def softplus(x: jax.Array) -> jax.Array:
    """log(1 + eˣ) without overflow. Below 1e-7 it is 0: a force too small to matter."""
    return jnp.maximum(x, 0) + jnp.log(1 + jnp.exp(-jnp.abs(x)))


def contacts(bodies: Bodies, radius: float) -> jax.Array:
    """How many others (body,) each disc of one radius overlaps."""
    count = len(bodies.x)
    found = jnp.zeros_like(bodies.x)
    for turn in range(1, count // 2 + 1):
        dx, dy = ring_pairs(bodies, turn)
        touching = (dx * dx + dy * dy < (2 * radius) ** 2).astype(jnp.float32)
        found = found + touching
        if 2 * turn != count:
            found = found + jnp.roll(touching, turn)
    return found


def nearest(dx: jax.Array, dy: jax.Array, axis: int) -> jax.Array:
    """Distances to the nearest along an axis of differences along x and y."""
    return jnp.sqrt(jnp.min(dx * dx + dy * dy, axis=axis))


def integrate(bodies: Bodies, fx: jax.Array, fy: jax.Array, convention: Convention) -> Bodies:
    """One step of time under forces (body,): `openai` moves with the new velocity, `mpe2` with the old one."""
    vx, vy = (1 - DAMPING) * bodies.vx + DT * fx, (1 - DAMPING) * bodies.vy + DT * fy
    moving_x, moving_y = (vx, vy) if convention == "openai" else (bodies.vx, bodies.vy)
    return Bodies(bodies.x + DT * moving_x, bodies.y + DT * moving_y, vx, vy)


def glide(bodies: Bodies, actions: jax.Array, convention: Convention) -> Bodies:
    """One step of bodies that pass through each other."""
    ux, uy = push(actions)
    return integrate(bodies, GAIN * ux, GAIN * uy, convention)


def seen(dx: jax.Array, dy: jax.Array, view_radius: float) -> list[jax.Array]:
    """Features (observer, thing) of relative positions: x and y; under a finite radius also a flag, 1 where the thing
    is in view and 0 where it is not, and then x and y are 0."""
    if math.isinf(view_radius):
        return [dx, dy]
    visible = distance(dx, dy) <= view_radius
    return [jnp.where(visible, dx, 0), jnp.where(visible, dy, 0), visible.astype(jnp.float32)]


def seen_size(things: int, view_radius: float) -> int:
    """Features that `seen` gives for so many things."""
    return things * (2 if math.isinf(view_radius) else 3)


def observation(own: Sequence[jax.Array], *things: Sequence[jax.Array]) -> jax.Array:
    """Observations (agent, feature): one's own columns (agent,), then thing by thing the features (agent, thing)."""
    flat = [jnp.stack(features, axis=2).reshape(len(features[0]), -1) for features in things]
    return jnp.concatenate([jnp.stack(own, axis=1), *flat], axis=1)


def others(values: jax.Array) -> jax.Array:
    """What (body, body) says about the others (body, body - 1): the diagonal left out, the order kept."""
    count = values.shape[0]
    later = np.arange(count - 1)[None, :] >= np.arange(count)[:, None]
    return jnp.where(later, values[:, 1:], values[:, :-1])


def steer(bodies: Bodies, goal: Points, lead: float = 0.15, gain: float = GAIN) -> jax.Array:
    """Actions (body,) that bring each body towards its goal: the push after which it would, `lead` seconds on, be
    closest."""
    ux, uy = push(jnp.arange(ACTIONS))
    vx = (1 - DAMPING) * bodies.vx[:, None] + DT * gain * ux
    vy = (1 - DAMPING) * bodies.vy[:, None] + DT * gain * uy
    ahead = distance(bodies.x[:, None] + lead * vx - goal.x[:, None], bodies.y[:, None] + lead * vy - goal.y[:, None])
    return jnp.argmin(ahead, axis=1)
