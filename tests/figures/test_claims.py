"""Verdicts follow from planted results."""

import math
import re

import made
import pytest

from dpmac import experiments
from dpmac.experiments import Cell
from dpmac.figures import catalogue, claims
from dpmac.figures.sentences import CLAIMS, Part, Series
from dpmac.results.stats import Estimate

MARGINS = claims.OF_RANGE


@pytest.mark.parametrize(
    ("rule", "effect", "verdict"),
    [
        ("above", (0.01, 0.005, 0.015), "holds"),
        ("above", (-0.01, -0.015, -0.005), "opposite holds"),
        ("above", (0.0, -0.01, 0.01), "no such difference"),
        ("above", (0.02, -0.01, 0.05), "undecided"),
        ("better", (0.05, 0.01, 0.09), "holds"),
        ("better", (0.05, -0.01, 0.11), "undecided"),
        ("better", (0.02, 0.01, 0.04), "undecided"),
        ("better", (0.01, -0.01, 0.02), "no such difference"),
        ("better", (-0.01, -0.02, -0.005), "no such difference"),
        ("better", (-0.20, -0.30, -0.10), "opposite holds"),
        ("much better", (0.12, 0.05, 0.19), "holds"),
        ("much better", (0.05, 0.04, 0.06), "no such difference"),
        ("much better", (-0.05, -0.06, -0.04), "opposite holds"),
        ("much better", (0.09, 0.05, 0.13), "undecided"),
        ("comparable", (0.0, -0.02, 0.02), "holds"),
        ("comparable", (0.0, -0.04, 0.04), "undecided"),
        ("comparable", (0.06, 0.04, 0.08), "opposite holds"),
        ("comparable", (-0.06, -0.08, -0.04), "opposite holds"),
        ("not worse", (0.3, 0.1, 0.5), "holds"),
        ("not worse", (0.0, -0.02, 0.02), "holds"),
        ("not worse", (-0.02, -0.05, 0.01), "undecided"),
        ("not worse", (-0.1, -0.15, -0.05), "opposite holds"),
        ("little worse", (-0.05, -0.09, -0.01), "holds"),
        ("little worse", (-0.3, -0.4, -0.2), "opposite holds"),
        ("little worse", (0.1, 0.05, 0.15), "holds"),
        ("little worse", (-0.08, -0.12, -0.04), "undecided"),
        ("differs", (-1.0, -1.5, -0.5), "holds"),
        ("differs", (0.0, -0.1, 0.1), "no such difference"),
        ("differs", (0.5, -0.2, 1.2), "undecided"),
        ("little learned", (0.1, 0.0, 0.2), "holds"),
        ("little learned", (0.9, 0.8, 1.0), "opposite holds"),
        ("little learned", (0.2, 0.1, 0.3), "undecided"),
        ("kept", (0.0, 0.0, 0.0), "holds"),
        ("kept", (-2.6, -2.6, -2.6), "opposite holds"),
    ],
)
def test_rule(rule, effect, verdict):
    assert claims.decide(rule, Estimate(*effect), MARGINS) == verdict


@pytest.mark.parametrize("rule", ["above", "better", "much better", "comparable", "not worse", "little worse"])
def test_nothing_is_decided_without_knowing_the_spread(rule):
    assert claims.decide(rule, Estimate(0.5, -math.inf, math.inf), MARGINS) == "undecided"


def test_better_and_comparable_never_hold_together():
    for value in [x / 200 for x in range(-40, 41)]:
        for half in (0.0, 0.005, 0.01, 0.02, 0.05):
            effect = Estimate(value, value - half, value + half)
            assert [claims.decide(rule, effect, MARGINS) for rule in ("better", "comparable")].count("holds") <= 1


@pytest.mark.parametrize(
    ("verdicts", "most", "verdict"),
    [
        (["holds", "holds"], False, "holds"),
        (["holds", "undecided"], False, "undecided"),
        (["holds", "not tested"], False, "undecided"),
        (["holds", "opposite holds", "undecided"], False, "opposite holds"),
        (["holds", "no such difference", "undecided"], False, "no such difference"),
        (["opposite holds", "no such difference"], False, "opposite holds"),
        (["holds", "holds", "opposite holds"], True, "holds"),
        (["holds", "opposite holds"], True, "opposite holds"),
        (["no such difference", "no such difference", "opposite holds", "holds"], True, "no such difference"),
        (["holds", "undecided", "undecided"], True, "undecided"),
        (["not tested"], False, "not tested"),
    ],
)
def test_a_sentence_is_as_strong_as_its_parts(verdicts, most, verdict):
    assert claims.combine(verdicts, most) == verdict


