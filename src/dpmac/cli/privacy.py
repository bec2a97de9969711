"""`dpmac privacy calibrate | account | audit | audit-training | eavesdrop | explain | stream | ledger`."""

import dataclasses
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from dpmac import cli
from dpmac.cli.ledger import ledger  # noqa: F401 (one of the commands)
from dpmac.config import (
    AccountantName,
    Budget,
    Channel,
    Neighbours,
    Release,
    Unit,
    check_delta,
    check_epsilon,
    check_seed,
    require,
    whole,
)
from dpmac.privacy import mechanisms

ReleasePath = Literal["deployed", "simulated", "both"]
"""What is sampled: the measurement of deployed agents, with noise of the operating system, or channels as in runs."""

COMMANDS = {
    "calibrate": "the least noise that meets a budget",
    "account": "the epsilon of a given noise",
    "audit": "a lower bound on epsilon, from samples of a run or of a channel",
    "audit-training": "a lower bound on the epsilon of private training, from canary sources",
    "eavesdrop": "how often secrets can be guessed from the messages of a run",
    "explain": "the paper's claim for a budget, beside the exact epsilon",
    "stream": "epsilon of a secret that changes, for an increment and for an episode",
    "ledger": "verify: check a ledger's hash chain, and show what was spent",
}


def run(argv: Sequence[str]) -> None:
    cli.choose("dpmac privacy", COMMANDS, argv, lambda name: globals()[name.replace("-", "_")])


@dataclass(frozen=True)
class ChannelOptions:
    """What leaves an agent; the meaning of each option is that of `config.Channel`."""

    delta: float = 1e-4
    """δ, strictly between 0 and 1."""
    unit: Unit = "episode"
    """What the budget covers: one message, or all messages of an episode."""
    horizon: int = 25
    """T, steps of an episode."""
    mechanism: Annotated[str, tyro.conf.arg(help=f"Mechanism: {mechanisms.allowed()}.")] = Channel.mechanism
    clip_norm: float = 0.5
    """C, the largest norm of a message; the sensitivity is Δ = 2C."""
    symbols: int = 3
    """k of mechanisms that send symbols, and of the secret in `explain`."""
    copies: int = 1
    """Noisy copies of one message."""
    period: int = 1
    """Steps from one release to the next; 0: one release an episode."""
    sample_rate: float = 0.0
    """γ₁ of a sender that samples a subset of its transitions; 0: it uses the current one."""
    recipient_rate: float = 1.0
    """γ₂, the share of the other agents that receive a message."""
    neighbours: Neighbours = "inputs"
    """What differs between neighbours: all inputs of the unit, one transition of a sender without hidden state, or what
    one step adds to a stream whose sender is given nothing else."""
    stream_decay: float = Channel.stream_decay
    """ρ of the running sums of the mechanisms correlated and sums."""
    json: bool = False
    """Print JSON."""

    has_secret: ClassVar[bool] = False
    """Whether `symbols` also says how many values a secret has."""

    @property
    def channel(self) -> Channel:
        names = ("mechanism", "clip_norm", "symbols", "copies", "period", "sample_rate", "recipient_rate")
        names += ("stream_decay",)
        known = {name: getattr(self, name) for name in names}
        channel = Channel(**known, increments=self.neighbours == "increment")
        mechanism = mechanisms.of(channel)
        unused = [] if mechanism.clips else ["clip_norm"]
        unused += [] if mechanism.remembers else ["stream_decay"]
        unused += [] if mechanism.alphabet or self.has_secret else ["symbols"]
        for name in unused:
            said = f"--{name.replace('_', '-')} is not for the mechanism {self.mechanism}"
            require(getattr(self, name) == getattr(ChannelOptions, name), said)
        return channel

    def release(self, noise: float) -> Release:
        return Release(self.channel, noise, self.horizon, self.unit, self.neighbours)

    @property
    def noise_name(self) -> str:
        return mechanisms.of(self.channel).noise_name


@dataclass(frozen=True)
class Calibrate(ChannelOptions):
    """Compute the least noise that meets a budget, and its exact ε."""

    epsilon: str = "1"
    """ε, or one for each agent as 1:0.1:inf."""
    accountant: AccountantName = "exact"
    """exact: the exact accountant. paper: the theorem's formula at the released settings."""

    @property
    def budget(self) -> Budget:
        neighbours = "increment" if self.neighbours == "increment" else "inputs"
        known: dict[str, Any] = {"delta": self.delta, "unit": self.unit, "accountant": self.accountant}
        return Budget.parse(self.epsilon, **known, neighbours=neighbours)


