"""Subset selection: accounting against enumeration, against randomised response, and what is shipped."""

import itertools
import math
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import pld
from scipy.stats import chisquare

from dpmac import privacy
from dpmac.agents.mechanisms import mechanism, noise_scale
from dpmac.config import BadInput, Channel, Release
from dpmac.privacy import Entropy, mechanisms
from dpmac.privacy import loss as losses

DELTA = 1e-4
EIGHT = Channel("subset", symbols=8, period=0)


def host_of(spec) -> Any:
    return mechanisms.of(spec)


def subsets(spec, noise):
    """All subsets, and the probability of each, straight from the definition."""
    k, host = spec.symbols, host_of(spec)
    d, ratio = host.members(noise), 1 / noise
    inside = d * ratio / (d * ratio + k - d)
    found = [frozenset(one) for one in itertools.combinations(range(k), d)]

    def law(symbol):
        held, free = math.comb(k - 1, d - 1), math.comb(k - 1, d)
        return np.array([inside / held if symbol in one else (1 - inside) / free for one in found])

    return found, law


@pytest.mark.parametrize(("epsilon", "members"), [(0.5, 3), (1.0, 2), (2.0, 1)])
def test_size_of_a_subset_is_that_of_its_authors(epsilon, members):
    noise = privacy.calibrate(EIGHT, epsilon, DELTA)
    assert host_of(EIGHT).members(noise) == members == max(1, round(8 / (math.exp(epsilon) + 1)))
    assert privacy.pure_epsilon(Release(EIGHT, noise)) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("symbols", [2, 3, 5, 8])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
def test_accounting_agrees_with_all_subsets_and_all_pairs_of_them(symbols, epsilon):
    spec = Channel("subset", symbols=symbols)
    noise = math.exp(-epsilon)
    _, law = subsets(spec, noise)
    first, second = law(0), law(1)
    assert first.sum() == pytest.approx(1, abs=1e-12)
    assert np.log(first / second).max() == pytest.approx(epsilon, rel=1e-9)
    twice = np.outer(first, first).ravel(), np.outer(second, second).ravel()
    for at in np.linspace(0, 2 * epsilon, 23):
        for uses, (p, q) in ((1, (first, second)), (2, twice)):
            exact = np.maximum(p - math.exp(at) * q, 0).sum()
            assert privacy.delta(Release(spec, noise, uses), float(at)) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("symbols", [2, 3, 8, 30])
@pytest.mark.parametrize(("epsilon", "uses"), [(0.3, 10), (1.0, 25), (3.0, 4), (20.0, 7), (60.0, 25), (1.0, 400)])
def test_calibrated_noise_of_many_uses_meets_the_budget_and_hardly_more(symbols, epsilon, uses):
    spec = Channel("subset", symbols=symbols)
    noise = privacy.calibrate(spec, epsilon, DELTA, uses)
    release = Release(spec, noise, uses)
    assert privacy.epsilon(release, DELTA) <= epsilon
    assert privacy.epsilon(replace(release, noise=0.999 * noise), DELTA) > epsilon


def test_the_event_is_an_upper_bound_and_exact_for_single_symbols():
    for spec, noise in ((EIGHT, math.exp(-0.5)), (EIGHT, math.exp(-2)), (Channel("subset", symbols=5), 0.7)):
        release = Release(spec, noise, 6)
        accountant = pld.PLDAccountant(privacy.relation(release))
        accountant.compose(privacy.event(release))
        claimed, exact = accountant.get_epsilon(1e-5), privacy.epsilon(release, 1e-5)
        assert exact <= claimed * (1 + 1e-6)
        if host_of(spec).members(noise) == 1:
            assert claimed == pytest.approx(exact, rel=2e-3)
        else:
            assert claimed <= 1.25 * exact


@pytest.mark.parametrize("symbols", [3, 8, 100])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 0.01, 0.3, 1.0, 5.0, 30.0])
def test_the_stated_loss_is_no_smaller_than_that_of_what_is_drawn(symbols, epsilon):
    """In exact fractions: the words of the threshold against e^ε₀ from 60 digits."""
    spec = Channel("subset", symbols=symbols, period=0)
    noise = privacy.calibrate(spec, epsilon, DELTA)
    high, low = (int(word) for word in host_of(spec).parameters(noise).threshold)
    left, d = Fraction((high << 32) + low, 2**64), host_of(spec).members(noise)
    ratio = (1 - left) / left * Fraction(symbols - d, d)  # of a subset with the true symbol to one without
    stated = privacy.pure_epsilon(Release(spec, noise))
    assert ratio <= Fraction(Decimal(stated).exp(Context(prec=60)))


