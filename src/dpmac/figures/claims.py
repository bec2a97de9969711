"""What the saved scores say of every sentence of the paper that compares methods or budgets.

No verdict depends on anything but the readings, margins and rules here. They changed after the runs of version 0.1 were
known, and were fixed before those were repeated; what changed after that stands in docs/reproduction.md. Beside the
verdicts stands how they would move under other readings.

An effect is a difference of mean final returns (on the common starts) with Welch's 95 % interval over seeds, in units
of what messages are worth on the task: what the best method with free messages has more than MADDPG. Where that is less
than 3 % of the range between the random and the scripted policy, or not certain, the unit is that range. Margins δ and
Δ are 10 % and 30 % of what messages are worth, or 3 % and 10 % of the range.

    rule             holds when                          opposite holds when     no such difference when
    above            interval above 0                    interval below 0        interval inside (−δ, δ)
    better           interval above 0 and effect ≥ δ     … below 0, effect ≤ −δ  interval below δ
    much better      interval above 0 and effect ≥ Δ     … below 0, effect ≤ −δ  interval below Δ
    comparable       interval inside (−δ, δ)             interval outside of it
    not worse        interval above −δ                   interval below −δ
    little worse     interval above −Δ                   interval below −Δ
    differs          interval off 0 and |effect| ≥ m                             interval inside (−m, m)
    little learned   interval below ¼                    interval above ¼
    kept             effect ≥ 0                          effect < 0

`differs` speaks of the sender's learned standard deviation, in powers of two, with m = log₂ 1.25. `little learned`
speaks of what a team gained over the random policy, as a share of what MADDPG gained. `kept` speaks of the claimed ε
over the true one, in powers of two. A loss is what teams earn with free messages less what they earn with noise, seed
by seed. What messages tell is the share of the variance of another's observation that they add to what a receiver can
explain linearly; its margins are those of the range. Anything else is undecided. The sign of a finding is that of its
effect, in the direction in which the sentence compares. A sentence with several parts holds if all parts do; if not,
the opposite of one, or else that there is no such difference in one, decides. Where it speaks of most cases, more than
half must hold, and at least half decide against it. Intervals are not corrected for the number of comparisons.
"""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from dpmac.experiments import PROFILES, Cell
from dpmac.figures import catalogue
from dpmac.figures.sentences import ALL, CLAIMS, Claim, Part, Rule, Series
from dpmac.results import stats
from dpmac.results.records import Record, Results
from dpmac.results.stats import Estimate

Verdict = Literal["holds", "opposite holds", "no such difference", "undecided", "not tested"]

SPREAD = float(np.log2(1.25))
"""The smallest change of the learned standard deviation that counts."""
LITTLE = 0.25
"""Share of MADDPG's gain over the random policy up to which a team "nearly fails to learn"."""
NOTHING = Estimate(np.nan, np.nan, np.nan)


class Margins(NamedTuple):
    """δ and Δ: what two teams may differ by and still be alike, and what "a large margin" and "serious" mean."""

    alike: float
    large: float


OF_RANGE, OF_WORTH = Margins(0.03, 0.10), Margins(0.10, 0.30)


class Unit(NamedTuple):
    """What effects on a task are measured in."""

    size: float
    margins: Margins
    words: str
    random: float
    """The return of the random policy."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """How sentences are read; the fields' defaults are what verdicts rest on."""

    strictness: float = 1.0
    """By which both margins are multiplied."""
    worth: bool = True
    """Whether effects are in units of what messages are worth, where they are worth something."""
    tenth: bool = False
    """Whether final returns are those of the last tenth of the learning curves."""
    most: bool | None = None
    """Whether most comparisons of a sentence decide: as it says, or for all sentences alike."""
    without: tuple[str, ...] = ()
    """Methods and tasks that are left out of all comparisons."""
    once: bool = False
    """Whether sentences that make the same comparisons count once."""
    variant: str = ""
    """The runs that are judged, if not the plain ones."""
    confidence: float = stats.CONFIDENCE
    """Of the intervals."""

    def unit(self, results: Results, task: str) -> Unit | None:
        """The unit of effects on a task; nothing where reference returns are missing."""
        scale = catalogue.scale_of(results, task, self.variant)
        if scale is None:
            return None
        worth = catalogue.worth(results, task, self.variant) if self.worth else None
        if worth is not None and worth.low > 0 and worth.value >= OF_RANGE.alike * scale.range:
            return Unit(worth.value, self.margins(OF_WORTH), "of what messages are worth", scale.random)
        return Unit(scale.range, self.margins(OF_RANGE), "of the range", scale.random)

    def margins(self, margins: Margins) -> Margins:
        return Margins(*(self.strictness * margin for margin in margins))


FIXED = Reading()

