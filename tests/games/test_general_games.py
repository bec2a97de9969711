"""The general collaborative game: definitions, potentials, search for equilibria, dynamics, guarantees."""

import dataclasses
import math

import numpy as np
import pytest

from dpmac.games import GameError, families
from dpmac.games.cgp import Game, best_responses, regret, sample
from dpmac.games.definitions import check
from dpmac.games.equilibria import find, walk
from dpmac.games.potential import closes, on_grid, weights, worst_cycle
from dpmac.games.study import study

BINARY = families.binary_sums((1.0, 1.0), (0.6, 0.4))
COUNTEREXAMPLE = families.counterexample()


def without_closed_form(game: Game) -> Game:
    return dataclasses.replace(game, closed_form=None)


def failing(game: Game) -> set[str]:
    return {condition.name for condition in check(game, sample(game)) if condition.verdict != "holds"}


def verdict(game: Game, name: str) -> str:
    (found,) = [condition for condition in check(game, sample(game)) if condition.name == name]
    return found.verdict


# --- definitions ------------------------------------------------------------------------------------------------------


def test_the_counterexample_meets_every_definition_and_the_theorems_condition():
    assert failing(COUNTEREXAMPLE) == set()


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (lambda p: 1 - p / 2, "c(1) = 0"),
        (lambda p: 0.9 * (1 - p), "c(0) = 1"),
        (lambda p: (1 - p) * (1 + 4 * p), "c maps [0, 1] to [0, 1]"),
        (lambda p: (1 - p) * (1 + 4 * p), "∂c < 0"),
        (lambda p: max(0.0, 1 - 2 * p), "∂c < 0"),
        (lambda p: max(1 - p / 2, 2 - 2 * p) if p < 1 else 0.0, "c is continuous"),
        (lambda p: max(1 - 1.5 * p, (1 - p) / 2), "c is twice differentiable"),
        (lambda p: 1 - p - 0.2 * p * (1 - p) + 0.1 * max(0.0, p - 0.5) ** 2, "c is twice differentiable"),
    ],
)
def test_a_privacy_loss_that_breaks_one_demand_is_named(loss, name):
    assert name in failing(dataclasses.replace(COUNTEREXAMPLE, loss=loss))


@pytest.mark.parametrize(
    "loss", [lambda p: 1 - p**0.99999, lambda p: math.exp(-3 * p) * (1 - p), lambda p: (1 - p) ** 2]
)
def test_a_strict_slope_is_not_claimed_where_it_vanishes_and_is_where_it_does_not(loss):
    found = verdict(dataclasses.replace(COUNTEREXAMPLE, loss=loss), "∂c < 0")
    assert found == ("fails" if loss(0.999) < 1e-5 else "holds")


def test_a_slope_that_finite_differences_cannot_tell_from_nought_is_undecided():
    assert verdict(dataclasses.replace(COUNTEREXAMPLE, loss=lambda p: (1 - p) ** 3), "∂c < 0") == "undecided"


def test_a_smooth_function_that_is_steep_for_the_grid_passes():
    step = lambda p: 1 / (1 + math.exp(200 * (p - 0.3)))  # noqa: E731
    share = lambda p: (step(p) - step(1)) / (step(0) - step(1))  # noqa: E731
    steep = dataclasses.replace(COUNTEREXAMPLE, loss=lambda p: 0.9 * share(p) + 0.1 * (1 - p))
    assert failing(steep) == set()
    value = (lambda p1, p2: 2.6 + 0.1 * share(p1) - p1 / 9 - p2 / 9, COUNTEREXAMPLE.value[1])
    names = ("V^M (player 1)", "b (player 1)")
    wanted = {f"{name} is {demand}" for name in names for demand in ("continuous", "twice differentiable")}
    assert not wanted & failing(dataclasses.replace(COUNTEREXAMPLE, value=value))


