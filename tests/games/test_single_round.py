"""Single-round binary sums: privacy, receivers, closed forms against enumeration and simulation."""

import itertools
import time

import numpy as np
import pytest

from dpmac.games import GameError, families
from dpmac.games import binary_sums as sums


def enumerate_errors(receiver, p, q):
    """E[error] and E[error²] of each agent by summing over all bits and messages: (agent,) each."""
    agents = len(p)
    first, second = np.zeros(agents), np.zeros(agents)
    for bits in itertools.product((0, 1), repeat=agents):
        for messages in itertools.product((0, 1), repeat=agents):
            b, x = np.array(bits), np.array(messages)
            chance = np.prod(np.where(b == 1, q, 1 - q)) * np.prod(np.where(b == x, 1 - p / 2, p / 2))
            guesses = [
                b[i] + sum(receiver.offset[j] + receiver.scale[j] * x[j] for j in range(agents) if j != i)
                for i in range(agents)
            ]
            error = np.array(guesses) - b.sum()
            first += chance * error
            second += chance * error**2
    return first, second


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 1.0, 5.0, 30.0])
def test_likelihood_ratio_of_a_message_is_exactly_the_budget(epsilon):
    p = sums.perturbation(epsilon)
    np.testing.assert_allclose(np.log((1 - p / 2) / (p / 2)), epsilon, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sums.privacy(p), epsilon, rtol=1e-12, atol=1e-15)


def test_no_perturbation_is_no_privacy():
    assert sums.perturbation(np.inf) == 0
    assert sums.privacy(0.0) == np.inf


def test_closed_forms_equal_enumeration_for_all_receivers_and_unequal_agents():
    p, q = sums.perturbation([0.3, 1.0, 2.5, np.inf]), np.array([0.2, 0.5, 0.9, 0.4])
    for name, receiver in sums.receivers(p, [0.3, 0.5, 0.7, 0.4]).items():
        for truth in (q, np.array([1.0, 0.0, 1.0, 1.0])):
            bias, mse = enumerate_errors(receiver, p, truth)
            found = sums.moments(receiver, p, truth)
            np.testing.assert_allclose(found.bias, bias, atol=1e-12, err_msg=name)
            np.testing.assert_allclose(found.mse, mse, rtol=1e-10, err_msg=name)
            np.testing.assert_allclose(found.variance, mse - bias**2, atol=1e-11, err_msg=name)


def test_naive_bias_is_the_papers():
    bits, p = np.array([1, 0, 1, 1, 0]), np.full(5, 0.4)
    paper = [p[0] * 4 / 2 - p[0] * (bits.sum() - bits[i]) for i in range(5)]
    np.testing.assert_allclose(sums.moments(sums.naive(p), p, bits).bias, paper, atol=1e-14)


def test_corrected_guess_is_unbiased_with_the_stated_variance():
    agents, epsilon = 6, 1.3
    p = np.full(agents, sums.perturbation(epsilon))
    found = sums.moments(sums.corrected(p), p, np.array([1, 0, 0, 1, 1, 0]))
    np.testing.assert_allclose(found.bias, 0, atol=1e-14)
    np.testing.assert_allclose(found.variance, (agents - 1) * np.exp(epsilon) / (np.exp(epsilon) - 1) ** 2, rtol=1e-12)


def test_bayes_has_the_least_mean_squared_error_of_all_affine_receivers():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p, q = rng.random(3), rng.random(3)
        best = sums.moments(sums.bayes(p, q), p, q).mse
        other = sums.Receiver(rng.normal(size=3), rng.normal(size=3))
        for receiver in (sums.naive(p), sums.corrected(p), other):
            assert np.all(best <= sums.moments(receiver, p, q).mse + 1e-12)


def test_simulation_agrees_with_closed_form_within_five_standard_errors():
    rounds, rng = 200_000, np.random.default_rng(1)
    p, q = sums.perturbation([0.5, 1.0, 2.0]), np.array([0.3, 0.5, 0.8])
    for receiver in sums.receivers(p, q).values():
        exact, played = sums.moments(receiver, p, q), sums.simulate(receiver, p, q, rounds, rng)
        assert np.all(np.abs(played.bias - exact.bias) <= 5 * np.sqrt(exact.variance / rounds))
        assert np.all(np.abs(played.mse - exact.mse) <= 5 * played.mse_error)


def test_the_error_of_a_played_error_is_that_of_a_share_of_wrong_messages():
    """Of two agents one naive guess errs by 1 with probability p/2, and not otherwise."""
    p, rounds, rng = np.array([0.4, 0.8]), 10_000, np.random.default_rng(6)
    wrong = p[::-1] / 2
    found = sums.simulate(sums.naive(p), p, 0.5, rounds, rng)
    np.testing.assert_allclose(found.mse_error, np.sqrt(wrong * (1 - wrong) / rounds), rtol=0.05)
    assert np.all(np.isinf(sums.simulate(sums.naive(p), p, 0.5, 1, rng).mse_error))


