"""The paper's Theorem (one step) and Corollary (one episode): its σ, the inverse, and the conditions it asks for.

This is what the paper claims, offered as the paper states it. What is true of the same σ is in `accounting`. Neighbours
are, in the paper's words, data sets "differing by one element"; read as one transition of the sender.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpmac.config import Unit, positive, require, whole


@dataclass(frozen=True)
class Setting:
    """The theorem's constants other than ε and δ."""

    gamma1: float
    """γ₁, sampling rate of transitions."""
    gamma2: float = 1.0
    """γ₂, sampling rate of recipients."""
    agents: int = 2
    """N in the noise formula."""
    clip_norm: float = 0.5
    """C; the theorem's sensitivity is 2C."""
    beta: float = 0.5
    """β, the share of ε that the Rényi divergence may take."""

    def __post_init__(self) -> None:
        for name in ("gamma1", "gamma2"):
            value = getattr(self, name)
            require(0 < value <= 1, f"{name} must lie in (0, 1], not {value}")
        require(0 < self.beta < 1, f"beta must lie strictly between 0 and 1, not {self.beta}")
        require(whole(self.agents, 1), f"agents must be a whole number from 1, not {self.agents}")
        require(positive(self.clip_norm), f"clip_norm must be a finite number above 0, not {self.clip_norm}")


def released(horizon: int, clip_norm: float = 0.5) -> Setting:
    """What the released code used on every task: γ₁ = 1/T, γ₂ = 1 (outside the theorem's own range), N = 2, β = 1/2."""
    require(whole(horizon, 1), f"horizon must be a whole number from 1, not {horizon}")
    return Setting(gamma1=1 / horizon, clip_norm=clip_norm)


def order(epsilon: Any, delta: Any, beta: Any) -> Any:
    """α = log(1/δ) / (ε(1−β)) + 1, the order of the Rényi divergence."""
    return np.log(1 / np.asarray(delta)) / (np.asarray(epsilon) * (1 - beta)) + 1


def sigma(epsilon: Any, delta: Any, setting: Setting, horizon: int = 1) -> Any:
    """σ = √(14·γ₂·γ₁²·N·C²·α·T / (β·ε)); T = 1 is the theorem (a step), T > 1 the corollary (an episode).

    ε and δ may be arrays, one entry per agent.

    >>> round(float(sigma(1.0, 1e-4, released(25))), 4)
    0.6596
    """
    check(epsilon, delta, horizon)
    factor = divergence_factor(setting, horizon)
    return np.sqrt(factor * order(epsilon, delta, setting.beta) / (setting.beta * np.asarray(epsilon)))


def epsilon(sigma: Any, delta: Any, setting: Setting, horizon: int = 1) -> Any:
    """The ε that the paper claims for this σ: the positive root of βσ²ε² − Kε − K·log(1/δ)/(1−β) = 0.

    >>> round(float(epsilon(0.6596, 1e-4, released(25))), 3)
    1.0
    """
    require(bool(np.all(np.asarray(sigma) > 0)), f"sigma must be above 0, not {sigma}")
    check(1.0, delta, horizon)
    k = divergence_factor(setting, horizon)
    a = setting.beta * np.asarray(sigma) ** 2
    return (k + np.sqrt(k**2 + 4 * a * k * np.log(1 / np.asarray(delta)) / (1 - setting.beta))) / (2 * a)


def naive_episode_epsilon(epsilon: float, horizon: int, beta: float = 0.5) -> float:
    """Tε + (T−1)·log δ/(α−1) = ε(1 + (T−1)β): the paper's bound for an episode at the noise of a step."""
    check(epsilon, 0.5, horizon)
    return epsilon * (1 + (horizon - 1) * beta)


def steps(unit: Unit, horizon: int) -> int:
    """T in the formula: 1 for the theorem, the horizon for the corollary."""
    return horizon if unit == "episode" else 1


class Condition(NamedTuple):
    """One of the theorem's demands; `margin` is how far inside (≥ 0) or outside (< 0) the value lies."""

    name: str
    holds: bool
    value: float
    limit: float
    margin: float


