"""Results that were never trained: every number in them is planted, so that a test knows what must come out."""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from dpmac import experiments, privacy
from dpmac.experiments import ABLATIONS, FIGURES, SCALES, Cell
from dpmac.results.records import Record, Results

AGENTS = {"cn": 3, "ccn": 2, "pp": 3}
HORIZON = {"cn": 25, "ccn": 25, "pp": 40}
REFERENCES = {"cn": (-230.0, -112.0), "ccn": (-68.0, -9.0), "pp": (-80.0, -33.0)}


def all_cells(ablations: bool = False) -> list[Cell]:
    targets = [*FIGURES, *(ABLATIONS if ablations else ())]
    return list(dict.fromkeys(cell for name in targets for cell in experiments.cells_of(name, ("cn", "ccn", "pp"))))


def record(cell: Cell, seed: int, final: float, deviation: float, evaluations: int, episodes: bool = False) -> Record:
    """A run that ends at this return, after a plausible curve."""
    config = replace(experiments.configuration([cell], SCALES["paper"]), seeds=(seed,))
    agents, horizon = AGENTS[cell.task], HORIZON[cell.task]
    claims = privacy.claim(config.budgets[0], config.channel, agents, horizon) if cell.method != "silent" else []
    random, scripted = REFERENCES[cell.task]
    share = np.arange(1, evaluations + 1) / evaluations
    metrics = {"return": final + (random - final) * np.exp(-8 * share)}
    if cell.method != "silent":
        ones = np.ones(evaluations)
        metrics |= {"message_norm": 0.4 * ones, "share_clipped": 0.3 * ones, "signal_to_noise": ones}
    if cell.method == "dpmac":
        metrics["learned_deviation"] = np.full(evaluations, deviation)
    return Record(
        cell.run(seed),
        config,
        {"claims": {config.labels[0]: claims}},
        {"unit": "team", "returns": {"random": [random, 0.1], "scripted": [scripted, 0.1]}},
        np.arange(1, evaluations + 1) * 10_000,
        metrics,
        {
            "return_mean": final,
            "return_std": 5.0,
            "episodes": 4096,
            "return_at": dict.fromkeys(experiments.PAPER_BUDGETS, final)
            if cell.method != "silent"
            else {"free": final},
            "information": {"observation": 0.6, "with_messages": 0.8} if cell.method != "silent" else None,
            "population": {"name": cell.population, "runs": 5, "train_seconds": 60.0, "compile_seconds": 20.0},
        },
        [episode(agents, horizon)] if episodes and seed == 0 else [],
    )


def episode(agents: int, horizon: int) -> dict:
    """An example episode in which everybody walks along a circle."""
    angles = np.linspace(0, np.pi, horizon)
    places = [[[float(np.cos(a + i)), float(np.sin(a + i))] for i in range(agents + 3)] for a in angles]
    body = {"radius": 0.1, "colour": [0.3, 0.5, 0.8], "label": "", "shape": "disc"}
    message = np.sin(np.arange(horizon * agents * 8)).reshape(horizon, agents, 8)
    return {
        "agents": agents,
        "bodies": [body] * (agents + 3),
        "places": places,
        "actions": np.zeros((horizon, agents), int).tolist(),
        "rewards": (-np.ones(horizon)).tolist(),
        "released": message.round(3).tolist(),
        "noise": (message / 2).round(3).tolist(),
    }


def results(
    final: Callable[[Cell], float],
    deviation: Callable[[Cell], float] = lambda cell: 0.1,
    spread: float = 0.2,
    cells: Iterable[Cell] = (),
    seeds: int = 5,
    evaluations: int = 20,
    episodes: bool = False,
) -> Results:
    """Runs of these cells (by default all of the paper's) whose seeds spread evenly around the planted return."""
    runs = {}
    for cell in cells or all_cells():
        chance = np.random.default_rng(zlib.crc32(cell.run(0).encode()))
        for seed, offset in enumerate(chance.normal(0, spread, seeds)):
            made = record(cell, seed, final(cell) + offset, deviation(cell), evaluations, episodes)
            runs[made.name] = made
    session = {"command": "dpmac reproduce all --scale paper --out results", "date": "2026-01-01", "device": "none"}
    return Results(runs, [{**session, "seconds": 1.0, "runs": len(runs), "versions": {"dpmac": "0"}, "cores": 2}])
