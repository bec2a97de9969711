"""The channels that agents use do what their accountant counts: white-box checks on what they release.

A sound channel fails a family of checks once in a hundred runs, so these tests count failures over many keys.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from dpmac import privacy
from dpmac.agents import mechanisms as channels
from dpmac.config import Channel
from dpmac.privacy import checks

AXES = (30, 8, 2)  # episode, time, agent
KEYS = 60
ALLOWED = binom.ppf(0.9999, KEYS, 0.01)


def releaser(spec, noise, messages, copies):
    """What the shipped channel makes of messages (episode, time, agent, feature), with an axis for copies, by key."""
    mechanism = channels.mechanism(spec, messages.shape[-1])
    scale = jax.tree.map(lambda leaf: leaf[0], channels.noise_scale(spec, (noise,)))
    one = jax.vmap(lambda message, c: mechanism.release(message, c, scale), in_axes=(None, 0))

    @jax.jit
    def release(key):
        return jax.vmap(jax.vmap(jax.vmap(one)))(messages, mechanism.draw(key, (*AXES, copies)))

    return lambda key: np.asarray(release(jax.random.key(key)))


def failing(check, release, keys=KEYS):
    return sum(bool(checks.failures(check(release(key)))) for key in range(keys))


@pytest.mark.parametrize("copies", [1, 3])
def test_gaussian_channel_fails_no_more_often_than_chance(copies):
    spec = Channel(copies=copies)
    sigma = privacy.calibrate(spec, 1.0, 1e-4, AXES[1])
    messages = jnp.asarray(np.random.default_rng(0).standard_normal((*AXES, 8)), jnp.float32)
    sent = np.asarray(channels.clip_to_norm(messages, spec.clip_norm))
    release = releaser(spec, sigma, messages, copies)
    assert failing(lambda released: checks.check_gaussian(sent, released, spec, sigma), release) <= ALLOWED


def test_code_channel_fails_no_more_often_than_chance():
    spec = Channel("code", symbols=4)
    sigma = privacy.calibrate(spec, 1.0, 1e-4, AXES[1])
    scores = np.random.default_rng(1).standard_normal((*AXES, 4)).astype(np.float32)
    sent = np.sqrt(2) * spec.clip_norm * np.eye(4)[scores.argmax(-1)]
    release = releaser(spec, sigma, jnp.asarray(scores), 1)
    assert failing(lambda released: checks.check_gaussian(sent, released, spec, sigma), release) <= ALLOWED


@pytest.mark.parametrize("symbols", [2, 3, 7])
def test_response_channel_fails_no_more_often_than_chance(symbols):
    spec = Channel("response", symbols=symbols)
    flip = privacy.calibrate(spec, 5.0, 1e-4, AXES[1])
    scores = np.random.default_rng(2).standard_normal((*AXES, symbols)).astype(np.float32)
    release = releaser(spec, flip, jnp.asarray(scores), 1)
    assert failing(lambda out: checks.check_response(scores.argmax(-1), out, spec, flip), release) <= ALLOWED


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.25])
def test_another_noise_than_declared_is_caught_at_every_key(factor):
    spec, sigma = Channel(), 3.0
    messages = jnp.asarray(np.random.default_rng(3).standard_normal((*AXES, 8)), jnp.float32)
    sent = np.asarray(channels.clip_to_norm(messages, spec.clip_norm))
    release = releaser(spec, factor * sigma, messages, 1)
    assert failing(lambda released: checks.check_gaussian(sent, released, spec, sigma), release, keys=10) == 10
