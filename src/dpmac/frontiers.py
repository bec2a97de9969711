"""Beyond the paper, as data: channels and schedules that are trained at the same exact budgets, by one recipe.

A line is a channel and when it is used. Its budgets and seeds share a compiled program and make one population, which
the scheduler trains as it trains those of the paper. Nothing here knows a task; recipes know their learner.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dpmac.config import Budget, Channel, Neighbours, RunConfig, require
from dpmac.experiments import BUDGETS, DELTA, SCALES, ScaleName, file_name

EPSILONS = (1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Recipe:
    """How every run of a frontier is trained, whatever its channel: what differs from the scale's settings."""

    networks: Mapping[str, Any] = field(default_factory=lambda: {"aware": True})
    training: Mapping[ScaleName, Mapping[str, Any]] = field(default_factory=dict)
    learner_options: Mapping[ScaleName, Mapping[str, Any]] = field(default_factory=dict)
    anneal_from: float = 10.0
    """Every finite budget begins here and comes down to its value."""
    anneal_share: float = 0.6
    """Over this share of the run."""


def maddpg_options(scale: ScaleName) -> dict[str, Any]:
    """A low discount serves tasks whose reward comes at every step."""
    own = {"discount": 0.7, "decay": 0.3} if scale == "paper" else {}
    return {**SCALES[scale].learner_options, "clock": True, **own}


RECIPES: dict[str, Recipe] = {
    "maddpg": Recipe(
        training={"paper": {"episodes": 16}},
        learner_options={scale: maddpg_options(scale) for scale in SCALES},
    ),
    "mappo": Recipe(training={"quick": {"episodes": 40}, "paper": {"episodes": 40, "steps": 10_000_000}}),
    "pathwise": Recipe(
        networks={"aware": True, "products": 48, "entry_layer": True, "share_parameters": True},
        training={"quick": {"episodes": 36}, "paper": {"episodes": 360, "steps": 9_990_000}},
        # With the defaults of balance and jitter, 0.1 and 1, teams that are trained for so few steps pool two secrets
        # or stay silent. At this learning rate some lose their code where releases begin to be averaged exactly.
        learner_options={"quick": {"balance": 0.3, "jitter": 0.1, "learning_rate": 6e-3, "expectation": 0.0}},
    ),
}
"""By learner; others are trained with their own settings and receivers that know the noise scale."""

OVERHEARD: dict[ScaleName, int] = {"smoke": 400, "quick": 4096, "paper": 16_384}
"""Episodes that the eavesdropper on each finished team hears."""
CONFIDENCE = 0.99
"""Of all verdicts of a frontier together."""


class Line(NamedTuple):
    """Runs of one channel at one schedule, over budgets."""

    label: str
    channel: Channel = Channel()
    method: str = "dpmac"
    private: bool = True
    """Whether it is trained at finite budgets."""
    free: bool = False
    """Whether it is trained without noise too."""
    neighbours: Neighbours = "inputs"
    """What its budgets protect: a whole episode, or one increment, where a task declares what that is."""
    streams: bool = False
    """Whether it is only for tasks whose secret is a stream."""
    usual: bool = True
    """Whether it belongs to every frontier; others are trained where they are named."""

    @property
    def once(self) -> bool:
        """Whether it sends one symbol an episode by randomised response, of which budgets may choose the number."""
        spec = self.channel
        return spec.mechanism == "timed" or (spec.mechanism == "response" and spec.period == 0)

    @property
    def schedule(self) -> str:
        """When it speaks."""
        period = self.channel.period
        if not (self.private or self.free):
            return "never"
        if self.channel.mechanism == "timed":
            return "when it wants"
        return {0: "once", 1: "every step"}.get(period, f"1 in {period}")

    def budgets(self, epsilons: Sequence[float]) -> tuple[Budget, ...]:
        """What it is trained at."""
        known: dict[str, Any] = {"delta": DELTA, "neighbours": self.neighbours}
        finite = tuple(Budget((epsilon,), **known) for epsilon in epsilons) if self.private else ()
        return finite + (() if self.private and not self.free else (BUDGETS["free"],))


