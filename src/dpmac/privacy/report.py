"""What the paper would claim for a budget, and what is true, side by side."""

from typing import Any

import numpy as np

from dpmac.config import Budget, Channel, require
from dpmac.privacy import limits, mechanisms, statement, theorem


def explain(budget: Budget, channel: Channel, horizon: int, size: int = 8) -> dict[str, Any]:
    """The paper's noise and the exact one for a budget of one ε: what each costs, carries and gives away.

    An eavesdropper hears the whole episode and guesses a secret with k = `channel.symbols` values; `limit_accuracy` is
    the best that any channel of the same exact ε could give away.
    """
    require(len(budget.epsilon) == 1 and np.isfinite(budget.epsilon[0]), "explain needs one finite epsilon")
    require(size >= 1, f"size must be a whole number from 1, not {size}")
    epsilon, delta, unit = budget.epsilon[0], budget.delta, budget.unit
    result: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "unit": unit, "horizon": horizon}
    if mechanisms.of(channel).paper:
        setting, steps = theorem.released(horizon, channel.clip_norm), theorem.steps(unit, horizon)
        found = theorem.feasible(epsilon, delta, setting, steps, least=1 / horizon) if horizon > 1 else None
        result["paper"] = {
            **consequences(Budget((epsilon,), delta, unit, "paper"), channel, horizon, size),
            "naive_episode_epsilon": theorem.naive_episode_epsilon(epsilon, horizon) if unit == "message" else epsilon,
            "side_conditions": [item._asdict() for item in theorem.side_conditions(epsilon, delta, setting, steps)],
            "feasible": None if found is None else {"gamma1": found.gamma1, "beta": found.beta},
        }
    result["exact"] = consequences(Budget((epsilon,), delta, unit), channel, horizon, size)
    return result


def consequences(budget: Budget, channel: Channel, horizon: int, size: int) -> dict[str, Any]:
    """A claim for one agent, and what its noise means."""
    entry = statement.claim(budget, channel, 1, horizon)[0]
    noise = entry["noise"]
    return {
        **{name: entry[name] for name in ("noise", "valid", "exact_epsilon_message", "exact_epsilon_episode")},
        "signal_to_noise": limits.signal_to_noise(channel, noise, size),
        "bits_per_episode": limits.bits_per_episode(channel, noise, size, horizon),
        "eavesdropper_accuracy": limits.eavesdropper_accuracy(channel, noise, horizon),
        "limit_accuracy": limits.private_accuracy(entry["exact_epsilon_episode"], budget.delta, channel.symbols),
    }