def side_conditions(epsilon: float, delta: float, setting: Setting, horizon: int = 1) -> list[Condition]:
    """Every condition of the theorem at its own σ, with the reading α ≤ (2/3)σ′²·log(1/(γ₁α(1+σ′²))) + 1.

    >>> [item.name for item in side_conditions(1.0, 1e-4, released(25)) if not item.holds]
    ['gamma2 < 1', "sigma'^2 >= 0.7", 'alpha <= bound']
    """
    alpha = float(order(epsilon, delta, setting.beta))
    scaled = float(sigma(epsilon, delta, setting, horizon)) ** 2 / (4 * setting.clip_norm**2)
    bound = float(order_bound(alpha, scaled, setting.gamma1))
    return [
        Condition("gamma1 < 1", setting.gamma1 < 1, setting.gamma1, 1.0, 1 - setting.gamma1),
        Condition("gamma2 < 1", setting.gamma2 < 1, setting.gamma2, 1.0, 1 - setting.gamma2),
        Condition("sigma'^2 >= 0.7", scaled >= 0.7, scaled, 0.7, scaled - 0.7),
        Condition("alpha <= bound", alpha <= bound, alpha, bound, bound - alpha),
    ]


def feasible(
    epsilon: float, delta: float, setting: Setting, horizon: int = 1, gamma1: float | None = None, least: float = 1e-6
) -> Setting | None:
    """The (γ₁, β) with the smallest σ among those that meet the conditions on σ′² and α, or None where no pair does.

    The other constants come from `setting`; `gamma1` fixes the rate, `least` bounds it from below (1/T: a sender that
    draws something). The search is a grid in log β (both ends of (0, 1)) and log γ₁.

    >>> feasible(3.0, 1e-4, released(25), gamma1=1 / 25) is None
    True
    """
    check(epsilon, delta, horizon)
    require(0 < least < 1, f"least must lie strictly between 0 and 1, not {least}")
    require(gamma1 is None or 0 < gamma1 < 1, f"gamma1 must lie strictly between 0 and 1, not {gamma1}")
    small = np.geomspace(1e-8, 0.5, 800)
    beta = np.concatenate([small, 1 - small])[:, None]
    gamma = np.array([gamma1]) if gamma1 is not None else np.geomspace(least, 1, 1200, endpoint=False)
    alpha = order(epsilon, delta, beta)
    unit = dataclasses.replace(setting, gamma1=1.0)
    variance = divergence_factor(unit, horizon) * gamma**2 * alpha / (beta * epsilon)
    scaled = variance / (4 * setting.clip_norm**2)
    fits = (scaled >= 0.7) & (alpha <= order_bound(alpha, scaled, gamma))
    if not fits.any():
        return None
    row, column = np.unravel_index(np.argmin(np.where(fits, variance, np.inf)), variance.shape)
    return dataclasses.replace(setting, gamma1=float(gamma[column]), beta=float(beta[row, 0]))


def divergence_factor(setting: Setting, horizon: int) -> float:
    """K = 14·γ₂·γ₁²·N·C²·T: the message is (α, Kα/σ²)-RDP by the paper's proof."""
    return 14 * setting.gamma2 * setting.gamma1**2 * setting.agents * setting.clip_norm**2 * horizon


def order_bound(alpha: Any, scaled: Any, gamma1: Any) -> Any:
    """(2/3)σ′²·log(1/(γ₁·α·(1+σ′²))) + 1, the largest order for which the amplification lemma holds."""
    return 2 / 3 * scaled * np.log(1 / (gamma1 * alpha * (1 + scaled))) + 1


def check(epsilon: Any, delta: Any, horizon: int) -> None:
    inside = np.asarray(epsilon, float), np.asarray(delta, float)
    require(
        bool(np.all(np.isfinite(inside[0]) & (inside[0] > 0))), f"epsilon must be finite and above 0, not {epsilon}"
    )
    require(bool(np.all((inside[1] > 0) & (inside[1] < 1))), f"delta must lie strictly between 0 and 1, not {delta}")
    require(whole(horizon, 1), f"horizon must be a whole number from 1, not {horizon}")
