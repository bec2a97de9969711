"""The paper's experiments as data: which runs stand behind which figure, and at what scale they are trained.

A run is (task, method, variant, budget, seed) and has one name. Figures share runs; each run is trained once. Runs that
differ only in budget and seed share a compiled program and make one population.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from dpmac.config import Budget, Channel, Member, NetworkConfig, Place, RunConfig, Training, Unit, require

ScaleName = Literal["smoke", "quick", "paper"]
Profile = Literal["default", "paper", "release"]
PROFILES = {"paper": "one update an episode", "release": "the release's networks"}
"""Variants in which all of the paper's runs can be trained, and what they are called."""

TASKS = {
    "cn": "cooperative navigation",
    "ccn": "cooperative communication and navigation",
    "pp": "predator and prey",
}
METHODS: dict[str, tuple[str, Place]] = {
    "dpmac": ("DPMAC", "sender"),
    "tarmac": ("TarMAC", "receiver"),
    "i2c": ("I2C", "receiver"),
    "silent": ("MADDPG", "sender"),
}
"""How the paper writes a method, and where it puts its noise. MADDPG is its learner without messages."""

DELTA = 1e-4
LONGEST = 140
"""Characters in which the name of a run spells out its settings; files have names of at most 255."""


def paper_budget(unit: Unit, epsilon: float) -> Budget:
    """A budget whose σ comes from the paper's formula at the released settings."""
    return Budget((epsilon,), DELTA, unit, "paper")


BUDGETS: dict[str, Budget] = {
    "free": Budget(delta=DELTA),
    **{f"step-{epsilon:g}": paper_budget("message", epsilon) for epsilon in (0.01, 0.1, 1.0)},
    **{f"episode-{epsilon:g}": paper_budget("episode", epsilon) for epsilon in (0.01, 0.1, 1.0)},
    **{
        f"exact-{unit}-{epsilon:g}": Budget((epsilon,), DELTA, unit, "exact")
        for unit in ("message", "episode")
        for epsilon in (0.1, 1.0, 3.0, 10.0)
    },
}
"""Names of budgets: `step` is the paper's step level, the unit `message`."""

NAMES = {budget: name for name, budget in BUDGETS.items()}


def name_of(budget: Budget) -> str:
    """The name of a budget, also of one that the paper has not: `exact-episode-0.5`."""
    return NAMES.get(budget, f"{budget.accountant}-{budget.covers}-{budget.label}")


def file_name(name: str) -> str:
    """The name of a task or learner in names of files: not every file system takes a colon.

    >>> file_name("jaxmarl:MPE_simple_reference_v3")
    'jaxmarl.MPE_simple_reference_v3'
    """
    return name.replace(":", ".")


class Cell(NamedTuple):
    """Runs that differ in their seed alone."""

    task: str
    method: str
    budget: str = "free"
    variant: str = ""

    @property
    def population(self) -> str:
        """The name of all runs that share a compiled program with these."""
        return "-".join(part for part in (file_name(self.task), self.method, self.variant) if part)

    def run(self, seed: int) -> str:
        """The name of the run of one seed."""
        return f"{self.population}-{self.budget}-seed-{seed}"


@dataclass(frozen=True)
class Figure:
    """One figure of the paper: the same series on every task."""

    title: str
    series: tuple[tuple[str, str], ...]
    """(method, budget) of each curve."""
    source: str
    """The paper's label of it."""


def against(budget: str) -> tuple[tuple[str, str], ...]:
    """All methods at one budget, and silence."""
    return (("dpmac", budget), ("tarmac", budget), ("i2c", budget), ("silent", "free"))


def over(method: str, *budgets: str) -> tuple[tuple[str, str], ...]:
    """One method over budgets."""
    return tuple((method, budget) for budget in budgets)


FIGURES: dict[str, Figure] = {
    "nonprivate": Figure("Free messages", against("free"), "fig: communication exp"),
    "step-0.1": Figure("Step level, ε = 0.1", against("step-0.1"), "fig: privact exp 0.1"),
    "step-1.0": Figure("Step level, ε = 1", against("step-1"), "fig: privacy exp 1.0"),
    "step-dpmac": Figure(
        "DPMAC over step-level budgets",
        over("dpmac", "free", "step-1", "step-0.1", "step-0.01"),
        "fig: privacy exp dpmac",
    ),
    "tarmac": Figure("TarMAC over step-level budgets", over("tarmac", "free", "step-1", "step-0.1"), "fig: dp tarmac"),
    "i2c": Figure("I2C over step-level budgets", over("i2c", "free", "step-1", "step-0.1"), "fig: dp i2c"),
    "episode-0.1": Figure("Episode level, ε = 0.1", against("episode-0.1"), "fig: episodic privact exp 0.1"),
    "episode-1.0": Figure("Episode level, ε = 1", against("episode-1"), "fig: episodic privacy exp 1.0"),
    "episode-dpmac": Figure(
        "DPMAC over episode-level budgets",
        over("dpmac", "free", "episode-1", "episode-0.1", "episode-0.01"),
        "fig: episodic privacy exp dpmac",
    ),
}

