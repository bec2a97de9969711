"""The paper's statements on collaborative games: what its definitions give at once, and what refutes its theorem."""

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpmac.games import families
from dpmac.games.cgp import Game, Segment, regret, sample
from dpmac.games.definitions import check
from dpmac.games.equilibria import Approximate, Equilibria, find, silence_price, silenced_by
from dpmac.games.statements import STATEMENTS, Condition, conclude, finding, in_words
from dpmac.games.study import Study, binary_sums_theorem, study, theorem

THEOREM, PROOF = "theorem: NE in CGP", "proof of theorem: NE in CGP"


def verdicts(studied: Study) -> dict[str, str]:
    return {found.label: found.verdict for found in studied.findings}


def reason(studied: Study, label: str) -> str:
    (found,) = [found for found in studied.findings if found.label == label]
    return found.reason


def random_game(rng: np.random.Generator, C: tuple[float, float]) -> Game:
    """Any game with linear values that meets the paper's definitions and, as ∂V₁/∂p₁ = ∂V₂/∂p₂, its condition."""
    own = float(rng.uniform(0.6, 1))
    cross = rng.uniform(0.6, 1, 2).tolist()
    top = rng.uniform(5, 6, 2).tolist()
    alone = tuple(top[n] - rng.uniform(0.7, 1) * min(own, cross[n]) for n in (0, 1))
    value = (lambda p1, p2: top[0] - own * p1 - cross[0] * p2, lambda p1, p2: top[1] - cross[1] * p1 - own * p2)
    power, rate = int(rng.integers(3, 6)), float(rng.uniform(0.1, 2))
    loss = lambda p: (math.exp(-rate * p) - math.exp(-rate)) / (1 - math.exp(-rate))  # noqa: E731
    B = tuple(rng.uniform(0.3, 3, 2).tolist())
    return Game((alone[0], alone[1]), value, lambda v, vm: max(0.0, vm - v) ** power, loss, (B[0], B[1]), C)


# --- existence is trivial ---------------------------------------------------------------------------------------------


def test_silence_is_an_equilibrium_of_every_game_that_meets_the_definitions():
    rng = np.random.default_rng(0)
    for _ in range(40):
        C = tuple(rng.choice([0.0, rng.uniform(0, 0.1), rng.uniform(0, 5)], 2).tolist())
        game = random_game(rng, (C[0], C[1]))
        assert all(condition.verdict == "holds" for condition in check(game, sample(game, 80)))
        assert regret(game, 1.0, 1.0) == (0.0, 0.0)


def test_a_negative_price_of_privacy_takes_silence_away():
    game = random_game(np.random.default_rng(1), (-0.5, 0.5))
    assert regret(game, 1.0, 1.0)[0] > 0.4
    assert "(1, 1), by the definitions" not in study(game, cells=80).guarantee


def test_the_guarantee_of_a_game_that_meets_the_definitions_is_silence():
    expected = "a pure equilibrium exists: (1, 1), by the definitions and C ≥ 0 alone{}; no guarantee of another"
    sampled = expected.format(", as far as the grid can tell")
    assert study(families.counterexample(), cells=80).guarantee == sampled
    assert study(families.binary_sums(clipped=True), cells=80).guarantee == expected.format("")
    assert study(families.binary_sums(), cells=80).guarantee not in (sampled, expected.format(""))


# --- the proof, and the theorem ---------------------------------------------------------------------------------------


def test_the_counterexample_refutes_the_proof_and_not_the_theorem():
    studied = study(families.counterexample())
    assert verdicts(studied)[PROOF] == "fails"
    assert verdicts(studied)[THEOREM] == "holds"
    assert studied.equilibria.nontrivial == (0.0, 0.0)


def test_at_a_high_price_of_privacy_it_refutes_the_theorem():
    studied = study(families.counterexample(C=(10.0, 10.0)))
    assert all(condition.verdict == "holds" for condition in studied.conditions)
    assert verdicts(studied)[THEOREM] == verdicts(studied)[PROOF] == "fails"
    assert "C_1 = 10 exceeds 0.125, so p_1 = 1 is strictly best" in reason(studied, THEOREM)
    assert "is the only equilibrium, as far as a search can tell: C_1" in reason(studied, THEOREM)
    assert [group.trivial for group in studied.equilibria.approximate] == [True]


