"""What a run is, as data: frozen dataclasses whose fields carry their meaning beside them.

Nothing here computes; every other layer may import it, and it imports none of them. In particular the description of
a channel lives here, so that the agents build the channel and the privacy package accounts for it from one object.
"""

import dataclasses
import json
import math
import numbers
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self, TypeGuard

Unit = Literal["message", "episode"]
Neighbours = Literal["inputs", "transition", "increment"]
AccountantName = Literal["exact", "paper"]
Place = Literal["sender", "receiver"]
NoiseOrigin = Literal["system", "seed"]


class BadInput(ValueError):
    """What a user gave cannot be used; the message says what is allowed. The command line exits with code 2."""


class Failure(RuntimeError):
    """Something went wrong while running, and the message says all of it. The command line exits with code 1."""


def require(condition: bool, message: str) -> None:
    """Raise `BadInput` with this message unless the condition holds."""
    if not condition:
        raise BadInput(message)


def number(value: object) -> TypeGuard[float]:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def positive(value: float) -> bool:
    return number(value) and math.isfinite(value) and value > 0


def whole(value: object, least: int, most: int | None = None) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least and (most is None or value <= most)


def check_seed(seed: int) -> None:
    require(whole(seed, 0, 2**32 - 1), f"seed must lie in [0, 2^32), not {seed}")


def check_epsilon(epsilon: float, name: str = "epsilon", unbounded: str = "free messages") -> None:
    fits = number(epsilon) and (1e-6 <= epsilon <= 1e6 or epsilon == math.inf)
    require(fits, f"{name} must lie between 1e-6 and 1e6, or be inf ({unbounded}), not {epsilon}")


def check_delta(delta: float, name: str = "delta") -> None:
    require(
        number(delta) and 1e-300 <= delta < 1, f"{name} must lie strictly between 0 and 1 (1e-300 or more), not {delta}"
    )


def check_choice(name: str, value: object, choices: Any) -> None:
    allowed = typing.get_args(choices)
    require(value in allowed, f"{name} must be one of {', '.join(map(str, allowed))}, not {value!r}")


