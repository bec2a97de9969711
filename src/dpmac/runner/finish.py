"""What is done once with a finished population: score its teams, keep examples, and give each run its own folder."""

import os
import platform
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac import experiments
from dpmac.agents import protocol
from dpmac.agents.mechanisms import Mechanism, NoiseScale
from dpmac.agents.team import Team, pick
from dpmac.config import Budget, Member, dumps
from dpmac.learner.rollout import Trace, rollout
from dpmac.privacy import mechanisms
from dpmac.results import records, store
from dpmac.results.information import information
from dpmac.results.store import Metric
from dpmac.runner import checkpoint, finite, noise, population, train
from dpmac.runner.population import Loaded
from dpmac.runner.statement import training_of
from dpmac.runner.train import Program
from dpmac.tasks import Task

EXAMPLES = 2
"""Episodes that are kept of the first seed of each budget."""
WATCHED = 256
"""Episodes in which the messages of every team are looked at."""


class Watched(NamedTuple):
    """Greedy episodes of teams (run, episode, …)."""

    observations: Array
    released: Array
    examples: Trace
    """A few of them with everything in them."""
    noise: Array
    """(run, example, use, agent, message) where the channel adds some to one broadcast vector, else empty."""


@partial(jax.jit, static_argnums=0)
def watch(program: Program, teams: Team, scale: NoiseScale) -> Watched:
    """Greedy episodes of all teams, with what was said."""
    key = jax.random.key(train.EVALUATION_SEED)

    def one(team: Team, scale: NoiseScale) -> Watched:
        trace = rollout(program.task, team, scale, key, WATCHED, greedy=True)
        spec, noise = team.channel.spec, jnp.zeros(0)
        if spec.place == "sender" and spec.copies == 1:
            draws = team.draw(jax.random.split(key, 4)[1], WATCHED).channel  # the same draw as in the rollout
            noise = added(team.channel, draws[:EXAMPLES], scale)
        examples = jax.tree.map(checkpoint.data_of, pick(trace, slice(EXAMPLES)))  # NumPy knows no keys
        return Watched(trace.episode.observations, trace.released, examples, noise)

    return jax.vmap(one)(teams, scale)


def added(channel: Mechanism, draws: Array, scale: NoiseScale) -> Array:
    """What a channel adds (example, use, agent, message) to messages; nothing where noise is not added."""
    team = jax.vmap(channel.added)
    noise = jax.vmap(jax.vmap(team, in_axes=(0, None)), in_axes=(0, None))(draws, scale)
    return jnp.zeros(0) if noise is None else noise


def told(task: Task, trace: Trace, noise: np.ndarray) -> list[dict[str, Any]]:
    """Example episodes as plain data: where everything is, what is done and earned, what is said and how noisy."""
    each = [jax.tree.map(lambda x, e=e: x[e], trace) for e in range(EXAMPLES)]
    return [told_one(task, one, noise[e] if noise.size else None) for e, one in enumerate(each)]


def told_one(task: Task, trace: Trace, noise: np.ndarray | None) -> dict[str, Any]:
    """One episode as plain data."""
    scenes = [task.scene(jax.tree.map(lambda x, t=t: x[t], trace.states)) for t in range(task.horizon)]
    bodies = [(*scene.agents, *scene.others) for scene in scenes]
    kinds = ("radius", "colour", "label", "shape")
    return {
        "agents": task.agents,
        "bodies": [{kind: plain(getattr(body, kind)) for kind in kinds} for body in bodies[0]],
        "places": plain([[(body.x, body.y) for body in now] for now in bodies]),
        "actions": trace.episode.actions.tolist(),
        "rewards": plain(trace.episode.rewards.mean(-1)),
        "released": plain(trace.released),
        "noise": None if noise is None else plain(noise),
    }


def plain(value: Any) -> Any:
    """Text as it is; numbers as lists with four digits."""
    if isinstance(value, str):
        return value
    return [plain(item) for item in value] if np.ndim(value) else float(f"{float(value):.4g}")


def budgets_to_score(loaded: Loaded) -> list[Budget]:
    """Noise at which finished teams are scored: their own, and for teams that talk none, and all of the paper's where
    its formula knows their channel."""
    others = []
    if protocol.find(loaded.config.method).speaks:
        known = mechanisms.of(loaded.config.channel).paper
        others = [experiments.BUDGETS[name] for name in (experiments.PAPER_BUDGETS if known else ("free",))]
    return list(dict.fromkeys([*loaded.config.budgets, *others]))


