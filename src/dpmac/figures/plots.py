"""Pictures of saved results, drawn once and used both as files and inside the report's page.

Lines and text are drawn in one ink, which the page replaces by its own, so that a picture suits light and dark. Panels
know where their axes lie and what was drawn there, which is all that hovering needs.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from dpmac.experiments import TASKS, Cell, Figure
from dpmac.figures import catalogue
from dpmac.results import stats
from dpmac.results.records import Results

Spread = Literal["deviation", "interval"]

INK = "#2a2a2e"
"""Stands for the colour of text; no series has it."""
METHOD_COLOURS = {"dpmac": "#3a86d8", "tarmac": "#e07b39", "i2c": "#4ca64c", "silent": "#8c8c96"}
EPSILON_COLOURS = {
    "free": "#3a86d8",
    "10": "#2bb3c0",
    "3": "#35a57c",
    "1": "#4ca64c",
    "0.1": "#d99a2b",
    "0.01": "#c9527a",
}
TASK_COLOURS = {"cn": "#3a86d8", "ccn": "#d9632b", "pp": "#4ca64c"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dpmac",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


class Panel(NamedTuple):
    """A picture for the page."""

    svg: str
    hover: list[dict[str, Any]]
    """For each pair of axes: its box in the picture, its limits, and the series in it."""


@contextmanager
def canvas(width: float, height: float) -> Iterator[Canvas]:
    """An empty picture of this size in inches, in our style."""
    with mpl.rc_context(STYLE):
        yield Canvas(figsize=(width, height), layout="constrained")


def to_svg(picture: Canvas, description: str) -> str:
    """SVG text for a page: no fixed size, ink that follows the page, coordinates to a tenth of a point."""
    file = io.StringIO()
    with mpl.rc_context(STYLE):  # which is that of its text too, and holds for a picture whose canvas was left
        picture.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<[^>]+>", lambda tag: re.sub(r"\d+\.\d{2,}", lambda x: f"{float(x[0]):.1f}", tag[0]), text)
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None
    text = re.sub(r"<svg [^>]*>", f'<svg {view[0]} role="img" aria-label="LABEL">', text, count=1)
    # Names of clip paths and markers must be unique in a page of many pictures.
    mark = re.sub(r"\W", "", description)
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{mark}-", text)
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S).replace("LABEL", description)


def save(picture: Canvas, path: Path) -> None:
    """Write a picture as a file for light paper, the same bytes every time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stamp = {"Software": None} if path.suffix == ".png" else {"Date": None}
    picture.savefig(path, dpi=150, facecolor="white", metadata=stamp)


def colours(series: Sequence[tuple[str, str]]) -> list[str]:
    """A colour for each series: of its method, or of its ε where all have the same method."""
    if len({method for method, _ in series}) > 1:
        return [METHOD_COLOURS[method] for method, _ in series]
    return [EPSILON_COLOURS[budget.rsplit("-", 1)[-1]] for _, budget in series]


