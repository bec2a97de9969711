"""A frontier as a table, as a picture and as a part of a page, from the data of frontier.json alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from dpmac import privacy
from dpmac.config import RunConfig, require
from dpmac.figures.plots import INK, Panel, box_of, canvas, save, to_svg
from dpmac.results import store

HEAD = (
    "channel and schedule",
    "exact ε",
    "return, IQM",
    "95 % interval",
    "above silence",
    "overheard",
    "cap",
    "audit, ε ≥",
)
GAPS = {
    "right": "symbol right",
    "right_in_view": "in view",
    "right_after": "after flips",
    "return_on": "return",
    "return_off": "without flips",
    "told": "told all",
}
LIMITS = {
    "randomised": "k-ary response",
    "two": "two symbols",
    "fixed": "fixed code",
    "shared": "code that uses the scene",
    "public": "code, scene public",
    "every": "every step, Bayes receivers",
    "word": "on the moment, Bayes receivers",
    "bound": "bound for everybody",
}
"""What codes earn by scripted walkers or Bayes receivers, and the bound, in the order of `analysis.limit`."""
DRAWN = {
    "fixed": ("fixed code (scripted walkers)", "#555555", ":"),
    "shared": ("code that uses the scene (scripted walkers)", "#555555", "--"),
    "public": ("code if the scene were public (scripted walkers)", "#555555", "-."),
    "every": ("every step, binary (Bayes receivers)", "#555555", ":"),
    "word": ("on the moment (Bayes receivers)", "#555555", "--"),
    "bound": ("bound: no mechanism and no walker passes", INK, "-"),
}
"""Limits in the picture: what each is, its colour and dash."""
STYLES = {
    "response-once": ("#2a6fc9", "o", "-"),
    "response-every": ("#7fb2ea", "s", "--"),
    "response-fourth": ("#7fb2ea", "P", ":"),
    "response-timed": ("#7a3fb0", "*", "-"),
    "code-once": ("#3d9a50", "D", "-"),
    "gaussian-once": ("#e0932f", "^", "-"),
    "gaussian-every": ("#c4472f", "v", "--"),
    "response-sparse": ("#2a6fc9", "P", ":"),
    "gaussian-increment": ("#b79ad1", "<", "--"),
    "sums-increment": ("#8f5fbf", ">", "--"),
    "correlated-increment": ("#5b2a8c", "*", "-"),
}
"""Colour, marker and dash of each line; those from elsewhere are grey."""
DASHES = {"random": ":", "scripted": ":"}
"""Of policies that are not trained."""
NAME = 0.055
"""Height of the name of a level, as a share of the picture's."""


# Tables ---------------------------------------------------------------------------------------------------------------


def number(value: Any, form: str = ".2f") -> str:
    """A number for people; infinity is written as JSON has it."""
    return "-" if value is None else format(float(value), form)


def interval(low: Any, high: Any, form: str = ".2f") -> str:
    return f"[{number(low, form)}, {number(high, form)}]"


