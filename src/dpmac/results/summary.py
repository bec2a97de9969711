"""A run in a few numbers."""

from pathlib import Path
from typing import Any

from dpmac.results import store


def summary(folder: Path, unit: str) -> dict[str, Any]:
    """What a finished command says of a run: returns by budget and what the privacy claim is worth."""
    rows = [row for row in store.read_metrics(folder) if row.name == "return"]
    last = max((row.step for row in rows), default=0)
    claims = store.read_json(folder / "privacy.json")["claims"]
    budgets = []
    for label, entries in claims.items():
        final = [row.value for row in rows if row.budget == label and row.step == last]
        budgets.append(
            {
                "epsilon": label,
                "return_mean": sum(final) / max(len(final), 1),
                "returns": final,
                "valid": all(entry["valid"] for entry in entries),
                "exact_epsilon_episode": max((float(e["exact_epsilon_episode"]) for e in entries), default=0.0),
                "unit": entries[0]["unit"] if entries else None,
            }
        )
    return {"folder": str(folder), "step": last, "reward_unit": unit, "budgets": budgets}
