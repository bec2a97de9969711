"""Films of trained teams: an episode with its messages, as it is and as it would be without noise, side by side.

And of a task alone, played by a reference policy.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from PIL import Image, ImageDraw

from dpmac.agents import protocol
from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.team import Team, pick
from dpmac.config import require, whole
from dpmac.learner.rollout import Trace, rollout
from dpmac.privacy import mechanisms
from dpmac.runner import population, train
from dpmac.runner.population import Loaded
from dpmac.runner.train import Program
from dpmac.tasks import references, render
from dpmac.tasks.base import Scene, Task

HELD = 0.2
"""How strong an old message is drawn, which receivers still hold, beside one that has just been sent."""
ROW = 14
"""Pixels of one agent's row of cells."""
PLUS, MINUS, EDGE = render.ARROW, (50, 110, 190), (200, 200, 200)


class Panel(NamedTuple):
    """One episode, ready to be drawn."""

    title: str
    scenes: list[Scene]
    arrows: np.ndarray
    """(time, sender, receiver) strengths in [0, 1] of what arrives."""
    said: np.ndarray
    """(time, agent, number) of what each agent has said last."""
    earned: np.ndarray
    """(time,) the return so far."""


@partial(jax.jit, static_argnums=0)
def episode(program: Program, team: Team, scale: NoiseScale, key: Array) -> tuple[Trace, Array]:
    """A greedy episode with everything that was said, and who received each release (use, agent, other)."""
    trace = pick(rollout(program.task, team, scale, key, 1, greedy=True), 0)
    return trace, team.noise_draws(jax.random.wrap_key_data(trace.episode.draws)).recipients


def panel(program: Program, team: Team, scale: NoiseScale, key: Array, title: str) -> Panel:
    """Play an episode and take from it what a film shows; the same key gives the same start."""
    task, spec = program.task, team.channel.spec
    trace, recipients = jax.device_get(episode(program, team, scale, key))
    scenes = [task.scene(jax.tree.map(lambda leaf, t=t: leaf[t], trace.states)) for t in range(task.horizon)]
    copies = trace.released if trace.released.ndim == 4 else trace.released[:, :, None]
    norms = np.broadcast_to(np.linalg.norm(copies, axis=-1), (task.horizon, task.agents, max(task.agents - 1, 0)))
    uses = (np.cumsum(team.sends)) * spec.rounds - 1
    strength = norms / max(norms.max(initial=0.0), 1e-9) * np.where(team.sends, 1.0, HELD)[:, None, None]
    strength = np.where(recipients[uses], strength, 0.0)
    arrows = np.zeros((task.horizon, task.agents, task.agents))
    for other in range(task.agents - 1):
        sender = np.arange(task.agents)
        arrows[1:, sender, (sender + 1 + other) % task.agents] = strength[:-1, :, other]
    return Panel(title, scenes, arrows, copies[:, :, 0], np.cumsum(trace.episode.rewards.mean(-1)))


def strip(said: np.ndarray, largest: float, width: int) -> np.ndarray:
    """What was said (agent, number) as rows of cells, one for each agent: orange above zero, blue below."""
    agents, numbers = said.shape
    picture = Image.new("RGB", (width, ROW * agents + 4), render.PAPER)
    canvas, cell = ImageDraw.Draw(picture), (width - ROW) / numbers
    for agent, row in enumerate(np.clip(said / max(largest, 1e-9), -1, 1)):
        canvas.text((ROW / 2, ROW * (agent + 0.5)), str(agent), render.INK, anchor="mm")
        for place, share in enumerate(row):
            red, green, blue = (round(255 + abs(share) * (part - 255)) for part in (PLUS if share > 0 else MINUS))
            corner = ROW + place * cell, ROW * agent
            canvas.rectangle((*corner, corner[0] + cell, corner[1] + ROW), (red, green, blue), EDGE)
    return np.asarray(picture)


def frames(panels: list[Panel], size: int) -> list[np.ndarray]:
    """Pictures of all steps, the panels beside each other."""
    extent = render.extent_of([scene for one in panels for scene in one.scenes])
    largest = [np.abs(one.said).max(initial=0.0) for one in panels]
    found = []
    for t in range(len(panels[0].scenes)):
        parts = []
        for one, most in zip(panels, largest, strict=True):
            arrows = "; arrows: messages" if one.arrows.any() else ""
            caption = f"{one.title}\nstep {t + 1}, return {one.earned[t]:.1f}{arrows}"
            picture = render.render(one.scenes[t], size, extent, one.arrows[t], caption)
            below = [strip(one.said[t], most, size)] if one.said.size else []
            parts += [np.concatenate([picture, *below]), np.full((size + sum(map(len, below)), 2, 3), 128, np.uint8)]
        found.append(np.concatenate(parts[:-1], axis=1))
    return found


def describe(loaded: Loaded, index: int) -> str:
    """The budget of a run in words."""
    run, spec = loaded.runs[index], loaded.config.channel
    noise = ", ".join(f"{value:.3g}" for value in dict.fromkeys(loaded.scale.value[index].tolist()))
    return f"epsilon {run.label} ({mechanisms.of(spec).option} {noise})"


def save(
    folder: Path,
    out: Path,
    epsilon: str | None = None,
    seed: int | None = None,
    episode: int = 0,
    size: int = 360,
    fps: float = 5,
) -> Path:
    """Film an episode of a run; by default of its first team that has noise, which is shown without it as well."""
    out = render.film_path(out)
    require(whole(size, 16, render.LARGEST), f"size must be a whole number from 16 to {render.LARGEST}, not {size}")
    require(0.1 <= fps <= 100, f"fps must lie between 0.1 and 100, not {fps}")
    require(whole(episode, 0, 2**32 - 1), f"episode must be a whole number from 0 to 2^32 - 1, not {episode}")
    loaded = population.load(folder)
    check_scene(loaded.program.task)
    if epsilon is None:
        private = (run.label for run in loaded.runs if run.budget.private)
        epsilon = next(private, loaded.runs[0].label)
    index = population.member(loaded, epsilon, seed)
    team, scale = loaded.one(index)
    key = jax.random.fold_in(jax.random.key(train.EVALUATION_SEED), episode)
    speaks = protocol.find(loaded.config.method).speaks
    free = "no messages" if not speaks else "RAW messages, no noise"
    panels = [panel(loaded.program, team, team.free, key, free)]
    if loaded.runs[index].budget.private:
        panels.insert(0, panel(loaded.program, team, scale, key, describe(loaded, index)))
    return render.save_film(frames(panels, size), out, fps)


def check_scene(task: Task) -> None:
    """Bad input for a task that cannot be drawn."""
    require(hasattr(task, "scene"), f"the task {task.name} has no method scene(state), so no film can be made of it")


def save_scripted(task: Task, seed: int, path: Path) -> None:
    """Film one episode of a task without a team: scripted if it has a script, random otherwise."""
    check_scene(task)
    policy = references.policies(task)[-1]
    states, rewards = references.play(task, policy, jax.random.key(seed))
    scenes = [task.scene(state) for state in references.states_of(states)]
    earned = [0.0, *rewards.mean(axis=1).cumsum().tolist()]
    extent = render.extent_of(scenes)
    captions = [f"{task.name}, {policy}   step {t}   return {total:.1f}" for t, total in enumerate(earned)]
    frames = [
        render.render(scene, extent=extent, caption=caption) for scene, caption in zip(scenes, captions, strict=True)
    ]
    render.save_film(frames, path)