def test_silence_dominates_above_that_price_without_rounding():
    """b(p) < C·c(p) for every p_n < 1 and every p_m, in fractions; b is convex in p_n, so a grid is no loss.

    At a price that is a little lower, (0, 0) is better than silence.
    """
    little, cells = Fraction(1, 10**9), 40
    game: Any = families.counterexample()  # whose functions take fractions as well
    for n, price, alone in ((0, Fraction(1, 8), Fraction(5, 2)), (1, Fraction(512, 1000), Fraction(42, 10))):
        assert float(alone) == game.alone[n]

        def benefit(own, other, n=n, alone=alone):
            return game.benefit(alone, game.value[n](*((own, other) if n == 0 else (other, own))))

        for k, j in itertools.product(range(cells), range(cells + 1)):
            own, other = Fraction(k, cells), Fraction(j, cells)
            assert benefit(own, other) < (price + little) * game.loss(own)
        assert benefit(Fraction(0), Fraction(0)) > (price - little) * game.loss(Fraction(0))
        assert isinstance(benefit(Fraction(0), Fraction(0)), Fraction)


def test_one_player_whom_privacy_matters_enough_silences_both():
    for C in ((0.13, 0.01), (0.01, 0.52)):
        assert verdicts(study(families.counterexample(C=C), cells=80))[THEOREM] == "fails"


def test_the_price_of_silence_of_the_counterexample_is_worked_out_by_hand():
    """b₁ ≤ ⅛(1 − p₁) and b₂ ≤ 0.512(1 − p₂), with equality at (0, 0)."""
    game = families.counterexample()
    assert [silence_price(game, sample(game), n) for n in (0, 1)] == pytest.approx([0.125, 0.512])


def between_grid_points(C: tuple[float, float]) -> Game:
    """Its b/c is largest between two points of the grid, by 1e-5 more than on it."""
    value = lambda p1, p2: 3 - p1 - p2  # noqa: E731
    loss = lambda p: (math.exp(-3 * p) - math.exp(-3)) / (1 - math.exp(-3))  # noqa: E731
    return Game((2.0, 2.0), (value, value), lambda v, vm: max(0.0, vm - v) ** 3, loss, (1.0, 1.0), C)


def test_the_price_of_silence_is_searched_for_between_the_points_of_the_grid():
    p = np.linspace(0, 0.5, 2_000_001)
    price = np.max((1 - p) ** 3 * (1 - np.exp(-3)) / (np.exp(-3 * p) - np.exp(-3)))
    game = between_grid_points((1.004766, 0.001))
    assert [silence_price(game, sample(game), n) for n in (0, 1)] == pytest.approx([price, price], rel=1e-9)
    studied = study(game)
    assert studied.equilibria.nontrivial == pytest.approx((0.0595, 0), abs=1e-3)
    assert verdicts(studied)[THEOREM] == "holds"
    for share, verdict in ((1.0005, "undecided"), (1.002, "fails")):
        assert verdicts(study(between_grid_points((share * price, 0.001)), cells=80))[THEOREM] == verdict


def test_a_price_and_a_search_that_contradict_each_other_are_undecided():
    game, elsewhere = families.counterexample(C=(10.0, 10.0)), Approximate((0.5, 0.0), 0.0, (0.5, 0.0), (0.5, 0.0))
    found = theorem(game, sample(game, 24), [], Equilibria(None, (elsewhere,), 24, 1e-6))
    assert found.verdict == "undecided"
    assert "yet a search for equilibria found (0.5, 0)" in found.reason


def test_every_game_that_meets_the_theorem_refutes_it_once_privacy_costs_enough():
    rng = np.random.default_rng(2)
    for _ in range(5):
        game = random_game(rng, (1.0, 1.0))
        dear = dataclasses.replace(game, C=(1.01 * silence_price(game, sample(game, 80), 0), 0.001))
        studied = study(dear, cells=80)
        assert verdicts(studied)[THEOREM] == "fails"
        assert all(group.trivial for group in studied.equilibria.approximate)