def scores(loaded: Loaded, budget: Budget, size: int, episodes: int) -> np.ndarray:
    """Returns (run, episode) of all teams on common starts at the noise of one budget, so many teams at a time."""
    scale = noise.scale_of(loaded.config, loaded.program, budget)
    parts = []
    for first in range(0, len(loaded.runs), size):
        team = jax.tree.map(lambda x, i=first: x[i : i + size], loaded.teams)
        count = len(loaded.runs[first : first + size])
        same = jax.tree.map(lambda x, n=count: jnp.stack([x] * n), scale)
        parts.append(np.asarray(population.scores(loaded.program, team, same, episodes)))
    return np.concatenate(parts)


def finish(
    folder: Path,
    out: Path,
    names: Mapping[Member, str],
    episodes: int,
    facts: dict[str, Any],
) -> None:
    """Score a finished population, give each run a folder of its own under `out`, and remove the population's.

    What a killed process has left to do is done the next time: a run's folder appears as a whole or not at all. One
    process at a time does it; a second is refused (`store.Held`).
    """
    with store.locked(folder):
        if not all(records.finished(out / name) for name in names.values()):  # else another process was first
            divide(folder, out, names, episodes, facts)
        shutil.rmtree(folder, ignore_errors=True)  # whoever waits for the lock makes it anew, and removes it then


def divide(folder: Path, out: Path, names: Mapping[Member, str], episodes: int, facts: dict[str, Any]) -> None:
    """`finish` for whoever holds the folder, which stays."""
    loaded = population.load(folder)
    size = population.recorded_size(folder)
    found = {budget: scores(loaded, budget, size, episodes) for budget in budgets_to_score(loaded)}
    watched = watch_all(loaded, size)
    weights, rows = jax.device_get(population.Kept(loaded.teams)), store.read_metrics(folder)
    sound = finite.sound(weights, [(run.label, run.seed) for run in loaded.runs], rows)
    found = {budget: np.where(np.array(sound)[:, None], values, np.nan) for budget, values in found.items()}
    place = {"evaluations": len(population.evaluations_of(loaded.program)), "finished": True}
    for index, run in enumerate(loaded.runs):
        home = out / names[run.member]
        if home.exists():
            continue
        aside = write_run(folder, home, loaded, index, [r for r in rows if (r.budget, r.seed) == (run.label, run.seed)])
        mark = store.mark(aside)
        own = jax.tree.map(lambda x, i=index: x[i : i + 1], weights)
        checkpoint.save(aside / "checkpoints", "group-0", own, {"config": mark, **place})
        mine = jax.tree.map(lambda x, i=index: x[i], watched)
        if sound[index] and run.seed == loaded.config.seeds[0]:
            said = told(loaded.program.task, mine.examples, mine.noise)
            store.write_aside(aside / "episodes.json", dumps(said).encode())
        returns, tells = found[run.budget][index], sound[index] and mine.released.size > 0
        final = {
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std(ddof=1)),
            "episodes": episodes,
            "return_at": {experiments.name_of(budget): float(values[index].mean()) for budget, values in found.items()},
            "information": information(mine.observations, mine.released) if tells else None,
            "population": {"name": folder.name, "runs": len(loaded.runs), **facts},
        }
        store.write_json(aside / "final.json", final)
        aside.rename(home)
        store.sync_folder(out)


def watch_all(loaded: Loaded, size: int) -> Watched:
    """`watch` for all runs, so many at a time, on the host."""
    parts = []
    for first in range(0, len(loaded.runs), size):
        some = jax.tree.map(lambda x, i=first: x[i : i + size], (loaded.teams, loaded.scale))
        parts.append(jax.device_get(watch(loaded.program, *some)))
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def write_run(folder: Path, home: Path, loaded: Loaded, index: int, rows: list[Metric]) -> Path:
    """A folder beside a run's place, of this process alone, with its configuration, privacy statement and metrics."""
    run, aside = loaded.runs[index], home.with_name(f".{home.name}.{platform.node()}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    config = loaded.config.alone(run.member)
    label = config.labels[0]
    privacy = store.read_json(folder / "privacy.json")
    among = loaded.config.labels[loaded.config.budgets.index(run.budget)]
    privacy["claims"] = {label: privacy["claims"][among]}
    if "training" in privacy:
        privacy["training"] = training_of(config, Program.of(config))
    store.create(aside, config, privacy, store.read_json(folder / "reference.json"))
    store.write_json(aside / population.GROUPS, {"runs": 1})
    store.rewind_metrics(aside, [row._replace(budget=label) for row in rows])
    return aside