READINGS: dict[str, Reading] = {
    "as fixed": FIXED,
    "margins half as wide": Reading(strictness=0.5),
    "margins twice as wide": Reading(strictness=2.0),
    "effects as shares of the range everywhere": Reading(worth=False),
    "returns of the last tenth of the curves": Reading(tenth=True),
    "all comparisons must hold": Reading(most=False),
    "most comparisons decide": Reading(most=True),
    "without I2C": Reading(without=("i2c",)),
    "without PP": Reading(without=("pp",)),
    "without I2C and PP": Reading(without=("i2c", "pp")),
    "99 % intervals": Reading(confidence=0.99),
    "sentences that say the same counted once": Reading(once=True),
    **{f"{words} (profile {name})": Reading(variant=name) for name, words in PROFILES.items()},
}
"""Readings under which the count of verdicts is shown; those of runs that were not made are left out."""


class Finding(NamedTuple):
    """What the scores say of one comparison."""

    part: Part
    verdict: Verdict
    effect: Estimate
    """In the unit of the rule."""
    seeds: int
    unit: str
    margin: float
    """δ in that unit; 0 where the rule has none."""

    @property
    def sign(self) -> str:
        """The direction of the effect, seen from the sentence; 0 where its interval has both."""
        return "+" if self.effect.low > 0 else "−" if self.effect.high < 0 else "0"


class Judgement(NamedTuple):
    """What the scores say of a sentence."""

    claim: Claim
    verdict: Verdict
    findings: tuple[Finding, ...]

    @property
    def tested(self) -> bool:
        """Whether all of its comparisons have runs."""
        return all(finding.seeds for finding in self.findings)

    @property
    def signs(self) -> str:
        """How many effects go the sentence's way, the other way, and neither: `+3 −1 0×2`."""
        found = [finding.sign for finding in self.findings if finding.seeds]
        parts = [f"{sign}{found.count(sign)}" for sign in ("+", "−") if sign in found]
        return " ".join([*parts, *([f"0×{found.count('0')}"] if "0" in found else [])])


def decide(rule: Rule, effect: Estimate, margins: Margins) -> Verdict:
    """The verdict of a rule on an effect with its interval."""
    value, low, high = effect
    alike, large = margins
    if rule == "above":
        return chosen(low > 0, high < 0, low > -alike and high < alike)
    if rule in ("better", "much better"):
        wanted = alike if rule == "better" else large
        return chosen(low > 0 and value >= wanted, high < 0 and value <= -alike, high < wanted)
    if rule == "differs":
        return chosen((low > 0 or high < 0) and abs(value) >= SPREAD, False, low > -SPREAD and high < SPREAD)
    if rule == "little learned":
        return chosen(high < LITTLE, low > LITTLE)
    if rule == "kept":
        return chosen(value >= 0, value < 0)
    least, most = {
        "comparable": (-alike, alike),
        "not worse": (-alike, np.inf),
        "little worse": (-large, np.inf),
    }[rule]
    return chosen(least < low and high < most, high < least or low > most)


def chosen(holds: bool, opposite: bool, none: bool = False) -> Verdict:
    """The first of these that is so."""
    return "holds" if holds else "opposite holds" if opposite else "no such difference" if none else "undecided"


def scores(results: Results, task: str, series: Series, measure: str, reading: Reading) -> np.ndarray:
    """What a part compares (seed,)."""
    if series.variant and reading.variant:
        return np.zeros(0)  # no run is of two variants
    cell = Cell(task, series.method, series.budget, series.variant or reading.variant)
    if measure == "curve":
        curves = catalogue.curves(results, cell)[1]
        return curves.mean(1) if curves.size else np.zeros(0)
    if measure == "learned_deviation":
        return np.log2(catalogue.final_metric(results, cell, measure))
    if measure == "epsilon":
        return catalogue.kept(results, cell)
    if measure == "information":
        return catalogue.told(results, cell)
    if measure == "loss":
        free, noisy = (
            scores(results, task, one, "return", reading) for one in (series._replace(budget="free"), series)
        )
        return (free[: len(noisy)] - noisy[: len(free)]) if len(free) and len(noisy) else np.zeros(0)
    if reading.tenth and not series.at:
        return catalogue.last_tenths(results, cell)
    return catalogue.final_returns(results, cell, series.at)


def examine(results: Results, part: Part, unit: Unit | None, reading: Reading = FIXED) -> Finding:
    """One comparison in the unit of its task; not tested where runs are missing."""
    first, second = (scores(results, part.task, side, part.measure, reading) for side in (part.first, part.second))
    seeds, level = min(len(first), len(second)), reading.confidence
    if part.measure == "information" and unit is not None:
        unit = Unit(1.0, reading.margins(OF_RANGE), "of the variance", unit.random)
    if seeds == 0 or unit is None:
        return Finding(part, "not tested", NOTHING, 0, "", 0.0)
    if part.rule == "little learned":
        gained = (first - unit.random) / (second.mean() - unit.random)
        effect, words = stats.difference(gained, np.zeros_like(gained), level), "of MADDPG's gain"
    elif part.rule == "kept":
        effect, words = Estimate(*[float(first.min())] * 3), "powers of two"
    elif part.rule == "differs":
        effect, words = stats.difference(first, second, level), "powers of two"
    else:
        effect, words = stats.difference(first / unit.size, second / unit.size, level), unit.words
    margin = unit.margins.alike if words == unit.words else 0.0
    return Finding(part, decide(part.rule, effect, unit.margins), effect, seeds, words, margin)