def as_the_paper_tells(cell: Cell) -> float:
    """Final returns of a world in which the paper's sentences are true, as shares of the task's range."""
    if cell.method == "silent":
        return 0.60
    if cell.variant == "deterministic":
        return as_the_paper_tells(cell._replace(variant="")) - 0.1
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
    return free - {
        "free": 0.0,
        "step-1": 0.30,
        "step-0.1": 0.45,
        "step-0.01": 0.5,
        "episode-1": 0.40,
        "episode-0.1": 0.55,
    }.get(cell.budget, 0.6)


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
        cells=[*made.all_cells(), *experiments.ABLATIONS["deterministic"], *experiments.ABLATIONS["stringent"]],
    )
    return {judgement.claim.name: judgement for judgement in claims.judge(results)}


UNTRUE_TOGETHER = {
    "rigorous": "what is planted are returns; the claims of ε are the paper's",
    "provable": "the same",
    "as-effective": "elsewhere private DPMAC is below the free one on CCN at every ε, and at ε = 0.01 on CN and PP",
    "free-cn-pp": "MADDPG is among the baselines, and the appendix says that the others outperform it",
    "baselines-effective": "the next sentence says that they achieve similar performance on CCN",
    "tarmac-had": "elsewhere TarMAC with privacy is inferior to MADDPG on every task",
    "episode-0.1-pp-slight": "elsewhere DPMAC falls from well above MADDPG to below it there",
}
"""Sentences that other sentences of the paper exclude."""
NOT_PLANTED = {"noise-robust", "principle", "well-alleviated", "episode-0.1-slower", "information"}
"""Planted teams score the same at any noise, their messages tell the same, and their curves rise alike."""


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_in_a_world_as_the_paper_tells_it_the_sentence_holds(told, claim):
    verdict = told[claim.name].verdict
    assert (verdict == "holds") == (claim.name not in {*UNTRUE_TOGETHER, *NOT_PLANTED})


def test_in_a_world_without_differences_there_is_no_such_difference():
    results = made.results(lambda cell: returned(0.6, cell.task), spread=0.05)
    for judgement in claims.judge(results):
        rules = {part.rule for part in judgement.claim.parts}
        if judgement.verdict == "not tested":
            continue
        if rules <= {"above", "better", "much better", "differs"}:
            assert judgement.verdict == "no such difference", judgement.claim.name
        if rules <= {"comparable", "not worse"}:
            assert judgement.verdict == "holds", judgement.claim.name


def test_noisy_results_decide_nothing():
    results = made.results(lambda cell: returned(0.6, cell.task), spread=40.0, seeds=3)
    judgements = [judgement for judgement in claims.judge(results) if judgement.claim.parts[0].measure == "return"]
    decided = sum(judgement.verdict not in ("undecided", "not tested") for judgement in judgements)
    assert decided <= 0.2 * len(judgements)


PAIR = [Cell("ccn", "dpmac"), Cell("ccn", "silent")]


def test_claims_of_runs_that_were_not_made_are_not_tested():
    results = made.results(lambda cell: -20.0, cells=PAIR)
    verdicts = {judgement.claim.name: judgement.verdict for judgement in claims.judge(results)}
    assert verdicts["pp-0.01"] == "not tested"
    assert verdicts["free-ccn"] == "no such difference"


def test_most_comparisons_decide_where_the_sentence_says_so_or_names_no_task_and_no_method_but_dpmac():
    named = re.compile(r"TarMAC|I2C|MADDPG|\bCN\b|\bCCN\b|\bPP\b|across all|on all tasks")
    begun = "on CN and CCN"
    continued = {"others-serious": begun, "episode-0.1-slower": begun, "dpmac-not-inferior": "in most cases"}
    for claim in CLAIMS:
        if {part.rule for part in claim.parts} == {"kept"}:
            continue
        said = claim.sentence.startswith("Overall") or "in most cases" in claim.sentence
        by_its_words = said or not named.search(claim.sentence)
        assert (claim.most == by_its_words) == (claim.name not in continued), claim.name


