"""A task's frontier from its finished runs: return against exact ε for every line, between silence and the limit."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpmac import experiments, privacy, tasks
from dpmac.agents import protocol
from dpmac.analysis import audit, eavesdrop, gap
from dpmac.config import BadInput, RunConfig, to_json
from dpmac.experiments import DELTA, ScaleName
from dpmac.frontiers import CONFIDENCE, LINES, OVERHEARD, population_name
from dpmac.privacy.loss import response_flip
from dpmac.results import records, stats, store
from dpmac.results.records import Record, Results
from dpmac.runner import train
from dpmac.runner.population import Loaded, load
from dpmac.tasks import Task, references

CURVE = np.geomspace(0.1, 30, 41)
"""Where the limit is drawn, in ε."""


def examine(
    out: Path, wanted: Mapping[str, RunConfig], family: Mapping[str, RunConfig], scale: ScaleName, audited: int = 0
) -> Iterator[str]:
    """Find out about each finished team what has not been found out yet, and say its name.

    That is what an eavesdropper tells of its secrets, where its symbols lose, and if asked for a lower bound on its ε
    from so many transcripts. It is added to the run's final.json, so that a kill loses the run in hand at most. All
    verdicts on the family, to which those wanted belong, hold together with the frontier's confidence.
    """
    confidence = privacy.family_confidence(len(speakers(family)), CONFIDENCE)
    for name in speakers(wanted):
        folder = out / "runs" / name
        final = store.read_json(folder / "final.json") if records.finished(folder) else {}
        if not final or ("eavesdropper" in final and (not audited or "audit" in final)):
            continue
        loaded, found = load(folder), {}
        if "eavesdropper" not in final:
            (found["eavesdropper"],) = eavesdrop.eavesdrop(
                loaded, OVERHEARD[scale], confidence=confidence, hears=("sender",)
            )
            (found["gap"],) = gap.gaps(loaded, min(OVERHEARD[scale], gap.EPISODES))
        if audited:
            found["audit"] = audit_of(loaded, audited, confidence)
        store.write_json(folder / "final.json", final | found)
        yield name


def speakers(wanted: Mapping[str, RunConfig]) -> list[str]:
    """Names of the runs that send anything."""
    return [
        name
        for population, config in wanted.items()
        for name in experiments.run_names(population, config).values()
        if protocol.find(config.method).speaks
    ]


def audit_of(loaded: Loaded, episodes: int, confidence: float) -> list[dict[str, Any]]:
    """An audit of one run; nothing where nothing is claimed, or nothing is said that depends on what is seen."""
    try:
        return audit.audit(loaded, episodes, confidence, seed=0)
    except BadInput:
        return []


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
        told = informed_return(task, row["epsilon"], episodes)
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
            "steps": config.training.steps,
            "final_episodes": episodes,
            "finished": sum(len(row["returns"]) for row in rows),
            "runs": sum(len(item.budgets) * len(item.seeds) for item in wanted.values()),
            "recipe": {
                "networks": config.networks,
                "learner": config.learner,
                "learner_options": config.learner_options,
                "training": config.training,
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
        of_budget = [name for member, name in names.items() if member.budget == budget]
        found = [results.runs[name] for name in of_budget if name in results.runs]
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
        "eavesdropper": heard_in(found),
        "gap": lost_in(found),
        "audit": audited_in(found),
    }


def heard_in(found: Sequence[Record]) -> dict[str, Any] | None:
    """What eavesdroppers found over seeds, agents and secrets."""
    entries = [entry for record in found for entry in record.final.get("eavesdropper", [])]
    if not entries:
        return None
    verdicts = [entry["verdict"] for entry in entries]
    return {
        "accuracy": float(np.mean([entry["accuracy"] for entry in entries])),
        "highest": max(entry["accuracy"] for entry in entries),
        "low": float(np.mean([entry["low"] for entry in entries])),
        "high": float(np.mean([entry["high"] for entry in entries])),
        "chance": entries[0]["chance"],
        "cap": max(entry["cap"] for entry in entries),
        "violations": verdicts.count("violated"),
        "verdict": "violated" if "violated" in verdicts else "within",
    }


def lost_in(found: Sequence[Record]) -> dict[str, float] | None:
    """Where symbols lose, means over seeds; nothing for channels without symbols."""
    entries = [entry for record in found if (entry := record.final.get("gap"))]
    names = [name for name in entries[0] if all(entry[name] is not None for entry in entries)] if entries else []
    return {name: float(np.mean([entry[name] for entry in entries])) for name in names} or None


def audited_in(found: Sequence[Record]) -> dict[str, Any] | None:
    """The highest lower bound on ε of any seed and agent, and whether a claim is refuted."""
    entries = [entry for record in found for entry in record.final.get("audit", [])]
    if not entries:
        return None
    refuted = sum(entry["verdict"] == "refuted" for entry in entries)
    return {
        "lower_bound": max(float(entry["lower_bound"]) for entry in entries),
        "agents": len(entries),
        "refuted": refuted,
        "failed_checks": sum(bool(entry["failed_checks"]) for entry in entries),
    }


# The limit ------------------------------------------------------------------------------------------------------------


def informed_return(task: Task, epsilon: float, episodes: int) -> dict[str, float] | None:
    """What agents earn on the common starts if they are informed through randomised response at ε and lose nothing."""
    if not references.is_informed(task):
        return None
    earned = references.informed_returns(
        task, response_flip(epsilon, task.symbols), jax.random.key(train.EVALUATION_SEED), episodes
    )
    sample = np.asarray(earned, float)
    error = float(sample.std(ddof=1) / np.sqrt(episodes))
    return {"epsilon": float(epsilon), "return_mean": float(sample.mean()), "return_se": error}


def limit_of(task: Task, episodes: int) -> list[dict[str, float]]:
    """The limit over ε, on the same starts with the same noise draws everywhere; nothing where the task has none."""
    return [point for epsilon in CURVE if (point := informed_return(task, float(epsilon), episodes))]


def reference_of(results: Results, wanted: Mapping[str, RunConfig]) -> dict[str, float]:
    """Returns of the random and of the scripted policy, which every run carries."""
    names = {run for name, config in wanted.items() for run in experiments.run_names(name, config).values()}
    found = next((record.reference["returns"] for name, record in results.runs.items() if name in names), {})
    return {policy: float(values[0]) for policy, values in found.items()}
