"""Training that is no longer finite is a failure, which is noticed at the next evaluation.

In a sweep it is a result: such a point has no return, and the others are not held up.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac.agents.mechanisms import NoiseScale
from dpmac.config import Failure
from dpmac.results.store import Metric
from dpmac.runner import train
from dpmac.runner.train import Program, RunState


def check_finite(folder: Path, program: Program, states: RunState, scale: NoiseScale, rows: list[Metric]) -> None:
    """Fail where an evaluation or the weights are not finite numbers, and say which; nothing of it is saved."""
    wrong = not_finite(rows)
    sound = np.asarray(finite_weights(program, states))
    if not wrong and sound.all():
        return
    runs = list(dict.fromkeys((row.budget, row.seed) for row in rows))
    bad = {(row.budget, row.seed) for row in wrong} | {run for run, good in zip(runs, sound, strict=True) if not good}
    names = list(dict.fromkeys(row.name for row in wrong))
    names += [] if sound.all() else ["weights of the team"]
    names += not_finite_in_task(program, states, scale)
    first = next(run for run in runs if run in bad)
    saved = any((folder / "checkpoints").glob("group-*"))
    raise Failure(
        f"training became not finite before step {rows[0].step:,}: {', '.join(names)} of epsilon {first[0]}, seed "
        f"{first[1]} ({len(bad)} of {len(runs)} runs). Training has stopped; {folder} "
        f"{'keeps its last good checkpoint' if saved else 'has no checkpoint yet'}"
    )


def not_finite(rows: Sequence[Metric]) -> list[Metric]:
    """Numbers that are not finite; the signal-to-noise ratio of free messages is infinite and is left out."""
    return [row for row in rows if not np.isfinite(row.value) and row.name != "signal_to_noise"]


def sound(weights: Any, runs: Sequence[tuple[str, int]], rows: Sequence[Metric]) -> list[bool]:
    """Whether every evaluation of each run, by its label and seed, and its weights (run, …) in the end are finite."""
    wrong = {(row.budget, row.seed) for row in not_finite(rows)}
    leaves = [leaf for leaf in jax.tree.leaves(weights) if leaf.dtype.kind == "f"]
    return [run not in wrong and all(np.isfinite(leaf[i]).all() for leaf in leaves) for i, run in enumerate(runs)]


@partial(jax.jit, static_argnums=0)
def finite_weights(program: Program, states: RunState) -> Array:
    """Whether all numbers of each team (run,) are finite."""
    leaves = jax.tree.leaves(jax.vmap(program.learner.team)(states.learner))
    each = [jnp.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in leaves if leaf.dtype.kind == "f"]
    return jnp.stack(each).all(axis=0)


def not_finite_in_task(program: Program, states: RunState, scale: NoiseScale) -> list[str]:
    """Which of a task's numbers are not finite in an evaluation of the first team; they may be the cause."""
    team = jax.tree.map(lambda leaf: leaf[0], jax.vmap(program.learner.team)(states.learner))
    episodes = train.evaluate(program, team, jax.tree.map(lambda leaf: leaf[0], scale), 4)
    found = {"observations of the task": episodes.observations, "rewards of the task": episodes.rewards}
    return [name for name, values in found.items() if not np.isfinite(values).all()]
