"""What a channel's releases cost: exact ε(δ) and δ(ε), the noise that meets a budget, and the event for dp-accounting.

Everything follows from a `config.Release`. Neighbours are two inputs of one agent, all else being equal: those of one
message, or those of a whole episode (see `Release.neighbours` for the narrower relation of one transition). The cost is
what an adversary learns who sees every released message; that recipients see fewer is no part of the claim.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpmac.config import Channel, Neighbours, Release, Unit, require
from dpmac.privacy import loss as losses
from dpmac.privacy.loss import Loss

SAFETY = 1e-6
"""Relative surplus of calibration, so that rounding σ to float32 does not break the budget."""


def epsilon(release: Release, delta: float) -> float:
    """The smallest ε for which the release is (ε, δ)-DP; infinite without noise, or with noise at the receiver.

    >>> round(epsilon(Release(Channel(clip_norm=0.5), noise=0.6596, horizon=25), 1e-4), 1)
    56.1
    """
    check_delta(delta)
    rate = sampling_rate(release)
    if rate is None or unprotected(release):
        return losses.epsilon_of(loss(release, delta), delta)
    if delta >= rate:
        return 0.0
    return losses.amplified(losses.epsilon_of(Loss(shift(release)), delta / rate), rate)


def delta(release: Release, epsilon: float) -> float:
    """The smallest δ for which the release is (ε, δ)-DP.

    >>> round(delta(Release(Channel(clip_norm=0.5), noise=3.1855, horizon=1), 1.0), 6)
    0.0001
    """
    require(epsilon >= 0 and math.isfinite(epsilon), f"epsilon must be finite and at least 0, not {epsilon}")
    rate = sampling_rate(release)
    if rate is None or unprotected(release):
        return losses.delta_of(loss(release, 1e-12), epsilon)
    return rate * float(losses.gaussian_delta(losses.unamplified(epsilon, rate), shift(release)))


def pure_epsilon(release: Release) -> float:
    """ε at δ = 0, which only randomised response has: ε₀ for each symbol that leaves."""
    if unprotected(release) or release.channel.mechanism != "response":
        return math.inf
    return count(release) * losses.response_epsilon(release.noise, release.channel.symbols)


def calibrate(
    channel: Channel,
    epsilon: float,
    delta: float,
    horizon: int = 1,
    unit: Unit = "episode",
    neighbours: Neighbours = "inputs",
) -> float:
    """The least noise that makes the channel (ε, δ)-DP: σ, or the flip probability; 0 for ε = inf.

    A symbol that leaves only once is calibrated to ε at δ = 0: spending δ would win it less than δ of accuracy.

    >>> round(calibrate(Channel(clip_norm=0.5), 1.0, 1e-4, horizon=25), 2)
    15.93
    """
    require(epsilon > 0, f"epsilon must be above 0 (inf: free messages), not {epsilon}")
    check_delta(delta)
    plain = Release(channel, 0.0, horizon, unit, neighbours)
    if math.isinf(epsilon):
        return 0.0
    require(channel.place == "sender", "no noise at the receiver meets a budget: it has seen the raw message")
    require(
        len(plain.rates) > 0, "this sender never draws a transition within the horizon, so it has no budget to meet"
    )
    if channel.mechanism == "response":
        return response_flip(plain, epsilon, delta)
    rate = sampling_rate(plain)
    if rate is not None:
        require(delta < rate, f"delta ({delta}) must lie below the rate of sampling ({rate:.4g})")
        return width(plain) / losses.mu_of(float(losses.unamplified(epsilon, rate)), delta / rate) * (1 + SAFETY)
    unsampled = width(plain) * math.sqrt(len(plain.rates)) / losses.mu_of(epsilon, delta) * (1 + SAFETY)
    return sampled_sigma(plain, epsilon, delta, unsampled) if min(plain.rates) < 1 else unsampled


def event(release: Release) -> Any:
    """The release as a `dp_accounting.DpEvent`, for `relation(release)`.

    Noise multipliers are σ/Δ. Uses of randomised response are listed one by one, because dp-accounting 0.6's PLD
    accountant overlooks the count of a `SelfComposedDpEvent` around them.
    """
    import dp_accounting as dp

    channel, rates = release.channel, release.rates
    if not rates:
        return dp.NoOpDpEvent()
    if unprotected(release):
        return dp.NonPrivateDpEvent()
    if channel.mechanism == "response":
        uniform = release.noise * channel.symbols / (channel.symbols - 1)  # its flips may fall on the symbol itself
        return dp.ComposedDpEvent([dp.RandomizedResponseDpEvent(uniform, channel.symbols)] * count(release))
    gaussian = dp.GaussianDpEvent(release.noise / channel.sensitivity)
    if min(rates) == 1:
        return dp.SelfComposedDpEvent(gaussian, count(release))
    copies = dp.SelfComposedDpEvent(gaussian, channel.sent)  # recipients share the subset and differ in noise
    shares = [Fraction(rate).limit_denominator(release.horizon) for rate in rates]
    return dp.ComposedDpEvent(
        [dp.SampledWithoutReplacementDpEvent(share.denominator, share.numerator, copies) for share in shares]
    )


def relation(release: Release) -> Any:
    """The neighbouring relation under which dp-accounting's accountants read `event(release)` as it is meant.

    `REPLACE_ONE` doubles the sensitivity of a plain Gaussian event in the PLD accountant, but not in the RDP one.
    """
    import dp_accounting as dp

    replaces = release.channel.mechanism == "response" or min(release.rates, default=1.0) < 1
    return dp.NeighboringRelation.REPLACE_ONE if replaces else dp.NeighboringRelation.ADD_OR_REMOVE_ONE


def loss(release: Release, delta: float) -> Loss:
    """The privacy loss of a release; `delta` is the scale of what a sampled one may ignore."""
    channel, rates = release.channel, release.rates
    if unprotected(release):
        return Loss(infinite=1.0)
    if not rates:
        return Loss()
    if channel.mechanism == "response":
        return losses.response(release.noise, channel.symbols, count(release))
    if min(rates) < 1:
        return losses.sampled(shift(release), rates, delta)
    return Loss(shift(release) * math.sqrt(len(rates)))


def unprotected(release: Release) -> bool:
    """Whether an adversary sees messages as they are."""
    return len(release.rates) > 0 and (release.noise == 0 or release.channel.place == "receiver")


def count(release: Release) -> int:
    """Noisy values that leave within the unit."""
    return len(release.rates) * release.channel.sent


def width(release: Release) -> float:
    """Δ·√k: the copies of one message taken together are one message of this sensitivity."""
    return release.channel.sensitivity * math.sqrt(release.channel.sent)


def shift(release: Release) -> float:
    """μ of one release."""
    return width(release) / release.noise


def sampling_rate(release: Release) -> float | None:
    """γ of a single sampled release, which has a closed form; None for all others."""
    return release.rates[0] if len(release.rates) == 1 and release.rates[0] < 1 else None


def response_flip(plain: Release, epsilon: float, delta: float) -> float:
    """The least flip probability for which n uses of randomised response are (ε, δ)-DP."""
    symbols, uses = plain.channel.symbols, count(plain)
    if uses == 1:
        return losses.response_flip(epsilon, symbols)

    def excess(each: float) -> float:
        return losses.delta_of(losses.response(losses.response_flip(each, symbols), symbols, uses), epsilon) - delta

    # One use alone breaks the budget where (1−f) − e^ε·f/(k−1) > δ.
    most = losses.response_epsilon((1 - delta) * losses.response_flip(epsilon, symbols), symbols)
    each = losses.solve(excess, epsilon / uses, most)
    return losses.response_flip(each * (1 - SAFETY), symbols)


def sampled_sigma(plain: Release, epsilon: float, delta: float, unsampled: float) -> float:
    """σ of a sampled sender to a thousandth, from the safe side; sampling never needs more than `unsampled`."""

    def meets(sigma: float) -> bool:
        return losses.delta_of(loss(replace(plain, noise=sigma), delta), epsilon) <= delta

    low = high = unsampled
    while meets(low):
        low, high = low / 2, low
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def check_delta(delta: float) -> None:
    require(0 < delta < 1, f"delta must lie strictly between 0 and 1, not {delta}")