@pytest.mark.parametrize(("symbols", "ratio"), [(3, 0.7), (4, 0.7), (5, 0.6)])
def test_ties_between_words_move_every_subset_by_a_bounded_share(symbols, ratio):
    """With words of N = 4 values, enumerated: (1 ± 1/N)^(k − 1) of an even choice, with and without the true symbol."""
    spec, words = Channel("subset", symbols=symbols), 4
    host = host_of(spec)
    d = host.members(ratio)
    drawn = np.array(list(itertools.product(range(words), repeat=symbols)), np.uint32)
    for first, held in ((0xFFFFFFFF, 1), (0, 0)):
        draws = np.zeros((len(drawn), 1 + symbols, 2), np.uint32)
        draws[:, 0], draws[:, 1:, 0] = first, drawn
        left = np.array([host.release(np.eye(symbols)[0], each, ratio) for each in draws])
        _, counts = np.unique(left[left[:, 0] == held], axis=0, return_counts=True)
        even = len(drawn) / math.comb(symbols - 1, d - held)
        assert counts.sum() == len(drawn)
        assert len(counts) == math.comb(symbols - 1, d - held)
        assert counts.min() >= even * (1 - 1 / words) ** (symbols - 1)
        assert counts.max() <= even * (1 + 1 / words) ** (symbols - 1)


def test_a_ledger_adds_up_uses(tmp_path):
    ledger, release = privacy.Ledger(tmp_path / "ledger", [math.inf], DELTA, create=True), Release(EIGHT, 0.6)
    ledger.charge({0: release}, times=3)
    ledger.charge({0: Release(replace(EIGHT, period=1), 0.6, 4)})
    assert ledger.spent(0) == pytest.approx(privacy.epsilon(Release(replace(EIGHT, period=1), 0.6, 7), DELTA))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: privacy.epsilon(Release(EIGHT, 1.1), DELTA), "at most 1"),
        (lambda: privacy.calibrate(replace(EIGHT, sample_rate=0.5), 1.0, DELTA), "samples transitions"),
        (lambda: privacy.epsilon(Release(replace(EIGHT, place="receiver"), 0.5), DELTA), "at the receiver"),
        (lambda: host_of(EIGHT).parameters(1e-30), "2\\^-64"),
        (lambda: host_of(EIGHT).check_released(np.zeros((2, 2)), np.zeros((2, 2)), 0.5), "axes"),
        (lambda: host_of(EIGHT).check_released(np.zeros((2, 2, 2)), np.zeros((2, 2, 2, 8)), 0.0), "must lie"),
    ],
)
def test_nonsense_is_refused_with_a_message(call, says):
    with pytest.raises(BadInput, match=says):
        call()


# Beside randomised response -------------------------------------------------------------------------------------------


def told(name, symbols, epsilon):
    """Bits that one release tells of a symbol, and how often it is guessed right."""
    spec = Channel(name, symbols=symbols, period=0)
    noise = privacy.calibrate(spec, epsilon, DELTA)
    return privacy.bits_per_episode(spec, noise, 8, 1), privacy.eavesdropper_accuracy(spec, noise, 1)


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_subsets_of_eight_symbols_tell_more_than_randomised_response(epsilon):
    """More bits, but no better single guess: for that randomised response is the best there is."""
    (bits, right), (fewer, better) = told("subset", 8, epsilon), told("response", 8, epsilon)
    assert bits > 1.25 * fewer
    assert right < better == pytest.approx(privacy.private_accuracy(epsilon, 0.0, 8))


@pytest.mark.parametrize(("symbols", "epsilon"), [(3, 0.5), (3, 1.0), (3, 2.0), (8, 2.0)])
def test_where_a_subset_is_one_symbol_it_is_randomised_response(symbols, epsilon):
    assert told("subset", symbols, epsilon) == pytest.approx(told("response", symbols, epsilon))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_bits_and_guess_agree_with_enumeration(epsilon):
    _, law = subsets(EIGHT, math.exp(-epsilon))
    joint = np.stack([law(symbol) for symbol in range(8)]) / 8
    bits = float(np.sum(joint * np.log2(joint / (joint.sum(1, keepdims=True) * joint.sum(0)))))
    assert told("subset", 8, epsilon) == pytest.approx((bits, joint.max(0).sum()), rel=1e-9)
    cap = privacy.transcript_accuracy(Release(EIGHT, math.exp(-epsilon)), 8)
    assert joint.max(0).sum() <= cap <= privacy.private_accuracy(epsilon, 0.0, 8) + 1e-12


def test_no_guess_from_many_subsets_exceeds_the_limit():
    spec, rng = replace(EIGHT, period=1), np.random.default_rng(0)
    noise, count, uses = math.exp(-0.5), 4000, 6
    host = host_of(spec)
    words = rng.integers(2**32, size=(count, uses, 9, 2), dtype=np.uint32)
    aggregated = np.array([[host.release(np.eye(8)[0], one, noise) for one in each] for each in words]).sum(1)
    best = aggregated == aggregated.max(1, keepdims=True)
    right = (best[:, 0] / best.sum(1)).mean()
    assert right <= privacy.eavesdropper_accuracy(spec, noise, uses) + 4 * 0.5 / math.sqrt(count)
    assert privacy.signal_to_noise(spec, noise, 8) == pytest.approx(
        (host.inclusion(noise) / 3) / (1 - host.inclusion(noise) / 3)
    )