@dataclass(frozen=True)
class Channel:
    """What leaves an agent, apart from the noise scale: static in a compiled program, read by the accountant."""

    mechanism: str = "gaussian"
    """gaussian: a vector of at most `clip_norm`, plus noise. response: one of `symbols` integers through randomised
    response. code: one of `symbols` points of a code book whose diameter is at most 2·`clip_norm`, plus noise.
    correlated and sums: running sums of vectors of at most `clip_norm`, with noise that is correlated over time, or
    independent. timed: one symbol an episode, when the sender wants. Or `package.module:Class`. `privacy.mechanisms`
    has the classes; they check what is special about each."""
    clip_norm: float = 0.5
    """C, the largest L2 norm of a message before the noise; two messages differ by at most Δ = 2C."""
    symbols: int = 3
    """k, the size of the alphabet of mechanisms that send symbols."""
    copies: int = 1
    """Noisy copies of one message: 1 broadcasts one noisy message; one per recipient draws fresh noise for each."""
    period: int = 1
    """Steps from one release to the next; receivers hold the last one in between. 0: once, at the first step."""
    rounds: int = 1
    """Exchanges before each step, every one a release of its own; for protocols that make several."""
    sample_rate: float = 0.0
    """γ₁: at step t the sender draws ⌊γ₁·(t+1)⌋ of its t+1 transitions without replacement; 0: the current one."""
    recipient_rate: float = 1.0
    """γ₂: share of the other agents that receive a message; drawn independently of all data."""
    place: Place = "sender"
    """Where clipping and noise are applied. At the receiver, as the paper does for TarMAC and I2C, it protects nothing
    from the receiver, which has seen the raw message."""
    stream_decay: float = 1.0
    """ρ of mechanisms that send running sums: what a step says is added to ρ times what was said before."""
    increments: bool = False
    """Whether senders are given nothing but what the task declares as their step's own increment: neither the rest of
    the observation, nor the action, nor a hidden state. What one step adds then enters one message, which is what a
    claim for an increment needs."""

    def __post_init__(self) -> None:
        check_choice("place", self.place, Place)
        norm = self.clip_norm
        require(
            positive(norm) and 1e-30 <= norm <= 1e30,
            f"clip_norm must be a finite number above 0 (1e-30 to 1e30), not {norm}",
        )
        require(whole(self.symbols, 2, 256), f"symbols must be a whole number from 2 to 256, not {self.symbols}")
        require(whole(self.copies, 1), f"copies must be a whole number from 1, not {self.copies}")
        require(whole(self.period, 0), f"period must be a whole number from 0 (once), not {self.period}")
        require(whole(self.rounds, 1, 16), f"rounds must be a whole number from 1 to 16, not {self.rounds}")
        require(self.rounds == 1 or self.sample_rate == 0, "a sender that samples its past makes one round a step")
        require(0 <= self.sample_rate <= 1, f"sample_rate must lie in [0, 1], not {self.sample_rate}")
        require(0 < self.recipient_rate <= 1, f"recipient_rate must lie in (0, 1], not {self.recipient_rate}")
        require(0 <= self.stream_decay <= 1, f"stream_decay must lie in [0, 1], not {self.stream_decay}")
        require(
            not self.increments or (self.sample_rate == 0 and self.rounds == 1),
            "senders of increments send one message a step, from that step alone: sample_rate must be 0 and rounds 1",
        )

    @property
    def sensitivity(self) -> float:
        """Δ: the largest L2 distance between two messages before the noise."""
        return 2 * self.clip_norm

    def uses(self, horizon: int) -> int:
        """Releases in an episode of this many steps."""
        return self.rounds * (1 if self.period == 0 else math.ceil(horizon / self.period))

    def recipients(self, others: int) -> int:
        """How many of so many others a message goes to; never none."""
        return max(1, round(self.recipient_rate * others))

    @property
    def sent(self) -> int:
        """Noisy copies that leave at each release: the one broadcast, or one for each recipient that is drawn."""
        return 1 if self.copies == 1 else self.recipients(self.copies)

    def draws(self, step: int) -> int:
        """Transitions that a sampling sender draws at this step (counted from 0) out of the step + 1 that exist."""
        return math.floor(self.sample_rate * (step + 1) + 1e-9)

    def rates(self, horizon: int) -> tuple[float, ...]:
        """Share of the existing transitions that each release of an episode draws; 1 unless the sender samples."""
        steps = range(0, horizon, self.period or horizon)
        return tuple(self.draws(step) / (step + 1) if self.sample_rate else 1.0 for step in steps) * self.rounds


@dataclass(frozen=True)
class Release:
    """A channel at one noise scale over an episode: what `privacy.accounting` puts a price on.

    The price is that of a game. Before each message an adversary picks two inputs of one agent, from all that the agent
    has released so far; a hidden bit decides which of the two is used. `message`: the two differ before one single
    message. `episode`: before every message of an episode.
    """

    channel: Channel
    noise: float
    """The noise scale, for example σ or a flip probability; the mechanism says what it means. 0: no protection."""
    horizon: int = 1
    """T, the steps of an episode; a million at most."""
    unit: Unit = "episode"
    neighbours: Neighbours = "inputs"
    """inputs: neighbours may differ in everything that the unit's messages are made from. transition: in one transition
    of a memoryless sender, which enters the message of its step, one in each of its rounds, or with `sample_rate` every
    message that happens to draw it. increment: in what one single step adds to a stream, where senders are given
    nothing else (`Channel.increments`); everything that the stream is later may change with it."""

    def __post_init__(self) -> None:
        check_choice("unit", self.unit, Unit)
        check_choice("neighbours", self.neighbours, Neighbours)
        require(whole(self.horizon, 1, 10**6), f"horizon must be a whole number from 1 to 10^6, not {self.horizon}")
        fits = number(self.noise) and 0 <= self.noise <= 1e100
        require(fits, f"noise must be finite and at least 0 (1e100 at most), not {self.noise}")
        require(
            self.neighbours != "increment" or self.channel.increments,
            "a claim for one increment needs senders that are given their step's increment alone",
        )
        whole_episode = self.neighbours != "increment" or self.unit == "episode"
        require(whole_episode, "one increment is protected over all messages of an episode: unit must be episode")

    @property
    def rates(self) -> tuple[float, ...]:
        """Releases that the unit composes, each with the probability that what differs between neighbours enters it."""
        rates = [rate for rate in self.channel.rates(self.horizon) if rate > 0]
        if self.neighbours == "inputs":
            rates = [1.0] * len(rates)
        if self.unit == "message":
            return (max(rates),) if rates else ()
        once = self.neighbours != "inputs" and self.channel.sample_rate == 0
        return tuple(rates[: self.channel.rounds] if once else rates)


