"""Checks of dependence: noise that is related to other noise, to the message or to what came before.

Each score has a distribution that is known exactly where noise is what was declared, so that p-values hold for few
messages as well. Axes stand in the order (episode, time, agent, copy, number).
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr, bdtrc, ndtr, pdtrc

from dpmac.privacy.checks import Check

MOST_PLACES = 2048
"""Places of an axis of which all pairs are compared; of more (episodes), the first so many."""
MOST_NUMBERS = 12
"""Numbers of a message of which all products of three are looked at."""
RESOLUTION = 2.0**-16
"""Share of σ within which two noise draws count as the same."""


def two_sided(hits: np.ndarray, count: np.ndarray, rate: np.ndarray | float) -> np.ndarray:
    """Exact binomial p-values of so many hits; 1 where nothing was counted."""
    hits, count, rate = np.broadcast_arrays(np.asarray(hits, float), np.asarray(count, np.int64), rate)
    low = bdtr(hits, np.maximum(count, 1), rate)
    high = np.where(hits > 0, bdtrc(np.maximum(hits - 1, 0), np.maximum(count, 1), rate), 1.0)
    return np.where(count > 0, np.minimum(1.0, 2 * np.minimum(low, high)), 1.0)


def normal(scores: np.ndarray) -> np.ndarray:
    """Two-sided p-values of standard normal scores."""
    return 2 * ndtr(-np.abs(scores))


def together(name: str, *families: np.ndarray, what: str = "pairs") -> Check:
    """One check of families of p-values: the smallest of each, corrected for their number and that of the families."""
    found = [min(1.0, float(family.min()) * family.size) for family in families if family.size]
    if not found:
        return Check(name, 1.0, "nothing to compare")
    counted = " and ".join(str(family.size) for family in families if family.size)
    return Check(name, min(1.0, min(found) * len(found)), f"most extreme of {counted} {what} has p = {min(found):.3g}")


# Noise that is added --------------------------------------------------------------------------------------------------


def independence(noise: np.ndarray, axis: int, name: str) -> Check:
    """Correlation between the noise at any two places of an axis, and at all places with the same lag.

    Given the noise a of one place, a·b/|a| is standard normal for independent b. In the order of b, these scores are
    independent of each other at one lag, so that their sum is normal as well: a lag finds what is too weak in a pair.
    """
    rows = np.moveaxis(noise, axis, 0).reshape(noise.shape[axis], -1)[:MOST_PLACES]
    count = len(rows)
    scores = rows @ rows.T / np.maximum(np.linalg.norm(rows, axis=-1), 1e-300)[:, None]
    lags = [np.trace(scores, lag) / math.sqrt(count - lag) for lag in range(1, count)]
    return together(name, normal(scores[np.triu_indices(count, 1)]), normal(np.array(lags)), what="pairs and lags")


def agents_at_lags(noise: np.ndarray, name: str) -> Check:
    """Correlation between the noise of any two agents, or of one, at any lag of steps: scores as in `independence`."""
    steps, agents = noise.shape[1:3]
    rows = np.moveaxis(noise, (1, 2), (0, 1)).reshape(steps, agents, -1)
    units = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-300)
    later = [units[: steps - lag] @ rows[lag:].swapaxes(1, 2) for lag in range(steps)]
    scores = np.array([each.sum(0) / math.sqrt(len(each)) for each in later])
    now = scores[0][np.triu_indices(agents, 1)]
    return together(name, normal(np.concatenate([now, scores[1:].ravel()])), what="agents and lags")


def products_of_signs(noise: np.ndarray) -> np.ndarray:
    """Signs (…, product) of one, two, three and of all numbers of the noise, multiplied: fair coins, any two of which
    are independent."""
    signs = np.where(noise[..., :MOST_NUMBERS] > 0, 1, -1).astype(np.int8)
    count = signs.shape[-1]
    groups = [group for size in (1, 2, 3) for group in itertools.combinations(range(count), size)]
    found = [signs[..., list(group)].prod(-1, dtype=np.int8) for group in groups]
    every = np.where(noise > 0, 1, -1).prod(-1).astype(np.int8)
    return np.stack([*found, every], axis=-1)


def fair_coins(coins: np.ndarray, sent: np.ndarray, name: str) -> list[Check]:
    """Coins ±1 (episode, time, agent, copy, coin), 0 for none, are fair whatever the message (episode, time, agent,
    number) is, by the sign of each of its numbers, and independent of those of steps before."""
    signs = np.where(sent > 0, 1, -1)
    features = np.concatenate([np.ones_like(signs[..., :1]), signs], axis=-1)[:, :, :, None]
    features = np.broadcast_to(features, (*coins.shape[:-1], features.shape[-1])).reshape(-1, features.shape[-1])
    flat = coins.reshape(-1, coins.shape[-1]).astype(np.float32)
    counts = np.abs(flat).sum(0)[:, None]
    by_message = flat.T @ features.astype(np.float32)
    steps = coins.shape[1]
    pairs = [coins[:, : steps - lag] * coins[:, lag:] for lag in range(1, steps)]
    sums = np.array([pair.sum(axis=(0, 1, 2, 3), dtype=np.int64) for pair in pairs])
    counted = np.array([np.abs(pair).sum(axis=(0, 1, 2, 3), dtype=np.int64) for pair in pairs])
    return [
        together(f"{name} fair whatever the message", fair(by_message, counts), what="coins and signs of numbers"),
        together(f"{name} independent over time", fair(sums, counted), what="coins and lags"),
    ]


def fair(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """p-values of sums of so many fair coins ±1."""
    sums, counts = np.broadcast_arrays(np.abs(sums), counts)
    return two_sided((counts - sums) // 2, counts, 0.5)


def no_noise_twice(noise: np.ndarray) -> Check:
    """No two messages have the same noise, up to the signs of its numbers; nor is any of it nothing.

    Two half-normal numbers agree within r σ with probability r/√π, and one lies within r σ of zero with r·√(2/π).
    """
    rows = np.rint(np.abs(noise.reshape(-1, noise.shape[-1])) / RESOLUTION).astype(np.int64)
    count, numbers = rows.shape
    twice = count - len(np.unique(rows, axis=0))
    expected = count * (count - 1) / 2 * (RESOLUTION / math.sqrt(math.pi)) ** numbers
    least = RESOLUTION / 16
    nothing = int((np.abs(noise) < least).sum())
    p = [
        pdtrc(found - 1, mean) if found else 1.0
        for found, mean in ((twice, expected), (nothing, noise.size * least * math.sqrt(2 / math.pi)))
    ]
    return Check("no noise twice, and none missing", min(1.0, 2 * min(p)), f"{twice} again, {nothing} numbers without")


# Symbols --------------------------------------------------------------------------------------------------------------


def conditional_rates(sent: np.ndarray, held: np.ndarray, own: float, other: float, name: str) -> Check:
    """How often what leaves holds symbol j (…, symbol) where i (…) was sent: `own` for i = j, else `other`."""
    symbols = held.shape[-1]
    true = sent[..., None] == np.arange(symbols)
    hits = true.reshape(-1, symbols).T.astype(float) @ held.reshape(-1, symbols)
    counts = true.reshape(-1, symbols).sum(0)[:, None]
    rates = np.where(np.eye(symbols, dtype=bool), own, other)
    return together(name, two_sided(hits, counts, rates), what="pairs of symbols")


def coincidences(events: np.ndarray, rates: Sequence[float], name: str) -> Check:
    """Events (episode, time, agent, copy) that come together: of any two agents at any lag, and in any two episodes.

    Of those at a later place, as many fall together with events of an earlier one as a coin of their rate says.
    """
    events, rate = events.astype(np.int64), np.asarray(rates, float)
    episodes, steps, agents = events.shape[:3]
    families = []
    for lag in range(steps):
        first, second = events[:, : steps - lag], events[:, lag:]
        both, counts = np.einsum("etac,etbc->ab", first, second), first.sum(axis=(0, 1, 3))[:, None]
        found = two_sided(both, counts, rate)
        families.append(found[np.triu_indices(agents, 1)] if lag == 0 else found.ravel())
    families = [np.concatenate(families)]
    for agent in range(agents):
        rows = events[:MOST_PLACES, :, agent].reshape(min(episodes, MOST_PLACES), -1).astype(float)
        both, counts = rows @ rows.T, rows.sum(1)
        upper = np.triu_indices(len(rows), 1)
        families.append(two_sided(both[upper], counts[upper[0]], rate[agent]))
        lags = range(1, len(rows))
        sums = np.array([np.trace(both, lag) for lag in lags])
        families.append(two_sided(sums, np.array([counts[: len(rows) - lag].sum() for lag in lags]), rate[agent]))
    return together(name, *families, what="agents at lags, pairs of episodes and lags of episodes")


def same_targets(shift: np.ndarray, symbols: int) -> Check:
    """Two flips (episode, time, agent, copy; 0: none) of agents at any lag lead equally far once in k − 1 times."""
    steps, agents, name = shift.shape[1], shift.shape[2], "targets of flips independent"
    found = []
    for lag in range(steps):
        first, second = shift[:, : steps - lag, :, None], shift[:, lag:, None]
        both, alike = (first > 0) & (second > 0), (first == second) & (first > 0)
        one = two_sided(alike.sum(axis=(0, 1, 4)), both.sum(axis=(0, 1, 4)), 1 / max(1, symbols - 1))
        found.append(one[np.triu_indices(agents, 1)] if lag == 0 else one.ravel())
    return together(name, np.concatenate(found), what="agents and lags")


def rates_after(events: np.ndarray, sent: np.ndarray, rate: float, name: str) -> Check:
    """Events (episode, time, agent, copy) are as frequent where a symbol (episode, time, agent) is the one before it
    as where it is another."""
    again = np.broadcast_to((sent[:, 1:] == sent[:, :-1])[..., None], events[:, 1:].shape)
    hits = np.array([(events[:, 1:] & again).sum(), (events[:, 1:] & ~again).sum()])
    return together(name, two_sided(hits, np.array([again.sum(), (~again).sum()]), rate), what="histories")


def odd_threes(events: np.ndarray, sent: np.ndarray, symbols: int, rate: float, name: str) -> Check:
    """Three steps in a row have an odd number of events (1 − (1 − 2·rate)³)/2 of the time, whatever was sent in the
    first and however many came in the three before."""
    threes = events.shape[1] // 3
    if threes == 0:
        return Check(name, 1.0, "fewer than three steps")
    odd = events[:, : 3 * threes].reshape(len(events), threes, 3, *events.shape[2:]).sum(2) % 2 == 1
    rate = (1 - (1 - 2 * rate) ** 3) / 2
    first = np.broadcast_to(sent[:, : 3 * threes : 3, :, None], odd.shape)
    hits, counts = np.bincount(first[odd], minlength=symbols), np.bincount(first.ravel(), minlength=symbols)
    before = (odd[:, :-1], ~odd[:, :-1])
    after, places = np.array([odd[:, 1:][each].sum() for each in before]), np.array([each.sum() for each in before])
    return together(name, two_sided(hits, counts, rate), two_sided(after, places, rate), what="symbols and histories")
