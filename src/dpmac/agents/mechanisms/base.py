"""What all array twins have in common."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac.config import Channel
from dpmac.privacy import mechanisms as hosts
from dpmac.privacy.mechanisms import base


class NoiseScale(NamedTuple):
    """How much noise a sender adds; traced, so that one compiled program serves all budgets."""

    value: Array
    """The noise scale, such as σ or a flip probability: what receivers may be told."""
    parameters: Any
    """What the host class makes of it for a release (`Mechanism.parameters`); zeros: messages leave as they are."""


def aside(key: Array) -> Array:
    """A key beside all that `split` makes of this one, of which `fold_in` with a small number is one."""
    return jax.random.fold_in(key, 2**32 - 1)


def draw_rows(table: NoiseScale, keys: Array) -> NoiseScale:
    """Noise scales (episode, agent) drawn from a table (row, agent) by each episode's key; a single row as it is."""
    rows = table.value.shape[0]
    if rows == 1:
        return jax.tree.map(lambda x: x[0], table)
    which = jax.vmap(lambda key: (jax.random.uniform(aside(key)) * rows).astype(int))(keys)
    return jax.tree.map(lambda x: x[which], table)


def clip_to_norm(message: Array, clip_norm: float) -> Array:
    """Scale a message (…, feature) down to L2 norm clip_norm; shorter ones are left as they are, up to rounding.

    A message with a number that is not finite becomes zeros. Squares are taken of numbers of at most 1, so that neither
    long messages nor short norms leave the range of float32.
    """
    finite = jnp.all(jnp.isfinite(message), axis=-1, keepdims=True)
    message = jnp.where(finite, message, 0.0)
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(message), axis=-1, keepdims=True, initial=clip_norm))
    shrink = jnp.where(largest > 2.0**64, 2.0**-64, 1.0)  # the reciprocal of the largest numbers would be flushed
    scaled, most = message * shrink / (largest * shrink), clip_norm / largest
    squared = jnp.sum(jnp.square(scaled), axis=-1, keepdims=True)
    # The largest factor is 1, where the root's argument is most², so its slope at 0 never matters.
    return scaled * (clip_norm * jax.lax.rsqrt(jnp.maximum(squared, jnp.square(most))))


def straight_through(hard: Array, soft: Array) -> Array:
    """The value of hard, bit for bit, with the gradient of soft."""
    return jax.lax.stop_gradient(hard) + (soft - jax.lax.stop_gradient(soft))


def choose(scores: Array) -> Array:
    """The symbol of the largest score, one-hot and exactly so, with the gradient of the soft-max.

    Where any score is not finite it is symbol 0, and there is no gradient.
    """
    count = scores.shape[-1]
    symbol = base.one_hot(jnp, base.choose(jnp, scores), count)
    return straight_through(symbol, jax.nn.softmax(base.finite(jnp, scores)))


