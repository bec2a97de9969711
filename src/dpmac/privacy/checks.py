"""White-box checks: does what a run released fit what it declared? Arrays of real rollouts go in, failures come out.

Each check has a p-value, the probability of data as odd as these if the declaration is true; a broken rule that leaves
no room for chance has p = 0. `failures` keeps those that stay significant with all checks of a run taken together.
Axes stand in the order (episode, time, agent, copy, feature), where time counts releases and copy may be missing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtr, bdtrc, chdtr, chdtrc, kolmogorov, ndtr

from dpmac.config import Channel, Neighbours, Release, Unit
from dpmac.privacy import accounting, mechanisms


class Check(NamedTuple):
    name: str
    p_value: float
    detail: str


def failures(checks: Sequence[Check], confidence: float = 0.99) -> list[Check]:
    """Checks that fail at a family-wise confidence (Bonferroni): true declarations pass all with this probability."""
    return [check for check in checks if check.p_value < (1 - confidence) / len(checks)]


def check_gaussian(sent: np.ndarray, released: np.ndarray, channel: Channel, sigma: float) -> list[Check]:
    """All checks of a Gaussian or code channel.

    `sent` (episode, time, agent, feature): messages right before the noise. `released`: the same after it, or with a
    copy axis before the features where each recipient's copy was recorded.
    """
    return mechanisms.of(channel).check_released(sent, released, sigma)


def copies_as_declared(noise: np.ndarray, channel: Channel) -> list[Check]:
    """One broadcast message is the same for all; fresh noise for each recipient is counted for each."""
    recorded = noise.shape[3]
    if recorded == 1:
        return []
    alike = bool((noise == noise[:, :, :, :1]).all())
    declared = channel.sent == 1 if alike else channel.sent >= recorded
    found = "one message for all" if alike else f"{recorded} different copies"
    return [Check("copies as declared", float(declared), f"{found}, {channel.sent} counted")]


def variance(noise: np.ndarray, keep: tuple[int, ...], name: str) -> Check:
    """χ² of the squared noise along the axes kept, two-sided, the most extreme entry corrected for their number."""
    others = tuple(axis for axis in range(noise.ndim) if axis not in keep)
    squares, count = (noise**2).sum(axis=others), noise.size / math.prod(noise.shape[axis] for axis in keep)
    p = 2 * np.minimum(chdtr(count, squares), chdtrc(count, squares))
    worst = int(np.argmin(p))
    ratio = math.sqrt(squares.ravel()[worst] / count)
    return Check(name, min(1.0, float(p.min()) * p.size), f"at index {worst} σ is {ratio:.4g} times the declared one")


def normality(noise: np.ndarray) -> Check:
    """Kolmogorov–Smirnov distance of all noise from N(0, 1)."""
    values = np.sort(noise.ravel())
    rank = np.arange(len(values))
    fitted = ndtr(values)
    gap = max(np.max(fitted - rank / len(values)), np.max((rank + 1) / len(values) - fitted))
    return Check("noise is Gaussian", float(kolmogorov(math.sqrt(len(values)) * gap)), f"distance {gap:.3g}")


def every_message(noise: np.ndarray) -> Check:
    """χ² of the squared noise of each message by itself: one without noise, or with far less, stands out."""
    numbers = noise.shape[-1]
    squares = (noise**2).sum(-1)
    p = 2 * np.minimum(chdtr(numbers, squares), chdtrc(numbers, squares))
    least = math.sqrt(squares.min() / numbers)
    return Check("noise of every message", min(1.0, float(p.min()) * p.size), f"the least is {least:.3g} σ a number")


def variance_by_message(noise: np.ndarray, sent: np.ndarray) -> Check:
    """χ² of the squared noise among messages (episode, time, agent, number) with a number above 0, and without."""
    squares = (noise**2).sum((-2, -1))
    above = (sent > 0).reshape(-1, sent.shape[-1]).astype(float)
    sums = np.stack([squares.ravel() @ above, squares.ravel() @ (1 - above)])
    counts = noise.shape[-1] * noise.shape[-2] * np.stack([above.sum(0), (1 - above).sum(0)])
    p = np.where(counts > 0, 2 * np.minimum(chdtr(counts, sums), chdtrc(counts, sums)), 1.0)
    return Check("noise variance whatever the message", min(1.0, float(p.min()) * p.size), f"of {p.size} halves")


def check_response(sent: np.ndarray, released: np.ndarray, channel: Channel, flip: float) -> list[Check]:
    """All checks of randomised response.

    `sent` (episode, time, agent): the symbols before any flip. `released` (episode, time, agent, symbol), one-hot, or
    with a copy axis before the symbols.
    """
    return mechanisms.of(channel).check_released(sent, released, flip)


def exact_alphabet(released: np.ndarray, symbols: int) -> Check:
    """What is released has exactly k bit patterns, so that nothing travels beside the symbol."""
    one_hot = released.shape[-1] == symbols and bool(((released == 0) | (released == 1)).all())
    one_hot = one_hot and bool((released.sum(-1) == 1).all())
    return Check("alphabet of exactly k symbols", float(one_hot), f"{symbols} patterns declared")


def exact_subsets(released: np.ndarray, symbols: int, members: int) -> Check:
    """What is released is zeros with exactly so many ones, so that nothing travels beside the subset."""
    exact = released.shape[-1] == symbols and bool(((released == 0) | (released == 1)).all())
    exact = exact and bool((released.sum(-1) == members).all())
    return Check("exactly d of k symbols", float(exact), f"{members} of {symbols} declared")


def even_members(held: np.ndarray) -> Check:
    """Each of the other symbols (…, other) is in the subset as often: χ² of counts of draws without replacement."""
    name, count = "other symbols chosen alike", held.shape[-1]
    share = held.mean(-1)
    spread = float((share * (1 - share)).sum()) * count / max(count - 1, 1)
    if spread < 5:
        return Check(name, 1.0, "one other symbol, or too few to tell")
    counts = held.reshape(-1, count).sum(0)
    excess = float(((counts - counts.mean()) ** 2).sum()) / spread
    return Check(name, float(chdtrc(count - 1, excess)), f"counts {counts.tolist()}")


def flip_rate(flips: np.ndarray, axis: int, flip: float, name: str) -> Check:
    """Exact two-sided binomial test along an axis, the most extreme entry corrected for their number."""
    others = tuple(other for other in range(flips.ndim) if other != axis)
    hits, count = flips.sum(axis=others), flips.size // flips.shape[axis]
    low = bdtr(hits, count, flip)
    high = np.where(hits > 0, bdtrc(np.maximum(hits - 1, 0), count, flip), 1.0)
    p = 2 * np.minimum(low, high)
    worst = int(np.argmin(p))
    return Check(
        name, min(1.0, float(p.min()) * p.size), f"at index {worst} {hits[worst] / count:.4g} against {flip:.4g}"
    )


def uniform_flips(shift: np.ndarray, symbols: int) -> Check:
    """A flipped symbol becomes each of the others as often: χ² over the k − 1 shifts."""
    counts = np.bincount(shift.ravel(), minlength=symbols)[1:]
    total = counts.sum()
    if symbols == 2 or total < 5 * (symbols - 1):
        return Check("flips reach all other symbols alike", 1.0, "one other symbol, or too few flips to tell")
    excess = float(((counts - total / (symbols - 1)) ** 2).sum() / (total / (symbols - 1)))
    return Check("flips reach all other symbols alike", float(chdtrc(symbols - 2, excess)), f"counts {counts.tolist()}")


def check_claim(entry: dict[str, Any], channel: Channel, horizon: int) -> list[Check]:
    """A statement's numbers recomputed from its noise: ε per message passed off as ε per episode is found here, and ε
    of an increment passed off as that of all inputs. Statements of version 0.1 do not say what they cover: all inputs.
    """
    checks = []
    neighbours: Neighbours = "increment" if entry.get("covers") == "increment" else "inputs"
    covered: dict[str, tuple[Unit, Neighbours]] = {
        "exact_epsilon": (entry["unit"], neighbours),
        "exact_epsilon_message": ("message", "inputs"),
        "exact_epsilon_episode": ("episode", "inputs"),
    }
    for key, game in covered.items():
        true, said = accounting.epsilon(Release(channel, entry["noise"], horizon, *game), entry["delta"]), entry[key]
        checks.append(
            Check(f"{key} as stated", float(said == true or said >= true * (1 - 1e-9)), f"{said} against {true}")
        )
    holds = entry["exact_epsilon"] <= entry["epsilon"] and not entry["failed_conditions"]
    return [*checks, Check("valid only where it holds", float(holds or not entry["valid"]), f"valid: {entry['valid']}")]


def check_charges(charged: Counter[Release], released: Iterable[Release]) -> Check:
    """A ledger against the releases that were seen: each must have been charged at least as often as it happened."""
    missing = Counter(released) - charged
    return Check("every release charged", float(not missing), f"{sum(missing.values())} releases not charged")
