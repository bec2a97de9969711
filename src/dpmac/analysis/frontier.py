"""A task's frontier from its finished runs: return against exact ε for every line, between silence and the limits."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpmac import experiments, privacy, tasks
from dpmac.agents import protocol
from dpmac.analysis import audit, eavesdrop, expected, gap, limit
from dpmac.config import BadInput, RunConfig, to_json
from dpmac.experiments import DELTA, ScaleName
from dpmac.frontiers import CONFIDENCE, LINES, OVERHEARD, line_of
from dpmac.privacy import staircase
from dpmac.results import records, stats, store
from dpmac.results.records import Record, Results
from dpmac.runner.population import Loaded, load
from dpmac.tasks import Task

CURVE = np.geomspace(0.1, 30, 41)
"""Where the limits are drawn, in ε, beside the budgets themselves."""


def examine(
    out: Path,
    wanted: Mapping[str, RunConfig],
    family: Mapping[str, RunConfig],
    scale: ScaleName,
    audited: int = 0,
    brief: bool = False,
) -> Iterator[str]:
    """Find out about each finished team what has not been found out yet, and say its name.

    That is what it earns over all secrets, what an eavesdropper tells of its secrets, where its symbols lose, and if
    asked for a lower bound on its ε from so many transcripts; in `brief` what it earns alone, where that is cheap. It
    is added to the run's final.json, so that a kill loses the run in hand at most. All verdicts on the family, to which
    those wanted belong, hold together with the frontier's confidence.
    """
    confidence = privacy.family_confidence(2 * len(speakers(family)), CONFIDENCE)  # of eavesdroppers, and of audits
    speaking = set() if brief else {*speakers(wanted)}
    config = next(iter(wanted.values()))
    cheap = tasks.abilities(tasks.make(config.task, **config.task_options)).shares is not None
    for name in runs_of(wanted):
        folder = out / "runs" / name
        final = store.read_json(folder / "final.json") if records.finished(folder) else {}
        asked = {"expected"} if cheap or not brief else set()
        asked |= {"eavesdropper", "gap"} if name in speaking else set()
        asked |= {"audit"} if audited and name in speaking else set()
        if not final or not (asked := asked - final.keys()):
            continue
        loaded, found = load(folder), {}
        if "expected" in asked:
            (found["expected"],) = expected.returns_of(loaded, experiments.SCALES[scale].final_episodes)
        if "eavesdropper" in asked:
            (found["eavesdropper"],) = eavesdrop.eavesdrop(
                loaded, OVERHEARD[scale], confidence=confidence, hears=("sender",)
            )
        if "gap" in asked:
            (found["gap"],) = gap.gaps(loaded, min(OVERHEARD[scale], gap.EPISODES))
        if "audit" in asked:
            found["audit"] = audit_of(loaded, audited, confidence)
        store.write_json(folder / "final.json", final | found)
        yield name


def runs_of(wanted: Mapping[str, RunConfig]) -> list[str]:
    """Names of all runs."""
    return [
        name for population, config in wanted.items() for name in experiments.run_names(population, config).values()
    ]


def speakers(wanted: Mapping[str, RunConfig]) -> list[str]:
    """Names of the runs that send anything."""
    return runs_of({name: config for name, config in wanted.items() if protocol.find(config.method).speaks})


def audit_of(loaded: Loaded, episodes: int, confidence: float) -> list[dict[str, Any]]:
    """An audit of one run; nothing where nothing is claimed, or nothing is said that depends on what is seen."""
    try:
        return audit.audit(loaded, episodes, confidence, seed=0)
    except BadInput:
        return []


def summary(
    results: Results, wanted: Mapping[str, RunConfig], scale: ScaleName, before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a frontier shows, as plain data: a row for each line and budget of which runs are finished, and the limits.

    `before` is an earlier summary, whose limits are kept where they are the same. Returns are means over all secrets
    and releases, or over several draws of both, where every team has been examined for it (`expected`), else over one.
    """
    config = next(iter(wanted.values()))
    task = tasks.make(config.task, **config.task_options)
    episodes = experiments.SCALES[scale].final_episodes
    there = [results.runs[name] for name in runs_of(wanted) if name in results.runs]
    exact = bool(there) and all(record.final.get("expected") for record in there)
    rows = [row for line in LINES for row in rows_of(results, line, wanted, exact)]
    silent = next((row["returns"] for row in rows if row["line"] == "silent"), [])
    for row in rows:
        row["above_silence"] = stats.difference(row["returns"], silent)._asdict() if silent else None
    return to_json(
        {
            "task": config.task,
            "task_options": config.task_options,
            "agents": task.agents,
            "reward_unit": task.reward_unit,
            "scale": scale,
            "delta": DELTA,
            "seeds": len(config.seeds),
            "steps": config.training.steps,
            "final_episodes": episodes,
            "scored": expected.scored(task) if exact else "one draw",
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
            "limits": limits_of(task, wanted, episodes, (before or {}).get("limits")),
            "rows": rows,
        }
    )


