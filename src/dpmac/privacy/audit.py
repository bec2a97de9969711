"""Lower bounds on ε from samples of a channel: what an attacker did achieve, with a stated confidence.

One sample is the transcript of one whole unit (an episode's messages). The attacker's statistic and thresholds are
fixed before the data that are counted are drawn. A bound above a claimed ε refutes the claim; one below proves nothing.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv, chdtr, chdtrc, kolmogorov, ndtr, ndtri

from dpmac.config import Release, check_delta, check_seed, require, whole
from dpmac.privacy import loss as losses
from dpmac.privacy import mechanisms

Sampler = Callable[[int, int, np.random.Generator], np.ndarray]
"""sample(side, episodes, rng): transcripts (episode, …) of input 0 or its neighbour 1."""
Statistic = Callable[[np.ndarray], np.ndarray]
"""statistic(transcripts): one number for each (episode,), larger where side 0 is likelier."""

BLOCK = 20_000
"""Episodes sampled at once, so that a million transcripts need not fit into memory."""


class Bound(NamedTuple):
    """What an audit found: with this confidence the channel's ε at δ is at least `epsilon`."""

    epsilon: float
    delta: float
    confidence: float
    episodes: int
    """Per side, counted; those that fixed statistic and thresholds are not among them."""
    method: str


def clopper_pearson(detections: Any, alarms: Any, episodes: int, delta: float, confidence: float) -> Any:
    """log[(p_low − δ)/q_high] from x of n detections on one side and y of n on the other; −inf where nothing is shown.

    >>> round(float(clopper_pearson(900, 100, 1000, 1e-4, 0.95)), 3)
    1.99
    """
    x, y, tail = np.asarray(detections), np.asarray(alarms), (1 - confidence) / 2
    low = np.where(x > 0, betaincinv(np.maximum(x, 1), episodes - x + 1, tail), 0.0)
    high = np.where(y < episodes, betaincinv(y + 1, np.maximum(episodes - y, 1), 1 - tail), 1.0)
    return np.where(low > delta, np.log(np.maximum(low - delta, 1e-300) / high), -np.inf)