LINES: dict[str, Line] = {
    "response-once": Line("randomised response, once", Channel("response", period=0)),
    "response-every": Line("randomised response, every step", Channel("response")),
    "response-fourth": Line("randomised response, every fourth step", Channel("response", period=4), usual=False),
    "response-timed": Line("randomised response, when it wants", Channel("timed"), usual=False),
    "code-once": Line("Gaussian code points, once", Channel("code", period=0)),
    "gaussian-once": Line("Gaussian, once", Channel(period=0)),
    "gaussian-every": Line("Gaussian, every step (the paper's)", free=True),
    "response-sparse": Line("randomised response, every 13 steps", Channel("response", period=13), streams=True),
    "gaussian-increment": Line("one increment: independent noise", Channel(), neighbours="increment", streams=True),
    "sums-increment": Line(
        "one increment: sums, independent noise", Channel("sums"), neighbours="increment", streams=True
    ),
    "correlated-increment": Line(
        "one increment: sums, correlated noise", Channel("correlated"), neighbours="increment", streams=True
    ),
    "silent": Line("silence", method="silent", private=False),
}
"""Once: at the first step, and held. Tight: one of k points whose distances are all as large as the budget pays for.
When it wants: once, at a step of its choice, silence being one of the symbols."""


def lines_for(streams: bool) -> tuple[str, ...]:
    """Names of the usual lines of a task, whose secret may be a stream."""
    return tuple(name for name, line in LINES.items() if line.usual and (streams or not line.streams))


def populations(
    task: str,
    scale: ScaleName,
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = 0,
    lines: Sequence[str] = lines_for(streams=False),
    task_options: Mapping[str, Any] | None = None,
    learner: str = RunConfig.learner,
    symbols: Mapping[float, int] | None = None,
    decay: float = Channel.stream_decay,
    steps: int = 0,
    episodes: int = 0,
    learner_options: Mapping[str, Any] | None = None,
) -> dict[str, RunConfig]:
    """All runs of a task's frontier, by the name of their population. `symbols` are those of lines that send a symbol
    once, for each budget; budgets that differ in it make populations of their own. `decay` is that of the task's
    stream, `steps` are those of a run and `episodes` those of an update, or 0 for those of its recipe, of which
    `learner_options` replace others."""
    require(
        len(set(epsilons)) == len(epsilons) > 0,
        f"budgets must differ from each other, and there must be one, not {tuple(epsilons)}",
    )
    for epsilon in epsilons:
        require(0 < epsilon < math.inf, f"epsilon must be a finite number above 0, not {epsilon}")
    require(
        len(set(lines)) == len(lines) > 0,
        f"lines must differ from each other, and there must be one, not {tuple(lines)}",
    )
    for name in lines:
        require(name in LINES, f"lines are {', '.join(LINES)}, not {name!r}")
    found = {}
    for name in lines:
        line = LINES[name]
        for count in sorted({symbols[each] for each in epsilons} if symbols and line.once else {line.channel.symbols}):
            own = [each for each in epsilons if not (symbols and line.once) or symbols[each] == count]
            own_step = {"increments": True, "stream_decay": decay} if line.neighbours == "increment" else {}
            one = line._replace(channel=dataclasses.replace(line.channel, symbols=count, **own_step))
            config = configuration(task, scale, one, own, seeds, dict(task_options or {}), learner, steps, episodes)
            settings = {**config.learner_options, **(learner_options or {})}
            found[population_name(task, name, learner, count)] = dataclasses.replace(config, learner_options=settings)
    return found


def population_name(task: str, line: str, learner: str = RunConfig.learner, symbols: int = Channel.symbols) -> str:
    """The default learner and number of symbols are not named, as version 0.1 had no other."""
    own = "" if learner == RunConfig.learner else f"-{file_name(learner)}"
    own += "" if symbols == Channel.symbols else f"-{symbols}-symbols"
    return f"{file_name(task)}-{LINES[line].method}-{line}{own}"


def line_of(population: str, config: RunConfig) -> str:
    """The line that a population belongs to."""
    settled = (config.learner, config.channel.symbols)
    return next(line for line in LINES if population_name(config.task, line, *settled) == population)


def configuration(
    task: str,
    scale: ScaleName,
    line: Line,
    epsilons: Sequence[float],
    seeds: int,
    task_options: dict[str, Any],
    learner: str = RunConfig.learner,
    steps: int = 0,
    episodes: int = 0,
) -> RunConfig:
    """The configuration of one line."""
    size, recipe = SCALES[scale], RECIPES.get(learner, Recipe())
    asked = {name: value for name, value in {"steps": steps, "episodes": episodes}.items() if value}
    training = {**recipe.training.get(scale, {}), **asked}
    return RunConfig(
        task=task,
        method=line.method,
        learner=learner,
        task_options=task_options,
        channel=line.channel,
        budgets=line.budgets(epsilons),
        seeds=tuple(range(seeds or size.seeds)),
        networks=dataclasses.replace(size.networks, **recipe.networks),
        training=dataclasses.replace(size.training, **training),
        learner_options=dict(recipe.learner_options.get(scale, {})),
        anneal_from=recipe.anneal_from,
        anneal_share=recipe.anneal_share,
    )
