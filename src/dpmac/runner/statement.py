"""What a run's privacy.json says, and whether what it says follows from the configuration."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from dpmac import privacy, tasks
from dpmac.agents import protocol
from dpmac.config import Release, RunConfig, number, require, to_json
from dpmac.results import store
from dpmac.results.records import Results
from dpmac.runner import earlier
from dpmac.runner.noise import noise_scales
from dpmac.runner.train import Program

CLAIMED = (
    "epsilon",
    "delta",
    "unit",
    "accountant",
    "mechanism",
    "noise",
    "valid",
    "exact_epsilon",
    "exact_epsilon_message",
    "exact_epsilon_episode",
)
"""What is claimed of every agent; statements of version 0.1 lack some of the rest."""


def statement(config: RunConfig, program: Program) -> dict[str, Any]:
    """What privacy.json says."""
    task, channel = program.task, protocol.channel_of(config.method, config.channel)
    speaks = protocol.find(config.method).speaks
    claims = {
        label: claims_of(budget, channel, task.agents, task.horizon) if speaks else []
        for label, budget in zip(config.labels, config.budgets, strict=True)
    }
    said = {
        "covers": "the messages of an episode in execution, with weights that do not depend on that episode"
        if speaks
        else "nothing is sent",
        "about": privacy.statement.ABOUT if speaks else "nothing is sent",
        "simulated": privacy.statement.SIMULATED if speaks else "nothing is sent",
        "not_covered": "training, which sees raw observations; actions and positions; what other agents observe",
        "length": tasks.abilities(task).length,
        "observers": dict(task.observers),
        "claims": claims,
    }
    if not program.microbatch:
        return said
    left = "actions and positions; what other agents observe; training but for what `training` says"
    return said | {"not_covered": left, "training": training_of(config, program)}


def training_of(config: RunConfig, program: Program) -> dict[str, Any]:
    """What privacy.json says of private training, and for each budget of what a source gives away in all."""
    task, channel = program.task, protocol.channel_of(config.method, config.channel)
    batch = program.learner.batch_size(program.rollout)
    joint = {}
    for label, budget in zip(config.labels, config.budgets, strict=True):
        scales = noise_scales(budget, channel, task.agents, task.horizon) if protocol.find(config.method).speaks else ()
        messages = Counter(Release(channel, scale, task.horizon, "episode") for scale in scales)
        joint[label] = privacy.training.joint(config.private, program.use, messages, budget.delta)
    return privacy.training.claim(config.private, program.use, batch, len(config.members)) | {"joint": joint}


@cache
def claims_of(*given: Any) -> list[dict[str, Any]]:
    """`privacy.claim`, which is slow for channels that are used often; not to be changed."""
    return privacy.claim(*given)


def check_statement(folder: Path, config: RunConfig, program: Program) -> None:
    """Bad input where a folder's privacy statement is not the one that follows from its configuration."""
    path = folder / "privacy.json"
    require(
        says_what_follows(store.read_json(path), config, program),
        f"{path} does not say what follows from config.json: one of the two was altered",
    )


def says_what_follows(found: Any, config: RunConfig, program: Program) -> bool:
    """Whether all that a saved statement says follows from a configuration, numbers to a millionth.

    It may leave out sentences, as version 0.1 did, but neither a claim nor what is said of private training.
    """
    right = to_json(statement(config, program))
    wanted = right["claims"]
    claims = found.get("claims") if isinstance(found, dict) else None
    needed = {"claims", "training"} & right.keys()
    return (
        isinstance(claims, dict)
        and claims.keys() == wanted.keys()
        and all(same_claims(claims[label], wanted[label]) for label in wanted)
        and same_part({**found, "claims": wanted}, right, needed)
    )


def same_claims(found: Any, wanted: list[dict[str, Any]]) -> bool:
    """Whether saved claims about agents say the same; one that does not say what it covers means its unit."""
    return (
        isinstance(found, list)
        and len(found) == len(wanted)
        and all(same_part(one, right, set(CLAIMED)) for one, right in zip(found, wanted, strict=True))
        and all(one.get("covers", one["unit"]) == right["covers"] for one, right in zip(found, wanted, strict=True))
    )


def same_part(found: Any, right: dict[str, Any], needed: set[str]) -> bool:
    """Whether an object has what is needed, and says nothing else than another one."""
    fits = isinstance(found, dict) and needed <= found.keys() <= right.keys()
    return fits and all(same_tree(found[name], right[name]) for name in found)


def same_tree(found: Any, right: Any) -> bool:
    """Whether two trees of objects and lists say the same, numbers to a millionth."""
    if isinstance(right, dict):
        return same_part(found, right, set(right))
    if isinstance(right, list):
        same = isinstance(found, list) and len(found) == len(right)
        return same and all(map(same_tree, found, right))
    return same_value(found, right)


def same_value(found: Any, right: Any) -> bool:
    """Whether two values are the same: numbers to a millionth, a sentence also as an earlier version wrote it."""
    if isinstance(right, float) and number(found):
        return abs(found - right) <= 1e-6 * abs(right)
    found = earlier.TODAY.get(found, found) if isinstance(found, str) else found
    return type(found) is type(right) and found == right


def check_records(results: Results) -> None:
    """Bad input where a finished run's statement is not the one that follows from its configuration.

    Runs with a part of somebody's own are left out: results are read without importing what they name.
    """
    for name, record in results.runs.items():
        config = record.config
        own = (part for part in (config.task, config.method, config.learner, config.channel.mechanism) if ":" in part)
        if not any(own):
            require(
                says_what_follows(to_json(record.privacy), config, Program.of(config)),
                f"the privacy statement of run {name} does not follow from its configuration: it was altered",
            )