def audit_channel(
    sample: Sampler,
    delta: float,
    episodes: int,
    confidence: float = 0.95,
    statistic: Statistic | None = None,
    seed: int = 0,
) -> Bound:
    """A bound that assumes nothing about the channel: thresholds from a fifth more data, both directions.

    Without a `statistic`, a linear one is fitted to that separate data too.
    """
    rng = check_audit(delta, episodes, confidence, seed)
    fitted = max(50, episodes // 5)
    statistic = statistic or fit_linear(sample, min(fitted, BLOCK), rng)
    first, second = (collect(sample, statistic, side, fitted, rng) for side in (0, 1))
    each = 1 - (1 - confidence) / 2  # the better of two directions is taken, so each gets half of the error
    above = best_threshold(first, second, episodes, delta, each)
    below = -best_threshold(-second, -first, episodes, delta, each)
    first, second = (collect(sample, statistic, side, episodes, rng) for side in (0, 1))
    hits, alarms = [(first >= above).sum(), (second <= below).sum()], [(second >= above).sum(), (first <= below).sum()]
    found = float(clopper_pearson(hits, alarms, episodes, delta, each).max())
    return Bound(max(0.0, found), delta, confidence, episodes, "distribution-free")


def audit_gaussian(
    sample: Sampler,
    delta: float,
    episodes: int,
    sigma: float,
    direction: np.ndarray,
    confidence: float = 0.95,
    seed: int = 0,
) -> Bound:
    """The tighter bound for a Gaussian channel of known σ: μ_low = μ̂ − z·√(2/n), from means along a fixed direction.

    `direction` (…) has the shape of a transcript and points from side 1 to side 0. Where the projections are not
    Gaussian with that σ (at the 1 % level), the distribution-free bound on them is given instead, and named.
    """
    rng = check_audit(delta, episodes, confidence, seed)
    require(sigma > 0 and math.isfinite(sigma), f"sigma must be a finite number above 0, not {sigma}")
    statistic = matched(direction, sigma)
    first, second = (collect(sample, statistic, side, episodes, rng) for side in (0, 1))
    if min(gaussian_form(first), gaussian_form(second)) < 0.005:
        return audit_channel(sample, delta, episodes, confidence, statistic, seed + 1)
    mu = float(first.mean() - second.mean()) - float(ndtri(confidence)) * math.sqrt(2 / episodes)
    found = losses.epsilon_of(losses.Loss(mu), delta) if mu > 0 else 0.0
    return Bound(found, delta, confidence, episodes, "Gaussian means")


def gaussian_form(values: np.ndarray) -> float:
    """p-value that values (episode,) are normal with variance 1 and any mean: Kolmogorov–Smirnov and χ², the smaller
    doubled. Fitting the mean makes the former err on the side of acceptance."""
    count = len(values)
    centred = np.sort(values - values.mean())
    rank = np.arange(count)
    gap = max(np.max(ndtr(centred) - rank / count), np.max((rank + 1) / count - ndtr(centred)))
    squares = float(centred @ centred)
    spread = 2 * min(chdtr(count - 1, squares), chdtrc(count - 1, squares))
    return min(1.0, 2 * min(float(kolmogorov(math.sqrt(count) * gap)), float(spread)))


def audit_response(
    sample: Sampler, delta: float, episodes: int, direction: np.ndarray, confidence: float = 0.95, seed: int = 0
) -> Bound:
    """The tighter bound for symbols that are made noisy independently in every use, from how often each one is right.

    `direction` (…, symbol) has the shape of a transcript: highest at the symbol of side 0, lowest at that of side 1.
    What is released is right where it has more of its side's symbol than of the other side's: the one symbol, or a set
    with the one and not the other. Messages right at least p and wrong at most q of the time tell at least as much as
    p, q and the rest do exactly; their loss is added up over the uses in which the sides differ. Where right ones do
    not come independently (at the 1 % level), the distribution-free bound is given instead, and named.
    """
    rng = check_audit(delta, episodes, confidence, seed)
    flat = np.asarray(direction, float).reshape(-1, np.shape(direction)[-1])
    differ = np.flatnonzero(np.ptp(flat, axis=1) > 0)
    require(len(differ) > 0, "the two sides say the same, so there is nothing to tell apart")
    sides = flat[differ].argmax(1), flat[differ].argmin(1)

    def counted(side: int) -> np.ndarray:
        """(episode, 2) how many messages speak for this side, and for the other."""

        def count(transcripts: np.ndarray) -> np.ndarray:
            marks = transcripts.reshape(len(transcripts), -1, flat.shape[1])
            own, other = marks[:, differ, sides[side]], marks[:, differ, sides[1 - side]]
            return np.stack([(own > other).sum(1), (own < other).sum(1)], axis=1)

        return collect(sample, count, side, episodes, rng)

    counts, uses = [counted(0), counted(1)], len(differ)
    if min(independent_form(one[:, 0], uses) for one in counts) < 0.005:
        return audit_channel(sample, delta, episodes, confidence, matched(direction), seed + 1)
    trials, tail = episodes * uses, (1 - confidence) / 4
    right, wrong = (np.array([one[:, column].sum() for one in counts]) for column in (0, 1))
    low = np.where(right > 0, betaincinv(np.maximum(right, 1), trials - right + 1, tail), 0.0).min()
    high = np.where(wrong < trials, betaincinv(wrong + 1, np.maximum(trials - wrong, 1), 1 - tail), 1.0).max()
    found = 0.0
    if low > high:
        one = np.array([high, max(0.0, 1 - low - high), low])
        loss = losses.Loss(0.0, math.log(low / high) * np.arange(-uses, uses + 1), losses.power(one, uses))
        found = losses.epsilon_of(loss, delta)
    return Bound(found, delta, confidence, episodes, "symbol counts")


def independent_form(counts: np.ndarray, uses: int) -> float:
    """p-value that counts (episode,) out of so many uses vary as those of independent uses do, by their spread."""
    share = counts.mean() / uses
    if uses == 1 or share in (0.0, 1.0):
        return 1.0
    spread = float(np.sum((counts - counts.mean()) ** 2)) / (uses * share * (1 - share))
    return float(2 * min(chdtr(len(counts) - 1, spread), chdtrc(len(counts) - 1, spread), 0.5))


def matched(direction: np.ndarray, sigma: float = 1.0) -> Statistic:
    """Projection onto a direction (…), in standard deviations of white noise."""
    weights = np.asarray(direction, float).ravel()
    weights = weights / (sigma * np.linalg.norm(weights))
    return lambda transcripts: transcripts.reshape(len(transcripts), -1) @ weights


def fit_linear(sample: Sampler, episodes: int, rng: np.random.Generator) -> Statistic:
    """The linear statistic Σ⁻¹(m₀ − m₁) of so many transcripts a side; Σ is widened a little, lest it be singular."""
    first, second = (sample(side, episodes, rng).reshape(episodes, -1).astype(float) for side in (0, 1))
    centred = np.concatenate([first - first.mean(0), second - second.mean(0)])
    spread = centred.T @ centred / len(centred)
    ridge = 1e-6 * np.trace(spread) / len(spread) + 1e-12
    weights = np.linalg.solve(spread + ridge * np.eye(len(spread)), first.mean(0) - second.mean(0))
    return lambda transcripts: transcripts.reshape(len(transcripts), -1) @ weights


def collect(sample: Sampler, statistic: Statistic, side: int, episodes: int, rng: np.random.Generator) -> np.ndarray:
    """The statistic (episode,) of fresh transcripts of one side."""
    sizes = [min(BLOCK, episodes - start) for start in range(0, episodes, BLOCK)]
    return np.concatenate([np.asarray(statistic(sample(side, size, rng)), float) for size in sizes])


def best_threshold(
    first: np.ndarray, second: np.ndarray, episodes: int, delta: float, confidence: float, candidates: int = 200
) -> float:
    """The threshold that would give the largest bound if the data to come repeated these proportions."""
    pooled = np.unique(np.concatenate([first, second]))
    thresholds = pooled[np.linspace(0, len(pooled) - 1, min(candidates, len(pooled))).astype(int)]
    first, second = np.sort(first), np.sort(second)
    hits = 1 - np.searchsorted(first, thresholds) / len(first)
    alarms = 1 - np.searchsorted(second, thresholds) / len(second)
    bounds = clopper_pearson(np.floor(hits * episodes), np.ceil(alarms * episodes), episodes, delta, confidence)
    return float(thresholds[int(np.argmax(bounds))])


class Canary(NamedTuple):
    """Two neighbouring inputs that no other pair is easier to tell apart than."""

    first: np.ndarray
    """(use, feature) what the sender hands to the channel at each release, before clipping; scores for symbols."""
    second: np.ndarray
    direction: np.ndarray
    """(use, copy, feature) of the expected difference between transcripts: the optimal linear statistic."""


def canary(release: Release, size: int = 8, seed: int = 0) -> Canary:
    """The worst case for a shipped channel; copies of a message stand on an axis of their own.

    What leaves a sender here is the pair of its mechanism that no other is easier to tell apart than.
    """
    channel, mechanism = release.channel, mechanisms.of(release.channel)
    differ = len(release.rates)
    require(differ > 0, "nothing is released within the horizon")
    uses = release.horizon if mechanism.remembers else differ  # later messages tell of what differed before
    first, second = mechanism.worst_case(uses, size, np.random.default_rng(seed))
    second[differ:] = first[differ:]
    direction = np.repeat(mechanism.encoded(first - second)[:, None], channel.sent, axis=1)
    return Canary(first, second, direction)


def family_confidence(verdicts: int, confidence: float = 0.99) -> float:
    """Confidence of each of so many verdicts for which all of them together have this one (Bonferroni)."""
    require(whole(verdicts, 1), f"verdicts must be a whole number from 1, not {verdicts}")
    return 1 - (1 - confidence) / verdicts


def verdict(claimed: float, bound: Bound) -> dict[str, Any]:
    """A bound beside the claim that it may refute, as `dpmac privacy audit` prints it."""
    return {
        "claimed_epsilon": claimed,
        "lower_bound": bound.epsilon,
        "delta": bound.delta,
        "confidence": bound.confidence,
        "episodes": bound.episodes,
        "method": bound.method,
        "verdict": "refuted" if bound.epsilon > claimed else "consistent",
    }


def check_audit(delta: float, episodes: int, confidence: float, seed: int) -> np.random.Generator:
    check_delta(delta)
    require(whole(episodes, 50, 10**7), f"episodes must be a whole number from 50 to 10^7, not {episodes}")
    require(0.5 <= confidence < 1, f"confidence must lie in [0.5, 1), not {confidence}")
    check_seed(seed)
    return np.random.default_rng(seed)
