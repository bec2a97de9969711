"""The report's explorer: choose a task, a method and a budget; see its curve, what may be said about its privacy, an
episode with everything that was said in it, and what an eavesdropper makes of that.

Everything is read from saved records and told here as plain data and sentences; explorer.js only draws it.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from dpmac import privacy
from dpmac.config import Channel, Release, dumps
from dpmac.experiments import BUDGETS, METHODS, TASKS, name_of
from dpmac.figures import catalogue
from dpmac.privacy import accounting, mechanisms
from dpmac.results.records import Record, Results

FIRST = ("ccn", "dpmac", "step-1")
"""What is shown first, where it was trained."""


def file(name: str) -> str:
    """A file of the page, which lies beside this module."""
    return (resources.files("dpmac.figures") / name).read_text(encoding="utf-8")


# Cells ----------------------------------------------------------------------------------------------------------------


def groups(results: Results) -> dict[tuple[str, str, str], list[Record]]:
    """Runs that differ in their seed alone, by task, method with its variant, and budget, as the selects have them."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for name, record in sorted(results.runs.items()):
        task, budget = record.config.task, name_of(record.config.budgets[0])
        method = name.removeprefix(f"{task}-").rsplit("-seed-", 1)[0].removesuffix(f"-{budget}")
        found.setdefault((task, method, budget), []).append(record)

    def place(key: tuple[str, str, str]) -> tuple[Any, ...]:
        task, method, budget = key
        plain = method.partition("-")[0]
        return rank(TASKS, task), method != plain, rank(METHODS, plain), method, rank(BUDGETS, budget), budget

    return {key: sorted(found[key], key=lambda record: record.seed) for key in sorted(found, key=place)}


def recipe(record: Record) -> tuple[Any, ...]:
    """What two runs must share for their difference to be what is sent."""
    config = record.config
    options = dumps([config.task_options, config.learner_options])
    return config.task, config.learner, options, config.networks, config.training


def silent_place(found: dict[tuple[str, str, str], list[Record]], record: Record) -> int | None:
    """Where among the cells that one stands which sends nothing and was trained in the same way."""
    silent = (
        place for place, (one, *_) in enumerate(found.values()) if not one.claims and recipe(one) == recipe(record)
    )
    return next(silent, None)


def rank(names: Iterable[str], name: str) -> int:
    """The place of a name among known ones; those from elsewhere come last."""
    known = list(names)
    return known.index(name) if name in known else len(known)


def method_label(method: str, record: Record) -> str:
    """`DPMAC`, or with what is special about it: `DPMAC, randomised response, once`."""
    plain, _, variant = method.partition("-")
    name, channel = METHODS.get(plain, (plain,))[0], record.config.channel
    special = variant.startswith(tuple(mechanisms.names())) and record.claims
    if not special:
        return f"{name}, {variant}" if variant else name
    when = {0: "once", 1: "every step"}.get(channel.period, f"every {channel.period} steps")
    return f"{name}, {mechanisms.of(channel).title}, {when}"


def budget_label(budget: str, record: Record) -> str:
    """A budget in words."""
    if not record.claims:
        return "nothing is sent"
    return "free messages" if budget == "free" else catalogue.budget_label(budget)


def short(values: Any, digits: int = 4) -> Any:
    """Nested numbers with so many digits."""
    if isinstance(values, (list, tuple, np.ndarray)):
        return [short(value, digits) for value in values]
    value = float(f"{float(values):.{digits}g}")
    return int(value) if value.is_integer() else value


def cell_data(key: tuple[str, str, str], runs: Sequence[Record]) -> dict[str, Any]:
    """All that the page shows about one cell."""
    (task, method, budget), first = key, runs[0]
    same = [record for record in runs if len(record.steps) == len(first.steps)]
    returns = np.stack([record.returns for record in same])
    finals = np.array([record.final_return for record in runs])
    heard = overheard(runs)
    kept = next((record.episodes for record in runs if record.episodes), [])
    return {
        "task": task,
        "method": method,
        "methodLabel": method_label(method, first),
        "budget": budget,
        "budgetLabel": budget_label(budget, first),
        "seeds": len(runs),
        "steps": first.steps.tolist(),
        "middle": short(returns.mean(0)),
        "low": short(returns.min(0)),
        "high": short(returns.max(0)),
        "final": [round(float(value), 2) for value in (finals.mean(), finals.min(), finals.max())],
        "scored": [first.config.training.evaluation_episodes, first.final["episodes"]],
        "kind": kind_of(first),
        "channel": channel_data(first),
        "statement": statement(first),
        "heard": heard_sentences(heard),
        "accuracy": [short(item["accuracy"]) for item in heard],
        "secrets": round(1 / heard[0]["chance"]) if heard else 2,
        "caps": short(caps(first, round(1 / heard[0]["chance"]) if heard else 2)),
        "episodes": [episode_data(episode, first.config.channel) for episode in kept],
    }