def calibrate(argv: Sequence[str]) -> None:
    from dpmac import privacy

    example = "dpmac privacy calibrate --epsilon 1 --unit episode --horizon 25"
    options = cli.parse(Calibrate, argv, "dpmac privacy calibrate", example)
    budget, channel, horizon = options.budget, options.channel, options.horizon
    transition = options.neighbours == "transition"
    require(not transition or options.accountant == "exact", "--neighbours transition goes with --accountant exact")
    answers = []
    for agent, scale in enumerate(privacy.noise_scales(budget, channel, len(budget.epsilon), horizon)):
        entry = privacy.statement.entry(budget, channel, horizon, agent, scale)
        entry = one_transition(options, entry) if transition else entry
        for message in entry.pop("warnings"):
            print(f"warning: {message}", file=sys.stderr)
        answers.append({options.noise_name: entry.pop("noise"), **entry})
    cli.emit(answers if len(answers) > 1 else answers[0], options.json, lambda: "\n\n".join(map(describe, answers)))


def one_transition(options: Calibrate, entry: dict[str, Any]) -> dict[str, Any]:
    """The same claim about one transition of a memoryless sender, where sampling counts."""
    from dpmac import privacy

    channel, horizon = options.channel, options.horizon
    noise = privacy.calibrate(channel, entry["epsilon"], options.delta, horizon, options.unit, "transition")
    exact = privacy.epsilon(options.release(noise), options.delta)
    return {
        **{name: value for name, value in entry.items() if not name.startswith("exact_epsilon_")},
        "noise": noise,
        "neighbours": "one transition of one agent, whose sender keeps no memory, all else the same",
        "exact_epsilon": exact,
        "valid": exact <= entry["epsilon"],
    }


@dataclass(frozen=True)
class Account(ChannelOptions):
    """Compute the exact ε of a given noise at δ, for the unit."""

    sigma: float | None = None
    """σ of the gaussian, code, correlated and sums channels."""
    flip: float | None = None
    """Flip probability of response."""
    ratio: float | None = None
    """Likelihood ratio of subset."""
    noise: float | None = None
    """Noise scale of a mechanism of your own."""

    def noise_scale(self) -> float:
        """The one noise scale that was given, under the name that the mechanism has for it."""
        given = {item.name: getattr(self, item.name) for item in dataclasses.fields(Account)[-4:]}
        option = mechanisms.of(self.channel).option
        wanted = given.pop(option)
        require(wanted is not None, f"--{option} is needed for the {self.mechanism} channel")
        for name, value in given.items():
            require(value is None, f"--{name} is not for the {self.mechanism} channel")
        return wanted


def account(argv: Sequence[str]) -> None:
    from dpmac import privacy

    example = "dpmac privacy account --sigma 0.66 --unit episode --horizon 25"
    options = cli.parse(Account, argv, "dpmac privacy account", example)
    release = options.release(options.noise_scale())
    answer = {
        "epsilon": privacy.epsilon(release, options.delta),
        "delta": options.delta,
        "unit": options.unit,
        "neighbours": options.neighbours,
        "mechanism": options.mechanism,
        options.noise_name: release.noise,
        "pure_epsilon": privacy.pure_epsilon(release),
    }
    cli.emit(answer, options.json, lambda: describe(answer))


@dataclass(frozen=True)
class Audit(Calibrate):
    """Compare the claimed ε with a lower bound, for a trained run, or for a shipped channel at its worst-case inputs.

    The verdict "refuted" means that the claimed ε is wrong. All verdicts of one call hold together with the stated
    confidence. For a run, every private agent of every team is audited: by whole transcripts of two canaries through
    its trained sender, and by checks of every message of real episodes. A run has its own channel and claim, so options
    of a channel are only for audits without a run. The exit code is 1 if a claim is refuted or a check fails.
    """

    folder: tyro.conf.Positional[Path | None] = None
    """Folder of a run."""
    path: ReleasePath | None = None
    """Which releases to audit: those of deployed agents, simulated ones, or both. By default both for a run, and
    simulated ones for a channel."""
    episodes: int = 10_000
    """Transcripts counted for each of the two neighbouring inputs."""
    deployed_episodes: int = 2_000
    """The same for deployed agents, where one transcript takes some milliseconds."""
    confidence: float = 0.99
    """Joint confidence of all verdicts."""
    size: int = 8
    """d, the numbers in a message of the gaussian channel."""
    distribution_free: bool = False
    """Assume nothing about the noise. This needs about a million episodes to come close to ε."""
    seed: int = 0
    """Seed of the simulation."""


