"""`dpmac doctor`: what is installed, what it runs on, and whether learning and privacy work here."""

import importlib.metadata
import importlib.util
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dpmac.cli import emit, parse

EXTRAS = {
    "pettingzoo": ("pettingzoo",),
    "mpe2": ("mpe2",),
    "tensorboard": ("tensorboardX",),
    "wandb": ("wandb",),
    "opendp": ("opendp",),
    "ray": ("ray",),
    "sweep": ("optuna",),
    "deploy": ("zenoh",),
    "cuda": ("jax_cuda13_plugin", "jax_cuda12_plugin"),
}
QUICK = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
)
"""Flags of a compiler that is done soon: the team of the self-test is so small that compiling it is what takes time."""


@dataclass(frozen=True)
class Doctor:
    """Check this installation: versions, devices, memory, the cache of compiled programs, known privacy numbers, and
    whether a team learns to communicate. It takes about fifteen seconds. The exit code is 1 if something is wrong."""

    json: bool = False
    """Print the result as JSON."""


class Finding(NamedTuple):
    """What one check found."""

    ok: bool
    said: str


def run(argv: Sequence[str]) -> None:
    options = parse(Doctor, argv, "dpmac doctor", "dpmac doctor --json")
    from dpmac.cli import progress

    os.environ.setdefault("XLA_FLAGS", QUICK)
    progress.use_cache()
    found = [examined(check) for check in (versions, devices, memory, cache, accounting, auditing, learning)]
    result = {"ok": all(item["ok"] for item in found), "checks": found}
    emit(result, options.json, lambda: text(result))
    if not result["ok"]:
        raise SystemExit(1)


def examined(check: Callable[[], Finding]) -> dict[str, Any]:
    """What a check found and how long it took; one that breaks has found something, too."""
    begun = time.monotonic()
    try:
        finding = check()
    except Exception as error:  # whatever is wrong with this machine is what we want to hear
        finding = Finding(False, f"{type(error).__name__}: {error}")
    return {"name": check.__name__, **finding._asdict(), "seconds": round(time.monotonic() - begun, 1)}


def text(result: dict[str, Any]) -> str:
    """The result for people."""
    width = max(len(item["name"]) for item in result["checks"])
    lines = [
        f"{'ok  ' if item['ok'] else 'FAIL'}  {item['name']:<{width}}  {item['said']}" for item in result["checks"]
    ]
    seconds = sum(item["seconds"] for item in result["checks"])
    verdict = "everything works" if result["ok"] else "something is wrong"
    return "\n".join([*lines, f"{verdict}; {seconds:.0f} s"])


# The machine ----------------------------------------------------------------------------------------------------------


def versions() -> Finding:
    from dpmac.runner import schedule

    found = schedule.machine()["versions"]
    extras = [name for name, modules in EXTRAS.items() if any(map(importlib.util.find_spec, modules))]
    attrs = importlib.metadata.version("attrs")
    said = ", ".join(f"{name} {version}" for name, version in found.items())
    fits = int(attrs.split(".")[0]) < 24
    wrong = "" if fits else f"; dp-accounting needs attrs below 24, not {attrs}"
    return Finding(fits, f"{said}; extras: {', '.join(extras) or 'none'}{wrong}")