EACH_EPISODE = {"updates_per_episode": 1.0}

VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    "deterministic": {"method_options": {"deterministic": True}},
    "feedforward": {"networks": {"recurrent_actor": False}},
    "narrow": {"task_options": {"view_radius": 0.5}},
    "early": {"method_options": {"form": "early"}},
    "equal": {
        "tarmac": {"networks": {"message_size": 16}, "method_options": {"signature": 8}},
        "i2c": {"method_options": {"listener": 8}},
    },
    "paper": {"learner_options": EACH_EPISODE},
    "release": {
        "networks": {"layers": 2, "layer_norm": True},
        "learner_options": {
            **EACH_EPISODE,
            "replay_noise": False,
            "recurrent_critic": True,
            "critic_layers": 2,
            "critic_norm": True,
        },
        "dpmac": {"method_options": {"bounded": True, "past": True, "rescale": True, "merge": True}},
        "i2c": {"learner_options": {"recurrent_critic": False}},
        "cn": {"task_options": {"landmark_range": 0.8}},
        "pp": {
            "task_options": {"others": "nearest"},
            "networks": {"message_hidden": 64},
            "learner_options": {"discount": 0.95},
        },
    },
    "fresh": {"learner_options": {**EACH_EPISODE, "replay_noise": False}},
    "slow": {"learner_options": {**EACH_EPISODE, "learning_rate": 7e-4 / 4}},
    "normed": {"networks": {"layer_norm": True}, "learner_options": EACH_EPISODE},
}
"""What a variant changes in a configuration; what it changes in those of one method or task stands under its name.

early: I2C as version 0.1 had it. equal: noise at receivers as wide as DPMAC's message, 8 numbers, where TarMAC has 4
and I2C 32. paper: the paper's one update an episode. release: networks, form of messages, noise in replays, past
sampling, starts and settings of the paper's release, but for its faults; I2C's critics have no hidden state, for it
needs values of single actions. fresh, slow, normed: one update an episode with new noise at each replay, with a
quarter of the learning rate, and with normalised inputs of actors.
"""

PERCENTILES = {"cn": 60.0, "pp": 40.0}
"""I2C's authors' own, where they differ from its default."""

PARTS = ("task_options", "method_options", "learner_options", "networks")


def changes(variant: str, task: str, method: str) -> dict[str, dict[str, Any]]:
    """What a variant changes, part by part, for a task and a method."""
    given = VARIANTS[variant]
    layers = [given, given.get(method, {}), given.get(task, {})]
    if method == "i2c" and task in PERCENTILES:
        layers.insert(0, {"method_options": {"percentile": PERCENTILES[task]}})
    return {part: {key: value for layer in layers for key, value in layer.get(part, {}).items()} for part in PARTS}


def profiled(config: RunConfig, profile: Profile, defaults: Mapping[str, Any]) -> RunConfig:
    """A configuration with everything of a profile that it does not set itself; learners' settings that equal these
    defaults are not set."""
    change = changes("" if profile == "default" else profile, config.task, config.method)
    plain = NetworkConfig()
    networks = {key: v for key, v in change["networks"].items() if getattr(config.networks, key) == getattr(plain, key)}
    set_by_hand = {key: v for key, v in config.learner_options.items() if v != defaults.get(key)}
    return dataclasses.replace(
        config,
        task_options=change["task_options"] | config.task_options,
        method_options=change["method_options"] | config.method_options,
        learner_options=config.learner_options | change["learner_options"] | set_by_hand,
        networks=dataclasses.replace(config.networks, **networks),
    )


PAPER_BUDGETS = tuple(name for name in BUDGETS if not name.startswith("exact"))
EXACT_BUDGETS = tuple(name for name in BUDGETS if name.startswith("exact"))


def cells(task: str, method: str, budgets: Iterable[str], variant: str = "") -> tuple[Cell, ...]:
    return tuple(Cell(task, method, budget, variant) for budget in budgets)


ABLATIONS: dict[str, tuple[Cell, ...]] = {
    "deterministic": cells("ccn", "dpmac", PAPER_BUDGETS, "deterministic"),
    "feedforward": (
        *cells("ccn", "dpmac", ("free", "step-1", "step-0.1"), "feedforward"),
        Cell("ccn", "silent", "free", "feedforward"),
    ),
    "exact": cells("ccn", "dpmac", EXACT_BUDGETS),
    "often": (
        *cells("ccn", "dpmac", ("free", "step-1", "step-0.1", "episode-1"), "paper"),
        Cell("ccn", "silent", "free", "paper"),
    ),
    "narrow": tuple(Cell("cn", method, "free", "narrow") for method in ("dpmac", "silent")),
    "early": (Cell("ccn", "i2c", "free", "early"),),
    "stringent": tuple(
        cell
        for task in TASKS
        for method in ("tarmac", "i2c")
        for cell in cells(task, method, ("step-0.01", "episode-0.01"))
    ),
    "equal": tuple(
        cell
        for task in TASKS
        for method in ("tarmac", "i2c")
        for cell in cells(task, method, ("free", "step-1", "step-0.1", "episode-1", "episode-0.1"), "equal")
    ),
    "pace": tuple(
        cell
        for variant in ("paper", "fresh", "slow", "normed")
        for cell in cells("cn", "dpmac", ("free", "step-1", "step-0.1", "step-0.01"), variant)
    ),
}
"""What the paper did not ask: a sender without spread; actors without memory; noise that keeps its promise; one update
an episode instead of one in four; cooperative navigation where agents see no further than 0.5; I2C as version 0.1 had
it; TarMAC and I2C at ε = 0.01, of which the paper speaks without a figure; receivers with equally wide noise; and why a
middling noise costs most on CN at one update an episode."""


