"""Integers plus integer noise on a public grid: what the Gaussian mechanisms have in common.

A message becomes whole steps of a grid, a power of two that depends on C and σ alone, and noise is a whole number of
steps. So the low bits of a floating-point sum, which would tell what was sent, never come to be; and because a message
is rounded before the noise, inwards, rounding costs nothing.
"""

import math
from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from dpmac.config import Release, require
from dpmac.privacy import accounting, audit, checks, dependence, discrete, limits
from dpmac.privacy import loss as losses
from dpmac.privacy.loss import Shift
from dpmac.privacy.mechanisms.base import Mechanism, Source, finite

SAFETY = accounting.SAFETY
MARGIN = 2.0**-20
"""Relative distance that clipped messages keep from C, for the rounding of float32."""
ROOM = 2**30
"""Noise in steps stays below it, and messages below 2²⁶, so that their sum is an int32."""
LONGEST = 8191
"""Numbers of a message at most, so that the sum of their squares, in units, is an int32."""
LOW_BITS = 4
"""Bits of released integers that checks look at."""
LEAST, MOST = -110, 90
"""Exponents of grids that float32 has room for."""


class Grid(NamedTuple):
    """Public numbers of a noise scale, in float32; zeros: messages leave as they are."""

    step: Any
    """The grid, a power of two."""
    per_unit: Any
    """1 / step."""
    deviation: Any
    """σ / step."""
    reach: Any
    """The largest norm (for code points: the one norm) of a message, in steps."""


def exponent_of(value: float) -> int:
    """⌊log₂ value⌋, exactly."""
    return math.frexp(value)[1] - 1


def grid_exponent(clip_norm: float, sigma: float) -> int:
    """log₂ of the grid: 2²⁰ to 2²¹ steps to σ, unless C would then have more than 2²⁵.

    >>> grid_exponent(0.5, 15.93)
    -17
    """
    found = max(exponent_of(sigma) - 20, exponent_of(clip_norm) - 24)
    require(
        clip_norm <= 2.0**18 * sigma and LEAST <= found <= MOST,
        f"sigma must be at least clip_norm / 2^18, both within float32's range, not {sigma} and {clip_norm}",
    )
    return found


def integer_noise(source: Source, deviation: float, count: int) -> np.ndarray:
    """Noise of deployed messages: so many exact draws (count,) of the discrete Gaussian N_Z(0, σ²) as int32.

    `deviation` is σ in steps, taken as the rational number that it is; 0: none. All noise scales have at most 2²¹
    steps, so that a draw that does not fit beside a message is one of 500 σ.
    """
    if deviation == 0:
        return np.zeros(count, np.int32)
    drawn = discrete.discrete_gaussian(deviation, count, source.read)
    require(bool((np.abs(drawn) < ROOM).all()), "a noise draw beyond 2^30 grid steps does not fit; nothing is released")
    return drawn.astype(np.int32)


