"""What every mechanism has, whichever it is."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from dpmac import privacy
from dpmac.config import BadInput, Channel, Release
from dpmac.privacy import Entropy, discrete, mechanisms
from dpmac.privacy.mechanisms import additive
from dpmac.privacy.mechanisms.base import Mechanism
from dpmac.privacy.mechanisms.symbols import Symbols

DELTA = 1e-4


@pytest.mark.parametrize("name", mechanisms.names())
def test_what_leaves_has_the_size_that_senders_were_told(name):
    host = mechanisms.of(Channel(name, symbols=4))
    size = host.size(6)
    assert size == (4 if host.alphabet else 6)
    for noise in (0.0, 0.4):
        sent = host.release(np.arange(size), host.draw(Entropy(), noise, size), noise)
        assert sent.shape == (size,)
        assert sent.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gaussian", "σ = 0.4"),
        ("code", "σ = 0.4"),
        ("response", "symbols replaced with probability 0.4"),
        ("subset", "1 of 4 symbols sent, the true one among them with probability 0.455"),
        ("timed", "moment and word drawn at random with probability 0.4"),
    ],
)
def test_the_noise_scale_can_be_said_in_words(name, says):
    assert mechanisms.of(Channel(name, symbols=4)).describe_noise(0.4) == says


@pytest.mark.parametrize("name", ["response", "subset"])
def test_what_a_mechanism_does_not_know_is_bounded_by_what_is_always_true(name):
    host = mechanisms.of(Channel(name, symbols=8, copies=2))
    for noise in (0.3, 0.7):
        assert Mechanism.bits(host, noise, 8, 5) >= host.bits(noise, 8, 5)
        assert Mechanism.eavesdropper(host, noise, 1) >= host.eavesdropper(noise, 1)


def test_a_mechanism_without_checks_has_none_and_is_audited_without_assumptions():
    channel = Channel("response", period=0)
    host, release = mechanisms.of(channel), Release(channel, 0.3)
    nothing = np.zeros(1)
    assert Mechanism.check_released(host, nothing, nothing, 0.3) == Mechanism.white_box(host, nothing, nothing, nothing)
    canary = privacy.canary(release)

    def sample(side, episodes, rng):
        inputs, words = (canary.first, canary.second)[side], rng.integers(2**32, size=(episodes, 2, 2), dtype=np.uint32)
        return np.stack([host.release(inputs[0], one, 0.3) for one in words])[:, None, None]

    free = Mechanism.audit(host, sample, DELTA, 4000, 0.3, canary.direction)
    assert free.method == "distribution-free"
    assert 0.5 < free.epsilon < privacy.pure_epsilon(release)
    assert host.audit(sample, DELTA, 4000, 0.3, canary.direction).method == "symbol counts"


@pytest.mark.parametrize("name", mechanisms.names())
def test_without_noise_everything_can_be_guessed_and_with_the_most_nothing(name):
    host = mechanisms.of(Channel(name))
    assert host.best_guess(Release(Channel(name), 0.0), 3) == 1
    most = {"response": 2 / 3, "subset": 1.0, "timed": 1.0}.get(name, 1e6)
    assert host.best_guess(Release(Channel(name), most), 3) == pytest.approx(1 / 3, abs=1e-6)


def test_noise_of_deployment_is_the_exact_discrete_gaussian_as_int32():
    """The same bytes give the draws of `discrete`, whose distribution has tests of its own."""
    one, other = (Entropy(np.random.default_rng(3).bytes) for _ in range(2))
    drawn = additive.integer_noise(one, 5000.3, 20_000)
    assert drawn.dtype == np.int32
    np.testing.assert_array_equal(drawn, discrete.discrete_gaussian(5000.3, 20_000, other.read))
    assert kstest((drawn + np.random.default_rng(0).uniform(-0.5, 0.5, 20_000)) / 5000.3, "norm").pvalue > 1e-4
    assert not additive.integer_noise(one, 0.0, 5).any()


def test_a_noise_draw_that_does_not_fit_is_never_released(monkeypatch):
    monkeypatch.setattr(discrete, "discrete_gaussian", lambda *_: np.array([1, 2**30]))
    with pytest.raises(BadInput, match="does not fit"):
        additive.integer_noise(Entropy(), 1e6, 2)


@pytest.mark.parametrize("name", mechanisms.names())
def test_draws_of_many_messages_are_draws_of_each(name):
    host = mechanisms.of(Channel(name, symbols=4))
    many = host.draws(Entropy(), 0.4, 4, 3)
    assert len(many) == 3
    assert many[0].shape == host.draw(Entropy(), 0.4, 4).shape
    assert len({one.tobytes() for one in many}) == 3 or host.whole  # slots of an episode share theirs
    assert len(Mechanism.draws(host, Entropy(), 0.4, 4, 3)) == 3


@pytest.mark.parametrize("name", mechanisms.names())
def test_a_receiver_takes_in_what_a_release_can_hold_and_nothing_else(name):
    host, rng = mechanisms.of(Channel(name, symbols=4)), np.random.default_rng(0)
    for noise in (0.0, 0.4):
        for _ in range(20):
            sent = host.release(rng.standard_normal(4), host.draw(Entropy(), noise, 4), noise)
            assert host.valid(sent, noise)
        for bad in (np.nan, np.inf):
            assert not host.valid(np.array([0.0, 1.0, bad, 0.0]), noise)
    between = np.array([0.0, 1.0, 0.1, 0.0], np.float32)
    assert not host.valid(between + np.float32(2.0**-30) * (between > 0.05) * (between < 0.5), 0.4)
    if host.share:
        assert not host.valid(np.ones(4), 0.4)
    assert Symbols.ones(mechanisms.of(Channel("response")), 0.4) == range(4)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gaussian", "code"])
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 3.0, 10.0, 1e3, 1e6])
def test_the_discrete_release_at_the_calibrated_noise_meets_its_budget(name, epsilon):
    """δ of the discrete Gaussian itself, from above, at the σ in steps that deployed agents draw with."""
    for delta, horizon, copies, clip_norm in itertools.product((1e-12, 1e-4), (1, 25, 1000), (1, 3), (0.5, 7.3)):
        channel, size = Channel(name, clip_norm=clip_norm, copies=copies), 64
        host: Any = mechanisms.of(channel)
        sigma = privacy.calibrate(channel, epsilon, delta, horizon)
        steps = host.deviation(sigma)
        assert sigma / steps == float(host.parameters(sigma).step)
        shift = 2 * clip_norm * math.sqrt(horizon * copies) * steps / sigma
        assert discrete.delta(steps, shift, epsilon, size * horizon * copies) <= delta
        if epsilon <= 10:  # and not by much: with 2e-6 less noise it would not
            assert discrete.delta(steps * (1 - 2e-6), shift, epsilon, size) > delta


def team_of(name, noise):
    """Symbols or vectors of a team of two (episode, time, agent, number) before the noise and as they left."""
    host, rng = mechanisms.of(Channel(name, symbols=4)), np.random.default_rng(0)
    raw = 3 * rng.standard_normal((30, 6, 2, 4))
    source = Entropy(np.random.default_rng(1).bytes)
    before, left = np.zeros(raw.shape), np.zeros((*raw.shape[:3], 1, 4))
    episodes = [[host.draws(source, amount, 4, raw.shape[1]) for amount in noise] for _ in raw]
    for place in np.ndindex(raw.shape[:3]):
        draws = episodes[place[0]][place[2]][place[1]]
        if host.share:
            before[place] = host.release(raw[place], draws, 0.0)
        else:
            before[place] = host.release(raw[place], np.zeros(4, np.int32), noise[place[2]])
        left[place] = host.release(raw[place], draws, noise[place[2]])
        left[place] = host.keeps(np, left[place[0], place[1] - 1, place[2]] * (place[1] > 0), left[place])
    return host, before, left


@pytest.mark.parametrize("name", mechanisms.names())
def test_white_box_checks_hold_for_agents_of_different_noise(name):
    noise = np.array([0.3, 0.6])
    host, before, left = team_of(name, noise)
    found = host.white_box(before, left, noise)
    assert len(found) > 5
    assert privacy.failures(found, 0.9999) == []
    assert privacy.failures(host.white_box(before, left, noise / 3))


def test_a_subset_with_something_beside_it_is_refused():
    host = mechanisms.of(Channel("subset", symbols=4))
    sent, released = np.zeros((2, 2, 2), int), np.zeros((2, 2, 2, 4))
    (only,) = host.check_released(sent, released, 0.5)
    assert only.p_value == 0


def test_few_draws_of_other_symbols_tell_nothing():
    assert privacy.checks.even_members(np.ones((3, 1), bool)).p_value == 1
    spread = privacy.checks.even_members(np.random.default_rng(0).random((400, 7)) < 0.3)
    assert 1e-4 < spread.p_value <= 1
