"""Return and time against the number of agents, from frontiers of one task with different numbers of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpmac.config import require
from dpmac.figures.frontier import STYLES, number
from dpmac.figures.plots import INK, canvas, save
from dpmac.results import store


class Point(NamedTuple):
    """One line of a frontier at one budget. Everything is of one agent but the number of agents and the seconds."""

    agents: int
    line: str
    label: str
    returns: list[float]
    """(seed,)"""
    limit: float | None
    """Of scripted walkers behind randomised response that is used once."""
    silence: float | None
    """Of scripted walkers who hear nothing."""
    seconds: float | None
    """Of training a run."""


def read(path: Path) -> dict[str, Any]:
    """A frontier's folder, or a copy of its frontier.json."""
    found = store.read_json(path / "frontier.json" if path.is_dir() else path, "a frontier")
    require(isinstance(found, dict) and "agents" in found, f"{path} is no frontier that says how many agents it has")
    return found


def points(frontiers: Sequence[dict[str, Any]]) -> list[Point]:
    """Points of the lines and budgets that all frontiers have, by the number of agents."""
    shared = set.intersection(*({(row["line"], row["epsilon"]) for row in found["rows"]} for found in frontiers))
    made = []
    for found in frontiers:
        limits, agents = found["limits"] or {}, found["agents"]
        told = limits.get("lines", {}).get("randomised", {}).get("points", [])
        earned = {("response-once", point["epsilon"]): point["return_mean"] / agents for point in told}
        silence = limits["silence"]["return_mean"] / agents if "silence" in limits else None
        for row in found["rows"]:
            kind = row["line"], row["epsilon"]
            if kind in shared and row["line"] != "silent":
                label = f"{row['label']}, ε = {row['epsilon']:g}"
                returns = [value / agents for value in row["returns"]]
                made.append(Point(agents, kind[0], label, returns, earned.get(kind), silence, row.get("train_seconds")))
    return sorted(made, key=lambda point: (point.line, point.label, point.agents))


def table(frontiers: Sequence[dict[str, Any]]) -> str:
    """The points for people, as Markdown has it."""
    head = ["channel", "agents", "teams", "team return", "return of an agent", "limit", "silence", "seconds"]
    rows = []
    for point in points(frontiers):
        mean = float(np.mean(point.returns))
        each = [number(value, ".3f") for value in (mean, point.limit, point.silence)]
        counts = [str(point.agents), str(len(point.returns)), number(mean * point.agents)]
        rows.append([point.label, *counts, *each, number(point.seconds, ".0f")])
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---", *["---:"] * 7], *rows])


def files(frontiers: Sequence[dict[str, Any]], paths: Sequence[Path]) -> None:
    """The picture: return of an agent, each team a mark, between scripted walkers; and seconds of training a run."""
    drawn = points(frontiers)
    with canvas(9.0, 3.8) as picture:
        earned, spent = picture.subplots(1, 2)
        for label in dict.fromkeys(point.label for point in drawn):
            mine = [point for point in drawn if point.label == label]
            across, (colour, marker, _) = [point.agents for point in mine], STYLES.get(mine[0].line, (INK, "x", ":"))
            means = [float(np.mean(point.returns)) for point in mine]
            earned.plot(across, means, marker, color=colour, label=f"teams: {label}")
            for point in mine:
                earned.plot([point.agents] * len(point.returns), point.returns, "_", color=colour, markersize=12)
            for name, dash, colour_of in (("limit", "--", colour), ("silence", ":", INK)):
                values = [getattr(point, name) for point in mine]
                if None not in values:
                    what = "the same channel" if name == "limit" else name
                    earned.plot(across, values, dash, color=colour_of, linewidth=1, label=f"scripted walkers: {what}")
            timed = [(point.agents, point.seconds) for point in mine if point.seconds is not None]
            spent.plot(*zip(*timed, strict=True), marker + "-", color=colour, label=label) if timed else None
        for axes in (earned, spent):
            axes.set_xticks(sorted({point.agents for point in drawn}))
            axes.set_xlabel("agents")
            axes.legend(fontsize=7)
        earned.set_ylabel("return of an agent")
        spent.set_ylabel(f"seconds of training, {frontiers[0]['steps']:,} steps")
        spent.set_ylim(bottom=0)
        for path in paths:
            save(picture, path)
