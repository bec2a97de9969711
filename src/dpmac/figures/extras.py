"""Pictures beyond the paper's figures: what senders learn, teams at another's noise, ablations, whole distributions."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from dpmac.experiments import ABLATIONS, EXACT_BUDGETS, PAPER_BUDGETS, Cell
from dpmac.figures import catalogue
from dpmac.figures.plots import (
    EPSILON_COLOURS,
    METHOD_COLOURS,
    TASK_COLOURS,
    Panel,
    box_of,
    canvas,
    colours,
    draw_dots,
    to_svg,
)
from dpmac.results import stats
from dpmac.results.records import Results

PASTEL = LinearSegmentedColormap.from_list("pastel", ["#eaa698", "#f3e2a4", "#a5d6ae"])
"""Dark figures can be read on all of it, in light and dark."""

SENDER = {
    "learned_deviation": "learned standard deviation",
    "message_norm": "norm of a message before clipping",
    "share_clipped": "share of clipped messages",
    "signal_to_noise": "signal to noise ratio within an episode",
}


def sender_panel(results: Results, method: str, metric: str) -> Panel | None:
    """What a method's senders do at the end of training, over σ, on every task."""
    with canvas(4.2, 2.9) as picture:
        axes, drawn = picture.subplots(), []
        for task in catalogue.tasks_of(results):
            points = []
            for budget in PAPER_BUDGETS:
                values = catalogue.final_metric(results, Cell(task, method, budget), metric)
                sigma = catalogue.noise_of(results, Cell(task, method, budget))
                if len(values) and sigma is not None and np.all(np.isfinite(values)):
                    points.append((sigma or 0.1, *stats.bootstrap([values])))
            if points:
                sigma, value, low, high = np.array(sorted(points)).T
                axes.fill_between(sigma, low, high, color=TASK_COLOURS[task], alpha=0.18, linewidth=0)
                axes.plot(sigma, value, "o-", color=TASK_COLOURS[task], markersize=3, linewidth=1.2)
                numbers = {"x": sigma, "y": value, "low": low, "high": high}
                rounded = {name: [float(f"{x:.4g}") for x in values] for name, values in numbers.items()}
                drawn.append({"label": task.upper(), "colour": TASK_COLOURS[task], **rounded})
        if not drawn:
            return None
        axes.set_xscale("log")
        if metric == "signal_to_noise":
            axes.set_yscale("log")
        free = metric != "signal_to_noise"  # it is infinite there
        axes.set_xlabel("σ of the channel" + " (free messages at the left edge)" * free)
        axes.set_title(SENDER[metric], fontsize=9)
        svg = to_svg(picture, f"{method} {SENDER[metric]} over sigma")
        return Panel(svg, [box_of(picture, axes, "curve", drawn)])


def training_panel(results: Results, task: str, method: str, metric: str) -> Panel | None:
    """What a method's senders do over training, at every budget."""
    series = [(method, budget) for budget in ("free", "step-1", "step-0.1", "step-0.01")]
    with canvas(4.2, 2.6) as picture:
        axes, drawn = picture.subplots(), []
        for (_, budget), colour in zip(series, colours(series), strict=True):
            steps, values = catalogue.curves(results, Cell(task, method, budget), metric)
            if not values.size or not np.all(np.isfinite(values)):
                continue
            mean = values.mean(0)
            axes.plot(steps, mean, color=colour, linewidth=1.3)
            rounded = [float(f"{value:.4g}") for value in mean]
            drawn.append({"label": catalogue.budget_label(budget), "colour": colour, "x": steps.tolist(), "y": rounded})
        if not drawn:
            return None
        axes.set_title(f"{task.upper()}: {SENDER[metric]}", fontsize=9)
        axes.set_xlabel("environment steps")
        svg = to_svg(picture, f"{method} {SENDER[metric]} on {task} over training")
        return Panel(svg, [box_of(picture, axes, "curve", drawn)])


def cross_panel(results: Results, task: str, method: str = "dpmac") -> Panel | None:
    """Teams trained at one noise (rows) and scored at another (columns): normalised final return, mean over seeds."""
    scale = catalogue.scale_of(results, task)
    trained = [name for name in PAPER_BUDGETS if len(catalogue.final_returns(results, Cell(task, method, name)))]
    scored = [
        name
        for name in PAPER_BUDGETS
        if all(len(catalogue.final_returns(results, Cell(task, method, row), name)) for row in trained)
    ]
    if scale is None or not trained or not scored:
        return None
    sigma = {name: catalogue.noise_of(results, Cell(task, method, name)) or 0.0 for name in trained}
    trained, scored = (
        sorted(trained, key=lambda name: sigma[name]),
        sorted(scored, key=lambda name: sigma.get(name, np.inf)),
    )
    table = np.array(
        [
            [catalogue.final_returns(results, Cell(task, method, row), column).mean() for column in scored]
            for row in trained
        ]
    )
    shares = (table - scale.random) / scale.range
    with canvas(4.4, 3.6) as picture:
        axes = picture.subplots()
        axes.imshow(shares, cmap=PASTEL, vmin=0, vmax=1, aspect="auto")
        for (row, column), value in np.ndenumerate(table):
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color="#111111")
        axes.set_xticks(
            range(len(scored)), [catalogue.budget_label(name) for name in scored], rotation=45, ha="right", fontsize=7
        )
        axes.set_yticks(range(len(trained)), [catalogue.budget_label(name) for name in trained], fontsize=7)
        axes.set_xlabel("noise when scored")
        axes.set_ylabel("noise in training")
        axes.set_title(f"{task.upper()}: return", fontsize=9)
        return Panel(to_svg(picture, f"cross evaluation on {task}"), [])


