"""What an actor's outputs mean: a choice among actions, of which some may not be allowed, or numbers in [-1, 1].

Outputs are (…, output) and everything here is per action (…); `available` (…, action) says which actions are allowed,
None that all are.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from dpmac.agents.mechanisms import straight_through

FORBIDDEN = -1e9
"""Logit of an action that is not allowed."""
LEAST, MOST = -5.0, 2.0
"""Range of the logarithm of a deviation."""
START = -1.0
"""Logarithm of the deviation where the output is 0."""


@dataclass(frozen=True)
class Policy(ABC):
    """How actions follow from outputs and noise."""

    actions: int
    """How many actions there are, or how many numbers an action has."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Numbers that an actor gives for one action."""

    @abstractmethod
    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """What `sample` needs (*shape, action)."""

    @abstractmethod
    def best(self, outputs: Array, available: Array | None = None) -> Array:
        """The action of a team that does not explore."""

    @abstractmethod
    def sample(self, outputs: Array, noise: Array, available: Array | None = None) -> Array:
        """An action drawn by the policy."""

    @abstractmethod
    def relaxed(self, outputs: Array, noise: Array, available: Array | None = None) -> Array:
        """The same action as (…, action) numbers that can be differentiated."""

    @abstractmethod
    def anything(self, noise: Array, available: Array | None = None) -> Array:
        """An action drawn uniformly from those that are allowed."""

    @abstractmethod
    def coded(self, actions: Array) -> Array:
        """Actions as the (…, action) numbers that senders and critics take."""

    @abstractmethod
    def stored(self, actions: Array) -> Array:
        """Actions, sampled or relaxed, as replay keeps them."""

    @abstractmethod
    def log_probability(self, outputs: Array, actions: Array, available: Array | None = None) -> Array:
        """log π (…) of stored actions."""

    @abstractmethod
    def entropy(self, outputs: Array, available: Array | None = None) -> Array:
        """Entropy (…) of the policy."""


class Choice(Policy):
    """One of so many actions, by logits."""

    @property
    def outputs(self) -> int:
        return self.actions

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.gumbel(key, (*shape, self.actions))

    def best(self, outputs: Array, available: Array | None = None) -> Array:
        return jnp.argmax(allowed(outputs, available), axis=-1)

    def sample(self, outputs: Array, noise: Array, available: Array | None = None) -> Array:
        return jnp.argmax(allowed(outputs + noise, available), axis=-1)

    def relaxed(self, outputs: Array, noise: Array, available: Array | None = None) -> Array:
        noisy = allowed(outputs + noise, available)
        return straight_through(jax.nn.one_hot(jnp.argmax(noisy, axis=-1), self.actions), jax.nn.softmax(noisy))

    def anything(self, noise: Array, available: Array | None = None) -> Array:
        return jnp.argmax(allowed(noise, available), axis=-1)

    def coded(self, actions: Array) -> Array:
        return jax.nn.one_hot(actions, self.actions)

    def stored(self, actions: Array) -> Array:
        whole = jnp.issubdtype(actions.dtype, jnp.integer)
        kind = jnp.int8 if self.actions <= 128 else jnp.int16
        return (actions if whole else jnp.argmax(actions, axis=-1)).astype(kind)

    def log_probability(self, outputs: Array, actions: Array, available: Array | None = None) -> Array:
        log = jax.nn.log_softmax(allowed(outputs, available))
        return jnp.take_along_axis(log, actions[..., None].astype(int), axis=-1)[..., 0]

    def entropy(self, outputs: Array, available: Array | None = None) -> Array:
        log = jax.nn.log_softmax(allowed(outputs, available))
        return -jnp.sum(jnp.exp(log) * log, axis=-1)


class Squashed(Policy):
    """Numbers in [-1, 1]: the hyperbolic tangent of a Gaussian, whose means and deviations are the outputs."""

    @property
    def outputs(self) -> int:
        return 2 * self.actions

    def gaussian(self, outputs: Array) -> tuple[Array, Array]:
        """Means and logarithms of deviations (…, action)."""
        mean, deviation = jnp.split(outputs, 2, axis=-1)
        return mean, jnp.clip(deviation + START, LEAST, MOST)

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.normal(key, (*shape, self.actions))

    def best(self, outputs: Array, available: Array | None = None) -> Array:
        return jnp.tanh(self.gaussian(outputs)[0])

    def sample(self, outputs: Array, noise: Array, available: Array | None = None) -> Array:
        mean, deviation = self.gaussian(outputs)
        return jnp.tanh(mean + jnp.exp(deviation) * noise)

    def relaxed(self, outputs: Array, noise: Array, available: Array | None = None) -> Array:
        return self.sample(outputs, noise)

    def anything(self, noise: Array, available: Array | None = None) -> Array:
        return jax.scipy.special.erf(noise * 0.5**0.5)

    def coded(self, actions: Array) -> Array:
        return actions

    def stored(self, actions: Array) -> Array:
        return actions

    def log_probability(self, outputs: Array, actions: Array, available: Array | None = None) -> Array:
        mean, deviation = self.gaussian(outputs)
        inside = jnp.clip(actions, -1 + 1e-6, 1 - 1e-6)
        each = jax.scipy.stats.norm.logpdf(jnp.arctanh(inside), mean, jnp.exp(deviation)) - jnp.log1p(-(inside**2))
        return jnp.sum(each, axis=-1)

    def entropy(self, outputs: Array, available: Array | None = None) -> Array:
        """That of the Gaussian; the hyperbolic tangent's share has no closed form."""
        return jnp.sum(self.gaussian(outputs)[1] + 0.5 * jnp.log(2 * jnp.pi * jnp.e), axis=-1)


def allowed(logits: Array, available: Array | None) -> Array:
    """Logits (…, action), far below all others where an action is not allowed."""
    return logits if available is None else jnp.where(available, logits, FORBIDDEN)