def rows_of(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """The frontier's rows as text, in the order of `HEAD`."""
    return [row_of(row) for row in found["rows"]]


def row_of(row: dict[str, Any]) -> tuple[str, ...]:
    gain, heard, audit = row["above_silence"], row["eavesdropper"], row["audit"]
    form = ".3f" if abs(row["return_iqm"]) < 1 else ".2f"
    signed = f"+{form}"
    refuted = audit and (audit["refuted"] or audit["failed_checks"])
    return (
        row["label"],
        number(row["exact_epsilon"], ".4g"),
        number(row["return_iqm"], form),
        interval(row["return_low"], row["return_high"], form),
        "-" if gain is None else f"{number(gain['value'], signed)} {interval(gain['low'], gain['high'], signed)}",
        number(heard and heard["accuracy"], ".3f"),
        number(heard and heard["cap"], ".3f") + (" VIOLATED" if heard and heard["verdict"] == "violated" else ""),
        number(audit and audit["lower_bound"]) + (" REFUTED" if refuted else ""),
    )


def gap_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """Where lines of symbols lose what their channel could carry, as text, in the order of `GAPS`."""
    rows, limits = [], limits_of(found)
    told = limits["fixed"][-1]["return_mean"] if "fixed" in limits else None
    for row in (row for row in found["rows"] if row["gap"]):
        numbers = row["gap"] | {"told": told}
        shares = [number(numbers.get(name), ".3f" if name.startswith("right") else ".2f") for name in GAPS]
        rows.append((row["label"], number(row["exact_epsilon"], ".4g"), *shares))
    return rows


def limits_of(found: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Points of each limit by ε; none where the task has no limits, or version 0.1 worked them out."""
    return {name: line["points"] for name, line in ((found.get("limits") or {}).get("lines") or {}).items()}


def limit_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """The limits of the task at the budgets as text."""
    budgets = {float(row["epsilon"]) for row in found["rows"]}
    at = {name: {point["epsilon"]: point["return_mean"] for point in line} for name, line in limits_of(found).items()}
    return [
        (number(epsilon, ".4g"), *(number(at[name].get(epsilon)) for name in at))
        for epsilon in sorted(budgets)
        if any(epsilon in line for line in at.values())
    ]


def increments_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows whose budgets protect one increment; frontiers of version 0.1 have none."""
    return [row for row in found["rows"] if row.get("covers") == "increment"]


def increment_rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """What budgets of one increment leave of an episode, as text."""
    exact = ("exact_epsilon", "episode_epsilon")
    return [(row["label"], *(number(row[name], ".4g") for name in exact)) for row in increments_of(found)]


def tables(found: dict[str, Any]) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Head and rows of each table: the teams, what an increment's budget is for an episode, where symbols lose, and the
    limits; those without rows are left out."""
    every = [
        (HEAD, rows_of(found)),
        (("protected: one increment", "exact ε of an increment", "exact ε of the episode"), increment_rows(found)),
        (("channel and schedule", "exact ε", *GAPS.values()), gap_rows(found)),
        (("ε", *(LIMITS[name] for name in limits_of(found))), limit_rows(found)),
    ]
    return [(head, rows) for head, rows in every if rows]


def scored(found: dict[str, Any]) -> str:
    """What returns are means over."""
    starts = f"{found['final_episodes']:,} common starts"
    if found.get("scored") == "all secrets":
        return f"on {starts}, the mean over all secrets and, where these are few, over all that may be released"
    if found.get("scored", "one draw") != "one draw":
        return f"on {starts}, the mean over {found['scored']} of secrets and noise for each"
    return f"on {starts} with one draw of secrets and noise each, which luck may lift above a limit"


def aligned(grid: Sequence[Sequence[str]]) -> str:
    """Rows in columns, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = []
    for row in grid:
        first, *rest = zip(row, widths, strict=True)
        lines.append("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]))
    return "\n".join(lines)


def table(found: dict[str, Any]) -> str:
    """Everything for people."""
    parts = [aligned([head, *rows]) for head, rows in tables(found)]
    return "\n\n".join(
        [*parts, f"return: sum of an episode's rewards ({found['reward_unit']}); scored {scored(found)}"]
    )


def marked(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    grid = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in grid)


# The picture ----------------------------------------------------------------------------------------------------------


def finite(found: dict[str, Any], line: str) -> list[dict[str, Any]]:
    """The rows of a line at finite budgets, by ε."""
    rows = [row for row in found["rows"] if row["line"] == line and 0 < float(row["exact_epsilon"]) < np.inf]
    return sorted(rows, key=lambda row: float(row["exact_epsilon"]))


def lines_of(found: dict[str, Any]) -> list[str]:
    """Lines that have finite budgets, in their order."""
    return [line for line in dict.fromkeys(row["line"] for row in found["rows"]) if finite(found, line)]


def level(axes: Axes, value: float, text: str, dash: Any = (0, (4, 3)), above: bool = True) -> None:
    """A horizontal line, with a text at its left end unless it is empty."""
    axes.axhline(value, color=INK, linewidth=0.8, linestyle=dash, alpha=0.65)
    at, side = ((3, 2), "bottom") if above else ((3, -2), "top")
    axes.annotate(text, (0, value), at, ("axes fraction", "data"), "offset points", va=side, fontsize=7)


def draw_levels(axes: Axes, levels: dict[str, float]) -> None:
    """A horizontal line for each level. The name of the lowest stands below its line where there is room, all others
    above theirs; those too close for two names share one."""
    low, high = axes.get_ylim()
    room, order = NAME * (high - low), sorted(levels, key=levels.__getitem__)
    above: list[list[str]] = []
    for name in order:
        if name == order[0] and levels[name] - low > room:
            level(axes, levels[name], name, DASHES.get(name, (0, (4, 3))), above=False)
        elif above and levels[name] - levels[above[-1][-1]] < room:
            above[-1].append(name)
        else:
            above.append([name])
    for group in above:
        for name in group:
            text = ", ".join(reversed(group)) if name == group[-1] else ""
            level(axes, levels[name], text, DASHES.get(name, (0, (4, 3))))


def draw_returns(axes: Axes, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return against exact ε with intervals, between what silence, free messages and reference policies earn."""
    drawn, lines = [], lines_of(found)
    for line in lines:
        rows, (colour, marker, dash) = finite(found, line), STYLES.get(line, ("#888888", "o", ":"))
        x = np.array([float(row["exact_epsilon"]) for row in rows])
        y, low, high = (np.array([row[f"return_{name}"] for row in rows]) for name in ("iqm", "low", "high"))
        axes.errorbar(x, y, [y - low, high - y], color=colour, linewidth=1.2, linestyle=dash, elinewidth=1, capsize=2)
        axes.plot(x, y, marker, color=colour, markersize=4.5, label=rows[0]["label"])
        numbers = {"x": x, "y": y, "low": low, "high": high}
        rounded = {name: [float(f"{value:.4g}") for value in values] for name, values in numbers.items()}
        drawn.append({"label": rows[0]["label"], "colour": colour, **rounded})
    limits = limits_of(found)
    for name, (label, colour, dash) in DRAWN.items():
        if name not in limits:
            continue
        points = [(point["epsilon"], point["return_mean"]) for point in limits[name]]
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1, linestyle=dash, label=label, zorder=1)
    levels = {name: found["references"][name] for name in DASHES if name in found["references"]}
    for row in found["rows"]:
        if row["exact_epsilon"] in (0.0, "inf"):
            levels["silence" if row["exact_epsilon"] == 0.0 else "free messages"] = row["return_iqm"]
            axes.axhspan(row["return_low"], row["return_high"], color=INK, alpha=0.08, linewidth=0)
    shown = [row[f"return_{name}"] for row in found["rows"] for name in ("low", "high")]
    shown += [point["return_mean"] for point in limits.get("bound", [])]
    shown += [levels[name] for name in levels if name != "random"]
    low, high = min(shown, default=-1.0), max(shown, default=0.0)
    axes.set_ylim(low - 0.15 * (high - low), high + 0.12 * (high - low))
    if levels.get("random", np.inf) < axes.get_ylim()[0]:
        text = f"random {levels.pop('random'):.1f}, below"
        axes.annotate(text, (0, 0), (3, 3), "axes fraction", "offset points", fontsize=7)
    draw_levels(axes, levels)
    scale_of_epsilon(axes, found)
    axes.set_ylabel("team return")
    axes.set_title(f"{found['task']}: return against exact ε", fontsize=9)
    return drawn


def draw_overheard(axes: Axes, found: dict[str, Any]) -> list[dict[str, Any]]:
    """How often eavesdroppers are right, beside what no eavesdropper on an (ε, δ) transcript exceeds."""
    drawn, chance = [], None
    for line in lines_of(found):
        rows = [row for row in finite(found, line) if row["eavesdropper"]]
        if not rows:
            continue
        colour, marker, dash = STYLES.get(line, ("#888888", "o", ":"))
        chance = rows[0]["eavesdropper"]["chance"]
        x = np.array([float(row["exact_epsilon"]) for row in rows])
        y, high, cap = (np.array([row["eavesdropper"][k] for row in rows]) for k in ("accuracy", "highest", "cap"))
        axes.plot(x, y, marker=marker, linestyle=dash, color=colour, markersize=4.5, linewidth=1.2)
        axes.plot(x, cap, "_", color=colour, markersize=11)
        numbers = {"x": x, "y": y, "high": high, "low": y}
        rounded = {name: [float(f"{value:.4g}") for value in values] for name, values in numbers.items()}
        drawn.append({"label": rows[0]["label"], "colour": colour, **rounded})
    if chance is not None:
        epsilons = np.geomspace(0.1, 30, 60)
        cap = [privacy.private_accuracy(epsilon, found["delta"], round(1 / chance)) for epsilon in epsilons]
        axes.plot(epsilons, cap, color=INK, linewidth=1.3, alpha=0.85)
        level(axes, chance, "guessing", dash=":")
        axes.set_ylim(bottom=chance - 0.06)
    scale_of_epsilon(axes, found)
    axes.set_ylim(top=1.03)
    axes.set_ylabel("secrets guessed right")
    axes.set_title("eavesdropper; dashes: cap of the channel, curve: of any (ε, δ)", fontsize=9)
    return drawn


def scale_of_epsilon(axes: Axes, found: dict[str, Any]) -> None:
    """A log axis around the budgets."""
    epsilons = sorted({float(row["epsilon"]) for row in found["rows"] if 0 < float(row["epsilon"]) < np.inf}) or [1.0]
    axes.set_xscale("log")
    axes.set_xlim(epsilons[0] / 2, epsilons[-1] * 2)
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    either = ", or of one increment where the line says so" if increments_of(found) else ""
    axes.set_xlabel(f"exact ε of a whole episode{either}")


def draw(picture: Canvas, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The whole picture; what hovering needs."""
    overheard = any(row["eavesdropper"] for row in found["rows"])
    panels = picture.subplots(1, 2 if overheard else 1, squeeze=False)[0]
    series = [draw_returns(panels[0], found)]
    if overheard:
        series.append(draw_overheard(panels[1], found))
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        picture.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7.5)
    picture.draw_without_rendering()
    return [box_of(picture, axes, "curve", part) for axes, part in zip(panels, series, strict=True)]


def files(found: dict[str, Any], folder: Path) -> None:
    """frontier.svg and frontier.png."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("svg", "png"):
        with canvas(9.6, 4.2) as picture:
            draw(picture, found)
            save(picture, folder / f"frontier.{kind}")


def panel(found: dict[str, Any]) -> Panel:
    """The picture for the report."""
    with canvas(9.6, 4.2) as picture:
        hover = draw(picture, found)
        return Panel(to_svg(picture, f"frontier of {found['task']}"), hover)


# Pages ----------------------------------------------------------------------------------------------------------------


def read(folder: Path) -> list[dict[str, Any]]:
    """Frontiers that a folder of results holds: its own frontier*.json, and those of folders in it."""
    return [store.read_json(path) for path in sorted([*folder.glob("frontier*.json"), *folder.glob("*/frontier.json")])]


def marks_of(page: Path, task: str) -> tuple[str, str, str]:
    """The text of a page and the two lines between which the frontier of a task belongs."""
    begin, end = (f"<!-- frontier {task}: {what} -->" for what in ("begin", "end"))
    text = page.read_text() if page.is_file() else ""
    require(begin in text and end in text, f"{page} has no lines {begin} and {end} for the frontier of {task}")
    return text, begin, end


def fill_page(page: Path, found: dict[str, Any], picture: str) -> None:
    """Put the tables and a link to the picture between the marks that a page has for the task."""
    text, begin, end = marks_of(page, found["task"])
    before, after = text[: text.index(begin)], text[text.index(end) :]
    options = " ".join(f"{name}={value}" for name, value in found.get("task_options", {}).items())
    unit = found["reward_unit"]
    body = [
        f"![Return against exact ε on {found['task']}]({picture})",
        f"{found['finished']} runs of {found['steps']:,} steps, {found['seeds']} seeds each, by the learner "
        f"`{found['recipe'].get('learner', RunConfig.learner)}`; scale `{found['scale']}`. Scored {scored(found)}. "
        f"{unit[:1].upper()}{unit[1:]}." + (f" Options of the task: {options}." if options else ""),
        *(marked(head, rows) for head, rows in tables(found)),
    ]
    page.write_text(before + "\n\n".join([begin, *body, ""]) + after)
