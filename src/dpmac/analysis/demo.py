"""A demonstration at a laptop's size: a task that is about talking, with and without messages."""

from pathlib import Path
from typing import Any

import numpy as np

from dpmac.config import Budget, NetworkConfig, RunConfig, Training
from dpmac.frontiers import LINES
from dpmac.runner import population, train

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


def summary(out: Path) -> dict[str, Any]:
    """Returns of all runs on common starts, the statement about each budget, and whether messages helped for sure."""
    rows = []
    for name in configurations():
        loaded = population.load(out / name)
        scores = population.scores(loaded.program, loaded.teams, loaded.scale, train.STARTS).mean(axis=1)
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
