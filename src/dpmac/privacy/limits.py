"""What a channel can carry at a given noise, and what an eavesdropper on a whole episode can make of it.

The secret is one of k = `channel.symbols` values, all as likely, and stands in every message.
"""

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
from scipy.special import gammaln, log_ndtr, xlogy

from dpmac.config import Channel, Release, require, whole
from dpmac.privacy import accounting, mechanisms
from dpmac.privacy import loss as losses


def signal_to_noise(channel: Channel, noise: float, size: int) -> float:
    """Largest energy of a message over that of its noise; the copies of a message add up."""
    return mechanisms.of(channel).signal_to_noise(noise, size) if noise else math.inf


def bits_per_episode(channel: Channel, noise: float, size: int, horizon: int) -> float:
    """The most that an episode's messages can tell, in bits: the capacity of the channel, or an upper bound on it."""
    return mechanisms.of(channel).bits(noise, size, horizon)


def entropy(probability: float) -> float:
    """Of one flip, in bits."""
    return -sum(p * math.log2(p) for p in (probability, 1 - probability) if p > 0)


def eavesdropper_accuracy(channel: Channel, noise: float, horizon: int) -> float:
    """Best guess of the secret from all messages of an episode.

    Gaussian channels place the k values as far apart as they can: on a simplex, whose points are √(2k/(k−1))·C from
    each other in a ball of radius C, and 2C in a code book. Channels of symbols repeat the value in every message; one
    that does not know its best attack gives what no attack exceeds.

    >>> round(eavesdropper_accuracy(Channel(clip_norm=0.5), noise=15.93, horizon=25), 3)
    0.389
    """
    return mechanisms.of(channel).eavesdropper(noise, channel.uses(horizon) * channel.sent) if noise else 1.0


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
    require(whole(secrets, 1), f"a secret has at least one value, and a whole number of them, not {secrets}")
    require(epsilon >= 0, f"epsilon must be at least 0, not {epsilon}")
    rest = (secrets - 1) * math.exp(-epsilon)
    return (1 + rest * delta) / (1 + rest)


def transcript_accuracy(release: Release, secrets: int) -> float:
    """The best guess of one of k secrets, all as likely, that everything a release lets out can allow.

    The least of `private_accuracy` over many (ε, δ) that are true of it. For two secrets the best eavesdropper on
    worst-case inputs comes that far; for three or more this is an upper bound, which even the best may stay below. The
    secret may change all of the one sender's inputs.

    >>> round(transcript_accuracy(Release(Channel(clip_norm=0.5), noise=15.93, horizon=25), 3), 3)
    0.411
    """
    return accounting.mechanism_of(release).best_guess(release, secrets)


def joint_accuracy(releases: Iterable[Release], secrets: int) -> float:
    """The same for whoever hears several senders at once: the secret may change all inputs of all of them.

    >>> release = Release(Channel(clip_norm=0.5), noise=15.93, horizon=25)
    >>> round(joint_accuracy([release], 3), 3), round(joint_accuracy([release, release], 3), 3)
    (0.411, 0.443)
    """
    loss = accounting.composed(Counter(releases))
    if loss.infinite == 1:
        return 1.0
    top = losses.epsilon_of(loss, 1e-9)
    corners = np.unique(loss.values[(loss.values >= 0) & (loss.values <= top)])[:2000]
    tried = np.concatenate([np.linspace(0.0, top, 400), corners])
    return min(private_accuracy(float(at), losses.delta_of(loss, float(at)), secrets) for at in tried)
