"""`dpmac demo`: train with and without messages at a laptop's size, and show what came of it."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dpmac.cli import emit, parse
from dpmac.config import Budget, NetworkConfig, RunConfig, Training, require
from dpmac.frontiers import LINES

SEEDS = (0, 1)
TASK = "ccn"
EPSILON = 3.0
TRAINING = Training(steps=120_000, evaluations=24, evaluation_episodes=256)
LEARNER_OPTIONS = {
    "batch": 96,
    "discount": 0.7,
    "learning_rate": 5e-3,
    "tau": 0.02,
    "explore_steps": 20_000,
    "clock": True,
}
NETWORKS = NetworkConfig(hidden=64, aware=True)


@dataclass(frozen=True)
class Demo:
    """Cooperative communication and navigation at a laptop's size: two agents, each of which has to reach a landmark
    that only the other one knows. Train them with a free symbol an episode, with a private one and without messages;
    print returns and the privacy statement; draw curves and a film."""

    out: Path = Path("demo")
    """Folder for the runs, curves.png and episode.gif; runs that are there already are not trained again."""
    json: bool = False
    """Print the result as JSON."""


def configurations() -> dict[str, RunConfig]:
    """The two populations: DPMAC with its budgets, and the same learner without messages."""
    channel = LINES["response-once"].channel
    shared: dict[str, Any] = {
        "task": TASK,
        "seeds": SEEDS,
        "networks": NETWORKS,
        "training": TRAINING,
        "learner_options": LEARNER_OPTIONS,
    }
    return {
        "dpmac": RunConfig(
            method="dpmac", channel=channel, budgets=(Budget(), Budget((EPSILON,))), anneal_from=10.0, **shared
        ),
        "silent": RunConfig(method="silent", **shared),
    }


def run(argv: Sequence[str]) -> None:
    options = parse(Demo, argv, "dpmac demo", "dpmac demo --out demo")
    from dpmac.analysis import film
    from dpmac.cli import progress
    from dpmac.results import store
    from dpmac.runner import population, train

    progress.use_cache()
    begun = time.monotonic()
    for name, config in configurations().items():
        folder = options.out / name
        if not (folder / "config.json").exists():
            population.create(folder, config)
        require(
            store.load_config(folder) == train.complete(config), f"{folder} holds another run; choose another --out"
        )
        print(f"training {name}: {len(population.runs_of(config))} runs side by side", file=sys.stderr)
        progress.follow(folder, population.train_folder(folder), quiet=False, loggers=[])
    result = summary(options.out)
    curves(options.out)
    film.save(options.out / "dpmac", options.out / "episode.gif")
    result["seconds"] = time.monotonic() - begun
    emit(result, options.json, lambda: text(result, options.out))
    if not result["separated"]:
        print("dpmac: the returns with and without messages overlap; something is wrong", file=sys.stderr)
        raise SystemExit(1)


def summary(out: Path) -> dict[str, Any]:
    """Returns of all runs on common starts, the statement about each budget, and whether messages helped for sure."""
    import numpy as np

    from dpmac.runner import population

    rows = []
    for name in configurations():
        loaded = population.load(out / name)
        scores = population.scores(loaded.program, loaded.teams, loaded.scale, 1024).mean(axis=1)
        claims = population.statement(loaded.config, loaded.program)["claims"]
        for label in loaded.config.labels:
            mine = [run.label == label for run in loaded.runs]
            rows.append(
                {
                    "method": name,
                    "epsilon": label if name == "dpmac" else "no messages",
                    "returns": [float(value) for value in np.asarray(scores)[mine]],
                    "exact_epsilon": max((entry["exact_epsilon"] for entry in claims[label]), default=0.0),
                    "valid": all(entry["valid"] for entry in claims[label]),
                }
            )
    silent = max(value for row in rows if row["method"] == "silent" for value in row["returns"])
    talking = min(value for row in rows if row["method"] == "dpmac" for value in row["returns"])
    return {"task": TASK, "runs": rows, "separated": talking > silent}


def curves(out: Path) -> None:
    """Returns over training, mean and range over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    from dpmac.results import store

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name in configurations():
        rows = [row for row in store.read_metrics(out / name) if row.name == "return"]
        for label in dict.fromkeys(row.budget for row in rows):
            steps = sorted({row.step for row in rows})
            values = np.array(
                [[row.value for row in rows if (row.budget, row.step) == (label, step)] for step in steps]
            )
            said = "a free symbol" if label == "inf" else f"a symbol at ε = {label}"
            legend = "no messages (MADDPG)" if name == "silent" else f"DPMAC, {said} an episode"
            (line,) = axes.plot(steps, values.mean(axis=1), label=legend)
            axes.fill_between(steps, values.min(axis=1), values.max(axis=1), alpha=0.2, color=line.get_color())
    reference = store.read_json(out / "dpmac" / "reference.json")["returns"]
    axes.axhline(reference["scripted"][0], color="grey", linestyle="--", label="scripted, knows the targets")
    axes.set(xlabel="environment steps", ylabel="team return", title=TASK, ylim=(-40, -5))
    axes.legend()
    figure.savefig(out / "curves.png", dpi=120)
    plt.close(figure)


def text(result: dict[str, Any], out: Path) -> str:
    """The result for people."""
    table = Table(title=f"{result['task']}: each agent has to reach a landmark that only the other one knows")
    for name in ("method", "claimed ε", "exact ε of an episode", "claim", "return of each seed"):
        table.add_column(name)
    for row in result["runs"]:
        claim = (
            "nothing is sent" if row["method"] == "silent" else "none" if row["epsilon"] == "inf" else str(row["valid"])
        )
        exact = f"{row['exact_epsilon']:.4g}"
        table.add_row(row["method"], row["epsilon"], exact, claim, "  ".join(f"{v:.2f}" for v in row["returns"]))
    console = Console(width=110)
    with console.capture() as captured:
        console.print(table)
    verdict = "do not overlap: messages help" if result["separated"] else "OVERLAP"
    return (
        f"{captured.get()}Ranges with and without messages {verdict}. {result['seconds']:.0f} s.\n"
        f"Look at {out / 'curves.png'} and {out / 'episode.gif'}; {out / 'dpmac' / 'privacy.json'} is the statement."
    )