# What is shipped ------------------------------------------------------------------------------------------------------


def deployed(spec, noise, symbol, count):
    host, source = host_of(spec), Entropy()
    return np.stack([host.release(np.eye(8)[symbol], host.draw(source, noise, 8), noise) for _ in range(count)])


def compiled(spec, noise, symbol, count):
    twin, scale = mechanism(spec, 8), jax.tree.map(lambda leaf: leaf[0], noise_scale(spec, (noise,)))
    release = jax.jit(jax.vmap(twin.release, in_axes=(None, 0, None)))
    return np.asarray(release(np.eye(8)[symbol], twin.draw(jax.random.key(1), (count,)), scale))


@pytest.mark.parametrize(("side", "count"), [(deployed, 6000), (compiled, 60_000)])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_every_subset_leaves_as_often_as_it_should(side, count, epsilon):
    found, law = subsets(EIGHT, math.exp(-epsilon))
    released = side(EIGHT, math.exp(-epsilon), 3, count)
    assert set(np.unique(released)) == {0, 1}
    place = {one: index for index, one in enumerate(found)}
    counts = np.zeros(len(found))
    for row in released:
        counts[place[frozenset(np.flatnonzero(row).tolist())]] += 1
    assert chisquare(counts, count * law(3)).pvalue > 1e-4


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_audit_of_the_shipped_channel_comes_close_to_epsilon_and_stays_below(epsilon):
    from dpmac.analysis.audit import shipped

    release = Release(EIGHT, privacy.calibrate(EIGHT, epsilon, DELTA))
    canary = privacy.canary(release)
    bound = host_of(EIGHT).audit(shipped(release, canary, 8), DELTA, 200_000, release.noise, canary.direction, 0.99)
    assert bound.method == "symbol counts"
    assert 0.85 * epsilon < bound.epsilon <= epsilon


def test_a_claim_of_half_the_epsilon_is_refuted():
    from dpmac.analysis.audit import shipped

    release = Release(EIGHT, privacy.calibrate(EIGHT, 1.0, DELTA))
    canary = privacy.canary(release)
    bound = host_of(EIGHT).audit(shipped(release, canary, 8), DELTA, 50_000, 0.0, canary.direction, 0.99)
    assert privacy.verdict(0.5, bound)["verdict"] == "refuted"


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_checks_leave_sound_subsets_alone(copies, epsilon):
    spec, noise, failed = replace(EIGHT, copies=copies), math.exp(-epsilon), 0
    host, twin = host_of(spec), mechanism(spec, 8)
    scale = jax.tree.map(lambda leaf: leaf[0], noise_scale(spec, (noise,)))
    release = jax.jit(jax.vmap(jax.vmap(twin.release, in_axes=(None, 0, None)), in_axes=(0, 0, None)))
    for seed in range(40):
        sent = np.random.default_rng(seed).integers(8, size=(30, 8, 2))
        draws = twin.draw(jax.random.key(seed), (sent.size, copies))
        released = np.asarray(release(np.eye(8)[sent.ravel()], draws, scale)).reshape(30, 8, 2, copies, 8)
        failed += bool(privacy.failures(host.check_released(sent, released, noise)))
    assert failed <= 4


def test_a_receiver_reads_the_posterior():
    noise = math.exp(-0.5)
    found, law = subsets(EIGHT, noise)
    twin, scale = mechanism(EIGHT, 8), jax.tree.map(lambda leaf: leaf[0], noise_scale(EIGHT, (noise,)))
    joint = np.stack([law(symbol) for symbol in range(8)])
    for index in (0, 17, 55):
        held = np.isin(np.arange(8), list(found[index])).astype(np.float32)
        posterior = joint[:, index] / joint[:, index].sum()
        np.testing.assert_allclose(twin.decode(jnp.asarray(held), scale), posterior - 1 / 8, atol=1e-6)


def test_gradient_is_that_of_the_mean():
    noise = math.exp(-0.5)
    found, law = subsets(EIGHT, noise)
    members = np.array([[symbol in one for symbol in range(8)] for one in found], float)
    mean = np.stack([law(symbol) @ members for symbol in range(8)])
    slope = host_of(EIGHT).parameters(noise).slope
    np.testing.assert_allclose(mean - mean.mean(0), slope * (np.eye(8) - 1 / 8), atol=1e-6)


def test_randomised_response_loses_nothing_by_being_a_subset():
    noise = math.exp(-2.0)
    found, known = host_of(EIGHT).lattice(noise), losses.response_lattice(losses.response_flip(2.0, 8), 8)
    assert (found.step, *found.probabilities) == pytest.approx((known.step, *known.probabilities), rel=1e-9)
