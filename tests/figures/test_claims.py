"""Verdicts follow from planted results."""

import math

import made
import pytest

from dpmac import experiments
from dpmac.experiments import Cell
from dpmac.figures import catalogue, claims
from dpmac.figures.sentences import CLAIMS
from dpmac.results.stats import Estimate

D, L = claims.MARGIN, claims.LARGE


@pytest.mark.parametrize(
    ("rule", "effect", "verdict"),
    [
        ("better", (0.05, 0.01, 0.09), "holds"),
        ("better", (0.05, -0.01, 0.11), "undecided"),
        ("better", (0.02, 0.01, 0.04), "undecided"),
        ("better", (0.01, -0.01, 0.02), "contradicted"),
        ("better", (-0.20, -0.30, -0.10), "contradicted"),
        ("much better", (0.12, 0.05, 0.19), "holds"),
        ("much better", (0.05, 0.04, 0.06), "contradicted"),
        ("much better", (0.09, 0.05, 0.13), "undecided"),
        ("comparable", (0.0, -0.02, 0.02), "holds"),
        ("comparable", (0.0, -0.04, 0.04), "undecided"),
        ("comparable", (0.06, 0.04, 0.08), "contradicted"),
        ("comparable", (-0.06, -0.08, -0.04), "contradicted"),
        ("not worse", (0.3, 0.1, 0.5), "holds"),
        ("not worse", (0.0, -0.02, 0.02), "holds"),
        ("not worse", (-0.02, -0.05, 0.01), "undecided"),
        ("not worse", (-0.1, -0.15, -0.05), "contradicted"),
        ("little worse", (-0.05, -0.09, -0.01), "holds"),
        ("little worse", (-0.3, -0.4, -0.2), "contradicted"),
        ("little worse", (0.1, 0.05, 0.15), "holds"),
        ("little worse", (-0.08, -0.12, -0.04), "undecided"),
        ("differs", (-1.0, -1.5, -0.5), "holds"),
        ("differs", (0.0, -0.1, 0.1), "contradicted"),
        ("differs", (0.5, -0.2, 1.2), "undecided"),
        ("little learned", (0.1, 0.0, 0.2), "holds"),
        ("little learned", (0.9, 0.8, 1.0), "contradicted"),
        ("little learned", (0.2, 0.1, 0.3), "undecided"),
    ],
)
def test_rule(rule, effect, verdict):
    assert claims.decide(rule, Estimate(*effect)) == verdict


@pytest.mark.parametrize("rule", ["better", "much better", "comparable", "not worse", "little worse"])
def test_nothing_is_decided_without_knowing_the_spread(rule):
    assert claims.decide(rule, Estimate(0.5, -math.inf, math.inf)) == "undecided"


def test_better_and_comparable_never_hold_together():
    for value in [x / 200 for x in range(-40, 41)]:
        for half in (0.0, 0.005, 0.01, 0.02, 0.05):
            effect = Estimate(value, value - half, value + half)
            assert [claims.decide(rule, effect) for rule in ("better", "comparable")].count("holds") <= 1


@pytest.mark.parametrize(
    ("verdicts", "most", "verdict"),
    [
        (["holds", "holds"], False, "holds"),
        (["holds", "undecided"], False, "undecided"),
        (["holds", "not tested"], False, "undecided"),
        (["holds", "contradicted", "undecided"], False, "contradicted"),
        (["holds", "holds", "contradicted"], True, "holds"),
        (["holds", "contradicted"], True, "contradicted"),
        (["holds", "undecided", "undecided"], True, "undecided"),
        (["not tested"], False, "not tested"),
    ],
)
def test_a_sentence_is_as_strong_as_its_parts(verdicts, most, verdict):
    assert claims.combine(verdicts, most) == verdict