def band(returns: np.ndarray, spread: Spread) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middle, lower and upper curve (evaluation,) of curves (seed, evaluation)."""
    if spread == "interval":
        return stats.curve(returns)
    mean, deviation = returns.mean(0), returns.std(0)
    return mean, mean - deviation, mean + deviation


def draw_curves(
    axes: Axes, results: Results, task: str, figure: Figure, spread: Spread, variant: str = ""
) -> list[dict[str, Any]]:
    """Learning curves with their spread between the two reference lines; what was drawn."""
    drawn, scale = [], catalogue.scale_of(results, task, variant)
    for (method, budget), colour in zip(figure.series, colours(figure.series), strict=True):
        steps, returns = catalogue.curves(results, Cell(task, method, budget, variant))
        if not len(returns):
            continue
        middle, low, high = band(returns, spread)
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(steps, middle, color=colour, linewidth=1.4, label=catalogue.label(method, budget))
        drawn.append(
            {"label": catalogue.label(method, budget), "colour": colour, "x": steps.tolist()}
            | {name: np.round(values, 2).tolist() for name, values in (("y", middle), ("low", low), ("high", high))}
        )
    if scale is not None:
        for name, value in (("random", scale.random), ("scripted", scale.scripted)):
            axes.axhline(value, color=INK, linewidth=0.7, linestyle=(0, (4, 3)), alpha=0.6)
            # Curves come from below at the left and end near the upper line at the right.
            place, side = ((0, 3), "left") if name == "scripted" else ((1, -2), "right")
            at = (place[0], value)
            axes.annotate(name, at, (place[1], 2), ("axes fraction", "data"), "offset points", ha=side, fontsize=7)
        highest = max([scale.scripted, *(max(curve["high"]) for curve in drawn)])  # on PP teams pass the script
        axes.set_ylim(scale.random - 0.25 * scale.range, highest + 0.12 * scale.range)
    axes.set_title(f"{task.upper()}: {TASKS[task]}", fontsize=9)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("team return")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g}M" if value >= 1e5 else f"{value:,.0f}")
    return drawn


def draw_dots(
    axes: Axes, rows: Sequence[tuple[str, str, np.ndarray]], unit: str = "final return"
) -> list[dict[str, Any]]:
    """Final returns by row (label, colour, scores (seed,)): every seed, the interquartile mean and its interval."""
    drawn = []
    for place, (name, colour, scores) in enumerate(rows):
        estimate = stats.bootstrap([scores])
        axes.plot([estimate.low, estimate.high], [place, place], color=colour, linewidth=4, alpha=0.35)
        axes.plot(scores, [place] * len(scores), "|", color=colour, markersize=7)
        axes.plot([estimate.value], [place], "o", color=colour, markersize=4)
        point = {"y": [place], "x": [round(estimate.value, 2)], "low": [round(estimate.low, 2)]}
        drawn.append({"label": name, "colour": colour, **point, "high": [round(estimate.high, 2)]})
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(unit)
    return drawn


def box_of(picture: Canvas, axes: Axes, kind: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    """Where axes lie in the picture, as shares of its width and height from the upper left, and what is in them."""
    place = axes.get_position()
    return {
        "kind": kind,
        "box": [round(value, 4) for value in (place.x0, 1 - place.y1, place.x1, 1 - place.y0)],
        "x": [float(value) for value in axes.get_xlim()],
        "y": [float(value) for value in axes.get_ylim()],
        "log": axes.get_xscale() == "log",
        "series": series,
    }


def rows_of(
    results: Results, task: str, series: Sequence[tuple[str, str]], variant: str = ""
) -> list[tuple[str, str, np.ndarray]]:
    """Rows for `draw_dots`."""
    rows = []
    for (method, budget), colour in zip(series, colours(series), strict=True):
        scores = catalogue.final_returns(results, Cell(task, method, budget, variant))
        if len(scores):
            rows.append((catalogue.label(method, budget), colour, scores))
    return rows


def panel(results: Results, task: str, figure: Figure, spread: Spread, variant: str = "") -> Panel:
    """One task of a figure: learning curves above, final returns on the common starts below, where they differ."""
    rows = rows_of(results, task, figure.series, variant)
    with canvas(4.6, 3.1 + 0.22 * len(rows)) as picture:
        upper, lower = picture.subplots(2, 1, height_ratios=[2.4, 0.25 * len(rows) + 0.1])
        curves = draw_curves(upper, results, task, figure, spread, variant)
        dots = draw_dots(lower, rows)
        svg = to_svg(picture, ", ".join([f"{figure.title} on {task.upper()}", spread, *([variant] if variant else [])]))
        return Panel(svg, [box_of(picture, upper, "curve", curves), box_of(picture, lower, "dots", dots)])


def figure_file(results: Results, figure: Figure, path: Path, spread: Spread = "deviation", variant: str = "") -> None:
    """A whole figure as the paper shows it: mean and one standard deviation over seeds, a panel for each task."""
    tasks = [task for task in catalogue.tasks_of(results) if rows_of(results, task, figure.series, variant)]
    with canvas(4 * len(tasks), 3.4) as picture:
        panels = picture.subplots(1, len(tasks), squeeze=False)[0]
        for axes, task in zip(panels, tasks, strict=True):
            draw_curves(axes, results, task, figure, spread, variant)
        drawn = [pair for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
        shown = {name: handle for handle, name in drawn}
        picture.legend([*shown.values()], [*shown], loc="outside lower center", ncols=min(len(shown), 2 * len(tasks)))
        save(picture, path)