def test_a_smooth_nonlinear_loss_passes():
    loss = lambda p: (math.exp(-3 * p) - math.exp(-3)) / (1 - math.exp(-3))  # noqa: E731
    assert failing(dataclasses.replace(COUNTEREXAMPLE, loss=loss)) == set()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"benefit": lambda alone, value: value - alone}, "b ≥ 0 (player 1)"),
        ({"benefit": lambda alone, value: value - alone}, "b = 0 where V ≥ V^M (player 2)"),
        ({"benefit": lambda alone, value: max(0.0, value - alone)}, "b (player 1) is twice differentiable"),
        ({"benefit": lambda alone, value: float(value > alone)}, "b (player 2) is continuous"),
        ({"benefit": lambda alone, value: max(0.0, alone - value)}, "∂b/∂p_n ≤ 0 (player 1)"),
        ({"alone": (2.5, 4.0 - 1e-6)}, "V^M ≤ V where some p = 1 (player 2)"),
        ({"alone": (3.0, 4.2)}, "V < V^M(0, 0) (player 1)"),
        ({"alone": (-0.5, 4.2)}, "V > 0 (player 1)"),
        ({"value": (lambda p1, p2: 1.2 - p1 - p2 / 2, lambda p1, p2: 5 - 2 * p1 - p2)}, "V^M > 0 (player 1)"),
        ({"value": (lambda p1, p2: 3 - p1, lambda p1, p2: 5 - 2 * p1 - p2)}, "∂V^M/∂p_2 < 0 (player 1)"),
        ({"value": (lambda p1, p2: 3 - 2 * p1 - p2, lambda p1, p2: 5 - 2 * p1 - p2)}, "∂V₁/∂p₁ = ∂V₂/∂p₂"),
        (
            {"value": (lambda p1, p2: 3 - p1 - p1 * p1 - p2, lambda p1, p2: 5 - 2 * p1 - p2)},
            "∂²V₁/∂p₁² = ∂²V₂/∂p₂²",
        ),
    ],
)
def test_a_benefit_or_value_that_breaks_one_demand_is_named(change, name):
    assert name in failing(dataclasses.replace(COUNTEREXAMPLE, **change))


def test_binary_sums_of_the_paper_break_its_own_definitions():
    unclipped, clipped = failing(BINARY), failing(families.binary_sums(clipped=True))
    assert {"V > 0 (player 1)", "b ≥ 0 (player 1)", "∂V^M/∂p_1 < 0 (player 1)"} <= unclipped
    assert "b (player 1) is twice differentiable" in clipped
    assert "b ≥ 0 (player 1)" not in clipped


# --- potentials -------------------------------------------------------------------------------------------------------


def largest_deviation_gap(game: Game, w, seed=0, count=2000):
    """max |Δu_n − w_n·ΔΦ| over random unilateral deviations on the grid."""
    rng, worst, samples = np.random.default_rng(seed), 0.0, sample(game, 80)
    phi, p = on_grid(samples, w), samples.p.tolist()
    for i, j, k in rng.integers(len(p), size=(count, 3)):
        for n, end in ((0, (k, j)), (1, (i, k))):
            gain = game.utility(n, p[end[0]], p[end[1]]) - game.utility(n, p[i], p[j])
            worst = max(worst, abs(gain - w[n] * (phi[end] - phi[i, j])))
    return worst


@pytest.mark.parametrize("clipped", [False, True])
def test_binary_sums_have_an_exact_potential_for_equal_weights_only(clipped):
    for B, exact in (((1.5, 1.5), True), ((1.5, 0.7), False)):
        game = families.binary_sums(B, (0.9, 0.3), clipped)
        samples = sample(game)
        assert closes(samples, worst_cycle(samples)) == exact
        assert (largest_deviation_gap(game, (1.0, 1.0)) <= 1e-12) == exact


@pytest.mark.parametrize("clipped", [False, True])
def test_binary_sums_have_a_weighted_potential_with_weights_B(clipped):
    game = families.binary_sums((1.5, 0.7), (0.9, 0.3), clipped)
    samples = sample(game)
    w = weights(game, samples)
    assert w == pytest.approx((1.5, 0.7))
    assert largest_deviation_gap(game, game.B) <= 1e-12


def test_the_stated_weighted_potential_is_one():
    game = families.binary_sums((1.5, 0.7), (0.9, 0.3))
    r = families.ratios(game.B, game.C)
    stated = lambda p1, p2: -((p1 + p2) ** 2) / 2 + r[0] * p1 + r[1] * p2  # noqa: E731
    samples = sample(game)
    ours = on_grid(samples, game.B)
    theirs = np.array([[stated(p1, p2) for p2 in samples.p] for p1 in samples.p])
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_the_counterexample_has_no_exact_and_no_weighted_potential():
    samples = sample(COUNTEREXAMPLE)
    assert not closes(samples, worst_cycle(samples))
    assert weights(COUNTEREXAMPLE, samples) is None


