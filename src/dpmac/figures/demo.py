"""Curves of the demonstration."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dpmac.results import store

NAMES = ("dpmac", "silent")
"""Folders of its populations."""


def curves(out: Path) -> None:
    """Draw returns over training, mean and range over seeds, of the runs under a folder into its curves.png."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name in NAMES:
        rows = [row for row in store.read_metrics(out / name) if row.name == "return"]
        for label in dict.fromkeys(row.budget for row in rows):
            steps = sorted({row.step for row in rows})
            values = np.array(
                [[row.value for row in rows if (row.budget, row.step) == (label, step)] for step in steps]
            )
            said = "a free symbol" if label == "inf" else f"a symbol at ε = {label}"
            legend = "no messages" if name == "silent" else f"DPMAC, {said} an episode"
            (line,) = axes.plot(steps, values.mean(axis=1), label=legend)
            axes.fill_between(steps, values.min(axis=1), values.max(axis=1), alpha=0.2, color=line.get_color())
    reference = store.read_json(out / "dpmac" / "reference.json")["returns"]
    axes.axhline(reference["scripted"][0], color="grey", linestyle="--", label="scripted, knows the targets")
    axes.set(
        xlabel="environment steps", ylabel="team return", title=store.load_config(out / "dpmac").task, ylim=(-30, -5)
    )
    axes.legend()
    figure.savefig(out / "curves.png", dpi=120)
