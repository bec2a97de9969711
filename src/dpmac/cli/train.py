"""`dpmac train`: every budget and every seed of a configuration as one population."""

import dataclasses
import itertools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dpmac.cli import DESCRIBE, emit, parse
from dpmac.config import (
    AccountantName,
    BadInput,
    Budget,
    Channel,
    NetworkConfig,
    NoiseOrigin,
    Place,
    PrivateTraining,
    RunConfig,
    Training,
    Unit,
    loads,
    require,
    run_config,
    to_json,
)
from dpmac.experiments import Profile, profiled
from dpmac.privacy import mechanisms

if TYPE_CHECKING:
    from dpmac.tasks import Task

CHANNEL = (
    "mechanism",
    "clip_norm",
    "symbols",
    "copies",
    "period",
    "rounds",
    "sample_rate",
    "recipient_rate",
    "stream_decay",
)
NETWORKS = (
    "hidden",
    "message_hidden",
    "message_size",
    "aware",
    "products",
    "entry_layer",
    "layers",
    "layer_norm",
    "share_parameters",
)
PRIVATE = (
    "train_epsilon",
    "train_delta",
    "train_clip",
    "episodes_per_source",
    "train_noise",
    "train_microbatch",
)
"""Options that are called as the fields that they set."""
EXAMPLE = "dpmac train ccn --method dpmac --epsilon 1 3 inf --seeds 5 --steps 1000000 --out runs/ccn"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run is."""

    task: tyro.conf.Positional[str]
    """Task: cn, ccn, pp, another of `dpmac tasks`, or your own as package.module:Name, or an environment as
    jaxmarl:NAME or pettingzoo:package.module."""
    config: Path | None = None
    """Configuration file (JSON or TOML), as `dpmac config` prints it, or a run's config.json. Options on the command
    line override it."""
    method: str = "dpmac"
    """Method, how agents communicate: dpmac, silent, tarmac, i2c, commnet, or your own as package.module:Class."""
    learner: str = RunConfig.learner
    """Learner, the training algorithm: maddpg, mappo, pathwise, or your own as package.module:Class. Its settings are
    listed in their own group below."""
    epsilon: tuple[str, ...] = ("inf",)
    """Budgets. inf: messages without noise. 1:0.1:inf: one budget for each agent."""
    delta: float = 1e-4
    """δ of all budgets, strictly between 0 and 1."""
    unit: Unit = "episode"
    """What a budget covers: one message (the paper's step level) or all messages of an episode."""
    neighbours: Literal["inputs", "increment"] = "inputs"
    """What a budget protects: all inputs of the unit, or what one step adds to a stream. increment needs a task that
    declares increments. Senders then see only the increment of their step. The whole episode costs far more than
    epsilon."""
    profile: Profile = "default"
    """paper: one update an episode, as in the paper. release: that, and the networks, messages, replay, past sampling
    and starts of the paper's released code. Options that are given and differ from their default override
    the profile."""
    accountant: AccountantName = "exact"
    """exact: the exact accountant. paper: the paper's formula at its released settings; the exact epsilon is also
    reported."""
    seeds: int = 1
    """Number of seeds."""
    first_seed: int = 0
    """First seed; the others are consecutive."""
    steps: int = 1_000_000
    """Environment steps of each run."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """Options of the task or environment, such as view_radius=0.5."""
    method_set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """Options of the method, such as deterministic=true."""
    mechanism: Annotated[str, tyro.conf.arg(help=f"Mechanism: {mechanisms.allowed()}.")] = Channel.mechanism
    clip_norm: float = 0.5
    """C: the norm that messages are clipped to before the noise."""
    symbols: int | Literal["auto"] = 3
    """k, the number of symbols of mechanisms that send symbols. auto: the most informative number at the budget, for
    one symbol an episode."""
    copies: int = 1
    """1: one noisy message is broadcast. The number of other agents: fresh noise for each recipient; each copy
    counts."""
    period: int = 1
    """Steps between releases. 0: one release at the first step; receivers keep it."""
    rounds: int = 1
    """Exchanges before each step (tarmac). Each is a separate release."""
    sample_rate: float = 0.0
    """Share of its past transitions that a sender samples at each step. 0: it uses the current one."""
    recipient_rate: float = 1.0
    """Share of the other agents that receive a message."""
    stream_decay: float | None = None
    """ρ of the mechanisms correlated and sums, which send running sums; by default that of the task's stream."""
    noise_at: Place | None = None
    """Where clipping and noise are applied; by default as in the paper for this method."""
    anneal_from: float = 0.0
    """Start finite budgets at this epsilon and anneal them down to their value; 0: no annealing."""
    anneal_share: float = 0.6
    """Share of the run over which budgets anneal."""
    mix: int = 1
    """Above 1: instead of annealing, draw the noise scale of each episode from this many, between --anneal-from and the
    budget."""
    aware: bool = False
    """Receivers know the channel's noise scale and decode messages as posteriors."""
    hidden: int = 128
    """Width of actors, and of the learner's other networks."""
    message_hidden: int = 32
    """Hidden width of senders and receivers."""
    message_size: int = 8
    """d, the numbers in a message, for mechanisms that send vectors."""
    feedforward_actor: bool = False
    """Actors without a hidden state."""
    products: int = 0
    """Products of the observation and the aggregated message that also enter the actor."""
    entry_layer: bool = False
    """Add a layer before the recurrent one of actors."""
    layers: int = 0
    """Layers before the recurrent one of actors."""
    layer_norm: bool = False
    """Normalise the inputs and every layer of actors."""
    share_parameters: bool = False
    """Share parameters between all agents."""
    episodes: int = 4
    """Fresh episodes per iteration."""
    evaluations: int = 100
    """Evaluations over the run, evenly spaced."""
    evaluation_episodes: int = Training.evaluation_episodes
    """Greedy episodes per evaluation; at most 32 for environments on the host."""
    train_epsilon: float | None = None
    """Train privately: epsilon of the published weights for one source of training episodes, see
    docs/private-training.md. inf: clip the gradient of every episode, but add no noise."""
    train_delta: float = PrivateTraining.train_delta
    """δ of private training."""
    train_clip: float = PrivateTraining.train_clip
    """Private training clips the joint gradient of all parameters to this norm in each episode."""
    episodes_per_source: int = PrivateTraining.episodes_per_source
    """Largest number of episodes that one source contributes to private training."""
    train_noise: NoiseOrigin = PrivateTraining.train_noise
    """Source of the noise of private training. system: the operating system, not repeatable. seed: repeatable, and
    protects nothing."""
    train_microbatch: int = PrivateTraining.train_microbatch
    """Episodes whose gradients private training keeps in memory at once."""

    def run_config(self, learner_options: dict[str, Any]) -> RunConfig:
        """The configuration that these options and the learner's settings describe."""
        from dpmac import plugins
        from dpmac.agents import protocol
        from dpmac.learner import base as learners

        require(1 <= self.seeds <= 10_000, f"seeds must be a whole number from 1 to 10,000, not {self.seeds}")
        method = protocol.find(self.method)
        shared: dict[str, Any] = {"delta": self.delta, "unit": self.unit, "accountant": self.accountant}
        shared["neighbours"] = self.neighbours
        config = RunConfig(
            task=self.task,
            method=self.method,
            learner=self.learner,
            task_options=plugins.settings(self.set),
            method_options={key: plain(value) for key, value in plugins.settings(self.method_set).items()},
            learner_options=learner_options,
            channel=self.channel(self.noise_at or method.private_at),
            budgets=tuple(Budget.parse(text, **shared) for text in self.epsilon),
            seeds=tuple(range(self.first_seed, self.first_seed + self.seeds)),
            networks=NetworkConfig(
                recurrent_actor=not self.feedforward_actor, **{name: getattr(self, name) for name in NETWORKS}
            ),
            training=Training(self.steps, self.episodes, self.evaluations, self.evaluation_episodes),
            anneal_from=self.anneal_from,
            anneal_share=self.anneal_share,
            mix=self.mix,
            private=PrivateTraining(**{name: getattr(self, name) for name in PRIVATE}),
        )
        for name in PRIVATE:
            given = getattr(self, name) != getattr(PrivateTraining, name)
            require(config.private.asked or not given, f"--{name.replace('_', '-')} needs --train-epsilon")
        check_annealing(config)
        return profiled(config, self.profile, to_json(learners.find(self.learner)()))

    def channel(self, place: Place) -> Channel:
        """The channel, if it uses every option about it that was given."""
        known: dict[str, Any] = {**{name: getattr(self, name) for name in CHANNEL}, "symbols": self.alphabet()}
        known["stream_decay"] = self.running_decay()
        channel = Channel(place=place, increments=self.neighbours == "increment", **known)
        mechanism, default = mechanisms.of(channel), RunOptions
        unused = [] if mechanism.clips else ["clip_norm"]
        unused += [] if mechanism.remembers else ["stream_decay"]
        unused += ["message_size"] if mechanism.alphabet else ["symbols"]
        unused += [] if self.anneal_from else ["anneal_share"]
        for name in unused:
            said = f"--{name.replace('_', '-')}"
            why = "needs --anneal-from" if name == "anneal_share" else f"is not for the mechanism {self.mechanism}"
            require(getattr(self, name) == getattr(default, name), f"{said} {why}")
        return channel

    def running_decay(self) -> float:
        """ρ of running sums, as given or as the task has it."""
        if self.stream_decay is not None:
            return self.stream_decay
        if not mechanisms.find(self.mechanism).remembers:
            return Channel.stream_decay
        from dpmac import plugins, tasks

        return tasks.abilities(tasks.make(self.task, **plugins.settings(self.set))).decay

    def alphabet(self) -> int:
        """The number of symbols, as given or as the budgets pay for."""
        if self.symbols != "auto":
            return self.symbols
        require(self.period == 0 and self.copies == self.rounds == 1, "--symbols auto is for one symbol: --period 0")
        from dpmac import plugins, tasks

        task = tasks.make(self.task, **plugins.settings(self.set))
        budgets = {each for text in self.epsilon for each in Budget.parse(text).epsilon}
        chosen = {epsilon: symbols_for(task, epsilon) for epsilon in sorted(budgets)}
        said = ", ".join(f"{count} at epsilon {epsilon:g}" for epsilon, count in chosen.items())
        require(
            len({*chosen.values()}) == 1, f"these budgets pay for different numbers of symbols, {said}: train apart"
        )
        return chosen.popitem()[1]


def symbols_for(task: "Task", epsilon: float) -> int:
    """How many symbols tell most of a task's secret at ε; where it has few values, at most as many."""
    from dpmac.privacy import scalar
    from dpmac.tasks import abilities

    require(epsilon < float("inf"), "--symbols auto needs finite budgets; free messages have room for any number")
    known = abilities(task)
    return scalar.best_symbols(epsilon, known.secret_dimensions, max(2, known.symbols or scalar.MOST_SYMBOLS))


@dataclass(frozen=True, kw_only=True)
class Train(RunOptions):
    """Train a team on a task. All budgets and seeds train side by side. The run can be interrupted and resumed."""

    out: Path
    """Folder for the run; it must not contain a run yet."""
    most_at_once: int = 0
    """Largest number of runs side by side; 0: as many as fit in memory."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    tensorboard: bool = False
    """Also write TensorBoard events (needs the package tensorboardX)."""
    wandb: bool = False
    """Also log to Weights & Biases (needs the package wandb). Its environment variables apply; WANDB_MODE=offline keeps
    everything on this machine."""
    quiet: bool = False
    """Print no progress, only the result."""
    verbose: bool = False
    """Print all metrics after every evaluation, and a traceback for unexpected errors."""
    json: bool = False
    """Print the result as JSON."""


def check_annealing(config: RunConfig) -> None:
    """Bad input where budgets are said to anneal and would not."""
    finite = [each for budget in config.budgets for each in budget.epsilon if each != float("inf")]
    above = [f"{each:g}" for each in finite if each > config.anneal_from]
    require(
        config.anneal_from == 0 or bool(finite),
        "anneal-from goes with finite budgets, and all messages of this run are free",
    )
    require(
        config.anneal_from == 0 or not above,
        f"anneal-from must be at least every budget, for budgets anneal down; {config.anneal_from:g} is below "
        f"epsilon {', '.join(above)}",
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


def with_settings(
    argv: Sequence[str], base: type[RunOptions] = Train, **required: Any
) -> tuple[type[Any], str, RunOptions | None]:
    """Options with those of the learner as a group of their own, the group's name, and defaults from --config, if any.

    A learner is a dataclass, and its fields are its settings. `required` are values of options without a default.
    """
    from dpmac.learner import base as learners

    words = [part for word in argv for part in word.split("=", 1)]
    named = {
        name: [after for word, after in itertools.pairwise(words) if word == name] for name in ("--learner", "--config")
    }
    config = read_file(Path(named["--config"][-1])) if named["--config"] else None
    default = RunOptions.learner if config is None else config.learner
    name = named["--learner"][-1] if named["--learner"] else default
    require(
        config is None or name == config.learner,
        f"{named['--config'][-1:]} holds settings of the learner {default}; --learner {name} needs a file of its own",
    )
    learner = learners.find(name)
    group = learner.__name__.lower()
    setting = (group, tyro.conf.OmitArgPrefixes[learner], dataclasses.field(default_factory=learner))
    made = dataclasses.make_dataclass("Train", [setting], bases=(base,), frozen=True, kw_only=True)
    made.__doc__ = base.__doc__
    if config is None:
        return made, group, None
    require(len(config.settings) == 1, f"{named['--config'][-1]} is of many settings; dpmac sweep trains such")
    settings = {group: learners.make(name, {**config.learner_options, **config.settings[0]})}
    return made, group, made(**options_of(config), **settings, **required)


def read_file(path: Path) -> RunConfig:
    """The configuration in a JSON or TOML file."""
    try:
        text = path.read_text()
        if path.suffix == ".toml":
            return run_config(tomllib.loads(text))
        require(path.suffix == ".json", f"a configuration is named NAME.json or NAME.toml, not {path}")
        return run_config(loads(text))
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{path} is damaged: {error}") from None


def options_of(config: RunConfig) -> dict[str, Any]:
    """The options that describe a configuration, its learner's settings aside."""
    channel, networks, seeds = config.channel, config.networks, config.seeds
    shared = {(each.delta, each.unit, each.accountant, each.neighbours) for each in config.budgets if each.private}
    require(len(shared) <= 1, "budgets on the command line have one delta, unit, accountant and kind of neighbours")
    require(
        seeds == tuple(range(seeds[0], seeds[0] + len(seeds))),
        f"seeds on the command line follow each other, not {seeds}",
    )
    first = next((each for each in config.budgets if each.private), config.budgets[0])
    held = channel.increments == (first.neighbours == "increment")
    require(held, "senders of increments go with budgets for increments on the command line")
    return {
        "task": config.task,
        "method": config.method,
        "learner": config.learner,
        "epsilon": tuple(":".join(map(repr, budget.epsilon)) for budget in config.budgets),
        "delta": first.delta,
        "unit": first.unit,
        "accountant": first.accountant,
        "neighbours": first.neighbours,
        "seeds": len(seeds),
        "first_seed": seeds[0],
        "set": pairs_of(config.task_options),
        "method_set": pairs_of(config.method_options),
        **{name: getattr(channel, name) for name in CHANNEL},
        "stream_decay": channel.stream_decay if mechanisms.of(channel).remembers else None,
        "noise_at": channel.place,
        **{name: getattr(networks, name) for name in NETWORKS},
        "feedforward_actor": not networks.recurrent_actor,
        **dataclasses.asdict(config.training),
        "anneal_from": config.anneal_from,
        "anneal_share": config.anneal_share,
        "mix": config.mix,
        **dataclasses.asdict(config.private),
    }


def pairs_of(options: dict[str, Any]) -> tuple[str, ...]:
    """Options as KEY=VALUE."""
    return tuple(f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in options.items())


def run(argv: Sequence[str]) -> None:
    cls, group, default = with_settings([] if DESCRIBE in argv else argv, Train, out=tyro.MISSING)
    options = parse(cls, argv, "dpmac train", EXAMPLE, default)
    from dpmac.analysis.evaluate import closing
    from dpmac.cli import progress
    from dpmac.results import loggers
    from dpmac.runner import population

    config = options.run_config(to_json(getattr(options, group)))
    require(options.most_at_once >= 0, f"most-at-once must be a whole number from 0, not {options.most_at_once}")
    progress.check_seconds(options.checkpoint_seconds)
    progress.check_loudness(options.quiet, options.verbose)
    progress.use_cache()
    wanted = loggers.Wanted(tensorboard=options.tensorboard, wandb=options.wandb)
    wanted.check()
    program = population.create(options.out, config)
    wanted.write(options.out)
    progress.warn(options.out, program.task)
    pieces = population.train_folder(options.out, options.checkpoint_seconds, options.most_at_once)
    logs = loggers.of_folder(options.out)
    progress.follow(options.out, pieces, options.quiet or options.json, logs, options.verbose)
    found = closing(options.out)
    emit(found, options.json, lambda: progress.table(found))
