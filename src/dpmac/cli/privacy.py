"""`dpmac privacy calibrate | account | audit | explain`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpmac import cli, config
from dpmac.config import Budget, Channel, Mechanism, Neighbours, Release, Unit

COMMANDS = {
    "calibrate": "the noise that meets a budget",
    "account": "what a given noise costs",
}


def run(argv: Sequence[str]) -> None:
    cli.choose("dpmac privacy", COMMANDS, argv, lambda name: globals()[name])


@dataclass(frozen=True)
class ChannelOptions:
    """What leaves an agent; the meaning of each is that of `config.Channel`."""

    delta: float = 1e-4
    """δ, strictly between 0 and 1."""
    unit: Unit = "episode"
    """What the budget covers: one message, or a whole episode's messages."""
    horizon: int = 25
    """T, steps of an episode."""
    mechanism: Mechanism = "gaussian"
    """gaussian, response (k-ary randomised response) or code (one of k points plus noise)."""
    clip_norm: float = 0.5
    """C, the largest norm of a message; Δ = 2C."""
    symbols: int = 3
    """k of response and code."""
    copies: int = 1
    """Noisy copies of one message."""
    period: int = 1
    """Steps from one release to the next; 0: once."""
    sample_rate: float = 0.0
    """γ₁ of a sender that draws a random subset of its transitions; 0: the current one."""
    recipient_rate: float = 1.0
    """γ₂, the share of the others that receive a message."""
    neighbours: Neighbours = "inputs"
    """What may differ: all inputs of the unit, or one transition of a memoryless sender."""
    json: bool = False
    """Print JSON."""

    @property
    def channel(self) -> Channel:
        names = ("mechanism", "clip_norm", "symbols", "copies", "period", "sample_rate", "recipient_rate")
        return Channel(**{name: getattr(self, name) for name in names})

    def release(self, noise: float) -> Release:
        return Release(self.channel, noise, self.horizon, self.unit, self.neighbours)

    @property
    def noise_name(self) -> str:
        return "flip_probability" if self.mechanism == "response" else "sigma"


@dataclass(frozen=True)
class Calibrate(ChannelOptions):
    """The least noise that meets a budget, and what is true of it."""

    epsilon: str = "1"
    """ε, or one for each agent as 1:0.1:inf."""
    accountant: config.AccountantName = "exact"
    """exact, or paper: the theorem's formula at the released settings."""


def calibrate(argv: Sequence[str]) -> None:
    from dpmac import privacy

    options = cli.parse(
        Calibrate, argv, "dpmac privacy calibrate", "dpmac privacy calibrate --epsilon 1 --unit episode --horizon 25"
    )
    budget = Budget.parse(options.epsilon, delta=options.delta, unit=options.unit, accountant=options.accountant)
    config.require(
        options.neighbours == "inputs" or options.accountant == "exact",
        "--neighbours transition goes with --accountant exact",
    )
    answers = []
    levels = privacy.noise_levels(budget, options.channel, len(budget.epsilon), options.horizon)
    for agent, level in enumerate(levels):
        entry = privacy.statement.entry(budget, options.channel, options.horizon, agent, level)
        if options.neighbours == "transition":
            entry = one_transition(options, entry)
        warn(entry.pop("warnings"))
        answers.append({options.noise_name: entry.pop("noise"), **entry})
    cli.emit(answers if len(answers) > 1 else answers[0], options.json, lambda: "\n\n".join(map(describe, answers)))


def one_transition(options: Calibrate, entry: dict[str, Any]) -> dict[str, Any]:
    """The same claim about one transition of a memoryless sender, where sampling counts."""
    from dpmac import privacy

    noise = privacy.calibrate(
        options.channel, entry["epsilon"], options.delta, options.horizon, options.unit, options.neighbours
    )
    exact = privacy.epsilon(options.release(noise), options.delta)
    text = "one transition of one agent, whose sender keeps no memory, all else the same"
    return {
        **{name: value for name, value in entry.items() if not name.startswith("exact_epsilon_")},
        "noise": noise,
        "neighbours": text,
        "exact_epsilon": exact,
        "valid": exact <= entry["epsilon"],
    }


@dataclass(frozen=True)
class Account(ChannelOptions):
    """What a given noise costs: ε at δ, for the unit."""

    sigma: float | None = None
    """σ of the gaussian and code channels."""
    flip: float | None = None
    """Flip probability of response."""


def account(argv: Sequence[str]) -> None:
    from dpmac import privacy

    options = cli.parse(
        Account, argv, "dpmac privacy account", "dpmac privacy account --sigma 0.66 --unit episode --horizon 25"
    )
    wanted, other = ("flip", "sigma") if options.mechanism == "response" else ("sigma", "flip")
    noise = getattr(options, wanted)
    config.require(noise is not None, f"--{wanted} is needed for the {options.mechanism} channel")
    config.require(getattr(options, other) is None, f"--{other} is not for the {options.mechanism} channel")
    release = options.release(noise)
    answer = {
        "epsilon": privacy.epsilon(release, options.delta),
        "delta": options.delta,
        "unit": options.unit,
        "neighbours": options.neighbours,
        "mechanism": options.mechanism,
        options.noise_name: noise,
        "pure_epsilon": privacy.pure_epsilon(release),
    }
    cli.emit(answer, options.json, lambda: describe(answer))


def warn(messages: Sequence[str]) -> None:
    for message in messages:
        print(f"warning: {message}", file=sys.stderr)


def describe(answer: dict[str, Any]) -> str:
    """One line for each field; numbers with six digits."""
    rows = [(name, value) for name, value in answer.items() if value != []]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text_of(value)}" for name, value in rows)


def text_of(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "; ".join(f"{item['name']}: {item['value']:.4g} against {item['limit']:.4g}" for item in value)
    return str(value)
