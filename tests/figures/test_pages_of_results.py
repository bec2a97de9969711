"""What the pages say of the committed results is what these hold."""

import json
from collections import Counter

import numpy as np
import pytest
from pages import DOCS, ROOT

from dpmac import privacy
from dpmac.experiments import Cell
from dpmac.figures import catalogue, claims
from dpmac.privacy import theorem
from dpmac.results import records, stats


@pytest.fixture(scope="module")
def results():
    return records.unpack(ROOT / "results" / "paper.json.gz")


def words(name):
    """A page in one line."""
    path = ROOT / "README.md" if name == "README" else DOCS / f"{name}.md"
    return " ".join(path.read_text().split())


def minus(value, digits=1):
    return f"{value:.{digits}f}".replace("-", "−")


def told(counts):
    """How the pages write counts of verdicts."""
    return f"{counts['holds']} hold, for {counts['opposite holds']} the opposite holds, "


def test_counts_of_verdicts_are_those_of_the_results(results):
    found, firm = claims.judge(results), claims.robust(results)
    counts, every = claims.counts(found), len(found)
    without = f"for {counts['no such difference']} there is no such difference"
    assert f"Of {every} sentences, {told(counts)}and {without}" in words("README")
    assert f"{every} sentences of the paper with the runs: {told(counts)}{without}" in words("what-we-learned")
    assert f"Of {every} sentences, {told(counts)}{without}" in words("reproduction")
    once = list({frozenset(one.claim.parts): one for one in firm}.values())
    kinds = claims.counts(once)
    assert f"{len(once)} different comparisons: {told(kinds)}for {kinds['no such difference']}" in words(
        "what-we-learned"
    )
    assert f"verdicts on {len(firm)} of them" in words("reproduction")
    assert f"Of the other {len(once)}, {told(kinds)}" in words("reproduction")
    shifts = [
        shift.counts
        for name, shift in claims.sensitivity(results).items()
        if claims.READINGS[name] != claims.FIXED and not claims.READINGS[name].variant
    ]
    (least, most), (low, high) = (
        (min(one[kind] for one in shifts), max(one[kind] for one in shifts)) for kind in ("holds", "opposite holds")
    )
    assert f"Under the other readings {least} to {most} hold, and for {low} to {high} the opposite" in words(
        "reproduction"
    )


def test_at_the_paper_s_update_ratio_one_sentence_is_tested_and_its_verdict_is_another(results):
    ratios = Counter(record.updates_per_episode for record in results.runs.values())
    assert ratios == {0.25: 330, 1.0: 80}
    shift = claims.sensitivity(results)["one update an episode (profile paper)"]
    assert shift.tested == shift.moved == ["cn-close"]
    assert not {one.claim.name for one in claims.robust(results)} & {*shift.tested}
    for page in ("what-we-learned", "reproduction"):
        assert "a quarter of the paper's ratio" in words(page)


def test_intervals_of_99_per_cent_change_three_verdicts_none_of_the_robust_ones(results):
    shift = claims.sensitivity(results)["99 % intervals"]
    assert set(shift.moved) == {"free-cn-pp", "episode-0.1-similar", "episode-0.1-slower"}


def test_teams_that_were_trained_with_a_noise_still_hear(results):
    """DPMAC on CCN at step 0.1, scored at other noises."""
    cell, silent = Cell("ccn", "dpmac", "step-0.1"), catalogue.final_returns(results, Cell("ccn", "silent"))
    free = catalogue.final_returns(results, cell, "free")
    assert stats.difference(free, silent) == pytest.approx((1.70, 1.07, 2.32), abs=0.01)
    for budget in ("free", "step-0.01"):
        number = minus(catalogue.final_returns(results, cell, budget).mean())
        assert all(number in words(page) for page in ("what-we-learned", "reproduction"))


def test_the_tables_of_frontiers_are_means():
    rows = json.loads((ROOT / "results" / "frontier-ccn-maddpg.json").read_text())["rows"]
    mean = {(row["line"], row["epsilon"]): minus(np.mean(row["returns"])) for row in rows}
    for line, name in (("gaussian-every", "the paper's channel"), ("response-once", "one symbol an episode")):
        numbers = [mean[line, epsilon] for epsilon in (1.0, 3.0, 10.0)]
        assert f"| {name} | {' | '.join(numbers)} |" in words("what-we-learned")
        assert f"{numbers[0]}, {numbers[1]} and {numbers[2]}" in words("README")
    assert f"Silent teams earn {mean['silent', 0.0]}, and" in words("README")
    assert f"free messages {mean['gaussian-every', 'inf']}." in words("README")


def test_two_of_three_promises_for_a_step_would_hold_if_senders_drew_one_of_25_transitions():
    """For one changed transition, at the noise of the paper."""
    exact = []
    for epsilon in (1.0, 0.1, 0.01):
        sigma = float(theorem.sigma(epsilon, 1e-4, theorem.released(25)))
        channel = privacy.Channel(sample_rate=1 / 25)
        release = privacy.Release(channel, sigma, horizon=25, unit="message", neighbours="transition")
        exact.append(privacy.epsilon(release, 1e-4))
    assert [one <= epsilon for one, epsilon in zip(exact, (1.0, 0.1, 0.01), strict=True)] == [False, True, True]
    assert f"the exact ε would be {exact[0]:.2f}, {exact[1]:.3f} and {exact[2]:.4f}" in words("what-we-learned")