def channel_data(record: Record) -> dict[str, Any]:
    """What drawing and guessing need to know of the channel."""
    spec, noise = record.config.channel, [float(item["noise"]) for item in record.claims]
    mechanism, most = mechanisms.of(spec), max(noise, default=0.0)
    return {name: getattr(spec, name) for name in ("clip_norm", "period", "place")} | {
        "alphabet": mechanism.alphabet,
        "right": short(mechanism.eavesdropper(most, 1) if most else 1.0),
    }


def episode_data(episode: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """An example episode without what is not drawn; of several copies or rounds the first copy and the last round."""
    released, noise = episode["released"], episode["noise"]
    if np.ndim(released) == 4:
        released = [[copies[0] for copies in now] for now in released]
    return {
        **{name: episode[name] for name in ("agents", "bodies")},
        **{name: short(episode[name]) for name in ("places", "rewards")},
        "released": short(released),
        "noise": short(noise[channel.rounds - 1 :: channel.rounds]) if noise and np.any(noise) else None,
    }


# What may be said -----------------------------------------------------------------------------------------------------


def kind_of(record: Record) -> str:
    """silent, free, receiver (noise where it protects nothing), true or untrue."""
    if not record.claims:
        return "silent"
    if record.noise == 0:
        return "free"
    if record.config.channel.place == "receiver":
        return "receiver"
    return "true" if all(entry["valid"] for entry in record.claims) else "untrue"


HEADLINES = {
    "silent": "Nothing is sent, so messages tell nobody anything.",
    "free": "No privacy: messages leave as they are.",
    "receiver": "The claim is not true: the noise is added too late.",
    "true": "The claim is true.",
    "untrue": "The claim is not true.",
}


def statement(record: Record) -> dict[str, Any]:
    """What a run may say about its privacy: a headline, and sentences."""
    kind, said = kind_of(record), record.privacy
    lines: list[str] = []
    if kind == "free":
        lines.append("There is no finite ε: whoever hears a message has what its sender made.")
    elif kind != "silent":
        same = len({(str(item["epsilon"]), str(item["noise"])) for item in record.claims}) == 1
        for item in record.claims[:1] if same else record.claims:
            lines += claim_sentences(record, item, "" if same else f"Agent {item['agent']}. ")
    if said.get("covers") and kind not in ("silent", "free"):
        lines.append(f"What is meant: {said['covers']}.")
    if said.get("not_covered"):
        lines.append(f"Not covered: {said['not_covered']}.")
    lines += [f"Who sees it anyway: {text}" for text in dict(said.get("observers") or {}).values()]
    return {"headline": HEADLINES[kind], "lines": lines}


def claim_sentences(record: Record, item: dict[str, Any], who: str) -> list[str]:
    """The claim about an agent, and what is true instead or as well."""
    unit = {"message": "one message", "episode": "a whole episode"}[item["unit"]]
    by = {"paper": "the paper’s formula", "exact": "exact accounting"}[item["accountant"]]
    channel, noise = record.config.channel, float(item["noise"])
    amount = mechanisms.of(channel).describe_noise(noise)
    lines = [f"{who}Claimed by {by}: ε = {float(item['epsilon']):g} for {unit} at δ = {item['delta']:g}, {amount}."]
    message, episode = (float(item[f"exact_epsilon_{what}"]) for what in ("message", "episode"))
    if channel.place == "receiver":
        lines.append(
            "Exact: no finite ε. The receiver adds the noise after the raw message has left its sender, as the paper "
            "does for this method; it keeps nothing from the receiver, nor from a listener on the way."
        )
    else:
        horizon = len(record.episodes[0]["rewards"]) if record.episodes else None
        count = f" of {channel.uses(horizon)} message{'s' * (channel.uses(horizon) != 1)}" if horizon else ""
        lines.append(f"Exact: ε = {message:.3g} for one message, ε = {episode:.3g} for a whole episode{count}.")
    if failed := [condition["name"] for condition in item["failed_conditions"]]:
        lines.append(f"The paper’s theorem does not apply here; it needs, and has not: {'; '.join(failed)}.")
    return lines


# Eavesdroppers --------------------------------------------------------------------------------------------------------


def overheard(runs: Sequence[Record]) -> list[dict[str, Any]]:
    """What trained eavesdroppers found, of all runs and agents; only the first step's secrets have a cap."""
    entries = [entry for record in runs for entry in record.final.get("eavesdropper") or []]
    return [entry for entry in entries if entry["cap"] is not None]


def heard_sentences(entries: Sequence[dict[str, Any]]) -> list[str]:
    """How often trained eavesdroppers are right, for each secret."""
    lines = []
    for secret in dict.fromkeys(entry["secret"] for entry in entries):
        own = [entry for entry in entries if entry["secret"] == secret]
        right, cap = [entry["accuracy"] for entry in own], max(entry["cap"] for entry in own)
        broken = sum(entry["verdict"] == "violated" for entry in own)
        judged = f"{broken} of {len(own)} exceed it" if broken else "none is found above it"
        mean, most, blind = percent(float(np.mean(right))), percent(max(right)), percent(own[0]["chance"])
        bound = "is a bound for every listener" + ("" if own[0]["chance"] == 0.5 else ", which the best may stay below")
        lines.append(
            f"Trained eavesdroppers heard whole episodes and guess the {secret} right in {mean} of new ones (mean of "
            f"{len(own)} agents and seeds; at most {most}). Guessing without hearing is right in {blind}. At this "
            f"noise {percent(cap)} {bound}; {judged}."
        )
    return lines


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def caps(record: Record, secrets: int) -> list[float]:
    """After each step, a bound on how often any listener guesses one of so many secrets, all as likely, about the agent
    with the least noise; empty where nothing is sent or no episode says how long one is."""
    if not record.claims or not record.episodes:
        return []
    noise = min(float(item["noise"]) for item in record.claims)
    channel, horizon = record.config.channel, len(record.episodes[0]["rewards"])
    whole = mechanisms.of(channel).whole  # what is drawn before an episode is worth the same after each step of it
    steps = [horizon if whole else step for step in range(1, horizon + 1)]
    return [cap_after(channel, noise, channel.uses(step), secrets) for step in steps]


@cache
def cap_after(channel: Channel, noise: float, uses: int, secrets: int) -> float:
    """The best guess from so many releases; for two secrets `transcript_accuracy` is (1 + δ(0))/2, and slower."""
    each = dataclasses.replace(channel, period=1)
    release = Release(each, noise, math.ceil(uses / channel.rounds))
    if accounting.unprotected(release):
        return 1.0
    if secrets == 2:
        return (1 + privacy.delta(release, 0.0)) / 2
    return privacy.transcript_accuracy(release, secrets)


# The section ----------------------------------------------------------------------------------------------------------


def data_of(results: Results) -> dict[str, Any]:
    """Everything that the explorer knows."""
    found = groups(results)
    tasks = {}
    for (task, _, _), runs in found.items():
        reference = runs[0].reference
        returns = {name: short(value[0]) for name, value in reference.get("returns", {}).items()}
        title = f"{task.upper()}: {TASKS[task]}" if task in TASKS else task
        tasks.setdefault(task, {"title": title, "unit": reference.get("unit", ""), "returns": returns})
    missing = [
        {"task": cell.task, "method": cell.method, "methodLabel": METHODS[cell.method][0], "budget": cell.budget}
        | {"budgetLabel": catalogue.budget_label(cell.budget)}
        for cell in catalogue.missing(results)
        if cell.task in tasks
    ]
    first = FIRST if FIRST in found else next(iter(found))
    cells = [cell_data(key, runs) | {"silent": silent_place(found, runs[0])} for key, runs in found.items()]
    return {"first": first, "tasks": tasks, "cells": cells, "missing": missing}


def section(results: Results) -> str:
    """The explorer's part of the page."""
    payload = dumps(data_of(results)).replace("</", "<\\/")
    return f'<script type="application/json" id="explorer-data">{payload}</script>{file("explorer.html")}'
