"""A task's frontier from its finished runs: return against exact ε for every line, between silence and the limit."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dpmac import experiments, tasks
from dpmac.config import RunConfig, to_json
from dpmac.experiments import DELTA, ScaleName
from dpmac.frontiers import LINES, population_name
from dpmac.privacy.loss import response_flip
from dpmac.results import stats
from dpmac.results.records import Record, Results
from dpmac.runner import train
from dpmac.tasks import Task, references

CURVE = np.geomspace(0.1, 30, 25)
"""Where the limit is drawn, in ε."""


def summary(
    results: Results, wanted: Mapping[str, RunConfig], scale: ScaleName, limit_episodes: int = 0
) -> dict[str, Any]:
    """What a frontier shows, as plain data: a row for each line and budget of which runs are finished."""
    config = next(iter(wanted.values()))
    task = tasks.make(config.task, **config.task_options)
    episodes = limit_episodes or experiments.SCALES[scale].final_episodes
    rows = [
        row
        for line in LINES
        if (name := population_name(config.task, line)) in wanted
        for row in rows_of(results, line, name, wanted[name])
    ]
    silent = next((row["returns"] for row in rows if row["line"] == "silent"), [])
    for row in rows:
        told = told_return(task, row["epsilon"], episodes)
        row["limit"] = told and told["return_mean"]
        row["above_silence"] = stats.difference(row["returns"], silent)._asdict() if silent else None
    return to_json(
        {
            "task": config.task,
            "task_options": config.task_options,
            "reward_unit": task.reward_unit,
            "scale": scale,
            "delta": DELTA,
            "seeds": len(config.seeds),
            "steps": config.learning.steps,
            "final_episodes": episodes,
            "finished": sum(len(row["returns"]) for row in rows),
            "runs": sum(len(item.budgets) * len(item.seeds) for item in wanted.values()),
            "recipe": {
                "networks": config.networks,
                "learning": config.learning,
                "anneal_from": config.anneal_from,
                "anneal_share": config.anneal_share,
            },
            "references": reference_of(results, wanted),
            "limit": limit_of(task, episodes),
            "rows": rows,
        }
    )


def rows_of(results: Results, line: str, population: str, config: RunConfig) -> list[dict[str, Any]]:
    """Rows of one line, a budget each."""
    names = experiments.run_names(population, config)
    rows = []
    for budget in config.budgets:
        found = [results.runs[names[budget, seed]] for seed in config.seeds if names[budget, seed] in results.runs]
        if found:
            rows.append(row_of(line, budget.epsilon[0], found))
    return rows


def row_of(line: str, epsilon: float, found: Sequence[Record]) -> dict[str, Any]:
    """What the runs of one line and budget, which differ in their seed, have in common."""
    returns = [record.final_return for record in found]
    estimate = stats.bootstrap([returns])
    claims = [claim for record in found for claim in record.claims]
    return {
        "line": line,
        "label": LINES[line].label if claims == [] or np.isfinite(epsilon) else "free messages",
        "channel": LINES[line].channel.mechanism if claims else None,
        "schedule": LINES[line].schedule,
        "epsilon": epsilon if claims else 0.0,
        "exact_epsilon": max((float(claim["exact_epsilon_episode"]) for claim in claims), default=0.0),
        "valid": all(claim["valid"] for claim in claims),
        "noise": max((float(claim["noise"]) for claim in claims), default=0.0),
        "returns": returns,
        "return_iqm": estimate.value,
        "return_low": estimate.low,
        "return_high": estimate.high,
        "return_mean": float(np.mean(returns)),
    }


# The limit ------------------------------------------------------------------------------------------------------------


def told_return(task: Task, epsilon: float, episodes: int) -> dict[str, float] | None:
    """What agents earn on the common starts who are told through randomised response at ε and lose nothing of it."""
    if not references.tells(task):
        return None
    earned = references.told_returns(
        task, response_flip(epsilon, task.symbols), jax.random.key(train.EVALUATION_SEED), episodes
    )
    sample = np.asarray(earned, float)
    error = float(sample.std(ddof=1) / np.sqrt(episodes))
    return {"epsilon": float(epsilon), "return_mean": float(sample.mean()), "return_se": error}


def limit_of(task: Task, episodes: int) -> list[dict[str, float]]:
    """The limit over ε, on the same starts and with the same chance everywhere; nothing where the task has none."""
    return [point for epsilon in CURVE if (point := told_return(task, float(epsilon), episodes))]


def reference_of(results: Results, wanted: Mapping[str, RunConfig]) -> dict[str, float]:
    """Returns of the random and of the scripted policy, which every run carries."""
    names = {run for name, config in wanted.items() for run in experiments.run_names(name, config).values()}
    found = next((record.reference["returns"] for name, record in results.runs.items() if name in names), {})
    return {policy: float(values[0]) for policy, values in found.items()}
