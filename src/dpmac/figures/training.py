"""What private training costs: team return against the number of training episodes, a line for each training ε.

The legend names the noise multipliers z, and the upper edge the episodes of an update.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpmac.config import require
from dpmac.figures.plots import canvas, save
from dpmac.results import store


def drawable(found: dict[str, Any]) -> bool:
    """Whether a sweep varied both the length of training and its ε."""
    return all(len(found["space"].get(name, ())) > 1 for name in ("steps", "train_epsilon"))


def read(path: Path) -> dict[str, Any]:
    """What came of a sweep over training ε: a sweep's folder, or a copy of its sweep.json."""
    found = store.read_json(path / "sweep.json" if path.is_dir() else path, "a sweep")
    private = isinstance(found, dict) and "train_epsilon" in found.get("space", {})
    require(private, f"{path} is no sweep over train_epsilon")
    known = all("noise_multiplier" in row for row in found["rows"])
    require(known, f"{path} names no noise multipliers: run its dpmac sweep command again, which trains nothing anew")
    return found


def lines(sweeps: Sequence[dict[str, Any]]) -> dict[tuple[str, float], list[dict[str, Any]]]:
    """For each learner and training ε its points, one for each number of episodes: of the settings that earned most
    there."""
    best: dict[tuple[str, float, float], dict[str, Any]] = {}
    for found in sweeps:
        for row in found["rows"]:
            point = {"steps": found["steps"], **row["point"]}
            place = found["learner"], float(point["train_epsilon"]), point["steps"] / found["horizon"]
            if row["returns"] and (place not in best or row["return_mean"] > best[place]["return_mean"]):
                best[place] = row
    found_lines: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for (learner, epsilon, episodes), row in sorted(best.items()):
        batch = row["point"].get("batch") or row["point"].get("episodes")
        point = {"episodes": episodes, "batch": batch, "noise": row["noise_multiplier"], "returns": row["returns"]}
        found_lines.setdefault((learner, epsilon), []).append(point)
    return found_lines


def files(sweeps: Sequence[dict[str, Any]], paths: Sequence[Path]) -> None:
    """The picture: means over seeds, a mark for each seed, for teams find a code or they do not, and batches."""
    drawn = lines(sweeps)
    several = len({learner for learner, _ in drawn}) > 1
    with canvas(6.5, 4) as picture:
        axes = picture.subplots()
        for (learner, epsilon), points in drawn.items():
            across, seeds = [point["episodes"] for point in points], [point["returns"] for point in points]
            noise = "–".join(dict.fromkeys(f"{pick(point['noise'] for point in points):.3g}" for pick in (min, max)))
            label = f"{learner}, " * several + f"training ε = {epsilon:g} (z = {noise})".replace("inf", "∞")
            (line,) = axes.plot(across, [float(np.mean(each)) for each in seeds], marker="o", markersize=4, label=label)
            for x, each in zip(across, seeds, strict=True):
                axes.plot([x] * len(each), each, "_", color=line.get_color(), markersize=10, alpha=0.6)
        axes.set_xscale("log")
        batches = {(point["episodes"], point["batch"]) for points in drawn.values() for point in points}
        for x in sorted({x for x, _ in batches}):
            named = ", ".join(f"{batch:,}" for batch in sorted(batch for at, batch in batches if at == x and batch))
            axes.annotate(
                named,
                (x, 1),
                (0, 3),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                fontsize=7,
                ha="center",
            )
        axes.set_xlabel("training episodes (above: episodes an update)")
        axes.set_ylabel("team return: means and seeds")
        axes.legend(frameon=False, fontsize=8)
        for path in paths:
            save(picture, path)