@dataclass(frozen=True)
class Budget:
    """A privacy budget for a team: ε of each agent (one number holds for all) at one δ, for one unit."""

    epsilon: tuple[float, ...] = (math.inf,)
    delta: float = 1e-4
    unit: Unit = "episode"
    accountant: AccountantName = "exact"
    neighbours: Neighbours = "inputs"
    """What neighbours differ in: everything that the unit's messages are made from, or one step's increment."""

    def __post_init__(self) -> None:
        several = isinstance(self.epsilon, tuple) and len(self.epsilon) > 0
        require(several, f"a budget needs at least one epsilon, as the tuple (1.0,), not {self.epsilon!r}")
        for epsilon in self.epsilon:
            check_epsilon(epsilon)
        check_delta(self.delta)
        check_choice("unit", self.unit, Unit)
        check_choice("accountant", self.accountant, AccountantName)
        check_choice("neighbours", self.neighbours, Neighbours)
        require(self.neighbours != "transition", "a budget is for neighbours inputs or increment, not transition")
        require(
            self.neighbours == "inputs" or (self.unit, self.accountant) == ("episode", "exact"),
            "neighbours increment goes with unit episode and accountant exact",
        )

    def of(self, agents: int) -> tuple[float, ...]:
        """ε of each of so many agents."""
        count = len(self.epsilon)
        require(count in (1, agents), f"the budget {self.label} names {count} agents, but the team has {agents}")
        return self.epsilon * agents if count == 1 else self.epsilon

    @property
    def private(self) -> bool:
        """Whether any agent has a finite budget."""
        return any(math.isfinite(epsilon) for epsilon in self.epsilon)

    @property
    def covers(self) -> str:
        """What it is a budget of: a message, an episode or an increment."""
        return self.unit if self.neighbours == "inputs" else self.neighbours

    @property
    def label(self) -> str:
        """How the command line writes it: `1`, `inf`, `1:0.1:inf`."""
        return ":".join(f"{epsilon:g}" for epsilon in self.epsilon)

    @classmethod
    def parse(cls, text: str, **others: Any) -> Self:
        """Read `1`, `inf` or `1:0.1:inf`."""
        try:
            return cls(tuple(float(part) for part in text.split(":")), **others)
        except ValueError as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"epsilon must be a number, inf, or one per agent as 1:0.1:inf, not {text!r}") from None


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the agents' networks; the paper's by default."""

    hidden: int = 128
    """Width of actors, and of a learner's other networks."""
    message_hidden: int = 32
    """Hidden width of senders and receivers."""
    message_size: int = 8
    """d, numbers in a message."""
    recurrent_actor: bool = True
    aware: bool = False
    """Whether receivers know the channel's noise scale and decode messages as posteriors, which costs no privacy."""
    products: int = 0
    """Products of the observation and the aggregated message that also enter the actor; 0: none."""
    entry_layer: bool = False
    """Whether actors have a layer before the recurrent one."""
    layers: int = 0
    """Layers of actors before the recurrent one; `entry_layer` is the same as 1."""
    layer_norm: bool = False
    """Whether actors normalise their inputs, and the outputs of the recurrent layer and each layer before it."""
    share_parameters: bool = False
    """Whether all agents have the same parameters."""

    def __post_init__(self) -> None:
        for name in ("hidden", "message_hidden", "message_size"):
            value = getattr(self, name)
            require(whole(value, 1, 4096), f"{name} must be a whole number from 1 to 4096, not {value}")
        require(whole(self.layers, 0, 16), f"layers must be a whole number from 0 to 16, not {self.layers}")
        require(whole(self.products, 0, 4096), f"products must be a whole number from 0 to 4096, not {self.products}")