class Mechanism(eqx.Module):
    """One way to privatise a message, for one message of one agent; `vmap` makes many."""

    spec: Channel = eqx.field(static=True)
    size: int = eqx.field(static=True)
    """Numbers that a sender must produce, and that are released."""

    @property
    def host(self) -> base.Mechanism:
        """The host side, which knows how to release."""
        return hosts.of(self.spec)

    def draw(self, key: Array, shape: tuple[int, ...]) -> Any:
        """Randomness for messages of this shape (…)."""
        raise NotImplementedError

    def release(self, message: Array, draws: Any, scale: NoiseScale) -> Array:
        """What leaves the agent (size,), for what its sender produced (size,); where the mechanism remembers, for all
        that it has produced (time, size), newest first."""
        raise NotImplementedError

    def held(self, released: Array) -> Array:
        """What is out (use, …, size) after each release of an episode, for what its slots released by themselves."""
        if type(self.host).keeps is base.Mechanism.keeps:
            return released

        def keep(last: Array, now: Array) -> tuple[Array, Array]:
            last = self.host.keeps(jnp, last, now)
            return last, last

        return jax.lax.scan(keep, jnp.zeros_like(released[0]), released)[1]

    def windows(self, messages: Array) -> Array:
        """What releases and decoding take at each of an episode's uses (use, …, size): messages as they are, or where
        the mechanism remembers with all before them (use, …, use, size), newest first, and zeros beyond the first."""
        if not self.host.remembers:
            return messages
        uses = np.arange(len(messages))
        back = uses[:, None] - uses
        there = (back >= 0).reshape(*back.shape, *(1,) * (messages.ndim - 1))
        return jnp.moveaxis(jnp.where(there, messages[np.maximum(back, 0)], 0.0), 1, -2)

    def decode(self, released: Array, scale: NoiseScale) -> Array:
        """What a receiver that knows the channel makes of a released message (size,)."""
        raise NotImplementedError

    def heard(self, released: Array, scale: NoiseScale, aware: bool) -> Array:
        """What a receiver takes in (size,) of a released message: decoded where it is aware of the noise scale.

        Where the mechanism remembers, all releases so far are decoded (time, size), if unaware as if free of noise.
        """
        if self.host.remembers and not aware:
            return self.decode(released, scale._replace(value=jnp.zeros_like(scale.value)))
        return self.decode(released, scale) if aware else released

    def noiseless(self, draws: Any, scale: NoiseScale) -> tuple[Any, NoiseScale]:
        """Randomness and scale under which the channel does everything but add noise."""
        raise NotImplementedError

    def law(self, message: Array, scale: NoiseScale) -> Array | None:
        """Probabilities (outcome,) of the few values that may be released, each one-hot, with a gradient; None where
        there are more."""
        return None

    def added(self, draws: Any, scale: NoiseScale) -> Array | None:
        """The noise (size,) that is added to a message; None where noise is nothing that is added."""
        return None

    def clipped(self, message: Array) -> Array:
        """A message (…, size) within what the channel allows before the noise, which a broken one may forget."""
        return message


class Additive(Mechanism):
    """A message on a grid plus Gaussian noise; `draw` gives standard normal numbers (…, size)."""

    def draw(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.normal(key, (*shape, self.size))

    def steps(self, draws: Array, scale: NoiseScale) -> Array:
        """Noise in whole steps of the grid."""
        return jnp.rint(scale.parameters.deviation * draws).astype(jnp.int32)

    def hard(self, message: Array, draws: Array, scale: NoiseScale) -> Array:
        """What leaves, without a gradient."""
        message = jax.lax.stop_gradient(message)
        return self.host.released(jnp, message, self.steps(draws, scale), scale.parameters)

    def noiseless(self, draws: Array, scale: NoiseScale) -> tuple[Array, NoiseScale]:
        return jnp.zeros_like(draws), scale

    def added(self, draws: Array, scale: NoiseScale) -> Array:
        return self.steps(draws, scale) * scale.parameters.step


class Symbols(Mechanism):
    """Symbols through a channel whose randomness is words (…, word, 2) of 64 bits, high and low."""

    def draw(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jnp.moveaxis(jax.random.bits(key, (self.host.words, *shape, 2), jnp.uint32), 0, -2)  # type: ignore[attr-defined]

    def release(self, message: Array, draws: Array, scale: NoiseScale) -> Array:
        """The mean of what is released is linear in the symbol, so the gradient is that of the mean over all noise."""
        hard = self.host.released(jnp, jax.lax.stop_gradient(message), draws, scale.parameters)
        return straight_through(hard, choose(message) * self.slope(scale))

    def slope(self, scale: NoiseScale) -> Array:
        """How much of the symbol is in the mean of what is released."""
        raise NotImplementedError

    def noiseless(self, draws: Array, scale: NoiseScale) -> tuple[Array, NoiseScale]:
        return draws, scale._replace(parameters=jax.tree.map(jnp.zeros_like, scale.parameters))
