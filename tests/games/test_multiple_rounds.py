"""Multiple-round sums: potentials under unilateral deviations, the equilibrium against dynamic programming."""

import dataclasses
import itertools

import numpy as np
import pytest

from dpmac.games import GameError, rounds
from dpmac.games.rounds import Rounds


def random_game(rng: np.random.Generator) -> tuple[Rounds, np.ndarray]:
    game = Rounds(
        alpha=float(rng.choice([0.0, rng.uniform(0, 0.05), rng.uniform(0, 1)])),
        beta=float(rng.choice([0.0, rng.uniform(0, 2)])),
        horizon=int(rng.integers(1, 8)),
        discount=float(rng.choice([1.0, rng.uniform(0, 1), rng.uniform(0.9, 1)])),
    )
    return game, rng.uniform(0, 2, int(rng.integers(2, 5)))


def brute_force(game: Rounds, saving: float, parts: int) -> float:
    """The best own value over every division of the saving into whole parts and every p ∈ {0, ½, 1}, by recursion."""

    def best(t: int, left: int) -> float:
        if t == game.horizon:
            return 0.0
        x = saving * left / parts
        return max(
            (1 - p) * saving * give / parts + game.alpha * x + game.beta * p + game.discount * best(t + 1, left - give)
            for give in range(left + 1)
            for p in (0.0, 0.5, 1.0)
        )

    return best(0, parts)


def test_equilibrium_value_equals_dynamic_programming_in_600_random_cases():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(600):
        game, savings = random_game(rng)
        exact = rounds.own_values(game, rounds.equilibrium(game, savings))
        program = [rounds.dynamic_program(game, float(x)) for x in savings]
        np.testing.assert_allclose(exact, program, rtol=1e-12, atol=1e-12)
        seen |= {rounds.when_to_give(game, float(x)) for x in savings}
    assert seen == {"never", "first", "last"}


def test_dynamic_programming_equals_plain_recursion():
    rng = np.random.default_rng(1)
    for _ in range(40):
        game, savings = random_game(rng)
        game = Rounds(game.alpha, game.beta, min(game.horizon, 3), game.discount)
        saving = float(savings[0])
        assert rounds.dynamic_program(game, saving, parts=4) == pytest.approx(brute_force(game, saving, 4), rel=1e-12)


def test_no_joint_deviation_in_the_whole_game_gains():
    """Two agents, every plan on a grid, in the full reward rather than the own part of it."""
    game, savings = Rounds(alpha=0.1, beta=0.4, horizon=2, discount=0.9), np.array([1.0, 0.3])
    played = rounds.equilibrium(game, savings)
    value = rounds.values(game, played)
    grid = (0.0, 0.5, 1.0)
    for i in (0, 1):
        for first, second, p1, p2 in itertools.product(grid, grid, grid, grid):
            b, p = played.b.copy(), played.p.copy()
            b[:, i] = [first * savings[i], second * (1 - first) * savings[i]]
            p[:, i] = [p1, p2]
            assert rounds.values(game, rounds.episode(game, savings, b, p))[i] <= value[i] + 1e-12


def test_no_random_plan_beats_the_equilibrium():
    rng = np.random.default_rng(2)
    for _ in range(500):
        game, savings = random_game(rng)
        plans = [rounds.random_plan(game, float(x), rng) for x in savings]
        played = rounds.episode(game, savings, np.array([b for b, _ in plans]).T, np.array([p for _, p in plans]).T)
        assert np.all(rounds.regret(game, played) >= -1e-12)


def printed_for_the_deviator(deviator: int) -> rounds.Potential:
    """The other reading of the printed potential: i is whoever deviates."""
    return lambda game, x, b, p: ((1 - p) * b + game.alpha * x + game.beta * p[..., [deviator]]).sum(axis=-1)


def test_the_corrected_potential_passes_the_test_that_the_printed_one_fails():
    rng = np.random.default_rng(3)
    for _ in range(20):
        game, savings = random_game(rng)
        scale = 1 + savings.sum() * game.horizon
        assert rounds.largest_gap(game, rounds.corrected_potential, savings, 50, rng) <= 1e-12 * scale
    game, savings = Rounds(alpha=0.3, beta=0.4, horizon=5), np.ones(3)
    assert rounds.largest_gap(game, rounds.corrected_potential, savings, 100, rng) <= 1e-12
    assert rounds.largest_gap(game, rounds.printed_potential, savings, 100, rng) > 0.1
    readings = [rounds.largest_gap(game, printed_for_the_deviator(i), savings, 100, rng) for i in range(3)]
    assert min(readings) > 0.1


def test_the_corrected_remainder_is_out_of_the_agents_hands():
    game, rng = Rounds(), np.random.default_rng(4)
    x, b, p = rng.random((3, 4))
    theta = [-sum(game.alpha * x[j] + game.beta * p[j] for j in range(4) if j != k) for k in range(4)]
    rewards = game.rewards(x, b, p)
    np.testing.assert_allclose(rewards - rounds.corrected_potential(game, x, b, p), theta, atol=1e-14)


