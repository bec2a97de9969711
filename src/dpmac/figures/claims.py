"""Every sentence of the paper that compares methods or budgets, as data, and what the saved scores say of it.

The readings, margins and rules here were fixed before any run at paper scale, and no verdict depends on anything else.

An effect is a difference of mean final returns (on the common starts), as a share of what separates the random from
the scripted policy on the task, with Welch's 95 % interval over seeds. With the margins δ = 3 % and Δ = 10 %:

    rule             holds when                          contradicted when
    better           interval above 0 and effect ≥ δ     interval below δ
    much better      interval above 0 and effect ≥ Δ     interval below Δ
    comparable       interval inside (−δ, δ)             interval outside of [−δ, δ]
    not worse        interval above −δ                   interval below −δ
    little worse     interval above −Δ                   interval below −Δ
    differs          interval off 0 and |effect| ≥ m     interval inside (−m, m)
    little learned   interval below ¼                    interval above ¼

`differs` speaks of the sender's learned standard deviation, in powers of two, with m = log₂ 1.25. `little learned`
speaks of what a team gained over the random policy, as a share of what MADDPG gained. Anything else is undecided. A
sentence with several parts holds if all parts do and is contradicted if one is; where it says "overall" or "in most
cases", more than half, and at least half.
"""

from typing import Literal, NamedTuple

import numpy as np

from dpmac.experiments import Cell
from dpmac.figures import catalogue
from dpmac.figures.sentences import CLAIMS, Claim, Part, Rule, Series
from dpmac.results import stats
from dpmac.results.records import Results
from dpmac.results.stats import Estimate

Verdict = Literal["holds", "contradicted", "undecided", "not tested"]

MARGIN = 0.03
"""δ: the equivalence margin."""
LARGE = 0.10
"""Δ: what "a large margin" and "serious" mean."""
SPREAD = float(np.log2(1.25))
"""The smallest change of the learned standard deviation that counts."""
LITTLE = 0.25
"""Share of MADDPG's gain over the random policy up to which a team "nearly fails to learn"."""


class Finding(NamedTuple):
    """What the scores say of one comparison."""

    part: Part
    verdict: Verdict
    effect: Estimate
    """In the unit of the rule: a share of the task's range, powers of two, or a share of MADDPG's gain."""
    seeds: int
    last_tenth: Verdict
    """The verdict that the last tenth of the learning curves would give."""


class Judgement(NamedTuple):
    """What the scores say of a sentence."""

    claim: Claim
    verdict: Verdict
    findings: tuple[Finding, ...]


def decide(rule: Rule, effect: Estimate) -> Verdict:
    """The verdict of a rule on an effect with its interval."""
    value, low, high = effect
    if rule in ("better", "much better"):
        margin = MARGIN if rule == "better" else LARGE
        return chosen(low > 0 and value >= margin, high < margin)
    if rule == "differs":
        return chosen((low > 0 or high < 0) and abs(value) >= SPREAD, low > -SPREAD and high < SPREAD)
    if rule == "little learned":
        return chosen(high < LITTLE, low > LITTLE)
    least, most = {
        "comparable": (-MARGIN, MARGIN),
        "not worse": (-MARGIN, np.inf),
        "little worse": (-LARGE, np.inf),
    }[rule]
    return chosen(least < low and high < most, high < least or low > most)


def chosen(holds: bool, contradicted: bool) -> Verdict:
    return "holds" if holds else "contradicted" if contradicted else "undecided"


def scores(results: Results, task: str, series: Series, measure: str, tenth: bool) -> np.ndarray:
    """What a part compares (seed,)."""
    cell = Cell(task, series.method, series.budget)
    if measure == "curve":
        curves = catalogue.curves(results, cell)[1]
        return curves.mean(1) if curves.size else np.zeros(0)
    if measure == "learned_deviation":
        return np.log2(catalogue.final_metric(results, cell, measure))
    if tenth and not series.at:
        return catalogue.last_tenths(results, cell)
    return catalogue.final_returns(results, cell, series.at)


def effect_of(results: Results, part: Part, tenth: bool = False) -> tuple[Estimate, int] | None:
    """The effect that a part speaks of, and the smaller number of seeds; nothing where runs are missing."""
    first = scores(results, part.task, part.first, part.measure, tenth)
    second = scores(results, part.task, part.second, part.measure, tenth)
    scale, seeds = catalogue.scale_of(results, part.task), min(len(first), len(second))
    if seeds == 0 or scale is None:
        return None
    if part.rule == "little learned":
        gained = (first - scale.random) / (second.mean() - scale.random)
        return stats.difference(gained, np.zeros_like(gained)), seeds
    unit = 1.0 if part.rule == "differs" else scale.range
    return stats.difference(first / unit, second / unit), seeds


def examine(results: Results, part: Part) -> Finding:
    """One comparison, by the final returns and by the last tenth of the curves."""
    found, tenth = effect_of(results, part), effect_of(results, part, tenth=True)
    if found is None or tenth is None:
        return Finding(part, "not tested", Estimate(np.nan, np.nan, np.nan), 0, "not tested")
    return Finding(part, decide(part.rule, found[0]), found[0], found[1], decide(part.rule, tenth[0]))


def combine(verdicts: list[Verdict], most: bool) -> Verdict:
    """The verdict on a sentence from those on its parts; a part without runs can keep it from holding."""
    if verdicts.count("not tested") == len(verdicts):
        return "not tested"
    holds, against, parts = verdicts.count("holds"), verdicts.count("contradicted"), len(verdicts)
    return chosen(2 * holds > parts, 2 * against >= parts) if most else chosen(holds == parts, against > 0)


def judge(results: Results) -> list[Judgement]:
    """All sentences, in the paper's order."""
    found = []
    for claim in CLAIMS:
        findings = tuple(examine(results, part) for part in claim.parts)
        found.append(Judgement(claim, combine([finding.verdict for finding in findings], claim.most), findings))
    return found


def counts(judgements: list[Judgement]) -> dict[Verdict, int]:
    """How many sentences have each verdict."""
    found: dict[Verdict, int] = {"holds": 0, "contradicted": 0, "undecided": 0, "not tested": 0}
    for judgement in judgements:
        found[judgement.verdict] += 1
    return found