def test_nobody_is_silenced_where_an_equilibrium_shares():
    """Against closed forms: whoever is called silenced leaves (1, 1) alone."""
    rng, seen = np.random.default_rng(3), set()
    for _ in range(200):
        clipped = bool(rng.integers(2))
        game = families.binary_sums((1.0, 1.0), tuple(rng.uniform(0, 3, 2).tolist()), clipped)
        samples = sample(game, 24)
        silenced = silenced_by(game, samples) is not None
        seen.add(silenced)
        if silenced:
            assert find(game, samples).nontrivial is None
    assert seen == {True, False}


def test_a_loss_that_is_flat_at_one_has_no_price():
    game = dataclasses.replace(families.counterexample(), loss=lambda p: (1 - p) ** 2)
    assert [silence_price(game, sample(game), n) for n in (0, 1)] == [math.inf, math.inf]


def test_a_game_without_the_conditions_is_none_of_the_theorems():
    studied = study(families.binary_sums())
    assert verdicts(studied)[THEOREM] == verdicts(studied)[PROOF] == "does not apply"
    assert reason(studied, THEOREM).startswith("these of its conditions are not met: V > 0; ")


def test_finding_nothing_by_search_is_undecided_and_in_closed_form_a_refutation():
    game = families.counterexample()
    samples, silence = sample(game, 80), Segment((1.0, 1.0), (1.0, 1.0))
    assert theorem(game, samples, [], Equilibria(None, (), 80, 1e-6)).verdict == "undecided"
    assert theorem(game, samples, [], Equilibria((silence,), (), 80, 1e-6)).verdict == "fails"
    assert (
        theorem(game, samples, [], Equilibria((silence._replace(start=(0.0, 1.0)),), (), 80, 1e-6)).verdict == "holds"
    )


def test_the_theorem_on_binary_sums_fails_from_a_ratio_of_two():
    for r, verdict in ((0.6, "holds"), (1.9, "holds"), (2.0, "fails"), (2.5, "fails")):
        game = families.binary_sums(C=(r, r))
        assert binary_sums_theorem(game, study(game, cells=24)).verdict == verdict
    clipped = families.binary_sums(C=(0.6, 0.6), clipped=True)
    assert binary_sums_theorem(clipped, study(clipped, cells=24)).verdict == "fails"


# --- potentials and assumptions among the findings --------------------------------------------------------------------


def test_potentials_and_assumptions_are_among_the_findings():
    weighted = study(families.binary_sums(B=(1.0, 2.0)), cells=80)
    assert verdicts(weighted)["def: potential game"] == "fails"
    assert "a weighted potential exists, weights 1 and 2" in reason(weighted, "def: potential game")
    assert verdicts(study(families.binary_sums(), cells=80))["def: potential game"] == "holds"
    clipped = verdicts(study(families.binary_sums(clipped=True), cells=80))
    assert [clipped[f"asmp: {i}"] for i in (1, 2, 3, 4)] == ["holds", "fails", "holds", "holds"]


# --- binary sums as they are told -------------------------------------------------------------------------------------


@pytest.mark.parametrize("utility", ["error", "bias"])
def test_with_values_made_from_guesses_silence_is_best_by_either_utility(utility):
    game = families.guesses(C=(0.01, 0.2), utility=utility)
    studied = study(game, cells=80)
    assert [silence_price(game, studied.samples, n) for n in (0, 1)] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert [group.trivial for group in studied.equilibria.approximate] == [True]


# --- words ------------------------------------------------------------------------------------------------------------


def test_a_statement_holds_where_all_of_its_conditions_do():
    one = Condition("asmp: 1", "Z is convex", "holds")
    assert conclude("asmp: 1", [one]).verdict == "holds"
    unsure = Condition("asmp: 1", "W is convex", "undecided", "somewhere")
    assert conclude("asmp: 1", [one, unsure])[2:] == ("undecided", "undecided: W is convex, somewhere")
    bad = Condition("asmp: 1", "W is convex", "fails", "at 0")
    assert conclude("asmp: 1", [one, unsure, bad]).verdict == "fails"
    assert conclude("asmp: 2", [bad, Condition("asmp: 2", "smooth", "holds")]).verdict == "holds"


def test_every_finding_in_words_has_verdict_title_label_and_reason():
    text = in_words([finding(label, "holds", "because") for label in STATEMENTS])
    for label, title in STATEMENTS.items():
        assert f"  holds           {title}  [{label}]\n                  because" in text