@dataclass(frozen=True)
class Training:
    """Length of a run and of its evaluations, for every learner."""

    steps: int = 1_000_000
    """Environment steps of a run, rounded up to whole iterations."""
    episodes: int = 4
    """Fresh episodes per iteration, collected side by side."""
    evaluations: int = 100
    """Evaluations over the run, evenly spaced; also the granularity of progress, checkpoints and annealed budgets."""
    evaluation_episodes: int = 512
    """Greedy episodes per evaluation, on common starts that alternate; at most 32 for environments on the host."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value, most = getattr(self, item.name), 2 * 10**9 if item.name == "steps" else 10**5
            require(whole(value, 1, most), f"{item.name} must be a whole number from 1 to {most:,}, not {value}")

    def iterations(self, horizon: int) -> int:
        """Iterations of a run whose episodes have so many steps."""
        return math.ceil(self.steps / (horizon * self.episodes))


@dataclass(frozen=True)
class PrivateTraining:
    """A privacy budget for what training publishes: the team's weights, and every weight on the way to them.

    Neighbours: one episode source more or less. A source is a person or a site, as a function that answers the team's
    actions; it contributes at most `episodes_per_source` episodes, at places that are fixed in advance.
    """

    train_epsilon: float | None = None
    """ε of a source in training. None: training is not private. inf: gradients are clipped, but get no noise."""
    train_delta: float = 1e-5
    """δ of a source in training."""
    train_clip: float = 1.0
    """C, the norm to which the joint gradient of all parameters is clipped in each episode."""
    episodes_per_source: int = 1
    """R, the most episodes that one source contributes."""
    train_noise: NoiseOrigin = "system"
    """Where noise and sampling of private training come from. system: the operating system's randomness, so that two
    runs differ. seed: the run's seed, which repeats a run, and protects nothing from whoever knows the seed."""
    train_microbatch: int = 16
    """Episodes whose gradients are held at once, which bounds memory."""

    def __post_init__(self) -> None:
        if self.train_epsilon is not None:
            check_epsilon(self.train_epsilon, "train_epsilon", "no noise")
        check_delta(self.train_delta, "train_delta")
        clip = self.train_clip  # squares of much smaller numbers would vanish in float32, and norms with them
        require(positive(clip) and 1e-6 <= clip <= 1e6, f"train_clip must be a number from 1e-6 to 1e6, not {clip}")
        most, micro = self.episodes_per_source, self.train_microbatch
        require(whole(most, 1, 1000), f"episodes_per_source must be a whole number from 1 to 1000, not {most}")
        check_choice("train_noise", self.train_noise, NoiseOrigin)
        require(whole(micro, 1), f"train_microbatch must be a whole number from 1, not {micro}")

    @property
    def asked(self) -> bool:
        """Whether training clips and noises the gradient of every episode."""
        return self.train_epsilon is not None


RENAMED_METHODS = {"maddpg": "silent"}
"""Version 0.1 called the silent protocol by the name of the learner."""


class Member(NamedTuple):
    """One run of a population."""

    settings: tuple[tuple[str, float], ...]
    """Of the learner, where it differs from the others'."""
    budget: Budget
    seed: int