def test_no_weights_close_a_rectangle_round_which_one_player_alone_gains():
    """From (0.4, 0) to (0.5, 0.2) player 2 has no benefit. Player 1 has (½ − p₁ − ½p₂)³, 0.001 in the first corner."""
    corners = [(0.5, 0.2), (0.4, 0.2), (0.5, 0.0), (0.4, 0.0)]
    benefits = [[COUNTEREXAMPLE.benefit_of(n, *corner) for corner in corners] for n in (0, 1)]
    assert benefits[0] == pytest.approx([0, 0, 0, 0.001])
    assert benefits[1] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "changes",
    [{"C": (1e11, 1e11)}, {"B": (1e-12, 1.0)}, {"B": (1.0, 1e-12)}, {"B": (1e-12, 1e-12)}, {"B": (1e12, 1.0)}],
)
def test_the_size_of_weights_makes_no_potential(changes):
    game = dataclasses.replace(COUNTEREXAMPLE, **changes)
    samples = sample(game, 80)
    assert not closes(samples, worst_cycle(samples))
    assert weights(game, samples) is None


@pytest.mark.parametrize("slope", [0.1, 0.37, 1.3, 2.7])
def test_rounding_makes_no_weighted_potential_where_one_player_s_utility_separates(slope):
    values = (lambda p1, p2: 3 - p1 * p2, lambda p1, p2: 4 - slope * p1 - 2.3 * p2)
    for value in (values, (values[1], values[0])):
        game = Game((1.0, 1.0), value, lambda alone, v: v - alone, lambda p: 1 - p, (1.0, 1.0), (0.1, 0.1))
        assert weights(game, sample(game, 80)) is None


def test_the_reported_cycle_is_really_open():
    cycle = worst_cycle(sample(COUNTEREXAMPLE))
    (a, b), (c, d) = cycle.corner, cycle.opposite
    u = COUNTEREXAMPLE.utility
    walked = (
        (u(0, c, b) - u(0, a, b)) + (u(1, c, d) - u(1, c, b)) + (u(0, a, d) - u(0, c, d)) + (u(1, a, b) - u(1, a, d))
    )
    assert walked == pytest.approx(cycle.gains, abs=1e-12)
    assert abs(walked) > 0.1


def test_proportional_gaps_give_a_weighted_potential_though_no_exact_one():
    game = dataclasses.replace(COUNTEREXAMPLE, alone=(2.5, 4.0))  # gap₂ = 2·gap₁, so D₂ = 8·D₁
    samples = sample(game)
    assert not closes(samples, worst_cycle(samples))
    w = weights(game, samples)
    assert w is not None
    assert w[1] / w[0] == pytest.approx(8)


def test_separable_utilities_have_an_exact_potential():
    values = (lambda p1, p2: 3 - p1 - p2, lambda p1, p2: 4 - p1 - 2 * p2)
    game = Game((1.0, 1.0), values, lambda alone, value: value - alone, lambda p: 1 - p, (1.0, 2.0), (0.3, 0.4))
    result = study(game)
    assert result.exact_potential
    assert result.weights == (1.0, 1.0)


def test_equal_derivatives_are_not_necessary_either():
    result = study(families.quadratic((1.0, 1.0), (0.6, 0.4), coupling=0.5))
    assert result.exact_potential
    assert any(c.of == "theorem: NE in CGP" and c.verdict == "fails" for c in result.conditions)


# --- best responses and equilibria ------------------------------------------------------------------------------------


@pytest.mark.parametrize("clipped", [False, True])
def test_searched_best_responses_equal_the_closed_form(clipped):
    rng = np.random.default_rng(4)
    for _ in range(60):
        game = families.binary_sums((1.0, 1.0), tuple(rng.uniform(-0.3, 1.6, 2).tolist()), clipped)
        for n in (0, 1):
            other = float(rng.random())
            exact, searched = best_responses(game, n, other), best_responses(without_closed_form(game), n, other)
            np.testing.assert_allclose(searched, exact, atol=2e-6)


def test_a_plateau_of_best_responses_is_its_two_ends():
    game = families.binary_sums((1.0, 1.0), (0.0, 0.5), clipped=True)
    assert best_responses(game, 0, 1.0) == best_responses(without_closed_form(game), 0, 1.0) == (0.0, 1.0)


@pytest.mark.parametrize(
    "game",
    [
        BINARY,
        families.binary_sums((1.0, 2.0), (0.3, 1.4)),
        families.binary_sums((1.0, 1.0), (0.7, 0.2), clipped=True),
        families.quadratic((1.0, 1.0), (0.6, 0.4), 0.5),
        families.quadratic((1.0, 1.0), (1.1, 1.2), 2.0),  # three equilibria
    ],
)
def test_search_finds_every_equilibrium_of_the_closed_form_and_no_other(game):
    assert game.closed_form is not None
    found = find(without_closed_form(game), sample(game, 80))
    assert found.exact is None
    exact = [segment.start for segment in game.closed_form.equilibria]
    assert len(found.approximate) == len(exact)
    for point in exact:
        assert min(math.dist(point, a.point) for a in found.approximate) < 1e-3
    assert all(a.regret <= found.tolerance for a in found.approximate)


