"""`dpmac train`: every budget and every seed of a configuration as one population."""

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from dpmac.cli import DESCRIBE, emit, parse
from dpmac.config import (
    AccountantName,
    Budget,
    Channel,
    NetworkConfig,
    Place,
    RunConfig,
    Training,
    Unit,
    require,
    to_json,
)
from dpmac.experiments import Profile, profiled
from dpmac.privacy import mechanisms

EXAMPLE = "dpmac train ccn --method dpmac --epsilon 1 3 inf --seeds 5 --steps 1000000 --out runs/ccn"


@dataclass(frozen=True)
class Train:
    """Train a team on a task, for every budget and every seed side by side, into a folder that can be resumed."""

    task: tyro.conf.Positional[str]
    """Task: cn, ccn, pp, another of `dpmac tasks`, or your own as package.module:Name, or an environment as
    pettingzoo:package.module."""
    out: Path
    """Folder for the run; it must not hold one yet."""
    method: str = "dpmac"
    """Method, the way to communicate: dpmac, silent, tarmac, i2c, commnet, or your own as package.module:Class."""
    learner: str = RunConfig.learner
    """Learner, what trains: maddpg, mappo, pathwise, or your own as package.module:Class. Its settings are a group of
    their own below."""
    epsilon: tuple[str, ...] = ("inf",)
    """Budgets; inf means free messages, and 1:0.1:inf gives each agent its own."""
    delta: float = 1e-4
    unit: Unit = "episode"
    """What a budget covers: one message (the paper's step level) or all messages of an episode."""
    profile: Profile = "default"
    """Options of the paper, one update an episode, or of its release, its networks, form of messages, past sampling and
    starts, wherever they are not set here."""
    accountant: AccountantName = "exact"
    """exact: what is true. paper: the paper's formula at its released settings, with what is true beside it."""
    seeds: int = 1
    """Number of seeds: 0, 1, ..."""
    steps: int = 1_000_000
    """Environment steps of each run."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """Options of the task, as view_radius=0.5, or of the environment."""
    method_set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """Options of the method, as deterministic=true."""
    mechanism: Annotated[str, tyro.conf.arg(help=f"Mechanism: {mechanisms.allowed()}.")] = Channel.mechanism
    clip_norm: float = 0.5
    """C: the norm that messages are clipped to before the noise."""
    symbols: int = 3
    """k of the channels that send symbols."""
    copies: int = 1
    """1: one noisy message for all. One per recipient: fresh noise for each, and each is counted."""
    period: int = 1
    """Steps between releases; 0: once, at the first step, and held."""
    rounds: int = 1
    """Exchanges before each step (tarmac); every one is a release and counted."""
    sample_rate: float = 0.0
    """Share of its past transitions that a sender draws at each step; 0: the current one."""
    recipient_rate: float = 1.0
    """Share of the others that receive a message."""
    noise_at: Place | None = None
    """Where clipping and noise are applied; by default where the paper does for the method."""
    anneal_from: float = 0.0
    """Start finite budgets at this epsilon and anneal them down to their value; 0: no annealing."""
    anneal_share: float = 0.6
    """Share of the run over which budgets anneal."""
    mix: int = 1
    """Above 1: draw each episode's noise out of so many levels from --anneal-from down to the budget, do not anneal."""
    aware: bool = False
    """Receivers know the channel's noise scale and decode messages as posteriors."""
    hidden: int = 128
    """Width of actors, and of what the learner has beside them."""
    message_hidden: int = 32
    """Width inside senders and receivers."""
    message_size: int = 8
    """Numbers in a message of a channel that sends vectors."""
    feedforward_actor: bool = False
    """Actors without a hidden state."""
    products: int = 0
    """Products of the observation with the aggregated message that enter its actor beside both."""
    entry_layer: bool = False
    """Actors with a layer before the recurrent one."""
    layers: int = 0
    """Layers of actors before the recurrent one."""
    layer_norm: bool = False
    """Actors that normalise their inputs and what each layer gives."""
    share_parameters: bool = False
    """The same parameters for all agents."""
    episodes: int = 4
    """Fresh episodes an iteration."""
    evaluations: int = 100
    """Evaluations over the run, evenly spaced."""
    evaluation_episodes: int = Training.evaluation_episodes
    """Greedy episodes in each evaluation; at most 32 in environments on the host."""
    most_at_once: int = 0
    """Runs trained side by side; 0: as many as fit in memory."""
    checkpoint_seconds: float = 60.0
    """Time between checkpoints."""
    tensorboard: bool = False
    """Also write TensorBoard events (extra: tensorboard)."""
    wandb: bool = False
    """Also log to Weights & Biases; WANDB_MODE=offline keeps it on this machine (extra: wandb)."""
    quiet: bool = False
    """No progress, only the result."""
    verbose: bool = False
    """Everything that is measured, after every evaluation, and a traceback if something breaks."""
    json: bool = False
    """Print the result as JSON."""

    def config(self, learner_options: dict[str, Any]) -> RunConfig:
        """The configuration that these options and the learner's settings describe."""
        from dpmac import plugins
        from dpmac.agents import protocol
        from dpmac.cli import progress

        require(self.seeds >= 1, f"seeds must be a whole number from 1, not {self.seeds}")
        require(self.most_at_once >= 0, f"most-at-once must be a whole number from 0, not {self.most_at_once}")
        progress.check_seconds(self.checkpoint_seconds)
        progress.check_loudness(self.quiet, self.verbose)
        method = protocol.find(self.method)
        shared: dict[str, Any] = {"delta": self.delta, "unit": self.unit, "accountant": self.accountant}
        return RunConfig(
            task=self.task,
            method=self.method,
            learner=self.learner,
            task_options=plugins.settings(self.set),
            method_options={key: plain(value) for key, value in plugins.settings(self.method_set).items()},
            learner_options=learner_options,
            channel=Channel(
                mechanism=self.mechanism,
                clip_norm=self.clip_norm,
                symbols=self.symbols,
                copies=self.copies,
                period=self.period,
                rounds=self.rounds,
                sample_rate=self.sample_rate,
                recipient_rate=self.recipient_rate,
                place=self.noise_at or method.private_at,
            ),
            budgets=tuple(Budget.parse(text, **shared) for text in self.epsilon),
            seeds=tuple(range(self.seeds)),
            networks=NetworkConfig(
                hidden=self.hidden,
                message_hidden=self.message_hidden,
                message_size=self.message_size,
                recurrent_actor=not self.feedforward_actor,
                aware=self.aware,
                products=self.products,
                entry_layer=self.entry_layer,
                layers=self.layers,
                layer_norm=self.layer_norm,
                share_parameters=self.share_parameters,
            ),
            training=Training(self.steps, self.episodes, self.evaluations, self.evaluation_episodes),
            anneal_from=self.anneal_from,
            anneal_share=self.anneal_share,
            mix=self.mix,
        )