def dots_panel(rows: Sequence[tuple[str, str, np.ndarray]], title: str) -> Panel:
    """Final returns of any rows (label, colour, scores)."""
    with canvas(4.8, 0.9 + 0.24 * len(rows)) as picture:
        axes = picture.subplots()
        drawn = draw_dots(axes, rows)
        axes.set_title(title, fontsize=9)
        svg = to_svg(picture, title)
        return Panel(svg, [box_of(picture, axes, "dots", drawn)])


def profile_panel(results: Results, budget: str) -> Panel | None:
    """Performance profiles over all tasks: the share of runs above each normalised score."""
    tasks, thresholds = catalogue.tasks_of(results), np.linspace(0, 1.1, 111)
    with canvas(4.2, 2.9) as picture:
        axes, drawn = picture.subplots(), []
        for method, colour in METHOD_COLOURS.items():
            strata = catalogue.normalised(results, tasks, method, "free" if method == "silent" else budget)
            if not strata:
                continue
            profile = stats.performance_profile(strata, thresholds)
            axes.step(thresholds, profile, color=colour, where="post", linewidth=1.4)
            name = catalogue.label(method, budget)
            drawn.append(
                {"label": name, "colour": colour, "x": thresholds.round(3).tolist(), "y": profile.round(3).tolist()}
            )
        if not drawn:
            return None
        axes.set_xlabel("normalised return (random 0, scripted 1)")
        axes.set_ylabel("share of runs above")
        axes.set_ylim(-0.03, 1.05)
        axes.set_title(f"Performance profile, {catalogue.budget_label(budget)}", fontsize=9)
        svg = to_svg(picture, f"performance profile {budget}")
        return Panel(svg, [box_of(picture, axes, "curve", drawn)])


ABLATION_TEXTS = {
    "deterministic": "A sender without spread at the same σ: what the learned variance is worth.",
    "feedforward": "Actors without memory: what the recurrent layer is worth, with and without messages.",
    "often": "One update an episode, as the paper has it, beside one update in four episodes.",
    "narrow": "Cooperative navigation where agents see no further than 0.5: what the observations already hold.",
    "exact": "Noise that keeps its promise, at the same claimed ε.",
    "early": "I2C whose prior learns from few large effects among many small ones, as version 0.1 had it.",
    "stringent": "TarMAC and I2C at ε = 0.01, of which the paper speaks without a figure.",
    "equal": "Noise at receivers of TarMAC and I2C as wide as a message of DPMAC, 8 numbers instead of 4 and 32.",
    "pace": "One update an episode: with replayed noise (paper), new noise at each replay (fresh), a quarter of the "
    "learning rate (slow), and normalised inputs (normed).",
}


def ablation_panels(results: Results) -> list[tuple[str, str, Panel]]:
    """For each ablation that was trained: its name, what it asks, and final returns beside those of the plain runs."""
    found = []
    for name, text in ABLATION_TEXTS.items():
        there = [cell for cell in ABLATIONS[name] if catalogue.runs(results, cell)]
        for task in dict.fromkeys(cell.task for cell in there):
            cells = [cell for cell in there if cell.task == task]
            rows = exact_rows(results) if name == "exact" else paired_rows(results, cells)
            if rows:
                found.append((name, text, dots_panel(rows, f"{task.upper()}: {name}")))
    return found


def paired_rows(results: Results, cells: Sequence[Cell]) -> list[tuple[str, str, np.ndarray]]:
    """Rows of variants, those of a budget below the plain run."""
    plain = {cell: cell._replace(variant="") for cell in cells}
    rows = []
    for first in dict.fromkeys(plain.values()):
        for one in dict.fromkeys((first, *(cell for cell in cells if plain[cell] == first))):
            scores = catalogue.final_returns(results, one)
            if len(scores):
                name = catalogue.label(one.method, one.budget)
                rows.append((f"{name}, {one.variant or 'plain'}", METHOD_COLOURS[one.method], scores))
    return rows


def exact_rows(results: Results) -> list[tuple[str, str, np.ndarray]]:
    """Rows of DPMAC on CCN over exact budgets, between free messages and none."""
    rows = []
    for method, budget in (("dpmac", "free"), *(("dpmac", name) for name in EXACT_BUDGETS), ("silent", "free")):
        scores = catalogue.final_returns(results, Cell("ccn", method, budget))
        colour = METHOD_COLOURS["silent"] if method == "silent" else EPSILON_COLOURS[budget.rsplit("-", 1)[-1]]
        if len(scores):
            rows.append((catalogue.label(method, budget), colour, scores))
    return rows


def improvements(results: Results) -> list[tuple[str, str, stats.Estimate]]:
    """How likely a run of DPMAC beats one of each other method at the same budget, over all tasks."""
    tasks, found = catalogue.tasks_of(results), []
    for budget in ("free", "step-1", "step-0.1", "episode-1", "episode-0.1"):
        mine = catalogue.normalised(results, tasks, "dpmac", budget)
        for other in ("tarmac", "i2c", "silent"):
            theirs = catalogue.normalised(results, tasks, other, "free" if other == "silent" else budget)
            if mine and theirs:
                found.append((budget, other, stats.probability_of_improvement(mine, theirs)))
    return found