def combine(verdicts: list[Verdict], most: bool) -> Verdict:
    """The verdict on a sentence from those on its parts; a part without runs can keep it from holding."""
    if verdicts.count("not tested") == len(verdicts):
        return "not tested"
    parts, holds = len(verdicts), verdicts.count("holds")
    opposite, none = verdicts.count("opposite holds"), verdicts.count("no such difference")
    if most:
        against = 2 * (opposite + none) >= parts
        return chosen(2 * holds > parts, against and opposite >= none, against)
    return chosen(holds == parts, opposite > 0, none > 0)


def judge(results: Results, reading: Reading = FIXED) -> list[Judgement]:
    """All sentences, in the paper's order; those about nothing but what is left out are not there."""
    units = {task: reading.unit(results, task) for task in ALL}
    found, said = [], set()
    for claim in CLAIMS:
        parts = [
            part
            for part in claim.parts
            if not {part.task, part.first.method, part.second.method} & set(reading.without)
        ]
        again = reading.once and frozenset(parts) in said
        said.add(frozenset(parts))
        if parts and not again:
            findings = tuple(examine(results, part, units[part.task], reading) for part in parts)
            most = claim.most if reading.most is None else reading.most
            found.append(Judgement(claim, combine([finding.verdict for finding in findings], most), findings))
    return found


def counts(judgements: list[Judgement]) -> dict[Verdict, int]:
    """How many sentences have each verdict."""
    found: dict[Verdict, int] = {
        "holds": 0,
        "opposite holds": 0,
        "no such difference": 0,
        "undecided": 0,
        "not tested": 0,
    }
    for judgement in judgements:
        found[judgement.verdict] += 1
    return found


def robust(results: Results) -> list[Judgement]:
    """The tested sentences that have the same verdict under every reading that tests them; of a profile `sensitivity`
    says which it tests."""
    moved = {name for shift in sensitivity(results).values() for name in shift.moved}
    judged = [judgement for judgement in judge(results) if judgement.verdict != "not tested"]
    return [judgement for judgement in judged if judgement.claim.name not in moved]


class Change(NamedTuple):
    """A sentence whose verdict other results do not share."""

    judgement: Judgement
    before: Verdict
    """By the other results."""
    by: tuple[tuple[str, str], ...]
    """Tasks and methods whose runs, exchanged for the other ones, each alone give that verdict; nothing where it takes
    several."""


def changes(results: Results, before: Results) -> list[Change]:
    """The sentences that both results test and that have another verdict by these than by those before."""
    found, old = judge(results), verdicts(before)
    moved = [one for one in found if "not tested" not in (one.verdict, old[one.claim.name])]
    moved = [one for one in moved if one.verdict != old[one.claim.name]]
    groups = dict.fromkeys(group_of(record) for record in (results.runs | before.runs).values() if moved)
    exchanged = {group: verdicts(exchange(results, before, group)) for group in groups}

    def change(one: Judgement) -> Change:
        name = one.claim.name
        return Change(one, old[name], tuple(group for group in groups if exchanged[group][name] == old[name]))

    return [change(one) for one in moved]


def verdicts(results: Results) -> dict[str, Verdict]:
    """Verdicts by the name of the sentence."""
    return {judgement.claim.name: judgement.verdict for judgement in judge(results)}


def group_of(record: Record) -> tuple[str, str]:
    return record.config.task, record.config.method


def exchange(results: Results, other: Results, group: tuple[str, str]) -> Results:
    """Results with the runs of one task and method from elsewhere."""
    kept = {name: record for name, record in results.runs.items() if group_of(record) != group}
    return results._replace(runs=kept | {name: run for name, run in other.runs.items() if group_of(run) == group})


class Shift(NamedTuple):
    """What another reading does to the verdicts."""

    counts: dict[Verdict, int]
    """How many sentences have each verdict."""
    tested: list[str]
    """The sentences of which all comparisons have runs."""
    moved: list[str]
    """Those of them whose verdict is another than as fixed."""


def sensitivity(results: Results) -> dict[str, Shift]:
    """What each reading does to the verdicts. A profile judges only the sentences of which it has all runs."""
    fixed = {judgement.claim.name: judgement for judgement in judge(results)}
    variants = {catalogue.variant_of(record) for record in results.runs.values()}
    found = {}
    for name, reading in READINGS.items():
        if reading.variant in variants:
            judged = judge(results, reading)
            if reading.variant:
                judged = [one if one.tested else one._replace(verdict="not tested") for one in judged]
            tested = [one for one in judged if one.tested]
            moved = [one for one in tested if fixed[one.claim.name].tested]
            moved = [one for one in moved if one.verdict != fixed[one.claim.name].verdict]
            names, others = ([one.claim.name for one in some] for some in (tested, moved))
            found[name] = Shift(counts(judged), names, others)
    return found