def plain(text: str) -> Any:
    """A truth value, a number or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def with_settings(argv: Sequence[str]) -> tuple[type[Any], str]:
    """The options with those of the learner that the command line names as a group of their own, and the group's name.

    A learner is a dataclass, and its fields are its settings.
    """
    from dpmac.learner import base as learners

    words = [part for word in argv for part in word.split("=", 1)]
    named = [after for word, after in itertools.pairwise(words) if word == "--learner"]
    learner = learners.find(named[-1] if named else Train.learner)
    group = learner.__name__.lower()
    setting = (group, tyro.conf.OmitArgPrefixes[learner], dataclasses.field(default_factory=learner))
    made = dataclasses.make_dataclass("Train", [setting], bases=(Train,), frozen=True)
    made.__doc__ = Train.__doc__
    return made, group


def run(argv: Sequence[str]) -> None:
    cls, group = with_settings([] if DESCRIBE in argv else argv)
    options = parse(cls, argv, "dpmac train", EXAMPLE)
    settings = getattr(options, group)
    config = profiled(options.config(to_json(settings)), options.profile, to_json(type(settings)()))
    from dpmac.analysis.evaluate import closing
    from dpmac.cli import progress
    from dpmac.results import loggers
    from dpmac.runner import population

    progress.use_cache()
    logs = loggers.chosen(options.out, tensorboard=options.tensorboard, wandb=options.wandb)
    program = population.create(options.out, config)
    progress.warn(options.out, program.task)
    pieces = population.train_folder(options.out, options.checkpoint_seconds, options.most_at_once)
    progress.follow(options.out, pieces, options.quiet or options.json, logs, options.verbose)
    found = closing(options.out)
    emit(found, options.json, lambda: progress.table(found))