@dataclass(frozen=True)
class RunConfig:
    """One population: a task, a method and a learner, trained for all settings, budgets and seeds."""

    task: str
    method: str = "dpmac"
    """The protocol by which agents communicate."""
    learner: str = "maddpg"
    """The training algorithm, independent of the method."""
    task_options: dict[str, Any] = field(default_factory=dict)
    method_options: dict[str, Any] = field(default_factory=dict)
    learner_options: dict[str, Any] = field(default_factory=dict)
    """The learner's own settings; those that are not named are its defaults."""
    channel: Channel = Channel()
    settings: tuple[dict[str, float], ...] = ({},)
    """Sets of the learner's traced settings in which members differ; they share one compiled program."""
    budgets: tuple[Budget, ...] = (Budget(),)
    seeds: tuple[int, ...] = (0,)
    networks: NetworkConfig = NetworkConfig()
    training: Training = Training()
    anneal_from: float = 0.0
    """ε from which every finite budget anneals down (geometrically) to its value; 0 trains at the budget throughout."""
    anneal_share: float = 0.6
    """Share of the run over which budgets anneal."""
    mix: int = 1
    """Above 1, training draws a noise scale for each episode, out of so many from `anneal_from` down to the budget,
    instead of annealing: with receivers that know the scale, one team then serves all budgets between."""
    private: PrivateTraining = PrivateTraining()
    """What the weights may reveal of the sources of training episodes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", RENAMED_METHODS.get(self.method, self.method))
        require(len(self.settings) > 0, "at least one set of settings is needed")
        sets = {tuple(sorted(each.items())) for each in self.settings}
        require(len(sets) == len(self.settings), f"settings must differ from each other, not {self.settings}")
        require(len(self.budgets) > 0, "at least one budget is needed")
        known = all(isinstance(budget, Budget) for budget in self.budgets)
        require(known, f"every budget must be a Budget, not {self.budgets}")
        require(isinstance(self.seeds, tuple), f"seeds must be a tuple, as (0, 1), not {self.seeds!r}")
        require(len(self.seeds) > 0, "at least one seed is needed")
        require(len(set(self.seeds)) == len(self.seeds), f"seeds must differ from each other, not {self.seeds}")
        fits = all(whole(seed, 0, 2**32 - 1) for seed in self.seeds)
        require(fits, f"seeds must lie in [0, 2^32) and be whole, not {self.seeds}")
        require(self.anneal_from >= 0, f"anneal_from must be at least 0, not {self.anneal_from}")
        require(0 < self.anneal_share <= 1, f"anneal_share must lie in (0, 1], not {self.anneal_share}")
        require(whole(self.mix, 1, 1024), f"mix must be a whole number from 1 to 1024, not {self.mix}")
        require(self.mix == 1 or self.anneal_from > 0, "mix needs anneal_from, the epsilon that it starts from")
        require(len(set(self.labels)) == len(self.labels), f"budgets must differ from each other, not {self.labels}")
        require(
            self.channel.increments or all(budget.neighbours == "inputs" for budget in self.budgets),
            "budgets for an increment need a channel whose senders are given their step's increment alone",
        )

    @property
    def members(self) -> list[Member]:
        """All runs: settings outermost, then budgets, then seeds."""
        sets = [tuple(sorted(each.items())) for each in self.settings]
        return [Member(each, budget, seed) for each in sets for budget in self.budgets for seed in self.seeds]

    def alone(self, member: Member) -> Self:
        """The configuration of one member by itself."""
        return dataclasses.replace(
            self,
            learner_options={**self.learner_options, **dict(member.settings)},
            settings=({},),
            budgets=(member.budget,),
            seeds=(member.seed,),
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each budget: its ε, and what it is an ε of where the budgets do not agree on that."""
        kinds = {(each.delta, each.unit, each.accountant, each.neighbours) for each in self.budgets if each.private}
        if len(kinds) <= 1:
            return tuple(budget.label for budget in self.budgets)
        return tuple(
            f"{budget.label} {budget.covers} {budget.accountant} {budget.delta:g}" if budget.private else budget.label
            for budget in self.budgets
        )


