"""Assumptions 1 to 4: games that meet them, and for each a game that does not."""

import dataclasses

import numpy as np
import pytest

from dpmac.games import families, markov
from dpmac.games.assumptions import check, descent
from dpmac.games.cgp import Game
from dpmac.games.markov import MarkovGame, Region
from dpmac.games.rounds import Rounds
from dpmac.games.statements import conclude

SUMS = markov.bounded_rounds(Rounds(), [1.0, 0.3, 2.0])
LABELS = [f"asmp: {i}" for i in (1, 2, 3, 4)]


def verdicts(game: MarkovGame, seed: int = 0) -> list[str]:
    conditions = check(game, seed)
    return [conclude(label, conditions).verdict for label in LABELS]


def broken(game: MarkovGame) -> set[str]:
    return {condition.name for condition in check(game) if condition.verdict != "holds"}


def one_agent(reward, parameters: Region, constraints=lambda x, a: np.zeros(0)) -> MarkovGame:
    """One state, one agent, its action is its parameter."""
    return MarkovGame(markov.box(0, 0, 1), parameters, lambda x, w: w, reward, lambda x, a: x, constraints)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "game",
    [
        SUMS,
        markov.bounded_rounds(Rounds(alpha=0.0, beta=0.0, horizon=1), [1.0, 1.0]),
        markov.one_step(families.binary_sums()),
        markov.one_step(families.quadratic()),
        markov.one_step(families.counterexample()),
    ],
)
def test_multiple_round_sums_and_smooth_one_step_games_meet_all_four(game, seed):
    assert verdicts(game, seed) == ["holds"] * 4


def test_the_sums_as_the_paper_prints_them_break_the_fourth_assumption_alone():
    conditions = check(markov.printed_rounds(Rounds(), 3))
    assert [conclude(label, conditions).verdict for label in LABELS] == ["holds", "holds", "holds", "fails"]
    reason = conclude("asmp: 4", conditions).reason
    assert reason.startswith("fails: the sets r_k ≥ B are bounded, for B = ")
    assert "agent 1 gets" in reason


def test_a_grid_of_actions_is_not_convex():
    grid = Region(np.zeros(6), np.ones(6), lambda w: bool(np.all(2 * w == np.round(2 * w))))
    game = dataclasses.replace(SUMS, parameters=grid)
    assert verdicts(game) == ["fails", "undecided", "undecided", "holds"]
    assert "W is convex" in broken(game)


def test_an_empty_set_leaves_the_other_assumptions_undecided():
    nowhere = dataclasses.replace(SUMS, states=markov.box(1, 0, 3))
    assert verdicts(nowhere) == ["fails", "undecided", "undecided", "undecided"]
    assert "Z is nonempty" in broken(nowhere)


def test_the_clipped_benefit_breaks_the_second_assumption_alone():
    clipped = markov.one_step(families.binary_sums(clipped=True))
    assert verdicts(clipped) == ["holds", "fails", "holds", "holds"]


def test_a_jump_in_the_second_derivative_is_found_and_one_in_the_third_is_none():
    def reward(power):
        return lambda x, a: np.array([max(0.0, float(a[0]) - 0.3) ** power])

    assert verdicts(one_agent(reward(2), markov.box(0, 1, 1)))[1] == "fails"
    assert verdicts(one_agent(reward(3), markov.box(0, 1, 1)))[1] == "holds"


def test_a_transition_with_a_kink_breaks_the_third_assumption():
    def transition(x, a):
        return np.maximum(0.2, x - a[:3])

    assert broken(dataclasses.replace(SUMS, transition=transition)) == {"f is continuously differentiable"}


def test_an_agent_without_savings_leaves_the_constraints_irregular():
    assert broken(markov.bounded_rounds(Rounds(), [1.0, 0.0])) == {"g meets Mangasarian-Fromovitz"}


def test_a_cusp_is_irregular_by_hand():
    """g = (a₂ − (1 − a₁)³, −a₂) at (1, 0) has the gradients (0, 1) and (0, −1); at (0, 0) only −a₂ is active."""
    assert descent(np.array([[0.0, 1.0], [0.0, -1.0]])) == pytest.approx(0, abs=1e-9)
    assert descent(np.array([[0.0, 1.0], [-2.0, 0.0]])) == pytest.approx(1)
    assert descent(np.array([[0.0, 0.0]])) == pytest.approx(0, abs=1e-9)

    def cusp(x, a):
        return np.array([a[1] - (1 - a[0]) ** 3, -a[1]])

    game = one_agent(lambda x, a: -a[:1], markov.box([0, 0], [1, 1], 2), cusp)
    assert broken(game) == {"g meets Mangasarian-Fromovitz"}


@pytest.mark.parametrize(
    ("reward", "bounded"),
    [
        (lambda a: -(a[0] ** 2) - a[1] ** 2, True),
        (lambda a: 1 / (1 + a[0] ** 2 + a[1] ** 2), True),
        (lambda a: -(a[0] ** 2), False),  # a[1] may go anywhere
        (lambda a: a[0], False),
        (lambda a: -1 / (1 + a[0] ** 2 + a[1] ** 2), False),
    ],
)
def test_level_sets_are_bounded_where_going_far_costs(reward, bounded):
    game = one_agent(lambda x, a: np.array([reward(a)]), markov.box(-np.inf, np.inf, 2))
    assert verdicts(game)[3] == ("holds" if bounded else "fails")


def test_a_reward_without_a_value_is_not_proper():
    game = one_agent(lambda x, a: np.array([np.inf if a[0] == 1 else a[0]]), markov.box(0, 1, 1))
    assert "every r_k is proper" in broken(game)


def test_a_game_that_no_point_is_allowed_in_is_undecided():
    game = one_agent(lambda x, a: a, markov.box(0, 1, 1), lambda x, a: 1 + a)
    assert verdicts(game)[3] == "undecided"


def test_a_one_step_game_has_the_utilities_of_its_game():
    game: Game = families.counterexample()
    one = markov.one_step(game)
    w = np.array([0.2, 0.1])
    assert one.rewards(np.zeros(1), one.policy(np.zeros(1), w)).tolist() == [game.utility(n, 0.2, 0.1) for n in (0, 1)]
