"""Statistics over few seeds: what the paper shows, what Agarwal et al. (2021) recommend, and intervals for verdicts.

Scores are arrays (seed,) of one task or lists of them, one for each task. Every interval is a function of its data
alone: resampling is seeded.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from dpmac.config import require
from dpmac.results.records import Record

RESAMPLES = 2000
SEED = 0
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A number with the interval that it lies in at 95 % confidence."""

    value: float
    low: float
    high: float


def mean_and_deviation(scores: ArrayLike) -> tuple[float, float]:
    """Mean and standard deviation over seeds, as the paper shows them (one deviation is that of the population)."""
    scores = np.asarray(scores, float)
    return float(scores.mean()), float(scores.std())


def iqm(scores: Any, axis: int = 0) -> Any:
    """Interquartile mean: of the middle half, so that a seed that went astray does not decide.

    >>> iqm([0.0, 10.0, 11.0, 12.0, 500.0])
    11.0
    """
    found = stats.trim_mean(scores, 0.25, axis=axis)
    return float(found) if np.ndim(found) == 0 else found


def resamples(strata: Sequence[np.ndarray], count: int, seed: int) -> list[np.ndarray]:
    """Each stratum (seed,) drawn anew with replacement: (resample, seed)."""
    chance = np.random.default_rng(seed)
    return [scores[chance.integers(0, len(scores), (count, len(scores)))] for scores in strata]


def bootstrap(
    strata: Sequence[ArrayLike],
    statistic: Callable[..., np.ndarray] = iqm,
    count: int = RESAMPLES,
    seed: int = SEED,
) -> Estimate:
    """A statistic of all scores with its stratified percentile interval: seeds are drawn anew within each task.

    The statistic takes scores (…, seed of all tasks) and `axis`. With five seeds such an interval covers less than it
    says; verdicts use `difference`.
    """
    arrays = [np.asarray(scores, float) for scores in strata]
    require(len(arrays) > 0 and all(len(scores) > 0 for scores in arrays), "an interval needs scores")
    drawn = np.concatenate(resamples(arrays, count, seed), axis=1)
    low, high = np.quantile(statistic(drawn, axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(statistic(np.concatenate(arrays), axis=0)), float(low), float(high))


def curve(returns: ArrayLike, count: int = 500, seed: int = SEED) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Interquartile mean (evaluation,) of curves (seed, evaluation) and its interval, whole curves drawn anew."""
    returns = np.asarray(returns, float)
    chosen = np.random.default_rng(seed).integers(0, len(returns), (count, len(returns)))
    drawn = iqm(returns[chosen], axis=1)
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return iqm(returns, axis=0), low, high


def difference(first: ArrayLike, second: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """Mean of the first less that of the second, with Welch's interval, which covers what it says at five seeds.

    With fewer than two seeds nothing is known of the spread, and the interval is the whole line.
    """
    a, b = np.asarray(first, float), np.asarray(second, float)
    value = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Estimate(value, -np.inf, np.inf)
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return Estimate(value, value, value)
    parts = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    half = float(special.stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(sum(parts)))
    return Estimate(value, value - half, value + half)


def interval(scores: ArrayLike) -> Estimate:
    """The mean with Student's 95 % interval; the whole line around a single score."""
    scores = np.asarray(scores, float)
    value = float(scores.mean())
    if len(scores) < 2:
        return Estimate(value, -np.inf, np.inf)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(scores) - 1) * scores.std(ddof=1) / np.sqrt(len(scores)))
    return Estimate(value, value - half, value + half)


def separated(scores: Mapping[str, ArrayLike]) -> list[tuple[str, str]]:
    """Names of scores, the better one first, whose intervals do not overlap.

    >>> separated({"low": [1.0, 1.1, 0.9], "high": [5.0, 5.1, 4.9], "wide": [0.0, 9.0, 3.0]})
    [('high', 'low')]
    """
    known = {name: interval(values) for name, values in scores.items()}
    return [(first, second) for first, second in permutations(known, 2) if known[first].low > known[second].high]


def performance_profile(strata: Sequence[ArrayLike], thresholds: ArrayLike) -> np.ndarray:
    """Share of runs (threshold,) that score above each threshold; tasks weigh the same."""
    thresholds = np.asarray(thresholds, float)
    return np.mean([np.mean(np.asarray(scores, float)[:, None] > thresholds, axis=0) for scores in strata], axis=0)


def above(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """P(X > Y) + P(X = Y)/2 (…) of scores (…, seed)."""
    gaps = np.sign(first[..., :, None] - second[..., None, :])
    return np.mean((gaps + 1) / 2, axis=(-2, -1))


def probability_of_improvement(
    first: Sequence[ArrayLike], second: Sequence[ArrayLike], count: int = RESAMPLES, seed: int = SEED
) -> Estimate:
    """How likely a run of the first scores above one of the second on the same task, averaged over tasks."""
    x, y = ([np.asarray(scores, float) for scores in side] for side in (first, second))
    require(len(x) == len(y) > 0, "both sides need scores of the same tasks")
    value = float(np.mean([above(a, b) for a, b in zip(x, y, strict=True)]))
    drawn = zip(resamples(x, count, seed), resamples(y, count, seed + 1), strict=True)
    low, high = np.quantile(np.mean([above(a, b) for a, b in drawn], axis=0), [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def normalised(score: ArrayLike, reference: Mapping[str, Any]) -> np.ndarray:
    """Scores on a scale where a random policy earns 0 and the scripted one, which knows the secrets, earns 1."""
    random, scripted = (float(reference["returns"][policy][0]) for policy in ("random", "scripted"))
    return (np.asarray(score, float) - random) / (scripted - random)


def marl_eval(runs: Mapping[tuple[str, str], Sequence[Record]]) -> dict[str, Any]:
    """Results in the schema of marl-eval: environment, task, algorithm, seed, step.

    The runs come by task and algorithm. A step holds the mean over the episodes of its evaluation, `absolute_metrics`
    that over the common starts, each as a list of one.
    """
    tasks: dict[str, Any] = {}
    for (task, algorithm), records in runs.items():
        tasks.setdefault(task, {})[algorithm] = {
            f"seed_{record.seed}": {
                **{
                    f"step_{index}": {"step_count": int(step), "return": [float(value)]}
                    for index, (step, value) in enumerate(zip(record.steps, record.returns, strict=True))
                },
                "absolute_metrics": {"return": [record.final_return]},
            }
            for record in records
        }
    return {"dpmac": tasks}
