"""A run in a few numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpmac.results import stats, store


def summary(folder: Path, unit: str, step: int, scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a finished command says of a run: returns by budget, from scores of its teams (see `analysis.evaluate`), and
    what the privacy claim is worth."""
    claims = store.read_json(folder / "privacy.json")["claims"]
    budgets = []
    for label, entries in claims.items():
        mine = [score for score in scores if score["epsilon"] == label]
        returns = [score["return_mean"] for score in mine]
        over = stats.interval(returns)
        budgets.append(
            {
                "epsilon": label,
                "return_mean": over.value,
                "return_ci95": [over.low, over.high] if len(mine) > 1 else mine[0]["return_ci95"],
                "returns": returns,
                "valid": all(entry["valid"] for entry in entries),
                "exact_epsilon_episode": max((float(e["exact_epsilon_episode"]) for e in entries), default=0.0),
                "unit": entries[0].get("covers", entries[0]["unit"]) if entries else None,
            }
        )
    episodes = scores[0]["episodes"] if scores else 0
    return {"folder": str(folder), "step": step, "episodes": episodes, "reward_unit": unit, "budgets": budgets}