class Additive(Mechanism):
    """A vector on the grid plus noise on the grid: the discrete Gaussian N_Z(0, σ²) of each number.

    It costs what the continuous N(0, σ²I) would with a variance that is smaller by three squared steps
    (`discrete.comparable`). At 2²⁰ steps to σ that is 1.4e-12 of σ, and calibration leaves a millionth of it.
    """

    noise_name = "sigma"
    option = "sigma"
    released_as = "float32 multiples of a power of two, the same whatever was sent"
    warning = "a run's own noise is simulated in float32 from a seed, and protects nothing; deployed noise is exact"

    def describe_noise(self, noise: float) -> str:
        return f"σ = {noise:.4g}"

    # Accounting -------------------------------------------------------------------------------------------------------

    def width(self) -> float:
        """Δ·√k: the copies of one message taken together are one message of this sensitivity."""
        return self.channel.sensitivity * math.sqrt(self.channel.sent)

    def pool(self, release: Release) -> tuple[Shift, float]:
        """Squares of shifts in standard deviations add up."""
        shift = self.width() / release.noise * (1 + self.discreteness(release.noise))
        return Shift(), self.squares(release) * shift * shift if release.rates else 0.0  # may be infinite

    def squares(self, release: Release) -> float:
        """The squared L2 distance between what neighbours release in the unit before the noise, in squared `width`s."""
        return len(release.rates)

    def extent(self) -> float:
        """How long a message before the noise may be, for which the grid must have room."""
        return self.channel.clip_norm

    def discreteness(self, noise: float) -> float:
        """Share of μ that discrete noise costs more than continuous one: σ/√(σ² − 3) ≤ 1 + 2/σ² from σ = 8 steps on,
        and no agent is deployed with fewer than 64."""
        steps = noise / 2.0 ** max(exponent_of(noise) - 20, exponent_of(self.extent()) - 24)
        return 2 / steps**2 if steps >= 8 else 0.0

    def calibrate(self, plain: Release, epsilon: float, delta: float) -> float:
        return self.width() * math.sqrt(self.squares(plain)) / losses.mu_of(epsilon, delta) * (1 + SAFETY)

    def event(self, release: Release) -> Any:
        """Uses and copies of a Gaussian event with the noise multiplier σ/Δ."""
        import dp_accounting as dp

        gaussian = dp.GaussianDpEvent(release.noise / self.channel.sensitivity)
        return dp.SelfComposedDpEvent(gaussian, accounting.count(release))

    def replaces(self, release: Release) -> bool:
        """`REPLACE_ONE` would double the sensitivity of a Gaussian event in dp-accounting's PLD accountant."""
        return False

    # Limits -----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def signal(self, size: int) -> tuple[float, int]:
        """The largest energy of a message, and the numbers that it is spread over."""

    @abstractmethod
    def apart(self) -> float:
        """How far the k values of a secret can lie from each other, in units of C."""

    def signal_to_noise(self, noise: float, size: int) -> float:
        energy, numbers = self.signal(size)
        return self.channel.sent * energy / (numbers * noise**2)

    def bits(self, noise: float, size: int, horizon: int) -> float:
        """The capacity of a Gaussian channel of this energy."""
        capacity = self.signal(size)[1] / 2 * math.log2(1 + self.signal_to_noise(noise, size)) if noise else math.inf
        return self.channel.uses(horizon) * capacity

    def eavesdropper(self, noise: float, values: int) -> float:
        distance = self.apart() * self.channel.clip_norm * math.sqrt(values) / noise
        return limits.simplex_accuracy(distance, self.channel.symbols)

    # Audits -----------------------------------------------------------------------------------------------------------

    def audit(
        self,
        sample: audit.Sampler,
        delta: float,
        episodes: int,
        noise: float,
        direction: np.ndarray,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> audit.Bound:
        return audit.audit_gaussian(sample, delta, episodes, noise, direction, confidence, seed)

    @abstractmethod
    def reach(self, rows: np.ndarray) -> tuple[float, float]:
        """How far messages (row, number) before the noise reach, and how far they may."""

    def check_released(self, sent: np.ndarray, released: np.ndarray, noise: float) -> list[checks.Check]:
        """Checks of messages right before the noise (episode, time, agent, number) and after it."""
        require(sent.ndim == 4, f"sent must have the axes (episode, time, agent, feature), not {sent.ndim}")
        require(noise > 0, f"sigma must be above 0, not {noise}: without noise there is nothing to check")
        copies, many = released if released.ndim == 5 else released[:, :, :, None], self.channel.sent > 1
        white = (copies.astype(float) - sent[:, :, :, None]) / noise
        found = [self.within_reach(sent), *checks.copies_as_declared(white, self.channel)]
        white = white if many else white[:, :, :, :1]
        products = dependence.products_of_signs(white)
        return [
            *found,
            checks.variance(white, (1,), "noise variance at every step"),
            checks.variance(white, (2,), "noise variance of every agent"),
            checks.variance(white, (4,), "noise variance of every number"),
            checks.variance_by_message(white, sent),
            checks.every_message(white),
            checks.normality(white),
            dependence.no_noise_twice(white),
            dependence.independence(white, 0, "noise independent between episodes"),
            dependence.independence(white, 1, "noise independent over time"),
            dependence.independence(white, 2, "noise independent between agents"),
            *([dependence.independence(white, 3, "noise independent between copies")] if many else []),
            dependence.independence(white, 4, "noise independent between numbers"),
            dependence.agents_at_lags(white, "noise independent between agents at every lag"),
            *dependence.fair_coins(products, sent, "signs of products of noise"),
        ]

    def within_reach(self, sent: np.ndarray) -> checks.Check:
        """No two messages of an agent before the noise are further than Δ = 2C apart: clipping is the last thing before
        it. Agents of different noise have different grids."""
        rows = np.moveaxis(sent, 2, 0).reshape(sent.shape[2], -1, sent.shape[-1]).astype(float)
        reach, limit = max(self.reach(own) for own in rows)
        within = float(reach <= limit * (1 + 1e-5))
        return checks.Check("message within clip_norm", within, f"largest {reach:.6g}, limit {limit:.6g}")

    def white_box(self, before: np.ndarray, left: np.ndarray, noise: np.ndarray) -> list[checks.Check]:
        """In units of each agent's own σ, all noise of a team must look alike; what leaves lies on its agent's grid."""
        if not (np.isfinite(before).all() and np.isfinite(left).all()):
            return [checks.Check("finite numbers", 0.0, f"{(~np.isfinite(left)).sum()} that left are not")]
        scaled = before[:, :, :, None] + (left - before[:, :, :, None]) / noise[:, None, None]
        whole = (steps := self.in_steps(left, noise)) == np.rint(steps)
        grid = checks.Check("numbers on the grid", float(whole.all()), f"{(~whole).sum()} numbers beside it")
        return [*self.check_released(before, scaled, 1.0), grid]

    def check_exact(self, before: np.ndarray, left: np.ndarray, noise: np.ndarray) -> list[checks.Check]:
        """The low bits of whole steps are fair coins. Simulated noise is rounded from float32, ties to even: its lowest
        bit is not. Where a number has more steps than float32 has digits, its low bits are rounded away."""
        copies = slice(None) if self.channel.sent > 1 else slice(1)
        left = np.where(np.isfinite(left), left, 0.0)
        units = np.rint(self.in_steps(left, noise)[:, :, :, copies]).astype(np.int64)[..., None]
        bits = np.where(np.abs(units) < 2**24, 2 * (units >> np.arange(LOW_BITS) & 1) - 1, 0).astype(np.int8)
        return dependence.fair_coins(bits.reshape(*bits.shape[:4], -1), before, "low bits")

    def in_steps(self, left: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """What left (episode, time, agent, copy, number) in steps of each agent's grid."""
        per_unit = np.array([float(self.parameters(float(amount)).per_unit) for amount in noise])
        return np.asarray(left, float) * per_unit[:, None, None]

    # The release ------------------------------------------------------------------------------------------------------

    def draw(self, source: Source, noise: float, size: int) -> np.ndarray:
        return integer_noise(source, self.deviation(noise), size)

    def draws(self, source: Source, noise: float, size: int, count: int) -> np.ndarray:
        return self.draw(source, noise, size * count).reshape(count, size)

    def deviation(self, noise: float) -> float:
        """σ in steps of its grid, exactly: the grid is a power of two."""
        return noise / 2.0 ** grid_exponent(self.extent(), noise) if noise else 0.0

    def valid(self, released: np.ndarray, noise: float) -> bool:
        """Finite and on the grid; without noise, finite."""
        if not super().valid(released, noise):
            return False
        steps = np.asarray(released, float) * float(self.parameters(noise).per_unit)
        return bool((steps == np.rint(steps)).all())

    def radius(self) -> float:
        """The largest norm of what is clipped."""
        return self.channel.clip_norm

    def parameters(self, noise: float, /) -> Grid:
        if noise == 0:
            return Grid(*np.zeros(4, np.float32))
        step = 2.0 ** grid_exponent(self.extent(), noise)
        reach = self.radius() / step * (1 - MARGIN)
        return Grid(*(np.float32(value) for value in (step, 1 / step, noise / step, reach)))

    @abstractmethod
    def steps(self, xp: Any, message: Any, grid: Grid) -> Any:
        """A message as whole steps of the grid (number,), of a norm that is at most the largest."""

    def released(self, xp: Any, message: Any, draws: Any, parameters: Grid) -> Any:
        """(m + z)·grid for m steps of the message and z steps of noise, both int32; without noise, what was made."""
        private = (self.steps(xp, message, parameters) + draws).astype(xp.float32) * parameters.step
        return xp.where(parameters.step > 0, private, self.plain(xp, message)).astype(xp.float32)

    @abstractmethod
    def plain(self, xp: Any, message: Any) -> Any:
        """What leaves without noise."""


def power_of_two(xp: Any, exponent: Any) -> Any:
    """2ⁿ in float32 for whole n from -126 to 127."""
    return ((exponent + 127) << 23).astype(xp.int32).view(xp.float32)


def clipped_steps(xp: Any, message: Any, grid: Grid) -> Any:
    """The message (number,) scaled down to norm C if it is longer, in whole steps, rounded towards zero, as int32.

    Why the norm of the result is never above C/grid. Let e be the exponent of the largest number, and b = message/2^e,
    exactly. With aᵢ = ⌊2¹⁴|bᵢ|⌋ + 1 ≤ 2¹⁵ the squares are summed up in integers, of which H counts units of 2¹²,
    rounded up: 2¹⁴‖b‖ < ‖a‖ ≤ 2⁶√H. A square has 2¹⁸ units at most, so that H ≤ 2¹⁸·d + 1 for d numbers, which is below
    2³¹ for d ≤ 8,191; longer messages are refused. Hence ‖b‖ < 2⁻⁸√H ≤ 2⁻¹⁶n for n = ⌊2⁸√H⌋ + 1. The result is m =
    trunc(b·f) with f = min(2¹⁶·reach/n, 2^e/grid), where reach ≤ (1 − 2⁻²⁰)·C/grid. In real numbers ‖b·f‖ ≤
    ‖b‖·2¹⁶·reach/n < reach. Each of the root, the conversion of H, the quotient and the products is off by a relative
    2⁻²⁴ at most, all of them together by less than 2⁻²¹, which the margin in `reach` exceeds; truncation only shortens.
    Where the second term is the smaller one, the message is short enough and m = trunc(message/grid), exactly.

    Norms come out at most √d/2¹⁴ + 2⁻¹⁶ too large, so that a long message ends so much below C. All of it is integer
    arithmetic, single float32 operations and powers of two: sums in another order, fused products and flushed
    subnormal numbers make no difference, so that NumPy and compiled programs agree in every bit.
    """
    count = message.shape[-1]
    require(count <= LONGEST, f"a message has at most {LONGEST} numbers, not {count}: its norm would overflow")
    message = finite(xp, message)
    largest = xp.max(xp.abs(message), axis=-1, keepdims=True, initial=0.0)
    exponent = xp.maximum((largest.view(xp.int32) >> 23) - 127, -120)
    half = exponent >> 1
    scaled = (message * power_of_two(xp, -half)) * power_of_two(xp, half - exponent)
    parts = (xp.abs(scaled) * 2.0**14).astype(xp.int32).astype(xp.uint32) + 1
    squares = parts * parts
    high, low = (xp.sum(part, axis=-1, keepdims=True, dtype=xp.uint32) for part in (squares >> 12, squares & 0xFFF))
    units = (high + (low >> 12) + 1).astype(xp.int32).astype(xp.float32)
    norm = ((xp.sqrt(units) * 2.0**8).astype(xp.int32) + 1).astype(xp.float32)
    factor = xp.minimum(grid.reach * 2.0**16 / norm, power_of_two(xp, exponent) * grid.per_unit)
    return (scaled * factor).astype(xp.int32)
