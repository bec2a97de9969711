"""One page about ordinary runs that needs no network: curves, returns, what is claimed and what is true."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpmac.config import dumps, require
from dpmac.figures import curves, plots
from dpmac.figures.page import CSS
from dpmac.figures.report import table, text
from dpmac.results import store


def returns_of(folder: Path) -> str:
    """Returns of the last evaluation, a row for each budget."""
    rows, labels = curves.of_metric(folder, "return"), store.load_config(folder).labels
    reference = reference_of(folder)
    shown = []
    for label in labels:
        steps, values = curves.table_of([row for row in rows if row.budget == label])
        if len(steps):
            last = values[:, -1]
            spread = f"{last.min():.2f} to {last.max():.2f}"
            shown.append((text(label), len(last), f"{steps[-1]:,}", f"{last.mean():.2f}", spread))
    known = "; ".join(f"{text(name)} {value[0]:.2f}" for name, value in reference["returns"].items())
    head = ("ε", "seeds", "steps", "return, mean over seeds", "over seeds")
    unit = f"Returns: sums of an episode's rewards; rewards: {text(reference['unit'])}"
    return table(head, shown, (1, 2, 3)) + f"<p>{unit}. Returns of reference policies: {known}.</p>"


def privacy_of(folder: Path) -> str:
    """What is claimed of each agent, whether it is true, and what is true."""
    statement = store.read_json(folder / "privacy.json")
    entries = [(label, entry) for label, entries in statement["claims"].items() for entry in entries]
    trained = training_of(statement.get("training"))
    if not entries:
        return f"<p>Nothing is sent.</p>{trained}"
    head = ("ε", "agent", "unit", "noise", "claim", "exact ε of a message", "exact ε of an episode", "warnings")
    shown = [(text(label), entry["agent"], *claim_row(entry)) for label, entry in entries]
    parts = ("covers", "about", "simulated", "not_covered")
    notes = "".join(
        f"<li><b>{name.replace('_', ' ')}</b>: {text(statement[name])}</li>" for name in parts if name in statement
    )
    return table(head, shown, (1, 3, 5, 6)) + f"<ul>{notes}</ul>{trained}"


def training_of(said: dict[str, Any] | None) -> str:
    """What is claimed of private training, and of it and messages together; nothing where it is not private."""
    if said is None:
        return ""
    head = ("training ε", "δ", "claim", "exact ε", "noise multiplier", "clip", "batch", "sampling")
    claim = "true" if said["valid"] else "none" if said["epsilon"] == "inf" else "NOT TRUE"
    numbers = [f"{float(said[name]):.4g}" for name in ("exact_epsilon", "noise_multiplier", "clip")]
    row = (text(str(said["epsilon"])), f"{said['delta']:g}", claim, *numbers, said["batch"], text(said["sampling"]))
    notes = [said["neighbours"], *said["warnings"]]
    notes += [
        f"with messages at ε = {label}: ε = {float(one['epsilon']):.4g} at δ = {one['delta']:g}, for {one['covers']}"
        for label, one in said["joint"].items()
    ]
    return table(head, [row], (1, 3, 4, 5, 6)) + "<ul>" + "".join(f"<li>{text(note)}</li>" for note in notes) + "</ul>"


def reference_of(folder: Path) -> dict[str, Any]:
    """The reward unit of a run and what reference policies earn."""
    found = store.read_json(folder / "reference.json")
    sound = isinstance(found, dict) and "unit" in found and isinstance(found.get("returns"), dict)
    require(sound, f"{folder / 'reference.json'} is damaged")
    return found


def claim_row(entry: dict[str, Any]) -> list[str]:
    """One agent's claim, without its name."""
    free = entry["epsilon"] == "inf"
    claim = "none" if free else "true" if entry["valid"] else "NOT TRUE"
    exact = [f"{float(entry[f'exact_epsilon_{unit}']):.4g}" for unit in ("message", "episode")]
    covers = entry.get("covers", entry["unit"])
    return [covers, f"{entry['noise']:.4g}", claim, *exact, text("; ".join(entry["warnings"]))]


def section_of(folder: Path, name: str) -> str:
    """Everything about one run."""
    config = store.load_config(folder)
    parts = (f"task {config.task}", f"method {config.method}", f"learner {config.learner}")
    said = ", ".join((*parts, f"mechanism {config.channel.mechanism}"))
    return (
        f"<section><h2>{text(name)}</h2><p class=faint>{text(said)}</p><h3>Returns</h3>{returns_of(folder)}"
        f"<h3>Privacy</h3>{privacy_of(folder)}<details><summary>Configuration</summary>"
        f"<pre>{text(dumps(config, indent=2))}</pre></details></section>"
    )


def write(folders: Sequence[Path], path: Path) -> None:
    """Write the page."""
    svg = plots.to_svg(curves.plot(folders), "returns over training")
    each = curves.names_of(folders)
    names = ", ".join(each)
    body = f'<section><h2>Learning curves</h2><div class="panel broad">{svg}</div></section>'
    body += "".join(map(section_of, folders, each))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width, "
        f"initial-scale=1'><link rel=icon href='data:,'><title>{text(names)}</title><style>{CSS}</style></head><body>"
        f"<header><h1>{text(names)}</h1></header><main>{body}</main></body></html>",
        encoding="utf-8",
    )