def audit(argv: Sequence[str]) -> None:
    from dpmac import privacy

    example = "dpmac privacy audit runs/ccn    or    dpmac privacy audit --epsilon 1 --accountant paper"
    options = cli.parse(Audit, argv, "dpmac privacy audit", example)
    check_seed(options.seed)
    few = options.deployed_episodes
    require(whole(few, 50, 10**6), f"deployed-episodes must be a whole number from 50 to 10^6, not {few}")
    if options.folder is not None:
        audit_run(options, options.folder)
        return
    narrow = options.neighbours == "transition"
    require(not narrow, "an audit changes all inputs, or one increment: --neighbours inputs or increment")
    check_size(options.size)
    budget = options.budget
    levels = privacy.noise_scales(budget, options.channel, len(budget.epsilon), options.horizon)
    require(all(levels), "an audit needs noise: epsilon must be finite")
    from dpmac.analysis import audit

    paths = audit.paths_of(options.path or "simulated", options.channel)
    confidence = privacy.family_confidence(len(levels) * len(paths), options.confidence)
    answers = []
    for agent, (epsilon, noise) in enumerate(zip(budget.epsilon, levels, strict=True)):
        release = options.release(noise)
        for path in paths:
            count = options.episodes if path == "simulated" else options.deployed_episodes
            bound = audit.audit_channel(
                release, options.size, options.delta, count, confidence, options.seed, options.distribution_free, path
            )
            found = {"agent": agent, "path": path, **privacy.verdict(epsilon, bound)}
            answers.append({**found, "exact_epsilon": privacy.epsilon(release, options.delta)})
    conclude(answers, options.json, "refuted")


def check_size(size: int) -> None:
    require(whole(size, 1, 4096), f"size must be a whole number from 1 to 4096, not {size}")


def conclude(answers: list[dict[str, Any]], as_json: bool, bad: str) -> None:
    """Print answers; the exit code is 1 where one of them has the bad verdict, or a check that fails."""
    cli.emit(answers, as_json, lambda: tabulated(answers))
    if any(answer["verdict"] == bad or answer.get("failed_checks") for answer in answers):
        raise SystemExit(1)


OF_A_RUN = ("folder", "path", "episodes", "deployed_episodes", "confidence", "seed", "json")


def audit_run(options: Audit, folder: Path) -> None:
    """Audit the teams of a run's folder."""
    for item in dataclasses.fields(Audit):
        given = item.name not in OF_A_RUN and getattr(options, item.name) != item.default
        require(not given, f"--{item.name.replace('_', '-')} describes a channel; a run has its own")
    from dpmac.analysis import audit
    from dpmac.cli import progress
    from dpmac.runner import population

    progress.use_cache()
    loaded, path = population.load(folder), options.path or "both"
    found = audit.audit(
        loaded,
        options.episodes,
        options.confidence,
        options.seed,
        path,
        options.deployed_episodes,
        progress.nothing if options.json else progress.tell,
    )
    conclude(found, options.json, "refuted")


@dataclass(frozen=True)
class AuditTraining:
    """Compare the ε that a run claims for its private training with a lower bound. A training with the same settings
    includes each canary source by a coin flip (Steinke, Nasr, Jagielski 2023). Checks test that absent sources change
    nothing, and that episodes are sampled as claimed. The exit code is 1 if a claim is refuted.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a run."""
    updates: int = 500
    """Updates of that training, if each episode enters one update; with a replay, the lifetime of an episode counts."""
    canaries: int = 1
    """Canary sources: new ones in every update, or with a replay some of the first fresh episodes."""
    confidence: float = 0.99
    """Confidence of each verdict."""
    seed: int = 0
    """Seed of the training and of the coins."""
    json: bool = False
    """Print JSON."""


def audit_training(argv: Sequence[str]) -> None:
    example = "dpmac privacy audit-training runs/private"
    options = cli.parse(AuditTraining, argv, "dpmac privacy audit-training", example)
    from dpmac.analysis import audit_training
    from dpmac.cli import progress
    from dpmac.results import store
    from dpmac.runner.statement import check_statement
    from dpmac.runner.train import Program

    progress.use_cache()
    config = store.load_config(options.folder)
    check_statement(options.folder, config, Program.of(config))
    found = audit_training.audit(config, options.updates, options.canaries, options.confidence, options.seed)
    conclude(found, options.json, "refuted")