def test_every_sentence_has_a_name_and_speaks_of_runs_that_are_trained():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) >= 30
    trained = set(made.all_cells(True))
    for claim in CLAIMS:
        for part in claim.parts:
            for side in (part.first, part.second):
                assert Cell(part.task, side.method, side.budget, side.variant) in trained
                assert side.at in ("", *experiments.PAPER_BUDGETS)


def finding(talking, silent, worth=True):
    """What is found of DPMAC beside MADDPG on CCN with free messages; the references are at -68 and -9."""
    results = made.results(lambda cell: talking if cell.method == "dpmac" else silent, cells=PAIR, spread=0.0)
    part = Part("ccn", Series("dpmac"), "better", Series("silent"))
    reading = claims.Reading(worth=worth)
    return claims.examine(results, part, reading.unit(results, "ccn"), reading)


def test_effects_are_shares_of_what_messages_are_worth_and_where_that_is_nothing_of_the_range():
    found = finding(-11.0, -21.0)
    assert (found.effect, found.unit) == (pytest.approx((1.0, 1.0, 1.0)), "of what messages are worth")
    assert (found.margin, found.seeds, found.sign) == (0.10, 5, "+")
    plain = finding(-11.0, -21.0, worth=False)
    assert (plain.effect.value, plain.unit, plain.margin) == (pytest.approx(10 / 59), "of the range", 0.03)
    small = finding(-20.0, -21.0)  # less than three per cent of the range
    assert (small.effect.value, small.unit) == (pytest.approx(1 / 59), "of the range")
    assert finding(-22.0, -21.0).sign == "−"


def test_a_budget_is_kept_where_the_exact_epsilon_is_not_above_the_claimed_one():
    cells = [Cell("ccn", "dpmac", budget) for budget in ("step-1", "exact-message-1")]
    results = made.results(lambda cell: -20.0, cells=cells)
    paper, exact = (catalogue.kept(results, cell) for cell in cells)
    assert paper[0] == pytest.approx(math.log2(1 / 6.29), abs=0.01)  # the paper's formula at its settings
    assert exact[0] == pytest.approx(0.0, abs=1e-3)


def test_readings_say_which_verdicts_they_move():
    """TarMAC at step ε = 1 is above MADDPG by 15 % of what messages are worth: more than δ, less than twice δ."""
    levels = {("tarmac", "free"): -11.0, ("tarmac", "step-1"): -19.5}
    found = claims.sensitivity(made.results(lambda cell: levels.get((cell.method, cell.budget), -21.0), spread=0.05))
    assert "the release's networks (profile release)" not in found  # no such runs
    fixed = found["as fixed"]
    assert fixed.moved == []
    assert sum(fixed.counts.values()) == len(CLAIMS) > sum(found["without I2C"].counts.values())
    assert "tarmac-had" in found["margins twice as wide"].moved
    assert "tarmac-had" not in found["margins half as wide"].moved


def test_sentences_that_say_the_same_are_counted_once_on_demand():
    results = made.results(lambda cell: -21.0, spread=0.05)
    every, once = (claims.judge(results, claims.Reading(once=once)) for once in (False, True))
    left_out = [one.claim.name for one in every if one.claim.name not in {one.claim.name for one in once}]
    assert {"significantly-outperforms", "contribution-private", "conclusion", "contribution-free"} < set(left_out)
    assert {"clear-advantage", "competitive", "rigorous"} <= {one.claim.name for one in once}


def test_a_task_can_be_left_out():
    results = made.results(lambda cell: -21.0, spread=0.05)
    found = claims.judge(results, claims.Reading(without=("pp",)))
    assert {finding.part.task for judgement in found for finding in judgement.findings} == {"cn", "ccn"}
    assert "pp-0.01" not in {judgement.claim.name for judgement in found}


def test_robust_sentences_are_those_that_no_reading_moves():
    levels = {("tarmac", "free"): -11.0, ("tarmac", "step-1"): -19.5}
    results = made.results(lambda cell: levels.get((cell.method, cell.budget), -21.0), spread=0.05)
    robust = {judgement.claim.name for judgement in claims.robust(results)}
    assert "tarmac-had" not in robust
    assert "rigorous" in robust
    assert "alleviates" not in robust  # it needs runs that are not there


CN = [Cell("cn", "dpmac", budget) for budget in ("free", "step-1", "step-0.1", "step-0.01")]


