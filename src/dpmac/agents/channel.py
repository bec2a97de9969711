"""The private channel: what is done to a message between its sender and everybody else.

A channel is built from the same `config.Channel` that `privacy.accounting` puts a price on. Its chance is drawn in
advance (`draw`) and handed in, so that `release` is a plain function: experiments draw from a key, deployed agents from
the operating system, and tests from whatever they plant.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac.config import BadInput, Channel


class Level(NamedTuple):
    """How much noise a sender adds; traced, so that one compiled program serves all budgets."""

    amount: Array
    """σ, or the flip probability of randomised response; 0 releases messages as they are."""
    threshold: Array
    """(2,) uint32, high and low word of flip probability · 2⁶⁴: float32 cannot draw events rarer than 1e-8."""


def levels(spec: Channel, noise: tuple[float, ...]) -> Level:
    """Levels (agent,) of the noise that the privacy package calibrated for each agent."""
    thresholds = [0] * len(noise)
    if spec.mechanism == "response":
        for agent, flip in enumerate(noise):
            if 0 < flip < 2**-64:
                raise BadInput(
                    f"a flip probability of {flip:.3g} is below 2^-64 and cannot be drawn; use inf or less ε"
                )
            thresholds[agent] = min(math.ceil(flip * 2**64), 2**64 - 1)
    words = np.array([[value >> 32, value & 0xFFFFFFFF] for value in thresholds], np.uint32)
    return Level(jnp.asarray(noise, jnp.float32), jnp.asarray(words))


def draw_levels(table: Level, keys: Array) -> Level:
    """Levels (episode, agent) drawn from a table (row, agent) by each episode's key; a single row as it is (agent,)."""
    rows = table.amount.shape[0]
    if rows == 1:
        return jax.tree.map(lambda x: x[0], table)
    which = jax.vmap(lambda key: (jax.random.uniform(jax.random.fold_in(key, 1)) * rows).astype(int))(keys)
    return jax.tree.map(lambda x: x[which], table)


def clip_to_norm(message: Array, clip_norm: float) -> Array:
    """Scale a message (…, feature) down to L2 norm clip_norm; shorter ones are left as they are."""
    squared = jnp.sum(jnp.square(message), axis=-1, keepdims=True)
    # The largest factor is 1, where the root's argument is clip_norm², so its slope at 0 never matters.
    return message * (clip_norm * jax.lax.rsqrt(jnp.maximum(squared, clip_norm**2)))


def straight_through(hard: Array, soft: Array) -> Array:
    """The value of hard, bit for bit, with the gradient of soft."""
    return hard + (soft - jax.lax.stop_gradient(soft))


class Mechanism(eqx.Module):
    """One way to privatise a message; a new one is a subclass and a line in `MECHANISMS`."""

    spec: Channel = eqx.field(static=True)
    size: int = eqx.field(static=True)
    """Numbers that a sender must produce, and that are released."""

    def draw(self, key: Array, shape: tuple[int, ...]) -> Any:
        """Chance for messages of this shape (…): standard normal numbers (…, size)."""
        return jax.random.normal(key, (*shape, self.size))

    def release(self, message: Array, chance: Any, level: Level) -> Array:
        """What leaves the agent (size,), for what its sender produced (size,)."""
        raise NotImplementedError

    def read(self, released: Array, level: Level) -> Array:
        """What a receiver that knows the channel makes of a released message (size,)."""
        raise NotImplementedError


class Gaussian(Mechanism):
    """Clip the sampled message to norm C, last of all, and add N(0, σ²I)."""

    def release(self, message: Array, chance: Array, level: Level) -> Array:
        private = clip_to_norm(message, self.spec.clip_norm) + level.amount * chance
        return jnp.where(level.amount > 0, private, message)

    def read(self, released: Array, level: Level) -> Array:
        """The posterior mean under a prior of the largest variance that clipping allows, C²/d in each number."""
        prior = self.spec.clip_norm**2 / self.size
        return released * (prior / (prior + level.amount**2))


class Code(Mechanism):
    """One of k points at distance exactly Δ = 2C from each other, plus N(0, σ²I): no point of the ball is wasted."""

    def release(self, message: Array, chance: Array, level: Level) -> Array:
        return jnp.sqrt(2.0) * self.spec.clip_norm * choose(message) + level.amount * chance

    def read(self, released: Array, level: Level) -> Array:
        """Posterior over symbols under a uniform prior, centred; scores are ⟨y, c⟩/σ², all points being as long."""
        scale = jnp.sqrt(2.0) * self.spec.clip_norm
        # With no noise the posterior is certain; a floor keeps that finite.
        posterior = jax.nn.softmax(released * scale / jnp.maximum(level.amount**2, 1e-3 * scale**2))
        return posterior - 1 / self.size


class Flips(NamedTuple):
    """Chance of randomised response: 64 random bits that decide whether to flip, and 64 that choose to what."""

    keep: Array
    other: Array


class Response(Mechanism):
    """k-ary randomised response: the symbol, or with the flip probability one of the others, each as likely.

    What is released is one-hot with exactly k bit patterns, which is the integer `argmax` and nothing else.
    """

    def draw(self, key: Array, shape: tuple[int, ...]) -> Flips:
        return Flips(*jax.random.bits(key, (2, *shape, 2), jnp.uint32))

    def release(self, message: Array, chance: Flips, level: Level) -> Array:
        symbol = choose(message)
        high, low = chance.keep[0], chance.keep[1]
        flip = (high < level.threshold[0]) | ((high == level.threshold[0]) & (low < level.threshold[1]))
        # 64 bits modulo k - 1, in 32-bit words: exact but for a bias below k · 2⁻⁶⁴.
        others = jnp.uint32(self.size - 1)
        shift = (
            1 + (((chance.other[0] % others) * jnp.uint32(2**32 % (self.size - 1))) + chance.other[1] % others) % others
        )
        index = jnp.arange(self.size, dtype=jnp.uint32)
        moved = symbol[(index + self.size - shift) % self.size]
        hard = jax.lax.stop_gradient(jnp.where(flip, moved, symbol))
        # E[released] is linear in the symbol, so this is the gradient of the mean over flips.
        return straight_through(hard, symbol * (1 - level.amount * self.size / (self.size - 1)))

    def read(self, released: Array, level: Level) -> Array:
        """Posterior over symbols under a uniform prior, centred."""
        return (released - 1 / self.size) * (1 - level.amount * self.size / (self.size - 1))


def choose(scores: Array) -> Array:
    """The symbol of the largest score, one-hot and exactly so, with the gradient of the soft-max."""
    return straight_through(jax.nn.one_hot(jnp.argmax(scores), scores.shape[-1]), jax.nn.softmax(scores))


MECHANISMS: dict[str, type[Mechanism]] = {"gaussian": Gaussian, "response": Response, "code": Code}


def mechanism(spec: Channel, message_size: int) -> Mechanism:
    """The channel that a description names; symbols are as wide as their alphabet."""
    return MECHANISMS[spec.mechanism](spec, message_size if spec.mechanism == "gaussian" else spec.symbols)