def devices() -> Finding:
    """Every device multiplies two matrices rightly, as exactly as training does."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    a = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    wrong = [
        str(device)
        for device in jax.local_devices()
        if not np.allclose(jnp.dot(jax.device_put(a, device), jax.device_put(a, device)), a @ a, atol=0.5)
    ]
    kinds = ", ".join(device.device_kind for device in jax.local_devices())
    said = f"{jax.local_device_count()} x {jax.default_backend()} ({kinds}), {os.cpu_count()} cores"
    return Finding(not wrong, said + (f"; wrong products on {', '.join(wrong)}" if wrong else ""))


def memory() -> Finding:
    from dpmac.config import RunConfig
    from dpmac.runner import devices, population

    free, each = devices.available_bytes(), devices.bytes_per_run(population.check(RunConfig("ccn")))
    fit = free // each
    return Finding(fit >= 1, f"{free / 2**30:.1f} GiB to use on each device, {fit} runs of ccn side by side")


def cache() -> Finding:
    import jax

    place = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if not place:
        return Finding(True, "off, because JAX_COMPILATION_CACHE_DIR is empty")
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    broken = mend(folder)
    with tempfile.NamedTemporaryFile(dir=folder):
        files = [path.stat().st_size for path in folder.glob("*") if path.is_file()]
    removed = f"; {broken} half written by a process that was killed, removed" if broken else ""
    return Finding(True, f"{len(files)} compiled programs, {sum(files) / 2**20:.0f} MiB in {folder}{removed}")


def mend(folder: Path) -> int:
    """Remove compiled programs that are not whole; how many there were."""
    broken = [path for path in folder.glob("*-cache") if half_written(path)]
    for path in broken:
        path.unlink()
    return len(broken)


def half_written(path: Path) -> bool:
    """Whether a compiled program was cut off; JAX would complain about it for ever, and never write it again."""
    data = path.read_bytes()
    if not data.startswith(b"x"):  # compressed otherwise than by zlib
        return not data
    try:
        zlib.decompress(data)
    except zlib.error:
        return True
    return False


# What it is for -------------------------------------------------------------------------------------------------------


def accounting() -> Finding:
    """Numbers that are known: the exact noise of a budget, what the paper's costs, and that of a held symbol."""
    import math

    from dpmac import privacy
    from dpmac.frontiers import LINES

    channel = privacy.Channel(clip_norm=0.5)
    symbol = LINES["response-once"].channel
    known = {
        "sigma for epsilon 1 an episode": (privacy.calibrate(channel, 1.0, 1e-4, 25), 15.93),
        "epsilon of an episode at sigma 0.6596": (privacy.epsilon(privacy.Release(channel, 0.6596, 25), 1e-4), 56.1),
        "flips for epsilon 3 an episode": (privacy.calibrate(symbol, 3.0, 1e-4, 25), 2 / (math.exp(3) + 2)),
    }
    wrong = [name for name, (value, right) in known.items() if not math.isclose(value, right, rel_tol=2e-3)]
    said = ", ".join(f"{name}: {value:.4g}" for name, (value, _) in known.items())
    return Finding(not wrong, said + (f"; WRONG: {', '.join(wrong)}" if wrong else ""))


def auditing() -> Finding:
    """An audit of the channel that agents use does not refute a true claim, and refutes one of half the epsilon."""
    from dpmac import privacy
    from dpmac.analysis.audit import shipped

    channel, horizon, size = privacy.Channel(), 5, 4
    release = privacy.Release(channel, privacy.calibrate(channel, 1.0, 1e-4, horizon), horizon)
    canary = privacy.canary(release, size)
    bound = privacy.audit_gaussian(
        shipped(release, canary, size), 1e-4, 20_000, release.noise, canary.direction, confidence=0.999
    )
    said = f"a channel of epsilon 1 has surely at least {bound.epsilon:.3f}"
    return Finding(0.5 < bound.epsilon <= 1.0, said)


def learning() -> Finding:
    """Two agents learn to tell a symbol, in training that is saved and loaded again."""
    import numpy as np

    from dpmac.config import Budget, NetworkConfig, RunConfig, Training
    from dpmac.runner import population
    from dpmac.tasks.probes import ProbeListen

    config = RunConfig(
        "probe-listen",
        learner_options={"batch": 32, "learning_rate": 3e-3, "explore_steps": 2_000},
        budgets=(Budget(),),
        seeds=(0, 1, 2),
        networks=NetworkConfig(hidden=16, message_hidden=16, message_size=4),
        training=Training(steps=6_000, evaluations=2, evaluation_episodes=64),
    )
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "run"
        population.create(folder, config)
        for _ in population.train_folder(folder):
            pass
        loaded = population.load(folder)
    returns = np.asarray(population.scores(loaded.program, loaded.teams, loaded.scale, 256)).mean(axis=1)
    probe = ProbeListen()
    said = f"returns {', '.join(f'{value:.2f}' for value in returns)}; best {probe.optimal_return:g}"
    enough = (probe.optimal_return + probe.silent_return) / 2
    return Finding(bool(returns.max() > enough), f"{said}, without messages {probe.silent_return:g}")
