"""What private training costs: team return against the number of training episodes, a line for each training ε."""

from pathlib import Path
from typing import Any

from dpmac.figures.plots import canvas, save
from dpmac.results import stats


def drawable(found: dict[str, Any]) -> bool:
    """Whether a sweep varied both the length of training and its ε."""
    return all(len(found["space"].get(name, ())) > 1 for name in ("steps", "train_epsilon"))


def lines(found: dict[str, Any]) -> dict[float, list[dict[str, Any]]]:
    """For each training ε its points, one for each number of episodes: of the settings that earned most there."""
    best: dict[tuple[float, int], dict[str, Any]] = {}
    for row in found["rows"]:
        place = row["point"]["train_epsilon"], row["point"]["steps"]
        if row["returns"] and (place not in best or row["return_mean"] > best[place]["return_mean"]):
            best[place] = row
    found_lines: dict[float, list[dict[str, Any]]] = {}
    for (epsilon, steps), row in sorted(best.items()):
        point = {"episodes": steps / found["horizon"], "batch": row["point"].get("episodes"), "returns": row["returns"]}
        found_lines.setdefault(epsilon, []).append(point)
    return found_lines


def files(found: dict[str, Any], out: Path) -> None:
    """OUT/training.svg and training.png: means over seeds with 95 % intervals, and the batch of each point."""
    with canvas(6.5, 4) as picture:
        axes = picture.subplots()
        for epsilon, points in lines(found).items():
            means = [stats.interval(point["returns"]) for point in points]
            across, middle = [point["episodes"] for point in points], [mean.value for mean in means]
            (line,) = axes.plot(across, middle, marker="o", label=f"training ε = {epsilon:g}".replace("inf", "∞"))
            axes.fill_between(
                across, [mean.low for mean in means], [mean.high for mean in means], color=line.get_color(), alpha=0.15
            )
            for x, y, point in zip(across, middle, points, strict=True):
                if point["batch"]:
                    axes.annotate(f"{point['batch']}", (x, y), (0, 4), textcoords="offset points", fontsize=6)
        axes.set_xscale("log")
        axes.set_xlabel("training episodes (beside each point: episodes an update)")
        axes.set_ylabel("team return, mean over seeds")
        axes.legend(frameon=False, fontsize=8)
        for name in ("training.svg", "training.png"):
            save(picture, out / name)
