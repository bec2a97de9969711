"""What a channel can carry at a given noise, and what an eavesdropper on a whole episode can make of it.

The secret is one of k = `channel.symbols` values, all as likely, and stands in every message.
"""

import math

import numpy as np
from scipy.special import gammaln, log_ndtr, xlogy

from dpmac.config import Channel, Release
from dpmac.privacy import accounting


def signal_to_noise(channel: Channel, noise: float, size: int) -> float:
    """Largest energy of a message over that of its noise; the copies of a message add up."""
    if noise == 0:
        return math.inf
    if channel.mechanism == "response":
        return (1 - noise) / noise
    energy, numbers = channel.clip_norm**2, size
    if channel.mechanism == "code":
        energy, numbers = 2 * energy * (1 - 1 / channel.symbols), channel.symbols - 1
    return channel.sent * energy / (numbers * noise**2)


def bits_per_episode(channel: Channel, noise: float, size: int, horizon: int) -> float:
    """The most that an episode's messages can tell, in bits: the capacity of the channel, or an upper bound on it."""
    uses, k = channel.uses(horizon), channel.symbols
    if channel.mechanism == "response":
        return channel.sent * uses * (math.log2(k) - entropy(noise) - noise * math.log2(k - 1))
    numbers = size if channel.mechanism == "gaussian" else k - 1
    capacity = uses * numbers / 2 * math.log2(1 + signal_to_noise(channel, noise, size)) if noise else math.inf
    return capacity if channel.mechanism == "gaussian" else min(capacity, uses * math.log2(k))


def entropy(probability: float) -> float:
    """Of one flip, in bits."""
    return -sum(p * math.log2(p) for p in (probability, 1 - probability) if p > 0)


def eavesdropper_accuracy(channel: Channel, noise: float, horizon: int) -> float:
    """Best guess of the secret from all messages of an episode.

    Gaussian channels place the k values as far apart as they can: on a simplex, whose points are √(2k/(k−1))·C from
    each other in a ball of radius C, and 2C in a code book. Randomised response repeats the value in every message.

    >>> round(eavesdropper_accuracy(Channel(clip_norm=0.5), noise=15.93, horizon=25), 3)
    0.389
    """
    if noise == 0:
        return 1.0
    k, values = channel.symbols, channel.uses(horizon) * channel.sent
    if channel.mechanism == "response":
        return plurality_accuracy(noise, values, k)
    apart = 2.0 if channel.mechanism == "code" else math.sqrt(2 * k / (k - 1))
    return simplex_accuracy(apart * channel.clip_norm * math.sqrt(values) / noise, k)


def simplex_accuracy(distance: float, secrets: int) -> float:
    """∫ φ(x − D/√2)·Φ(x)^{k−1} dx: telling k points apart that are D standard deviations from each other."""
    points, weights = np.polynomial.hermite_e.hermegauss(200)
    right = np.exp((secrets - 1) * log_ndtr(points + distance / math.sqrt(2)))
    return min(1.0, float(weights @ right / math.sqrt(2 * math.pi)))


def plurality_accuracy(flip: float, values: int, symbols: int) -> float:
    """How often the commonest of n flipped symbols is the one that was sent, ties broken by chance; n = 1 gives 1 − f.

    Counts are Poisson variables given their sum n. With x for the true symbol and K = k − 1 others at most x, splitting
    ties gives Σ_t C(K,t)/(t+1)·bᵗ·A^{K−t} = Σ_i (A+b)ⁱA^{K−i}/k, A and b generating counts below x and equal to x.
    """
    counts = np.arange(values + 1)
    true, other = poisson(counts, values * (1 - flip)), poisson(counts, values * flip / (symbols - 1))
    accuracy = 0.0
    for x in counts:
        below, upto = np.where(counts < x, other, 0), np.where(counts <= x, other, 0)
        power, total = np.ones(1), np.ones(1)
        for _ in range(symbols - 1):
            power = np.convolve(power, below)[: values + 1]
            total = np.convolve(total, upto)[: values + 1] + power
        accuracy += true[x] * total[values - x]
    return float(accuracy / symbols / poisson(counts, values)[values])


def poisson(counts: np.ndarray, mean: float) -> np.ndarray:
    """Probability of each count."""
    return np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1))


def private_accuracy(epsilon: float, delta: float, secrets: int) -> float:
    """(e^ε + (k−1)δ)/(e^ε + k − 1): the best guess that any (ε, δ)-DP transcript allows.

    Sum P_i(A_i) ≤ e^ε·P_j(A_i) + δ over all pairs of values i ≠ j, where A_i is the event that i is guessed.

    >>> round(private_accuracy(1.0, 1e-4, 3), 3)
    0.576
    """
    rest = (secrets - 1) * math.exp(-epsilon)
    return (1 + rest * delta) / (1 + rest)


def transcript_accuracy(release: Release, secrets: int) -> float:
    """The best guess of one of k secrets, all as likely, that everything a release lets out can allow.

    The least of `private_accuracy` over all (ε, δ) that are true of it, which is exact for two secrets, and for three
    or more the guess of no eavesdropper exceeds it. The secret may change all of the one sender's inputs.

    >>> round(transcript_accuracy(Release(Channel(clip_norm=0.5), noise=15.93, horizon=25), 3), 3)
    0.411
    >>> round(transcript_accuracy(Release(Channel("response", period=0), noise=2 / (math.e + 2)), 3), 3)
    0.576
    """
    if accounting.unprotected(release):
        return 1.0
    tried = np.linspace(0.0, accounting.epsilon(release, 1e-9), 400)
    pure = accounting.pure_epsilon(release)
    if math.isfinite(pure):  # δ(ε) of symbols has corners at multiples of what one of them costs
        each = pure / accounting.count(release)
        tried = each * np.arange(math.ceil(tried[-1] / each) + 1)
    return min(private_accuracy(epsilon, accounting.delta(release, epsilon), secrets) for epsilon in map(float, tried))
