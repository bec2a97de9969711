"""A demonstration at a laptop's size: a task that is about talking, with and without messages."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpmac.agents.team import pick
from dpmac.analysis import expected, limit
from dpmac.config import Budget, NetworkConfig, RunConfig, Training
from dpmac.frontiers import LINES
from dpmac.runner import noise, population, train
from dpmac.runner.population import Loaded

SEEDS = (0, 1)
TASK = "ccn"
EPSILON = 3.0
TRAINING = Training(steps=1_200_000, episodes=64, evaluations=20, evaluation_episodes=256)
SILENT_STEPS = 160_000
LEARNER_OPTIONS: dict[str, Any] = {}
"""The learner's defaults find a whole code in so many steps; in two thirds of them two of four seeds did not."""
NETWORKS = NetworkConfig(hidden=64, aware=True, products=48, entry_layer=True, share_parameters=True)
STARTS = 256
"""Common starts that teams are scored on, with all secrets and releases, and that the limit is worked out for."""


def configurations() -> dict[str, RunConfig]:
    """The two populations: one private symbol an episode, and no messages."""
    shared: dict[str, Any] = {"task": TASK, "seeds": SEEDS, "learner": "pathwise"}
    short = dataclasses.replace(TRAINING, steps=min(TRAINING.steps, SILENT_STEPS))
    return {
        "dpmac": RunConfig(
            method="dpmac",
            channel=LINES["response-once"].channel,
            budgets=(Budget((EPSILON,)),),
            anneal_from=10.0,
            networks=NETWORKS,
            training=TRAINING,
            learner_options=LEARNER_OPTIONS,
            **shared,
        ),
        "silent": RunConfig(
            method="silent",
            networks=dataclasses.replace(NETWORKS, aware=False, products=0),
            training=short,
            **shared,
        ),
    }


def summary(out: Path) -> dict[str, Any]:
    """Returns of all runs on common starts, the statement about each budget, what no mechanism passes on the same
    starts, and whether messages helped for sure."""
    talking, silent = (population.load(out / name) for name in configurations())
    claims = population.statement(talking.config, talking.program)["claims"]
    (label,) = talking.config.labels
    private, free = scores(talking, Budget((EPSILON,))), scores(talking, Budget())
    nothing = scores(silent, Budget())
    scenes = limit.scenes_of(talking.program.task, STARTS)
    bounds = {each: float(np.mean(limit.bound(scenes, each, 0.0))) for each in (EPSILON, MANY)}
    rows = [
        row("dpmac", label, private, bounds[EPSILON], claims[label]),
        row("dpmac, noise switched off", "inf", free, bounds[MANY], []),
        row("silent", "no messages", nothing, float(np.mean(limit.silence(scenes))), []),
    ]
    return {"task": TASK, "runs": rows, "separated": min(private) > max(nothing)}


MANY = 30.0
"""An ε at which a symbol is as good as free."""


def scores(loaded: Loaded, budget: Budget) -> list[float]:
    """Mean return of every team at the noise of a budget, over starts, secrets and releases."""
    scale, key = (
        noise.scales_of(loaded.config, loaded.program, [budget] * len(loaded.runs)),
        jax.random.key(train.EVALUATION_SEED),
    )
    runs = [pick((loaded.teams, scale), index) for index in range(len(loaded.runs))]
    return [float(np.mean(expected.expected(loaded.program, *run, key, STARTS))) for run in runs]


def row(method: str, epsilon: str, returns: list[float], limit: float, claims: list[dict[str, Any]]) -> dict[str, Any]:
    """One line of the summary."""
    return {
        "method": method,
        "epsilon": epsilon,
        "returns": returns,
        "limit": limit,
        "exact_epsilon": max((entry["exact_epsilon"] for entry in claims), default=None),
        "valid": all(entry["valid"] for entry in claims) if claims else None,
    }
