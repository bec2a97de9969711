"""Return and time against the number of agents, from frontiers of one task with different numbers of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpmac.config import require
from dpmac.figures.frontier import STYLES, number
from dpmac.figures.plots import INK, canvas, save
from dpmac.results import stats, store


class Point(NamedTuple):
    """One line of a frontier at one budget."""

    agents: int
    line: str
    label: str
    returns: list[float]
    """(seed,) of the team."""
    seconds: float | None
    """Of training a run."""
    limit: float | None
    """Of scripted walkers: behind the same channel, or silent."""


def read(path: Path) -> dict[str, Any]:
    """A frontier's folder, or a copy of its frontier.json."""
    found = store.read_json(path / "frontier.json" if path.is_dir() else path)
    require(isinstance(found, dict) and "agents" in found, f"{path} is no frontier that says how many agents it has")
    return found


def points(frontiers: Sequence[dict[str, Any]]) -> list[Point]:
    """Points of the lines and budgets that all frontiers have, by the number of agents."""
    made = []
    kinds = [{(row["line"], row["epsilon"]) for row in found["rows"]} for found in frontiers]
    for found in frontiers:
        limits = found["limits"] or {}
        told = limits.get("lines", {}).get("randomised", {}).get("points", [])
        at = {point["epsilon"]: point["return_mean"] for point in told}
        for row in (row for row in found["rows"] if (row["line"], row["epsilon"]) in set.intersection(*kinds)):
            silent = row["line"] == "silent"
            label = row["label"] if silent else f"{row['label']}, ε = {row['epsilon']:g}"
            once = at.get(row["epsilon"]) if row["line"] == "response-once" else None
            limit = limits.get("silence", {}).get("return_mean") if silent else once
            made.append(Point(found["agents"], row["line"], label, row["returns"], row.get("train_seconds"), limit))
    return sorted(made)


def table(frontiers: Sequence[dict[str, Any]]) -> str:
    """The points for people, as Markdown has it."""
    head = ["agents", "channel", "return, mean", "limit", "return of an agent", "limit of an agent", "seconds"]
    rows = []
    for point in points(frontiers):
        mean, limit = stats.interval(point.returns).value, point.limit
        each = None if limit is None else limit / point.agents
        numbers = [number(mean), number(limit), number(mean / point.agents, ".3f"), number(each, ".3f")]
        rows.append([str(point.agents), point.label, *numbers, number(point.seconds, ".0f")])
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * 2 + ["---:"] * 5, *rows])


def files(frontiers: Sequence[dict[str, Any]], paths: Sequence[Path]) -> None:
    """The picture: return of an agent, each team a mark, beside scripted walkers; and seconds of training a run."""
    drawn = points(frontiers)
    with canvas(9.0, 3.8) as picture:
        earned, spent = picture.subplots(1, 2)
        for line in dict.fromkeys(point.line for point in drawn):
            mine = [point for point in drawn if point.line == line]
            across, (colour, marker, _) = [point.agents for point in mine], STYLES.get(line, (INK, "x", ":"))
            each = [stats.interval(point.returns).value / point.agents for point in mine]
            earned.plot(across, each, marker, color=colour, label=f"teams: {mine[0].label}")
            for point in mine:
                teams = [value / point.agents for value in point.returns]
                earned.plot([point.agents] * len(teams), teams, "_", color=colour, markersize=9)
            limits = [(point.agents, point.limit / point.agents) for point in mine if point.limit is not None]
            if limits:
                label = f"scripted walkers: {mine[0].label}"
                earned.plot(*zip(*limits, strict=True), color=colour, linewidth=1, linestyle="--", label=label)
            if all(point.seconds for point in mine):
                spent.plot(across, [point.seconds for point in mine], marker + "-", color=colour, label=mine[0].label)
        for axes in (earned, spent):
            axes.set_xticks(sorted({point.agents for point in drawn}))
            axes.set_xlabel("agents")
            axes.legend(fontsize=7)
        earned.set_ylabel("return of an agent")
        spent.set_ylabel(f"seconds of training, {frontiers[0]['steps']:,} steps")
        spent.set_ylim(bottom=0)
        for path in paths:
            save(picture, path)