def test_search_reports_a_segment_as_one_group_with_its_extent():
    game = without_closed_form(families.binary_sums((1.0, 1.0), (0.75, 0.75)))
    found = find(game, sample(game, 24))
    (group,) = found.approximate
    np.testing.assert_allclose((group.low, group.high), ((0, 0), (0.75, 0.75)), atol=1e-3)


def test_a_game_without_a_pure_equilibrium_yields_none():
    """Player 1 wants p₁ far from p₂, player 2 wants p₂ close to p₁; convex for one, concave for the other."""
    values = (lambda p1, p2: 5 + (p1 - p2) ** 2, lambda p1, p2: 5 - (p1 - p2) ** 2)
    game = Game((1.0, 1.0), values, lambda alone, value: value - alone, lambda p: 1 - p, (1.0, 1.0), (0.0, 0.0))
    result = study(game, cells=80)
    assert result.equilibria.exact is None
    assert result.equilibria.approximate == ()
    assert result.guarantee.startswith("no guarantee: neither an exact nor a weighted potential")
    assert result.walks["sequential"].outcome == "cycle"


# --- dynamics ---------------------------------------------------------------------------------------------------------


def test_sequential_dynamics_rest_and_simultaneous_ones_cycle_for_equal_ratios():
    game = families.binary_sums((1.0, 1.0), (1.0, 1.0))
    sequential, simultaneous = walk(game, (0.0, 0.0), "sequential"), walk(game, (0.0, 0.0), "simultaneous")
    assert sequential.outcome == "rest"
    assert max(regret(game, *sequential.path[-1])) == 0
    assert (simultaneous.outcome, simultaneous.period) == ("cycle", 2)
    assert simultaneous.path[-1] == simultaneous.path[-3] != simultaneous.path[-2]


def test_dynamics_that_contract_come_to_rest_at_the_equilibrium():
    game = families.quadratic((1.0, 1.0), (0.6, 0.4), 0.5)
    assert game.closed_form is not None
    for order in ("sequential", "simultaneous"):
        for played in (game, without_closed_form(game)):
            result = walk(played, (0.9, 0.1), order)
            assert result.outcome == "rest"
            np.testing.assert_allclose(result.path[-1], game.closed_form.equilibria[0].start, atol=1e-6)


def test_a_walk_cut_short_claims_neither():
    assert walk(families.quadratic(coupling=0.99), (0.0, 0.0), "simultaneous", rounds=3).outcome == "neither"


# --- what is said, and what is refused --------------------------------------------------------------------------------


def test_a_guarantee_names_its_reason():
    assert study(BINARY).guarantee.startswith("a pure equilibrium exists: an exact potential")
    negative = study(dataclasses.replace(COUNTEREXAMPLE, C=(-0.1, 0.1)), cells=80)
    assert negative.guarantee.startswith("no guarantee: neither an exact nor a weighted potential")


def test_a_jump_takes_the_guarantee_away():
    game = dataclasses.replace(BINARY, loss=lambda p: 1 - p if p < 0.7 else 0.0, closed_form=None)
    assert study(game, cells=80).guarantee.startswith("no guarantee: c is continuous fails")


def test_a_function_that_returns_nan_or_raises_is_named_with_its_arguments():
    nan = dataclasses.replace(COUNTEREXAMPLE, benefit=lambda alone, value: math.nan)
    with pytest.raises(GameError, match=r"b\(2.5, 3\) is nan; it must be a finite number"):
        study(nan)
    raising = dataclasses.replace(COUNTEREXAMPLE, loss=lambda p: 1 / p)
    with pytest.raises(GameError, match=r"c\(0\) raised ZeroDivisionError"):
        study(raising)


def test_points_outside_the_square_are_refused():
    with pytest.raises(GameError, match=r"must lie in \[0, 1\], not \(1.5, 0"):
        BINARY.utility(0, 1.5, 0.0)
    with pytest.raises(GameError, match="start must lie in the unit square"):
        walk(BINARY, (0.0, -1.0), "sequential")


def test_one_player_or_no_weight_is_refused():
    with pytest.raises(GameError, match="two players, but B has 1"):
        dataclasses.replace(COUNTEREXAMPLE, B=(1.0,))
    with pytest.raises(GameError, match="B must be above 0"):
        dataclasses.replace(COUNTEREXAMPLE, B=(1.0, 0.0))