@dataclass(frozen=True)
class Eavesdrop:
    """Train eavesdroppers on each sender of a run. They hear all released messages of an episode, and guess the
    sender's secret in other episodes. One hears a single sender, another (`hears`: all) hears every sender. Secrets are
    resampled so that all are equally likely.

    `cap` is an upper bound on the accuracy of any eavesdropper at the noise of the run. If one surely exceeds it, the
    verdict is "violated" and the exit code is 1. For two secrets the cap can be reached; for more, the best may stay
    below it. `cap_of_claim` is the cap of the claimed ε, read as an ε of the whole episode.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a run."""
    path: ReleasePath = "both"
    """Which releases to hear: those of deployed agents, simulated ones, or both."""
    episodes: int = 16_384
    """Episodes to hear, for training and for testing."""
    deployed_episodes: int = 4_096
    """The same for deployed agents, where one transcript takes some milliseconds."""
    step: int = 0
    """Step whose secrets are guessed, for secrets that change, such as positions. Only secrets of the first step have a
    cap."""
    confidence: float = 0.99
    """Joint confidence of all verdicts."""
    seed: int = 0
    """Seed of the simulation."""
    json: bool = False
    """Print JSON."""


def eavesdrop(argv: Sequence[str]) -> None:
    options = cli.parse(Eavesdrop, argv, "dpmac privacy eavesdrop", "dpmac privacy eavesdrop runs/ccn --json")
    check_seed(options.seed)
    from dpmac.analysis import eavesdrop
    from dpmac.cli import progress
    from dpmac.runner import population

    progress.use_cache()
    loaded = population.load(options.folder)
    found = eavesdrop.eavesdrop(
        loaded,
        options.episodes,
        options.step,
        options.confidence,
        options.seed,
        options.path,
        options.deployed_episodes,
        tell=progress.nothing if options.json else progress.tell,
    )
    answers = [entry for entries in found for entry in entries]
    require(bool(answers), "no agent of this run has a secret with two values, or they are too rare; try more episodes")
    conclude(answers, options.json, "violated")


@dataclass(frozen=True)
class Explain(Calibrate):
    """Compare the paper's claim for a budget with the exact ε. The eavesdropper hears the whole episode."""

    has_secret = True
    size: int = 8
    """d, the numbers in a message of the gaussian channel."""
    plot: str | None = None
    """Also draw these numbers over ε into a file (.png, .svg or .pdf)."""


def explain(argv: Sequence[str]) -> None:
    from dpmac import privacy

    example = "dpmac privacy explain --epsilon 1 --unit message --plot explain.png"
    options = cli.parse(Explain, argv, "dpmac privacy explain", example)
    require(options.neighbours == "inputs", "explain is about all inputs: --neighbours inputs")
    check_size(options.size)
    told = privacy.explain(options.budget, options.channel, options.horizon, options.size)
    if options.plot:
        from dpmac.figures import privacy as drawing

        drawing.plot(options.plot, options.budget, options.channel, options.horizon, options.size)
    cli.emit(told, options.json, lambda: side_by_side(told))


def side_by_side(told: dict[str, Any]) -> str:
    """The paper's column beside the exact one, then the theorem's conditions."""
    kinds = [kind for kind in ("paper", "exact") if kind in told]
    lines = [
        f"epsilon {told['epsilon']:g}, delta {told['delta']:g}, for one {told['unit']}, T = {told['horizon']}",
        f"{'':<24}" + "".join(f"{kind:>14}" for kind in kinds),
    ]
    for name in told["exact"]:
        lines.append(f"{name:<24}" + "".join(f"{text_of(told[kind][name]):>14}" for kind in kinds))
    if "paper" in told:
        paper = told["paper"]
        lines += ["", f"the paper's bound for an episode: {paper['naive_episode_epsilon']:.4g}", "its side conditions:"]
        for item in paper["side_conditions"]:
            holds, numbers = "holds" if item["holds"] else "FAILS", f"{item['value']:.4g} against {item['limit']:.4g}"
            lines.append(f"  {holds}  {item['name']:<16}  {numbers}")
        found = paper["feasible"]
        pair = f"gamma1 = {found['gamma1']:.4g}, beta = {found['beta']:.3g}" if found else "none"
        lines.append(f"(gamma1 >= 1/T, beta) that would meet those on sigma and alpha: {pair}")
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """Show how well a receiver can follow a stream of releases at a budget: for neighbours that differ in one step's
    increment and for neighbours that differ in the whole episode, with plain noise and with noise that is correlated
    over time."""

    epsilon: tuple[float, ...] = (1.0, 3.0, 10.0)
    """Budgets."""
    delta: float = 1e-4
    """δ, strictly between 0 and 1."""
    decay: float = 0.98
    """ρ of the stream s_t = ρ·s_{t−1} + u_t."""
    horizon: int = 25
    """T, steps of an episode."""
    cut: float = 1.0
    """Bound at which increments are cut, in their standard deviations."""
    plot: str = ""
    """Also draw the errors over ε into this file (.png, .svg or .pdf)."""
    json: bool = False
    """Print JSON."""