def test_no_potential_once_policies_react_to_messages():
    """The others give once they have heard of a gift, so a deviation of the first agent changes their part of J.

    Agent 1 gives at once instead of never. The other then gives in round 2: it loses α in round 3 and β in round 2,
    which are in J and not in V₁. Its gift of 1 is in both.
    """
    game = Rounds(alpha=0.3, beta=0.4, horizon=3)
    assert rounds.reaction_gap(game, [1.0, 1.0]) == pytest.approx(0.3 + 0.4)
    assert rounds.reaction_gap(game, [1.0, 1.0, 1.0]) == pytest.approx(2 * (0.3 + 0.4))


def test_the_order_of_the_agents_makes_no_difference_to_the_reaction():
    """β = 0, T = 5, g = 1. One without savings reacts with nothing; the other loses α in rounds 3 to 5."""
    for savings in itertools.permutations([0.0, 1.0, 1.0]):
        assert rounds.reaction_gap(Rounds(alpha=0.3, beta=0.0), savings) == pytest.approx(0.9)


def test_nobody_reacts_in_a_single_round_or_to_a_gift_of_nothing():
    """Only the other's gift is heard of; the one without savings then loses β in round 2."""
    assert rounds.reaction_gap(Rounds(horizon=1), [1.0, 1.0]) == pytest.approx(0, abs=1e-12)
    assert rounds.reaction_gap(Rounds(horizon=4), [0.0, 0.0]) == pytest.approx(0, abs=1e-12)
    assert rounds.reaction_gap(Rounds(horizon=4), [0.0, 1.0]) == pytest.approx(0.4)


def test_the_equilibrium_stays_one_among_policies_that_react():
    """Others play their equilibrium plans, which do not react; no policy of agent 1 that does gains anything."""
    rng = np.random.default_rng(6)
    for _ in range(100):
        game, savings = random_game(rng)
        played = rounds.equilibrium(game, savings)

        def plan(i, played=played):
            return lambda t, x, messages: (min(float(played.b[t, i]), x), float(played.p[t, i]))

        weights = rng.normal(size=(2, len(savings) + 2))

        def reacting(t, x, messages, weights=weights):
            share, p = 1 / (1 + np.exp(-weights @ np.concatenate([[x, t], messages])))
            return share * x, p

        others = [plan(i) for i in range(1, len(savings))]
        deviated = rounds.play(game, savings, [reacting, *others])
        assert rounds.values(game, deviated)[0] <= rounds.values(game, played)[0] + 1e-12


def test_equilibrium_play_has_no_regret_and_a_known_plan_has_the_regret_counted_by_hand():
    game, savings = Rounds(alpha=0.3, beta=0.4, horizon=5, discount=1.0), np.ones(3)
    np.testing.assert_allclose(rounds.regret(game, rounds.equilibrium(game, savings)), 0, atol=1e-15)
    # Best: 4 rounds of β, 5 of α·1, a gift of 1. Never sharing: 5 of β, 5 of α. Always at once: a gift of 1, 1 of α.
    np.testing.assert_allclose(rounds.regret(game, rounds.never_share(game, savings)), 1 - 0.4)
    np.testing.assert_allclose(rounds.regret(game, rounds.always_share(game, savings)), 4 * 0.4 + 4 * 0.3)


def test_default_parameters_make_never_and_always_sharing_at_least_30_percent_worse():
    game = Rounds()
    for savings in (np.ones(3), np.full(3, 0.8), np.full(3, 1.2), np.array([0.8, 1.0, 1.2])):
        best = rounds.values(game, rounds.equilibrium(game, savings)).mean()
        for other in (
            rounds.never_share(game, savings),
            rounds.always_share(game, savings),
            rounds.always_share(game, savings, evenly=True),
        ):
            assert rounds.values(game, other).mean() <= 0.7 * best


def test_what_the_rules_forbid_is_refused():
    game = Rounds(horizon=2)
    fine = np.zeros((2, 2))
    with pytest.raises(GameError, match="at least 2 agents"):
        rounds.equilibrium(game, [1.0])
    with pytest.raises(GameError, match="0 ≤ b ≤ x"):
        rounds.episode(game, [1.0, 1.0], [[0.6, 0.0], [0.6, 0.0]], fine)
    with pytest.raises(GameError, match=r"p must lie in \[0, 1\]"):
        rounds.episode(game, [1.0, 1.0], fine, fine + 1.5)
    for saving in (-1.0, 1e308, np.nan, np.inf):
        with pytest.raises(GameError, match="savings must be at least 0 and at most"):
            rounds.never_share(game, [1.0, saving])
    for options in ({"alpha": -1.0}, {"alpha": 1e308}, {"beta": np.nan}, {"horizon": 0}, {"discount": 1.1}):
        with pytest.raises(GameError, match="must"):
            dataclasses.replace(game, **options)
