"""What a private channel costs, carries and gives away over ε, as a picture."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dpmac.config import AccountantName, Budget, Channel, require
from dpmac.privacy import mechanisms, streams
from dpmac.privacy.report import consequences

PANELS = {
    "noise": "noise scale",
    "exact_epsilon_message": "exact ε of one message",
    "exact_epsilon_episode": "exact ε of an episode",
    "signal_to_noise": "signal-to-noise ratio",
    "bits_per_episode": "bits per episode, at most",
    "eavesdropper_accuracy": "eavesdropper's accuracy",
}
FORMATS = (".png", ".svg", ".pdf")


def plot_streams(path: str, stream: streams.Stream, delta: float) -> None:
    """Draw how well a stream can be followed over ε, for both readings of a budget and both kinds of noise."""
    check_format(path)
    grid = [float(epsilon) for epsilon in np.geomspace(0.3, 30, 25)]
    told = [row for epsilon in grid for row in streams.rows(stream, epsilon, delta)]
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axis = figure.subplots()
    for reading, colour in (("increment", "C0"), ("episode", "C1")):
        for kind, dash, name in (("plain", "--", "plain noise"), ("root", "-", "noise correlated over time")):
            errors = [row["error"] for row in told if (row["reading"], row["kind"]) == (reading, kind)]
            axis.plot(grid, errors, colour + dash, label=f"neighbours differ in one {reading}, {name}")
    silence = float(stream.covariance.trace()) / stream.horizon
    axis.axhline(silence, color="0.5", linewidth=1, label="nothing is sent")
    axis.set(xscale="log", ylim=(0, 1.05 * silence), xlabel="exact ε", ylabel="mean squared error of following")
    axis.set_title(f"a stream of decay {stream.decay:g}, T = {stream.horizon}, δ = {delta:g}", fontsize=9)
    axis.legend(fontsize="small")
    save(figure, path)


def save(figure: Figure, path: str) -> None:
    """Write a picture, in a folder that need not be there yet."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def check_format(path: str) -> None:
    require(Path(path).suffix in FORMATS, f"the plot's file must end in {', '.join(FORMATS)}, not {path}")


def plot(path: str, budget: Budget, channel: Channel, horizon: int, size: int = 8) -> None:
    """Draw what `explain` says over ε, from 0.01 to 30, into a file whose name says the format."""
    check_format(path)
    grid = np.geomspace(0.01, 30, 25)
    kinds: dict[AccountantName, str] = {"paper": "C1--", "exact": "C0-"}
    mechanism = mechanisms.of(channel)
    if not mechanism.paper:
        del kinds["paper"]
    told = {
        kind: [consequences(Budget((float(e),), budget.delta, budget.unit, kind), channel, horizon, size) for e in grid]
        for kind in kinds
    }
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    axes = figure.subplots(2, 3)
    for axis, (name, title) in zip(axes.ravel(), PANELS.items(), strict=True):
        for kind, style in kinds.items():
            axis.plot(grid, [item[name] for item in told[kind]], style, label=kind)
        if name == "eavesdropper_accuracy":
            axis.plot(grid, [item["limit_accuracy"] for item in told["exact"]], "k:", label="limit at the exact ε")
            axis.axhline(1 / channel.symbols, color="0.7", linewidth=1, label="chance")
        elif not mechanism.share or name != "noise":
            axis.set_yscale("log")
        if name.startswith("exact"):
            axis.plot(grid, grid, "0.7", linewidth=1, label="claimed")
        axis.set(xscale="log", xlabel=f"ε of the budget ({budget.unit})", title=title)
    for place in (0, 5):
        axes.ravel()[place].legend(fontsize="small")
    figure.suptitle(f"{channel.mechanism} channel, T = {horizon}, C = {channel.clip_norm:g}, δ = {budget.delta:g}")
    save(figure, path)