@dataclass(frozen=True)
class Scale:
    """How large every run is."""

    tasks: tuple[str, ...]
    seeds: int
    networks: NetworkConfig
    training: Training
    learner_options: Mapping[str, Any]
    final_episodes: int
    """Common starts on which finished teams are scored."""
    steps: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Environment steps of tasks that are given others than `training` says."""


SCALES: dict[ScaleName, Scale] = {
    "smoke": Scale(
        ("ccn",),
        2,
        NetworkConfig(hidden=8, message_hidden=8, message_size=4),
        Training(steps=1600, evaluations=4, evaluation_episodes=4),
        {"batch": 4, "buffer": 64, "explore_steps": 400},
        8,
    ),
    "quick": Scale(
        ("ccn", "cn"),
        2,
        NetworkConfig(hidden=64),
        Training(steps=520_000, episodes=16, evaluations=20),
        {
            "updates_per_episode": 1 / 16,
            "batch": 64,
            "discount": 0.7,
            "learning_rate": 8e-3,
            "tau": 0.02,
            "logit_penalty": 0.01,
            "explore_steps": 80_000,
        },
        4096,
        {"cn": 20_000},
    ),
    "paper": Scale(("ccn", "cn", "pp"), 5, NetworkConfig(), Training(), {}, 4096),
}
"""smoke: seconds. quick: a machine without an accelerator; a low discount, large steps and many fresh episodes let
messages be learned in a thousand updates, where the paper's settings take two thousand of four times the size. paper: a
million steps."""


def configuration(population: Sequence[Cell], scale: Scale) -> RunConfig:
    """The configuration of cells that share a compiled program."""
    first = population[0]
    require(all(cell.population == first.population for cell in population), "cells of one population share a program")
    change = changes(first.variant, first.task, first.method)
    return RunConfig(
        task=first.task,
        method=first.method,
        task_options=change["task_options"],
        method_options=change["method_options"],
        learner_options={**scale.learner_options, **change["learner_options"]},
        channel=Channel(place=METHODS[first.method][1]),
        budgets=tuple(BUDGETS[cell.budget] for cell in population),
        seeds=tuple(range(scale.seeds)),
        networks=dataclasses.replace(scale.networks, **change["networks"]),
        training=dataclasses.replace(scale.training, steps=scale.steps.get(first.task, scale.training.steps)),
    )


def cells_of(target: str, tasks: Sequence[str], variant: str = "") -> list[Cell]:
    """The cells behind a figure, all of one variant, or behind an ablation, on these tasks."""
    if target in ABLATIONS:
        return [cell for cell in ABLATIONS[target] if cell.task in tasks]
    return [Cell(task, method, budget, variant) for task in tasks for method, budget in FIGURES[target].series]


def targets(names: Sequence[str], with_ablations: bool = False) -> list[str]:
    """Figures and ablations that the command line names; `all` are the nine figures."""
    known = [*FIGURES, *ABLATIONS]
    for name in names:
        require(name in (*known, "all"), f"no figure is named {name!r}; allowed are all, {', '.join(known)}")
    wanted = [*FIGURES] if not names or "all" in names else []
    wanted += [name for name in names if name != "all"] + ([*ABLATIONS] if with_ablations else [])
    return list(dict.fromkeys(wanted))


def populations(
    wanted: Sequence[str],
    scale: Scale,
    tasks: Sequence[str],
    methods: Sequence[str] = tuple(METHODS),
    profile: Profile = "default",
) -> dict[str, RunConfig]:
    """Everything that these figures and ablations need, each run once, by the name of its population."""
    found: dict[str, list[Cell]] = {}
    for target in wanted:
        for cell in cells_of(target, tasks, "" if profile == "default" else profile):
            if cell.method in methods and cell not in found.setdefault(cell.population, []):
                found[cell.population].append(cell)
    return {name: configuration(members, scale) for name, members in found.items() if members}


def run_names(population: str, config: RunConfig) -> dict[Member, str]:
    """The name of every run of a configuration that belongs to a population."""
    variant = population.removeprefix(f"{file_name(config.task)}-{config.method}").removeprefix("-")

    def name(member: Member) -> str:
        parts = [variant, *(f"{key}-{value}" for key, value in member.settings)]
        own = "-".join(part for part in parts if part)
        if len(own) > LONGEST:
            own = f"{own[: LONGEST - 17]}-{hashlib.blake2b(own.encode(), digest_size=8).hexdigest()}"
        return Cell(config.task, config.method, name_of(member.budget), own).run(member.seed)

    return {member: name(member) for member in config.members}