def test_many_agents_are_played_in_chunks_that_fit_in_memory():
    sizes = [bits.shape for bits, _ in sums.played(np.full(10_000, 0.5), 0.5, 1000, np.random.default_rng(0))]
    assert sum(rounds for rounds, _ in sizes) == 1000
    assert max(rounds * agents for rounds, agents in sizes) <= 2**22
    assert next(sums.played(np.full(64, 0.5), 0.5, 10**6, np.random.default_rng(0)))[0].shape == (2**16, 64)


def exact_utilities(receiver, p, q):
    """Both utilities of each agent by summing over all bits and messages: (agent,) each."""
    agents = len(p)
    by_bias, by_error = np.zeros(agents), np.zeros(agents)
    for bits in itertools.product((0, 1), repeat=agents):
        b = np.array(bits)
        chance = np.prod(np.where(b == 1, q, 1 - q))
        mean, absolute = np.zeros(agents), np.zeros(agents)
        for messages in itertools.product((0, 1), repeat=agents):
            x = np.array(messages)
            heard = np.prod(np.where(b == x, 1 - p / 2, p / 2))
            error = sums.others(receiver.offset + receiver.scale * x - b)
            mean += heard * error
            absolute += heard * np.abs(error)
        by_bias -= chance * np.abs(mean)
        by_error -= chance * absolute
    return by_bias, by_error


def test_both_utilities_equal_enumeration_within_their_noise():
    p, q = sums.perturbation([0.5, 1.0, 2.0]), np.array([0.3, 0.5, 0.8])
    for receiver in sums.receivers(p, q).values():
        found = sums.utilities(receiver, p, q, 100_000, np.random.default_rng(4))
        bias, error = exact_utilities(receiver, p, q)
        np.testing.assert_allclose(found.bias, bias, atol=0.02)
        np.testing.assert_allclose(found.error, error, atol=0.02)
        assert np.all(found.error <= found.bias)


def test_the_papers_utility_is_minus_the_absolute_bias_for_given_bits():
    p, bits = np.full(4, 0.4), np.array([1.0, 1.0, 0.0, 1.0])
    for receiver in sums.receivers(p, 0.5).values():
        found = sums.utilities(receiver, p, bits, 10, np.random.default_rng(5))
        np.testing.assert_allclose(found.bias, -np.abs(sums.moments(receiver, p, bits).bias), atol=1e-14)


def test_the_order_of_the_receivers_turns_round_with_the_utility():
    """By bias the corrected guess is perfect at every ε and Bayes is worst; by error the corrected one is worst."""
    for epsilon in (0.1, 1.0, 2.0):
        p = np.full(5, sums.perturbation(epsilon))
        exact = {name: exact_utilities(r, p, np.full(5, 0.5)) for name, r in sums.receivers(p, 0.5).items()}
        by_bias, by_error = ({name: pair[i][0] for name, pair in exact.items()} for i in (0, 1))
        assert by_bias["corrected"] == pytest.approx(0, abs=1e-12)
        assert by_bias["corrected"] > by_bias["naive"] > by_bias["bayes"]
        assert min(by_error, key=by_error.__getitem__) == "corrected"
        assert (by_error["bayes"] > by_error["naive"]) == (epsilon < 2)


@pytest.mark.parametrize(("utility", "which", "receiver"), [("bias", 0, "corrected"), ("error", 1, "naive")])
def test_the_game_of_guesses_has_the_values_of_two_agents_who_guess(utility, which, receiver):
    game = families.guesses(utility=utility)
    for p1, p2 in ((0.0, 0.3), (0.5, 0.9), (0.99, 0.0)):
        p = np.array([p1, p2])
        found = exact_utilities(sums.receivers(p, 0.5)[receiver], p, np.full(2, 0.5))[which]
        np.testing.assert_allclose([game.value_of(n, p1, p2) for n in (0, 1)], found, atol=1e-12)


def test_a_million_rounds_take_under_a_second():
    p = np.full(5, sums.perturbation(1.0))
    times = []
    for _ in range(3):
        start = time.process_time()
        sums.simulate(sums.corrected(p), p, 0.5, 1_000_000, np.random.default_rng(2))
        times.append(time.process_time() - start)
    assert min(times) < 1


@pytest.mark.parametrize("p", [-0.1, 1.1, np.nan])
def test_a_probability_outside_the_unit_interval_is_refused(p):
    with pytest.raises(GameError, match=r"must lie in \[0, 1\]"):
        sums.privacy(p)
    with pytest.raises(GameError, match=r"must lie in \[0, 1\]"):
        sums.probabilities("p", p, 3)


def test_a_probability_next_to_nought_has_a_finite_budget():
    """ln(2/p) = ln 2 + 310·ln 10."""
    assert float(sums.privacy(1e-310)) == pytest.approx(np.log(2) + 310 * np.log(10))


def test_one_agent_alone_is_refused():
    with pytest.raises(GameError, match="at least 2 agents"):
        sums.probabilities("p", 0.5, 1)


def test_without_information_no_unbiased_guess_is_offered():
    p = np.array([1.0, 0.5])
    assert set(sums.receivers(p, 0.5)) == {"naive", "bayes"}
    with pytest.raises(GameError, match="p < 1"):
        sums.corrected(p)
