"""Finished runs: a folder for each, or many of them in one compact file from which figures and reports are made.

A finished run's folder is an ordinary one (`store`) and, besides, holds

final.json       returns on common starts, at its own noise and at that of the others; how long it took, and where
episodes.json    example episodes with everything that was said, for one seed of each budget
"""

import gzip
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpmac.config import RENAMED_METHODS, BadInput, RunConfig, dumps, loads, require, run_config, to_json
from dpmac.results import store

FORMAT = "dpmac-results-1"
PACKED = "*.json.gz"
LARGEST = 2**28
"""Bytes of a packed file at most, when it is unpacked; all runs of the paper are a hundredth of that."""


class Record(NamedTuple):
    """One finished run."""

    name: str
    config: RunConfig
    """Of this run alone: one budget, one seed."""
    privacy: dict[str, Any]
    reference: dict[str, Any]
    steps: np.ndarray
    """(evaluation,) environment steps."""
    metrics: dict[str, np.ndarray]
    """(evaluation,) by name; `return` is the mean over greedy episodes."""
    final: dict[str, Any]
    episodes: list[dict[str, Any]]

    @property
    def seed(self) -> int:
        return self.config.seeds[0]

    @property
    def updates_per_episode(self) -> float:
        """The update ratio; NaN for a learner that has none."""
        return float(self.config.learner_options.get("updates_per_episode", float("nan")))

    @property
    def noise(self) -> float:
        """The largest σ of the agents; 0 where messages are free or not sent."""
        return max((float(entry["noise"]) for entry in self.claims), default=0.0)

    @property
    def claims(self) -> list[dict[str, Any]]:
        """What privacy.json says of each agent; nothing where nothing is sent."""
        return next(iter(self.privacy["claims"].values()))

    @property
    def returns(self) -> np.ndarray:
        """(evaluation,) the learning curve."""
        return self.metrics["return"]

    @property
    def last_tenth(self) -> float:
        """The final return as the mean of the last tenth of the evaluations, at least one."""
        return float(np.mean(self.returns[-max(1, len(self.returns) // 10) :]))

    @property
    def final_return(self) -> float:
        """The mean return of the finished team on the common starts."""
        return float(self.final["return_mean"])


class Results(NamedTuple):
    """What a results folder holds."""

    runs: dict[str, Record]
    slices: list[dict[str, Any]]
    """Sessions of work behind them: seconds, device, versions, command."""


def finished(folder: Path) -> bool:
    """Whether a folder is that of a finished run."""
    return (folder / "final.json").exists()


def read_run(folder: Path) -> Record:
    """The record of a finished run's folder."""
    rows = store.read_metrics(folder)
    steps = sorted({row.step for row in rows})
    place = {step: index for index, step in enumerate(steps)}
    metrics = {row.name: np.full(len(steps), np.nan) for row in rows}
    for row in rows:
        metrics[row.name][place[row.step]] = row.value
    episodes = folder / "episodes.json"
    return sound(
        folder,
        folder.name,
        store.load_config(folder),
        store.read_json(folder / "privacy.json"),
        store.read_json(folder / "reference.json"),
        np.array(steps),
        metrics,
        store.read_json(folder / "final.json"),
        store.read_json(episodes) if episodes.exists() else [],
    )


def sound(where: Path, name: str, *parts: Any) -> Record:
    """A record of these parts; bad input unless what everybody reads is there."""
    record = Record(name, *parts)
    record = record._replace(name=renamed(name, record.config))
    objects = (record.privacy, record.reference, record.final)
    whole = all(isinstance(part, dict) for part in objects)
    mean = record.final.get("return_mean") if whole else None
    whole = isinstance(mean, (int, float)) or mean == "nan"  # of a run of a sweep that did not stay finite
    require(whole and len(record.steps) > 0 and "return" in record.metrics, f"{where}: run {name} is damaged")
    return record


def read(folder: Path) -> Results:
    """All finished runs of a results folder: its run folders, and what packed files beside them hold."""
    require(folder.is_dir(), f"{folder} is not a folder of results")
    runs, slices = {}, []
    for path in sorted(folder.glob(PACKED)):
        packed = unpack(path)
        for name in runs.keys() & packed.runs.keys():
            same = runs[name].config == packed.runs[name].config
            require(
                same, f"{folder} holds run {name} twice, trained otherwise; keep such results in folders of their own"
            )
        runs |= packed.runs
        slices += [item for item in packed.slices if item not in slices]
    for path in sorted((folder / "runs").glob("*")) if (folder / "runs").is_dir() else []:
        if not path.name.startswith(".") and finished(path):
            record = read_run(path)
            runs[record.name] = record
    if (folder / "slices.json").exists():
        slices += [item for item in store.read_json(folder / "slices.json") if item not in slices]
    return Results(runs, slices)


def short(values: Iterable[float]) -> list[Any]:
    """Numbers with five digits: what a figure can show, in a third of the space."""
    return [to_json(float(f"{value:.5g}")) for value in values]


def pack(results: Results, path: Path) -> None:
    """Write results as one compact file."""
    runs = {
        name: {
            "config": record.config,
            "privacy": record.privacy,
            "reference": record.reference,
            "steps": record.steps.tolist(),
            "metrics": {key: short(values) for key, values in sorted(record.metrics.items())},
            "final": record.final,
            "episodes": record.episodes,
        }
        for name, record in sorted(results.runs.items())
    }
    text = dumps({"format": FORMAT, "slices": results.slices, "runs": runs})
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write_aside(path, gzip.compress(text.encode(), mtime=0))


def unpack(path: Path) -> Results:
    """Read what `pack` wrote."""
    try:
        with gzip.open(path) as file:
            text = file.read(LARGEST + 1)
        require(len(text) <= LARGEST, f"{path} is too large for a file of results")
        data = loads(text)
        require(isinstance(data, Mapping) and data.get("format") == FORMAT, f"{path} is not a file of results")
        found = [unpacked(path, name, item) for name, item in data["runs"].items()]
        return Results({record.name: record for record in found}, data["slices"])
    except BadInput:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise BadInput(f"{path} is damaged: {error}") from None


def unpacked(path: Path, name: str, item: Mapping[str, Any]) -> Record:
    """One run of a file."""
    return sound(
        path,
        name,
        run_config(item["config"]),
        item["privacy"],
        item["reference"],
        np.array(item["steps"]),
        {key: np.array(values, float) for key, values in item["metrics"].items()},
        item["final"],
        item["episodes"],
    )


def renamed(name: str, config: RunConfig) -> str:
    """The name of a run or population; version 0.1 called the silent method by its learner's name, and runs with the
    paper's one update an episode `often`.

    >>> renamed("ccn-maddpg-often-free-seed-0", RunConfig("ccn", "silent"))
    'ccn-silent-paper-free-seed-0'
    """
    name = name.replace("-often-", "-paper-")
    for old, new in RENAMED_METHODS.items():
        if config.method == new and name.startswith(f"{config.task}-{old}"):
            return name.replace(f"-{old}", f"-{new}", 1)
    return name