def as_the_paper_tells(cell: Cell) -> float:
    """Final returns of a world in which the paper's sentences are true, as shares of the task's range."""
    level = {"silent": 0.60}
    if cell.method == "silent":
        return level["silent"]
    if cell.method == "dpmac":
        table = {
            "cn": {
                "free": 0.85,
                "step-1": 0.85,
                "step-0.1": 0.85,
                "step-0.01": 0.78,
                "episode-1": 0.85,
                "episode-0.1": 0.845,
                "episode-0.01": 0.78,
            },
            "ccn": {
                "free": 0.80,
                "step-1": 0.60,
                "step-0.1": 0.60,
                "step-0.01": 0.60,
                "episode-1": 0.60,
                "episode-0.1": 0.60,
                "episode-0.01": 0.60,
            },
            "pp": {
                "free": 0.66,
                "step-1": 0.72,
                "step-0.1": 0.72,
                "step-0.01": 0.50,
                "episode-1": 0.72,
                "episode-0.1": 0.54,
                "episode-0.01": 0.10,
            },
        }
        return table[cell.task][cell.budget]
    free = {"cn": 0.85, "ccn": 0.60, "pp": 0.66}[cell.task]
    return free - {"free": 0.0, "step-1": 0.30, "step-0.1": 0.45, "episode-1": 0.40, "episode-0.1": 0.55}[cell.budget]


def returned(share: float, task: str) -> float:
    random, scripted = made.REFERENCES[task]
    return random + share * (scripted - random)


@pytest.fixture(scope="module")
def told():
    deviations = {"free": 0.5, "step-1": 0.3, "step-0.1": 0.2, "step-0.01": 0.1}
    results = made.results(
        lambda cell: returned(as_the_paper_tells(cell), cell.task),
        lambda cell: deviations.get(cell.budget, 0.15),
        spread=0.05,
    )
    return {judgement.claim.name: judgement for judgement in claims.judge(results)}


UNTRUE_TOGETHER = {
    "free-cn-pp": "MADDPG is among the baselines, and the appendix says that the others outperform it",
    "only-pp": "on CN and CCN too, free messages are said to do better than ε = 0.01",
    "tarmac-had": "elsewhere TarMAC with privacy is inferior to MADDPG on every task",
    "episode-0.1-pp-slight": "elsewhere DPMAC falls from well above MADDPG to below it there",
}
"""Sentences that other sentences of the paper exclude."""
NOT_PLANTED = {"noise-robust", "episode-0.1-slower"}
"""Planted teams score the same at any noise, and their curves rise alike."""


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_in_a_world_as_the_paper_tells_it_the_sentence_holds(told, claim):
    verdict = told[claim.name].verdict
    assert (verdict == "holds") == (claim.name not in {*UNTRUE_TOGETHER, *NOT_PLANTED})


def test_in_a_world_without_differences_comparisons_for_the_better_are_contradicted():
    results = made.results(lambda cell: returned(0.6, cell.task), spread=0.05)
    for judgement in claims.judge(results):
        rules = {part.rule for part in judgement.claim.parts}
        if rules <= {"better", "much better", "differs"}:
            assert judgement.verdict == "contradicted", judgement.claim.name
        if rules <= {"comparable", "not worse"}:
            assert judgement.verdict == "holds", judgement.claim.name


def test_noisy_results_decide_nothing():
    results = made.results(lambda cell: returned(0.6, cell.task), spread=40.0, seeds=3)
    judgements = [judgement for judgement in claims.judge(results) if judgement.claim.parts[0].measure == "return"]
    decided = sum(judgement.verdict != "undecided" for judgement in judgements)
    assert decided <= 0.2 * len(judgements)


def test_claims_of_runs_that_were_not_made_are_not_tested():
    results = made.results(lambda cell: -20.0, cells=[Cell("ccn", "dpmac"), Cell("ccn", "silent")])
    verdicts = {judgement.claim.name: judgement.verdict for judgement in claims.judge(results)}
    assert verdicts["pp-0.01"] == "not tested"
    assert verdicts["free-ccn"] == "contradicted"


def test_every_sentence_has_a_name_and_speaks_of_runs_that_are_trained():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) >= 30
    trained = set(made.all_cells())
    for claim in CLAIMS:
        for part in claim.parts:
            for side in (part.first, part.second):
                assert Cell(part.task, side.method, side.budget) in trained
                assert side.at in ("", *experiments.PAPER_BUDGETS)


def test_effects_are_shares_of_what_separates_the_reference_policies():
    cells = [Cell("ccn", "dpmac"), Cell("ccn", "silent")]
    results = made.results(lambda cell: -9.0 if cell.method == "dpmac" else -68.0, cells=cells, spread=0.0)
    part = CLAIMS[0].parts[2]
    effect, seeds = claims.effect_of(results, part) or (None, 0)
    assert effect == pytest.approx((1.0, 1.0, 1.0))
    assert seeds == 5
    assert catalogue.scale_of(results, "ccn") == (-68.0, -9.0)