def to_json(value: Any) -> Any:
    """Plain JSON data of a configuration or result; infinity becomes the string "inf", NaN the string "nan"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_json(cls: Any, data: Any) -> Any:
    """Rebuild a configuration of this class from `to_json`'s data; anything that does not fit is `BadInput`.

    >>> from_json(Budget, json.loads(dumps(Budget((1.0, math.inf))))) == Budget((1.0, math.inf))
    True
    """
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        require(isinstance(data, dict), f"{cls.__name__} must be an object, not {data!r}")
        hints = typing.get_type_hints(cls)
        unknown = set(data) - set(hints)
        require(not unknown, f"{cls.__name__} has no field {', '.join(sorted(unknown))}")
        needed = [item.name for item in dataclasses.fields(cls) if item.name not in data and not has_default(item)]
        require(not needed, f"{cls.__name__} needs {', '.join(needed)}")
        try:
            return cls(**{name: of_field(name, hints[name], item) for name, item in data.items()})
        except TypeError as error:
            raise BadInput(f"{cls.__name__}: {error}") from None
    origin, arguments = typing.get_origin(cls), typing.get_args(cls)
    if origin is tuple:
        require(isinstance(data, list), f"expected a list, not {data!r}")
        return tuple(from_json(arguments[0], item) for item in data)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else from_json(arguments[0], data)
    if origin is Literal:
        require(data in arguments, f"expected one of {arguments}, not {data!r}")
        return data
    if cls is float:
        require(
            data in ("inf", "-inf", "nan") or (isinstance(data, (int, float)) and not isinstance(data, bool)),
            f"expected a number, not {data!r}",
        )
        return float(data)
    if cls in PLAIN:
        require(type(data) is cls, f"expected {PLAIN[cls]}, not {data!r}")
        return data
    require(origin is not dict or isinstance(data, dict), f"expected an object, not {data!r}")
    return data


PLAIN = {int: "a whole number", bool: "true or false", str: "text"}


def of_field(name: str, cls: Any, data: Any) -> Any:
    """`from_json` of a field; what is wrong in it is said with its name."""
    try:
        return from_json(cls, data)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None


def has_default(item: dataclasses.Field) -> bool:
    return item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING


def run_config(data: Any) -> RunConfig:
    """A run's configuration from JSON data, that of version 0.1 included."""
    return from_json(RunConfig, upgraded(data) if isinstance(data, dict) and "learning" in data else data)


FORMER_TASKS = {"pp": {"fence": "replaces"}}
FORMER_METHODS = {"i2c": {"form": "early"}}
"""Options that name what version 0.1 did without being asked, where defaults have changed since."""


def upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """A configuration of version 0.1, which had one learner, as this version writes it."""
    data = dict(data)
    try:
        settings, networks = dict(data.pop("learning")), dict(data["networks"])
        training = {item.name: settings.pop(item.name) for item in dataclasses.fields(Training)}
        settings |= {name: networks.pop(name) for name in ("recurrent_critic", "clock")}
        settings["tau"] = settings.pop("target_rate")
        settings["updates_per_episode"] = settings.pop("updates") / training["episodes"]
        settings["bootstrap_horizon"] = not settings.pop("terminal_horizon")
        data["task_options"] = FORMER_TASKS.get(data["task"], {}) | data["task_options"]
        data["method_options"] = FORMER_METHODS.get(data["method"], {}) | data["method_options"]
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise BadInput(f"a configuration of version 0.1 cannot be read: {error!r}") from None
    return data | {"learner": "maddpg", "learner_options": settings, "networks": networks, "training": training}


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON text of a configuration or result."""
    return json.dumps(to_json(value), indent=indent, allow_nan=False)


def loads(text: str | bytes) -> Any:
    """The data of JSON text. A key that stands twice, or text that nests too deeply, is a `ValueError`.

    >>> loads('{"seeds": [0], "seeds": [1]}')
    Traceback (most recent call last):
    ValueError: the key 'seeds' stands twice
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"the key {key!r} stands twice")
            found[key] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
