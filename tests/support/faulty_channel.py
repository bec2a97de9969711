"""A small reference of the shipped channels in NumPy, right unless told to be wrong."""

import math

import numpy as np

from dpmac.config import Channel

GAUSSIAN_FAULTS = (
    "no clipping",
    "clips the mean before sampling",
    "noise for C instead of 2C",
    "the same noise at every step",
    "fresh noise for two copies counted as one",
    "noise missing at the first step",
    "sigma squared",
    "sigma square-rooted",
    "one noise for all episodes",
    "one noise for all agents",
)
RESPONSE_FAULTS = (
    "flip probability times k/(k-1)",
    "flip probability times (k-1)/k",
    "flips to the next symbol only",
    "the same flips at every step",
    "noise missing at the first step",
    "confidence travels beside the symbol",
)


def clip(messages, clip_norm):
    norm = np.linalg.norm(messages, axis=-1, keepdims=True)
    return messages / np.maximum(1.0, norm / clip_norm)


def gaussian(means, spread, channel: Channel, sigma, rng, recipients=1, fault=None):
    """Messages right before the noise (episode, time, agent, feature) and after it (…, copy, feature).

    `means` and `spread` are those of a stochastic sender, whose sampled message is clipped last of all.
    """
    chance = rng.standard_normal(means.shape)
    sent = clip(means + spread * chance, channel.clip_norm)
    if fault == "no clipping":
        sent = means + spread * chance
    elif fault == "clips the mean before sampling":
        sent = clip(means, channel.clip_norm) + spread * chance
    amount = {
        "noise for C instead of 2C": sigma / 2,
        "sigma squared": sigma**2,
        "sigma square-rooted": math.sqrt(sigma),
    }
    fresh = recipients if channel.copies > 1 or fault == "fresh noise for two copies counted as one" else 1
    noise = amount.get(fault or "", sigma) * rng.standard_normal((*sent.shape[:3], fresh, sent.shape[-1]))
    if fault == "the same noise at every step":
        noise[:] = noise[:, :1]
    elif fault == "one noise for all episodes":
        noise[:] = noise[:1]
    elif fault == "one noise for all agents":
        noise[:] = noise[:, :, :1]
    elif fault == "noise missing at the first step":
        noise[:, 0] = 0
    released = np.broadcast_to(sent[..., None, :] + noise, (*sent.shape[:3], recipients, sent.shape[-1]))
    return sent, released


def response(symbols, channel: Channel, flip, rng, recipients=1, fault=None):
    """One-hot symbols (episode, time, agent, copy, symbol) of the given ones (episode, time, agent)."""
    k = channel.symbols
    factor = {"flip probability times k/(k-1)": k / (k - 1), "flip probability times (k-1)/k": (k - 1) / k}
    shape = (*symbols.shape, recipients if channel.copies > 1 else 1)
    flips = rng.random(shape) < flip * factor.get(fault or "", 1.0)
    if fault == "the same flips at every step":
        flips[:] = flips[:, :1]
    elif fault == "noise missing at the first step":
        flips[:, 0] = False
    shift = np.ones(shape, int) if fault == "flips to the next symbol only" else rng.integers(1, k, shape)
    released = np.eye(k)[(symbols[..., None] + np.where(flips, shift, 0)) % k]
    if fault == "confidence travels beside the symbol":
        released *= 1 - 1e-3 * rng.random(shape)[..., None]
    return np.broadcast_to(released, (*symbols.shape, recipients, k))