def test_a_profile_judges_only_sentences_of_which_it_has_all_runs():
    """`cn-close` is about these four budgets of DPMAC on CN; the profile's teams fall at step ε = 0.1."""
    profile = [cell._replace(variant="paper") for cell in CN]
    results = made.results(
        lambda cell: -165.0 if cell == profile[2] else -150.0 if cell.budget == "step-0.01" else -138.0,
        cells=[*made.all_cells(), *profile],
    )
    shift = claims.sensitivity(results)["one update an episode (profile paper)"]
    assert shift.tested == shift.moved == ["cn-close"]
    assert sum(shift.counts.values()) - shift.counts["not tested"] == 1
    assert "cn-close" not in {judgement.claim.name for judgement in claims.robust(results)}


def test_a_profile_is_not_compared_with_runs_of_another_variant():
    series = Series("dpmac", "step-1", variant="deterministic")
    results = made.results(lambda cell: -20.0, cells=[Cell("ccn", "dpmac", "step-1", "deterministic")])
    assert len(claims.scores(results, "ccn", series, "return", claims.FIXED)) == 5
    assert len(claims.scores(results, "ccn", series, "return", claims.Reading(variant="paper"))) == 0


def test_wider_intervals_decide_less():
    results = made.results(lambda cell: -20.0 if cell.method == "dpmac" else -24.0, cells=PAIR, spread=2.0)
    part = Part("ccn", Series("dpmac"), "above", Series("silent"))
    readings = [claims.FIXED, claims.READINGS["99 % intervals"]]
    usual, wide = (claims.examine(results, part, reading.unit(results, "ccn"), reading) for reading in readings)
    assert usual.effect.value == wide.effect.value
    assert wide.effect.low < usual.effect.low < usual.effect.high < wide.effect.high


def test_a_contrast_is_one_between_what_noise_takes_from_two_methods():
    levels = {("dpmac", "free"): -10.0, ("dpmac", "step-1"): -11.0, ("tarmac", "free"): -12.0}
    cells = [Cell("ccn", method, budget) for method in ("dpmac", "tarmac") for budget in ("free", "step-1")]
    results = made.results(
        lambda cell: levels.get((cell.method, cell.budget), -17.0), cells=[*cells, PAIR[1]], spread=0.0
    )
    losses = [
        claims.scores(results, "ccn", Series(name, "step-1"), "loss", claims.FIXED) for name in ("dpmac", "tarmac")
    ]
    assert [loss.tolist() for loss in losses] == [pytest.approx([1.0] * 5), pytest.approx([5.0] * 5)]
    assert not len(claims.scores(results, "ccn", Series("i2c", "step-1"), "loss", claims.FIXED))


def test_what_messages_tell_is_compared_as_a_share_of_the_variance():
    results = made.results(lambda cell: -20.0, cells=[*PAIR, Cell("ccn", "dpmac", "step-1")])
    for name, run in results.runs.items():
        if "step-1" in name:
            run.final["information"] = {"observation": 0.6, "with_messages": 0.65}
    part = Part("ccn", Series("dpmac"), "better", Series("dpmac", "step-1"), "information")
    found = claims.examine(results, part, claims.FIXED.unit(results, "ccn"))
    assert (found.effect.value, found.unit, found.margin) == (pytest.approx(0.15), "of the variance", 0.03)
    assert found.verdict == "holds"


def test_changed_verdicts_are_traced_to_the_runs_that_change_them():
    """TarMAC falls at step ε = 1 on CCN alone; with free messages it falls on CN, and I2C on PP."""

    def results(fallen, step):
        levels = {("ccn", "tarmac", "step-1"): step, ("cn", "tarmac", "free"): fallen, ("pp", "i2c", "free"): fallen}
        return made.results(lambda cell: levels.get((cell.task, cell.method, cell.budget), -40.0), spread=0.05)

    before, now = results(-40.0, -40.0), results(-80.0, -50.0)
    found = {change.judgement.claim.name: change for change in claims.changes(now, before)}
    drop, alike = found["episode-tarmac-drop"], found["like-baselines"]
    assert (drop.before, drop.judgement.verdict) == ("no such difference", "opposite holds")
    assert drop.by == (("ccn", "tarmac"),)
    assert (alike.before, alike.judgement.verdict) == ("holds", "opposite holds")
    assert alike.by == ()  # either of the two is enough for the new verdict, and so none alone brings the old one back
    assert "rigorous" not in found
    assert claims.changes(now, now) == []