def stream(argv: Sequence[str]) -> None:
    from dpmac.privacy import streams

    example = "dpmac privacy stream --epsilon 3 10 --decay 0.98 --plot stream.svg"
    options = cli.parse(StreamOptions, argv, "dpmac privacy stream", example)
    check_delta(options.delta)
    require(bool(options.epsilon), "name at least one epsilon")
    for epsilon in options.epsilon:
        check_epsilon(epsilon)
        require(epsilon < float("inf"), "a stream without noise is followed without error; name finite budgets")
    shape = streams.Stream(options.decay, options.horizon, options.cut)
    rows = [row for epsilon in options.epsilon for row in streams.rows(shape, epsilon, options.delta)]
    if options.plot:
        from dpmac.figures import privacy as drawing

        drawing.plot_streams(options.plot, shape, options.delta)
    silence = float(shape.covariance.trace()) / options.horizon
    told = {"delta": options.delta, **shape._asdict(), "silence": silence, "rows": rows}
    cli.emit(told, options.json, lambda: stream_table(rows, silence))


def stream_table(rows: list[dict[str, Any]], silence: float) -> str:
    head = ("epsilon", "neighbours differ in", "noise", "sigma", "error", "epsilon of the episode")
    lines = ["{:>7}  {:<20}  {:<10}  {:>8}  {:>6}  {:>22}".format(*head)]
    for row in rows:
        numbers = f"{row['sigma']:8.3f}  {row['error']:6.3f}  {row['episode_epsilon']:22.1f}"
        what = {"increment": "one increment", "episode": "the whole episode"}[row["reading"]]
        kind = {"plain": "plain", "root": "over time"}[row["kind"]]
        lines.append(f"{row['epsilon']:7g}  {what:<20}  {kind:<10}  {numbers}")
    return "\n".join([*lines, f"error: mean squared, {silence:.3f} without any release"])


def tabulated(answers: list[dict[str, Any]]) -> str:
    """Many answers: what is the same in all of them, a row for each with the rest, and how many have which verdict."""
    if len(answers) == 1:
        return describe(answers[0])
    names = dict.fromkeys(name for answer in answers for name in answer)
    found = {name: [answer.get(name, []) for answer in answers] for name in names}
    same = {name: values[0] for name, values in found.items() if all(value == values[0] for value in values)}
    rest = sorted(names.keys() - same.keys(), key=lambda name: (isinstance(found[name][0], list), [*names].index(name)))
    table = [rest, *([cell_of(found[name][row]) for name in rest] for row in range(len(answers)))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    counts = Counter(answer["verdict"] for answer in answers)
    said = ", ".join(f"{'all' if len(counts) == 1 else count} {verdict}" for verdict, count in counts.items())
    shared = {name: value for name, value in same.items() if name != "verdict"}
    return "\n".join([describe(shared), "", *lines, "", f"{len(answers)} verdicts: {said}"])


def cell_of(value: Any) -> str:
    """A value in a table: numbers with four digits, and a mark where there is none."""
    return f"{value:.4g}" if isinstance(value, float) else "-" if value in ([], None) else text_of(value)


def describe(answer: dict[str, Any]) -> str:
    """One line for each field; numbers with six digits."""
    rows = [(name, value) for name, value in answer.items() if value != []]
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:<{width}}  {text_of(value)}" for name, value in rows)


def text_of(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "; ".join(map(text_of, value))
    if isinstance(value, dict):
        return f"{value['name']}: {value['value']:.4g} against {value['limit']:.4g}"
    return str(value)
