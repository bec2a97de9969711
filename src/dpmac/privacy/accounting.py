"""What a channel's releases cost: exact ε(δ) and δ(ε), the noise that meets a budget, and the event for dp-accounting.

Everything follows from a `config.Release`. Neighbours are two inputs of one agent, which an adversary picks from the
messages so far: before one message, or before every message of an episode (see `Release.neighbours` for the narrower
relations of one transition and of one increment). The cost is what the adversary learns who sees every released
message; that recipients see fewer is no part of the claim. Costs are exact and rounded up; beyond 2,048 uses of
symbols, and for senders that sample over several releases, they are bounds from the safe side.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpmac.config import Channel, Neighbours, Release, Unit, check_delta, check_epsilon, require
from dpmac.privacy import loss as losses
from dpmac.privacy import mechanisms

if TYPE_CHECKING:
    from dpmac.privacy.mechanisms.base import Mechanism

SAFETY = 1e-6
"""Relative surplus of calibration, so that rounding σ to float32 does not break the budget."""


def epsilon(release: Release, delta: float) -> float:
    """The smallest ε for which the release is (ε, δ)-DP; infinite without noise, or with noise at the receiver.

    >>> round(epsilon(Release(Channel(clip_norm=0.5), noise=0.6596, horizon=25), 1e-4), 1)
    56.1
    """
    check_delta(delta)
    return mechanism_of(release).epsilon(release, delta)


def delta(release: Release, epsilon: float) -> float:
    """The smallest δ for which the release is (ε, δ)-DP.

    >>> round(delta(Release(Channel(clip_norm=0.5), noise=3.1855, horizon=1), 1.0), 6)
    0.0001
    """
    require(epsilon >= 0 and math.isfinite(epsilon), f"epsilon must be finite and at least 0, not {epsilon}")
    return mechanism_of(release).delta(release, epsilon)


def pure_epsilon(release: Release) -> float:
    """ε at δ = 0, which only mechanisms that send symbols have: ε₀ for each symbol that leaves."""
    return mechanism_of(release).pure_epsilon(release)


def calibrate(
    channel: Channel,
    epsilon: float,
    delta: float,
    horizon: int = 1,
    unit: Unit = "episode",
    neighbours: Neighbours = "inputs",
) -> float:
    """The least noise that makes the channel (ε, δ)-DP: the noise scale of its mechanism; 0 for ε = inf.

    A symbol that leaves only once is calibrated to ε at δ = 0: spending δ would win it less than δ of accuracy. A
    finite ε whose symbols would be replaced more rarely than 64-bit words can draw is `BadInput`.

    >>> round(calibrate(Channel(clip_norm=0.5), 1.0, 1e-4, horizon=25), 2)
    15.93
    """
    check_epsilon(epsilon)
    check_delta(delta)
    mechanism, plain = mechanisms.of(channel), Release(channel, 0.0, horizon, unit, neighbours)
    if math.isinf(epsilon):
        return 0.0
    require(channel.place == "sender", "no noise at the receiver meets a budget: it has seen the raw message")
    require(
        len(plain.rates) > 0, "this sender never draws a transition within the horizon, so it has no budget to meet"
    )

    def cost(noise: float) -> float:
        mechanism.check_noise(noise)
        return mechanism.epsilon(replace(plain, noise=noise), delta)

    noise = mechanism.calibrate(plain, epsilon, delta)
    require(noise > 0, f"no noise is small enough for epsilon {epsilon:g}: choose a smaller epsilon, or inf")
    return accepted(noise, cost, epsilon)


def accepted(noise: float, cost: Callable[[float], float], epsilon: float) -> float:
    """The noise, or as little more as it takes for what it costs, which is rounded up, not to exceed ε."""
    more = losses.ULP
    while cost(noise) > epsilon:
        require(more < 1, f"no noise is found that costs epsilon {epsilon:g} at most: choose a larger epsilon or delta")
        noise, more = noise * (1 + more), 2 * more
    return noise


def event(release: Release) -> Any:
    """The release as a `dp_accounting.DpEvent`, for `relation(release)`; the mechanism says whether it is exact."""
    import dp_accounting as dp

    if not release.rates:
        return dp.NoOpDpEvent()
    if unprotected(release):
        return dp.NonPrivateDpEvent()
    return mechanism_of(release).event(release)


def relation(release: Release) -> Any:
    """The neighbouring relation under which dp-accounting's accountants read `event(release)` as it is meant.

    `REPLACE_ONE` doubles the sensitivity of a plain Gaussian event in the PLD accountant, but not in the RDP one.
    """
    import dp_accounting as dp

    kinds = dp.NeighboringRelation
    return kinds.REPLACE_ONE if mechanism_of(release).replaces(release) else kinds.ADD_OR_REMOVE_ONE


def composed(account: Mapping[Release, int], adaptive: bool = False) -> losses.Loss:
    """The loss of so many releases of each kind together.

    It is exact where these numbers are fixed in advance. adaptive: each next kind may be chosen from what was released
    before. Then only one pool is composed exactly, and several are the Gaussian shifts that dominate them.
    """
    if any(unprotected(release) for release in account):
        return losses.Loss(infinite=1.0)
    pools = pooled(account)
    if adaptive and len(pools) > 1:
        return losses.Shift().loss(sum(pool.squared(amount) for pool, amount in pools.items()))
    return losses.compose([pool.loss(amount) for pool, amount in pools.items()])


def pooled(account: Mapping[Release, int]) -> dict[losses.Pool, float]:
    """Protected releases that add up, in the order in which the account has them."""
    pools: dict[losses.Pool, float] = {}
    for release, times in account.items():
        if release.rates and not unprotected(release):
            pool, amount = mechanism_of(release).pool(release)
            pools[pool] = pools.get(pool, 0) + times * amount
    return pools


def mechanism_of(release: Release) -> "Mechanism":
    """The mechanism of a release, whose noise scale is one that it has."""
    found = mechanisms.of(release.channel)
    found.check_noise(release.noise)
    return found


def unprotected(release: Release) -> bool:
    """Whether an adversary sees messages as they are."""
    return len(release.rates) > 0 and (release.noise == 0 or release.channel.place == "receiver")


def count(release: Release) -> int:
    """Noisy values that leave within the unit."""
    return len(release.rates) * release.channel.sent
