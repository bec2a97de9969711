"""What the paper would claim for a budget, and what is true, side by side."""

from pathlib import Path
from typing import Any

import numpy as np

from dpmac.config import AccountantName, Budget, Channel, require
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


PANELS = {
    "noise": "noise scale",
    "exact_epsilon_message": "exact ε of one message",
    "exact_epsilon_episode": "exact ε of an episode",
    "signal_to_noise": "signal-to-noise ratio",
    "bits_per_episode": "bits per episode, at most",
    "eavesdropper_accuracy": "eavesdropper's accuracy",
}
FORMATS = (".png", ".svg", ".pdf")


def plot(path: str, budget: Budget, channel: Channel, horizon: int, size: int = 8) -> None:
    """Draw what `explain` says over ε, from 0.01 to 30, into a file whose name says the format."""
    require(Path(path).suffix in FORMATS, f"the plot's file must end in {', '.join(FORMATS)}, not {path}")
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    grid = np.geomspace(0.01, 30, 25)
    kinds: dict[AccountantName, str] = {"paper": "C1--", "exact": "C0-"}
    mechanism = mechanisms.of(channel)
    if not mechanism.paper:
        del kinds["paper"]
    told = {
        kind: [consequences(Budget((float(e),), budget.delta, budget.unit, kind), channel, horizon, size) for e in grid]
        for kind in kinds
    }
    figure, axes = pyplot.subplots(2, 3, figsize=(12, 6.5), layout="constrained")
    for axis, (name, title) in zip(axes.ravel(), PANELS.items(), strict=True):
        for kind, style in kinds.items():
            axis.plot(grid, [item[name] for item in told[kind]], style, label=kind)
        if name == "eavesdropper_accuracy":
            axis.plot(grid, [item["limit_accuracy"] for item in told["exact"]], "k:", label="limit at the exact ε")
            axis.axhline(1 / channel.symbols, color="0.7", linewidth=1, label="chance")
        elif not mechanism.share or name != "noise":
            axis.set_yscale("log")
        if name.startswith("exact"):
            axis.plot(grid, grid, "0.7", linewidth=1, label="claimed")
        axis.set(xscale="log", xlabel=f"ε of the budget ({budget.unit})", title=title)
    for place in (0, 5):
        axes.ravel()[place].legend(fontsize="small")
    figure.suptitle(f"{channel.mechanism} channel, T = {horizon}, C = {channel.clip_norm:g}, δ = {budget.delta:g}")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
