"""How many runs fit side by side, and where they lie."""

import math
import os
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dpmac.config import require
from dpmac.runner import train
from dpmac.runner.train import Program


def rows_of(program: Program) -> int:
    """Steps of single agents that one update goes through."""
    task = program.task
    return program.learner.batch_size(program.rollout) * (task.horizon + 1) * task.agents


def bytes_per_run(program: Program) -> int:
    """An estimate of what one run occupies: its state exactly, and what an update keeps for its gradient."""
    state = jax.eval_shape(partial(train.init, program), jax.random.key(0))
    exact = sum(math.prod(leaf.shape) * max(leaf.dtype.itemsize, 1) for leaf in jax.tree.leaves(state))
    return exact + rows_of(program) * 16 * program.networks.hidden * 4


def available_bytes() -> int:
    """Memory that training may use on each device."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(0.9 * stats["bytes_limit"])
    return int(0.6 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def check_memory(program: Program) -> None:
    """Bad input where a single run would take more than twice what is there; the estimate is a rough one."""
    needed, there = bytes_per_run(program), available_bytes()
    require(
        needed <= 2 * there,
        f"a run of this size needs about {needed / 1e9:,.0f} GB of memory, and {there / 1e9:,.0f} GB are available: "
        "make the replay, the minibatch or the networks smaller",
    )


def half_of_the_cores() -> int:
    """How many programs to compile side by side: each compiler uses more than one thread."""
    return max(1, (os.cpu_count() or 2) // 2)


def side_by_side(program: Program, runs: int, most: int) -> int:
    """How many runs to train at once: at most so many (0: what fits in memory), in groups of about the same size."""
    fit = max(1, available_bytes() // bytes_per_run(program)) * jax.local_device_count()
    return math.ceil(runs / math.ceil(runs / min(most or fit, fit, runs)))


def spread(tree: Any) -> Any:
    """Put the runs' axis across all local devices, if there are several and it divides."""
    devices = jax.local_devices()
    if len(devices) == 1 or any(leaf.shape[0] % len(devices) for leaf in jax.tree.leaves(tree)):
        return tree
    return jax.device_put(tree, NamedSharding(Mesh(np.array(devices), ("run",)), PartitionSpec("run")))


def spread_shapes(shapes: Any, place: Any) -> Any:
    """Shapes of what lies across devices as `spread` puts it; as they are where there is one device."""
    if not isinstance(place, NamedSharding):
        return shapes
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place, weak_type=x.weak_type), shapes)
