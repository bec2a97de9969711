"""A sweep as a table and as a picture, from the data of sweep.json alone."""

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from dpmac.experiments import METHODS
from dpmac.figures.plots import INK, canvas, save

PANELS = ("method", "budget")
"""Settings that are shown side by side, not along an axis."""
MAP = "viridis"


def table(found: dict[str, Any]) -> str:
    """A row for each point, the best of each budget marked; the interval is Student's over seeds."""
    settings = [*found["space"]]
    head = ("trial", *settings, "return", "95 % interval", "seeds", "")
    best = set(found["best"].values())
    rows = [
        (
            str(row["trial"]),
            *(str(row["point"][name]) for name in settings),
            f"{float(row['return_mean']):.2f}",
            f"[{float(row['return_low']):.2f}, {float(row['return_high']):.2f}]",
            " ".join(f"{value:.2f}" for value in row["returns"]),
            "best" if row["trial"] in best else "",
        )
        for row in found["rows"]
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    )


def markdown(found: dict[str, Any]) -> str:
    """The means over seeds for a page: a row for each method, budget and value of the first of two axes, a column for
    each value of the second."""
    (down, across), panels = axes_of(found), panels_of(found)
    columns = found["space"][across]
    lines = [
        f"| {', '.join([*panels_named(found), down])} | " + " | ".join(f"{across} {value}" for value in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for panel in panels:
        grid, _ = values_of(found, panel, down, across)
        for value, row in zip(found["space"][down], grid, strict=True):
            name = ", ".join([*map(str, panel.values()), str(value)])
            lines.append(f"| {name} | " + " | ".join("-" if math.isnan(x) else f"{x:.2f}" for x in row) + " |")
    return "\n".join(lines)


def panels_named(found: dict[str, Any]) -> list[str]:
    """Settings that panels differ in."""
    return [name for name in PANELS if len(found["space"].get(name, ())) > 1]


def axes_of(found: dict[str, Any]) -> list[str]:
    """Settings along the axes: those of more than one value, without those of panels."""
    return [name for name, values in found["space"].items() if len(values) > 1 and name not in panels_named(found)]


def panels_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What each panel shows, methods first."""
    panels: list[dict[str, Any]] = [{}]
    for name in panels_named(found):
        panels = [{**panel, name: value} for panel in panels for value in found["space"][name]]
    return panels


def values_of(found: dict[str, Any], panel: dict[str, Any], down: str, across: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over seeds (down, across) of the points of a panel; NaN where none is finished."""
    shape = len(found["space"][down]), len(found["space"][across])
    means, deviations = np.full(shape, np.nan), np.full(shape, np.nan)
    for row in found["rows"]:
        point = row["point"]
        if row["returns"] and all(point[name] == value for name, value in panel.items()):
            place = found["space"][down].index(point[down]), found["space"][across].index(point[across])
            means[place], deviations[place] = np.mean(row["returns"]), np.std(row["returns"])
    return means, deviations


def files(found: dict[str, Any], out: Path) -> None:
    """OUT/sweep.svg and sweep.png: heat maps where two settings of a grid vary, otherwise parallel axes."""
    earned = [value for row in found["rows"] for value in row["returns"]]
    colours = Normalize(min(earned), max(earned))
    maps = found["search"] == "grid" and len(axes_of(found)) == 2
    draw = heat_maps if maps else parallel_axes
    rows, columns = layout(found) if maps else (1, 1)
    with canvas(2.9 * columns + 1.2 if maps else 8, 2.7 * rows + 0.5 if maps else 4) as picture:
        panels = picture.subplots(rows, columns, squeeze=False)
        draw(panels.ravel().tolist(), found, colours)
        scale = ScalarMappable(colours, MAP)
        picture.colorbar(scale, ax=panels, label="team return, mean over seeds", shrink=0.8)
        for name in ("sweep.svg", "sweep.png"):
            save(picture, out / name)


def layout(found: dict[str, Any]) -> tuple[int, int]:
    """Rows and columns of panels: budgets down, methods across."""
    names = panels_named(found)
    return (len(found["space"]["budget"]) if "budget" in names else 1), (
        len(found["space"]["method"]) if "method" in names else 1
    )


def heat_maps(panels: list[Axes], found: dict[str, Any], colours: Normalize) -> None:
    """Means over seeds, with their deviations, over two settings."""
    down, across = axes_of(found)
    rows, columns = layout(found)
    for index, panel in enumerate(panels_of(found)):  # methods first, so that budgets lie below each other
        axes = panels[index % rows * columns + index // rows]
        means, deviations = values_of(found, panel, down, across)
        axes.imshow(means, cmap=MAP, norm=colours, aspect="auto", origin="lower")
        for (y, x), mean in np.ndenumerate(means):
            if np.isfinite(mean):
                ink = "white" if colours(mean) < 0.6 else "black"
                axes.text(x, y, f"{mean:.1f}\n±{deviations[y, x]:.1f}", ha="center", va="center", color=ink, fontsize=7)
        axes.set_xticks(range(means.shape[1]), [str(value) for value in found["space"][across]])
        axes.set_yticks(range(means.shape[0]), [str(value) for value in found["space"][down]])
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        named = [METHODS[value][0] if value in METHODS else str(value) for value in panel.values()]
        axes.set_title(", ".join([*named]) or found["task"].upper(), fontsize=9)


def parallel_axes(panels: list[Axes], found: dict[str, Any], colours: Normalize) -> None:
    """A line for each point through its settings to its mean return."""
    (axes,) = panels
    names = [name for name, values in found["space"].items() if len(values) > 1]
    rows = [row for row in found["rows"] if row["returns"]]
    heights = [
        [*(height(found, name, row["point"][name]) for name in names), colours(row["return_mean"])] for row in rows
    ]
    for row, line in sorted(zip(rows, heights, strict=True), key=lambda pair: pair[0]["return_mean"]):
        colour = mpl.colormaps[MAP](colours(row["return_mean"]))
        axes.plot(range(len(line)), line, "o-", color=colour, linewidth=1.4, markersize=3, alpha=0.8)
    axes.set_xticks(range(len(names) + 1), [*names, "return"])
    axes.set_yticks([])
    for place, name in enumerate(names):
        axes.axvline(place, color=INK, linewidth=0.5)
        for value in found["space"][name]:
            axes.annotate(
                str(value), (place, height(found, name, value)), (3, 3), textcoords="offset points", fontsize=7
            )
    axes.set_title(f"{found['task'].upper()}: {found['finished']} runs", fontsize=9)


def height(found: dict[str, Any], name: str, value: Any) -> float:
    """Where a value stands on its axis, from 0 to 1: by its place among several, or by its number in a range."""
    values = found["space"][name]
    if value in values:
        return values.index(value) / (len(values) - 1)
    low, high = values
    if low > 0 and high >= 10 * low:
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)