def rows_of(results: Results, line: str, wanted: Mapping[str, RunConfig], exact: bool) -> list[dict[str, Any]]:
    """Rows of one line, a budget each."""
    rows = []
    for population, config in wanted.items():
        if line_of(population, config) != line:
            continue
        names = experiments.run_names(population, config)
        for budget in config.budgets:
            of_budget = [name for member, name in names.items() if member.budget == budget]
            found = [results.runs[name] for name in of_budget if name in results.runs]
            if found:
                rows.append(row_of(line, budget.epsilon[0], found, exact))
    return rows


def row_of(line: str, epsilon: float, found: Sequence[Record], exact: bool) -> dict[str, Any]:
    """What the runs of one line and budget, which differ in their seed, have in common."""
    returns = [record.final["expected"]["return_mean"] if exact else record.final_return for record in found]
    estimate = stats.bootstrap([returns])
    claims = [claim for record in found for claim in record.claims]
    covers = "increment" if LINES[line].neighbours == "increment" else "episode"
    exact_epsilon = "exact_epsilon" if covers == "increment" else "exact_epsilon_episode"
    return {
        "line": line,
        "label": LINES[line].label if claims == [] or np.isfinite(epsilon) else "free messages",
        "channel": LINES[line].channel.mechanism if claims else None,
        "schedule": LINES[line].schedule,
        "epsilon": epsilon if claims else 0.0,
        "covers": covers,
        "exact_epsilon": max((float(claim[exact_epsilon]) for claim in claims), default=0.0),
        "episode_epsilon": max((float(claim["exact_epsilon_episode"]) for claim in claims), default=0.0),
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
        "train_seconds": seconds_in(found),
    }


def seconds_in(found: Sequence[Record]) -> float | None:
    """Seconds of training for one of the runs that were trained side by side, in the last slice where training was cut
    into several; nothing where it was not noted."""
    noted = [population for record in found if (population := record.final.get("population"))]
    return float(np.mean([each["train_seconds"] / each["runs"] for each in noted])) if noted else None


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


def limits_of(
    task: Task, wanted: Mapping[str, RunConfig], episodes: int, before: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """All limits over ε (see `limit.curves`), at every budget and, for small teams, densely between; nothing where the
    task has none."""
    if not limit.applies(task):
        return None
    budgets = {budget.epsilon[0] for config in wanted.values() for budget in config.budgets if budget.private}
    curve = CURVE if task.agents <= limit.MOST_AGENTS else ()
    epsilons = sorted({round(float(epsilon), 4) for epsilon in curve} | {e for e in budgets if e <= staircase.LARGEST})
    settled = {"task": repr(task), "episodes": episodes, "delta": DELTA, "epsilons": epsilons}
    if before and before.get("settled") == settled:
        return dict(before)
    return limit.curves(task, epsilons, episodes, DELTA) | {"settled": settled}


def reference_of(results: Results, wanted: Mapping[str, RunConfig]) -> dict[str, float]:
    """Returns of the random and of the scripted policy, which every run carries."""
    names = {run for name, config in wanted.items() for run in experiments.run_names(name, config).values()}
    found = next((record.reference["returns"] for name, record in results.runs.items() if name in names), {})
    return {policy: float(values[0]) for policy, values in found.items()}
