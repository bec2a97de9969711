"""What published weights cost a source of training episodes: ε(δ), the noise that meets a budget, and the statement.

Neighbours are two trainings that differ by one episode source, which is there or is not. A source contributes at most R
episodes, at places that are fixed in advance. Every update clips the joint gradient of each episode to norm C, adds the
clipped gradients up, adds Gaussian noise of standard deviation z·C to every number, and divides by a constant; all
the rest (optimisers, averages, later policies, the episodes that these play) follows from such releases. Each stored
episode enters each of the updates of its life with probability q, independently. One pass over fresh episodes is q = 1
and a life of one update.

The R episodes of a source cost most when they live at the same time. An update then takes some of them with probability
1 − (1 − q)^R, and what it takes has a norm of at most R·C: L Gaussian releases of multiplier z/R, sampled at that rate.
For q = 1 that is exact, else a bound (docs/private-training.md has the proof).

The noise that is drawn is a whole number of steps of a public grid (`alias`), and norms are sums of rounded numbers.
Both are counted, for as many numbers as an update releases.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from scipy.optimize import brentq

from dpmac.config import PrivateTraining, Release, check_delta, check_epsilon, require, whole
from dpmac.privacy import accounting, alias
from dpmac.privacy import loss as losses

SAFETY = 1e-6
"""Relative surplus of calibration."""
SEARCHED = 1e-4
"""Width in log z to which a multiplier is searched where it has no closed form."""
MOST_NUMBERS = 2**22
"""The most numbers of an update, for which bounds on rounding hold."""
FINE, COARSE = 1e-4, 1e-3
"""Grids of privacy loss: of what is stated, and of calibration and of large losses; both round up."""
LEAST_NOISE, MOST_NOISE = -3.0, 20.0
"""Logarithms of the noise multipliers that are searched, the least one for each episode of a source."""
TRANSFORM_LOSS = 2.0**-52
"""Above what each composition by transforms loses of δ, seen beside exact sums."""


class Use(NamedTuple):
    """How private training uses an episode: the learner says so, and the accountant counts it."""

    rate: float = 1.0
    """q, the probability that an update takes a stored episode."""
    updates: int = 1
    """L, the most updates that an episode lives through."""
    numbers: int = 0
    """How many numbers an update releases, all of them rounded; 0: real numbers without rounding."""

    def among(self, episodes: int) -> "Use":
        """The same for so many episodes together: the probability that an update takes any of them."""
        return self._replace(rate=-math.expm1(episodes * math.log1p(-self.rate)) if self.rate < 1 else 1.0)

    @property
    def once(self) -> bool:
        """Whether each episode enters exactly one update."""
        return self.rate == self.updates == 1

    @property
    def longest(self) -> float:
        """Above the norm of what was clipped to norm 1 in float32, in deviations of the noise times z.

        A sum of n squares, in any order, is low by n roundings of 2⁻²⁴ at most, a norm by half of that; 2⁻¹⁹ is more
        than what root, quotients and products add.
        """
        return 1 + self.numbers * 2.0**-24 + 2.0**-19 if self.numbers else 1.0

    def slip(self, epsilon: float, episodes: int) -> float:
        """Above what drawn noise adds to δ(ε), its total variation from Gaussian noise in all updates that so many
        episodes live through, and above what accounting loses."""
        drawn = self.numbers * self.updates * episodes * alias.SLIP
        counted = 0.0 if self.rate == 1 else self.updates * TRANSFORM_LOSS
        return counted + (drawn * (1 + math.exp(min(epsilon, 700.0))) if drawn else 0.0)


ONE_PASS = Use()


def epsilon(multiplier: float, delta: float, use: Use = ONE_PASS, episodes: int = 1) -> float:
    """The smallest ε for which training with this noise multiplier z is (ε, δ)-DP for a source of so many episodes.

    Exact for q = 1, else by dp-accounting's privacy loss distribution, which rounds up; infinite without noise.

    >>> round(epsilon(3.7304, 1e-5), 3)
    1.0
    >>> round(epsilon(2.0, 1e-5, Use(0.0128, 2500)), 2)
    1.33
    """
    check(delta, use, episodes)
    require(
        multiplier >= 0 and math.isfinite(multiplier), f"multiplier must be finite and at least 0, not {multiplier}"
    )
    return spent(multiplier, delta, use, episodes, FINE if multiplier >= episodes / 2 else coarse(multiplier, episodes))


def coarse(multiplier: float, episodes: int) -> float:
    """The coarse grid, as wide as small noise allows: losses are of the order of (R/z)²."""
    return COARSE * max(1.0, (episodes / (2 * multiplier)) ** 2) if multiplier else COARSE


@cache
def spent(multiplier: float, delta: float, use: Use, episodes: int, grid: float) -> float:
    """`epsilon` of what was checked, on a grid of this width."""
    if multiplier == 0:
        return math.inf
    if use.rate == 1:
        loss = shift(multiplier, use, episodes)
        return with_slip(lambda left: losses.epsilon_of(loss, left), delta, use, episodes)
    from dp_accounting.pld import privacy_loss_distribution as distributions

    one = distributions.from_gaussian_mechanism(
        multiplier / (episodes * use.longest),
        sampling_prob=use.among(episodes).rate,
        value_discretization_interval=grid,
    )
    composed = one.self_compose(use.updates)
    return with_slip(lambda left: float(composed.get_epsilon_for_delta(left)), delta, use, episodes)


def with_slip(epsilon_of: Callable[[float], float], delta: float, use: Use, episodes: int) -> float:
    """The ε of drawn noise, given that of Gaussian noise as a function of δ; infinite where δ is too small for it."""
    most = epsilon_of(delta) + 1
    left = delta - use.slip(most, episodes)
    found = epsilon_of(left) if left > 0 else math.inf
    return found if found <= most else math.inf


def shift(multiplier: float, use: Use, episodes: int) -> losses.Loss:
    """The loss of updates that take every episode: a Gaussian shift of R·√L/z."""
    return losses.Loss(episodes * use.longest * math.sqrt(use.updates) / multiplier)


@cache
def calibrate(epsilon: float, delta: float, use: Use = ONE_PASS, episodes: int = 1) -> float:
    """The least noise multiplier z that makes training (ε, δ)-DP for a source of so many episodes; 0 for ε = inf.

    >>> [round(calibrate(epsilon, 1e-5), 2) for epsilon in (1.0, 3.0)]
    [3.73, 1.39]
    """
    check_epsilon(epsilon)
    check(delta, use, episodes)
    if math.isinf(epsilon):
        return 0.0
    left = delta - use.slip(epsilon, episodes)
    require(
        left > 0,
        f"at epsilon {epsilon:g} neither noise nor accounting is exact enough for delta {delta:g}: choose a smaller "
        "epsilon (or inf), or a larger delta",
    )
    if use.rate == 1:
        return episodes * use.longest * math.sqrt(use.updates) / losses.mu_of(epsilon, left) * (1 + SAFETY)

    def excess(log_multiplier: float) -> float:
        tried = math.exp(log_multiplier)
        found = spent(tried, delta, use, episodes, coarse(tried, episodes))
        return math.log(min(max(found, 1e-300), 1e300) / epsilon)  # both ends are finite

    low, high = math.log(episodes) - 0.7, math.log(episodes) + 0.7
    while excess(high) > 0:
        low, high = high, high + 1.4
        require(high < MOST_NOISE, f"no noise meets epsilon {epsilon:g} at delta {delta:g}")
    while excess(low) < 0:
        if low < math.log(episodes) + LEAST_NOISE:
            return math.exp(low)  # more than the budget asks for
        low, high = low - 0.7, low
    return math.exp(float(brentq(excess, low, high, xtol=SEARCHED)) + 2 * SEARCHED)  # type: ignore[arg-type]


def event(multiplier: float, use: Use = ONE_PASS, episodes: int = 1) -> Any:
    """The same as a `dp_accounting.DpEvent`, for `NeighboringRelation.ADD_OR_REMOVE_ONE`."""
    import dp_accounting as dp

    if multiplier == 0:
        return dp.NonPrivateDpEvent()
    one: Any = dp.GaussianDpEvent(multiplier / (episodes * use.longest))
    if use.rate < 1:
        one = dp.PoissonSampledDpEvent(use.among(episodes).rate, one)
    return dp.SelfComposedDpEvent(one, use.updates)


def check(delta: float, use: Use, episodes: int) -> None:
    check_delta(delta)
    require(0 < use.rate <= 1, f"rate must lie in (0, 1], not {use.rate}")
    require(whole(use.updates, 1), f"updates must be a whole number from 1, not {use.updates}")
    require(
        whole(use.numbers, 0, MOST_NUMBERS),
        f"private training has bounds for at most {MOST_NUMBERS} numbers an update, not {use.numbers}",
    )
    require(whole(episodes, 1), f"episodes must be a whole number from 1, not {episodes}")


# The statement --------------------------------------------------------------------------------------------------------


RELATION = (
    "one episode source more or less: a person or site, as a function that answers the team's actions, which "
    "contributes at most {count} training episode{plural}, at places fixed in advance"
)
RELEASED = (
    "the weights of the team, also in exported bundles, and everything that follows from the weights: evaluations on "
    "the simulator's own episodes, curves, later updates"
)
NOT_RELEASED = (
    "checkpoints of unfinished runs, which hold the key of the noise and, where there is one, the replay; other runs "
    "trained on episodes of the same source, which add up; settings that were chosen by looking at private episodes"
)
FROM_SEED = (
    "the noise follows from the run's seed: it repeats the run, and protects nothing from whoever knows the seed"
)
MANY = (
    "the claim is for one run, and each of the {runs} runs is a release of its own: a source that takes part in all of "
    "them gives away epsilon {epsilon:.4g}"
)
NO_NOISE = "no noise: gradients are clipped, and published as they are"
PRECISION = (
    "gradients are rounded inwards to a public grid, their sums are exact integers, and noise is discrete Gaussian; "
    "the claim counts the rounding of norms, and the total variation of 2^-78 between a drawn number and exact noise. "
    "Random bits are Threefry's, with a 64-bit key: against whoever can try 2^64 keys nothing is claimed"
)


def multiplier(private: PrivateTraining, use: Use) -> float:
    """The noise multiplier z of private training."""
    assert private.train_epsilon is not None
    return calibrate(private.train_epsilon, private.train_delta, use, private.episodes_per_source)


def claim(private: PrivateTraining, use: Use, batch: int, runs: int = 1) -> dict[str, Any]:
    """What `privacy.json` says about each training of a folder with so many; batch: the constant that sums of gradients
    are divided by.

    >>> said = claim(PrivateTraining(1.0), Use(), 3072)
    >>> round(said["noise_multiplier"], 2), said["sampling"], said["valid"]
    (3.73, 'one pass', True)
    """
    assert private.train_epsilon is not None
    noise, count = multiplier(private, use), private.episodes_per_source
    exact = epsilon(noise, private.train_delta, use, count)
    private_noise = private.train_noise == "system" and noise > 0
    warnings = ([] if noise else [NO_NOISE]) + ([FROM_SEED] if noise and not private_noise else [])
    together = epsilon(noise, private.train_delta, use._replace(updates=use.updates * runs), count)
    if runs > 1 and noise:
        warnings.append(MANY.format(runs=runs, epsilon=together))
    return {
        "epsilon": private.train_epsilon,
        "delta": private.train_delta,
        "neighbours": RELATION.format(count=count, plural="" if count == 1 else "s"),
        "episodes_per_source": count,
        "mechanism": "discrete Gaussian noise on sums of clipped gradients",
        "clip": private.train_clip,
        "noise_multiplier": noise,
        "noise_origin": private.train_noise,
        "batch": batch,
        "sampling": "one pass" if use.once else "poisson",
        "rate": use.rate,
        "updates": use.updates,
        "numbers": use.numbers,
        "exact_epsilon": exact,
        "exact_epsilon_of_all_runs": together,
        "valid": exact <= private.train_epsilon and private_noise,
        "released": RELEASED,
        "not_released": NOT_RELEASED,
        "precision": PRECISION,
        "warnings": warnings,
    }


def joint(private: PrivateTraining, use: Use, messages: Mapping[Release, int], delta: float) -> dict[str, Any]:
    """What a source gives away in all that takes part in training and then in one episode of execution.

    messages: the releases of that episode, all agents' together, for all of them may observe the source; delta: of the
    messages. Gaussian training composes with them exactly, sampled training by adding up ε.
    """
    noise, total = multiplier(private, use), private.train_delta + (delta if messages else 0.0)
    said = accounting.composed(messages)
    if noise == 0:
        found = math.inf
    elif use.rate == 1:
        both = losses.compose([shift(noise, use, private.episodes_per_source), said])
        found = with_slip(lambda left: losses.epsilon_of(both, left), total, use, private.episodes_per_source)
    else:
        trained = epsilon(noise, private.train_delta, use, private.episodes_per_source)
        found = trained + (losses.epsilon_of(said, delta) if messages else 0.0)
    return {
        "epsilon": found,
        "delta": total,
        "covers": "a source that takes part in training, and then in one episode of execution in which everything that "
        "all agents observe may be its own: the published weights and all messages of that episode",
    }
