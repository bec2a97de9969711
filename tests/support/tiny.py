"""Runs of the smallest size, and what they leave behind."""

import dataclasses
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpmac.config import Budget, Channel, NetworkConfig, PrivateTraining, RunConfig, Training, to_json
from dpmac.learner import base as learners
from dpmac.results import store
from dpmac.runner import checkpoint, population

CONFIG = RunConfig(
    "probe-listen",
    learner_options={"batch": 4, "explore_steps": 100},
    budgets=(Budget((1.0,)), Budget((2.0, float("inf")))),
    seeds=(0, 1),
    networks=NetworkConfig(hidden=8, message_hidden=8, message_size=4),
    training=Training(steps=200, evaluations=5, evaluation_episodes=4),
)
"""Ten iterations of four episodes of five steps, for two budgets and two seeds."""
OPTIONS = shlex.split(
    "probe-listen --epsilon 1 2:inf --seeds 2 --steps 200 --hidden 8 --message-hidden 8 --message-size 4 --batch 4 "
    "--evaluations 5 --evaluation-episodes 4 --explore-steps 100"
)
"""The same as `dpmac train` takes it."""


def learning(config: RunConfig, **changes: Any) -> RunConfig:
    """The configuration with other settings of its training or of its learner."""
    training = {item.name for item in dataclasses.fields(Training)} & changes.keys()
    return dataclasses.replace(
        config,
        training=dataclasses.replace(config.training, **{name: changes[name] for name in training}),
        learner_options=config.learner_options | {k: v for k, v in changes.items() if k not in training},
    )


def small(learner: str, channel: Channel | None = None) -> RunConfig:
    """A run of the smallest size by this learner, whose agents share their parameters."""
    run = RunConfig(
        "probe-listen",
        learner=learner,
        channel=channel or Channel("response", period=0),
        budgets=(Budget((3.0,)),),
        seeds=(0, 1),
        networks=NetworkConfig(8, 8, 4, products=3, entry_layer=True, share_parameters=True),
    )
    options: dict[str, Any] = {"batch": 4, "explore_steps": 100} if learner == "maddpg" else {}
    return learning(run, steps=1200, evaluations=60, evaluation_episodes=4, **options)


def private(learner: str, **given: Any) -> RunConfig:
    """A run of the smallest size that trains privately, with noise that can be repeated."""
    run = small(learner, Channel())
    run = learning(run, **to_json(learners.make(learner, run.learner_options).without_leaks()))
    return dataclasses.replace(run, private=PrivateTraining(**({"train_epsilon": 1.0, "train_noise": "seed"} | given)))


def train(folder: Path, config: RunConfig = CONFIG, most: int = 0) -> population.Loaded:
    """A finished run."""
    population.create(folder, config)
    for _ in population.train_folder(folder, most=most):
        pass
    return population.load(folder)


def begin(folder: Path, config: RunConfig = CONFIG, pieces: int = 2) -> None:
    """A run that was stopped after so many evaluations."""
    population.create(folder, config)
    stopped = population.train_folder(folder)
    for _ in range(pieces):
        next(stopped)
    stopped.close()  # type: ignore[attr-defined]


def dpmac(*arguments: object, largest_file: int = 0) -> subprocess.Popen:
    """`dpmac` in a process of its own; files may be limited to so many half kilobytes, as on a disk that is full.

    It only reads the cache of compiled programs: what a killed process has half written there, JAX would not mend.
    """
    call = [sys.executable, "-m", "dpmac", *map(str, arguments)]
    if largest_file:
        call = ["sh", "-c", f'ulimit -f {largest_file}; exec "$@"', "sh", *call]
    environment = {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1e9"}
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def untrained(folder: Path, config: RunConfig = CONFIG) -> None:
    """The folder of a run before its first step, with a checkpoint of it: nothing that learns is compiled."""
    program, runs = population.create(folder, config), population.runs_of(config)
    store.write_json(folder / population.GROUPS, {"runs": len(runs)})
    state = population.start(program, population.keys_of(runs))
    place = {"config": store.mark(folder), "evaluations": 0, "finished": False}
    checkpoint.save(folder / "checkpoints", "group-0", state, place)


def changed(path: Path) -> Callable[[], bool]:
    """Whether a file was written since now: a folder's lock by a process that took hold of it, a checkpoint."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    return lambda: path.exists() and path.stat().st_mtime_ns > before


def killed(arguments: Sequence[object], when: Callable[[], bool] = lambda: True, seconds: float = 0.0) -> bool:
    """Kill `dpmac` so many seconds after something became true; whether it was alive then."""
    process = dpmac(*arguments)
    while process.poll() is None and not when():
        time.sleep(0.01)
    time.sleep(seconds)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return alive


def contents(folder: Path) -> dict[str, str]:
    """Every file of a run's folder with its digest."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def leaves(loaded: population.Loaded) -> list[np.ndarray]:
    """All weights (run, …)."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(loaded.teams)]
