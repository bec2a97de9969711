"""Exact accounting against the printed numbers, dp-accounting and its own laws."""

import functools
import itertools
import math
import time
import tracemalloc
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmac import privacy
from dpmac.config import BadInput, Channel, Release, Unit
from dpmac.privacy import loss as losses
from dpmac.privacy import mechanisms, theorem
from dpmac.privacy.mechanisms import gaussian

PLD = pld.privacy_loss_distribution
UNIT = Channel(clip_norm=1.0)

CHANNEL = st.builds(
    Channel,
    mechanism=st.sampled_from(["gaussian", "response", "code"]),
    clip_norm=st.floats(0.01, 100),
    symbols=st.integers(2, 12),
    copies=st.integers(1, 4),
    period=st.integers(0, 6),
    recipient_rate=st.sampled_from([0.3, 0.5, 1.0]),
)
# Flips of a larger ε may be too rare to be drawn, and are refused.
EPSILON, DELTA, HORIZON = st.floats(1e-3, 40), st.floats(1e-12, 0.05), st.integers(1, 40)
UNITS = st.sampled_from(["message", "episode"])

# Numbers of the printed tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "mu", "printed"),
    [
        (0.01, ".00579", ["345.1", "488.1", "1726", "2441"]),
        (0.1, ".04080", ["49.02", "69.32", "245.1", "346.6"]),
        (1, ".3139", ["6.371", "9.011", "31.86", "45.05"]),
        (3, ".8176", ["2.446", "3.460", "12.23", "17.30"]),
        (10, "2.1965", [".9105", "1.288", "4.553", "6.438"]),
    ],
)
def test_calibration_table_to_the_printed_digits(epsilon, mu, printed):
    assert same_digits(losses.mu_of(epsilon, 1e-4), mu)
    for text, (horizon, copies) in zip(printed, [(1, 1), (1, 2), (25, 1), (25, 2)], strict=True):
        assert same_digits(privacy.calibrate(replace(UNIT, copies=copies), epsilon, 1e-4, horizon), text)


@pytest.mark.parametrize(
    ("steps", "message", "episode"),
    [(1, [".033", ".453", "6.29"], [".21", "2.82", "56.1"]), (25, [".005", ".073", ".962"], [".033", ".45", "6.29"])],
    ids=["step", "episode"],
)
def test_what_the_papers_noise_really_gives(steps, message, episode):
    for claimed, one, all_of_them in zip([0.01, 0.1, 1], message, episode, strict=True):
        sigma = float(theorem.sigma(claimed, 1e-4, theorem.released(25), steps))
        assert same_digits(privacy.epsilon(Release(Channel(), sigma, 25, "message"), 1e-4), one)
        assert same_digits(privacy.epsilon(Release(Channel(), sigma, 25, "episode"), 1e-4), all_of_them)


def same_digits(value, printed):
    decimals = len(printed.split(".")[1]) if "." in printed else 0
    return f"{value:.{decimals}f}".lstrip("0") == printed


def test_same_digits_tells_numbers_apart():
    assert same_digits(0.00579, ".00579")
    assert not same_digits(0.00580, ".00579")


# Other people's code --------------------------------------------------------------------------------------------------


def random_release(rng):
    mechanism = rng.choice(["gaussian", "response", "code"])
    channel = Channel(
        mechanism, float(rng.uniform(0.1, 2)), int(rng.integers(2, 9)), int(rng.integers(1, 4)), int(rng.integers(0, 5))
    )
    release = Release(channel, 0.0, int(rng.integers(1, 41)), rng.choice(["message", "episode"]))
    uses = privacy.accounting.count(release)
    if mechanism == "response":
        noise = losses.response_flip(float(rng.uniform(0.02, 3)) / math.sqrt(uses), channel.symbols)
    else:
        noise = channel.sensitivity * math.sqrt(uses) / float(rng.uniform(0.05, 3))
    return replace(release, noise=noise)


def peers(release, delta, interval):
    """dp-accounting's optimistic and pessimistic ε of a release, on a grid of this interval."""
    channel, uses = release.channel, privacy.accounting.count(release)
    found = []
    for pessimistic in (False, True):
        if channel.mechanism == "response":
            uniform = release.noise * channel.symbols / (channel.symbols - 1)
            one = PLD.from_randomized_response(uniform, channel.symbols, pessimistic, interval)
            whole = one.self_compose(uses)
        else:
            deviation = release.noise / channel.sensitivity / math.sqrt(uses)
            whole = PLD.from_gaussian_mechanism(deviation, 1, pessimistic, interval, use_connect_dots=False)
        found.append(whole.get_epsilon_for_delta(delta))
    return found


def test_exact_epsilon_lies_within_the_error_bounds_of_dp_accounting():
    rng = np.random.default_rng(1)
    for _ in range(240):
        release, delta = random_release(rng), float(10 ** rng.uniform(-8, -2))
        exact = privacy.epsilon(release, delta)
        low, high = peers(release, delta, max(exact, 0.01) / 2000)
        assert low * (1 - 1e-7) - 1e-9 <= exact <= high * (1 + 1e-7) + 1e-9, release
        assert high - low < 0.03 * high + 1e-3, "bounds that say nothing"


def test_the_event_means_the_same_to_dp_accounting():
    for channel, noise in ((Channel(copies=3), 20.0), (Channel("response", period=5), 0.6), (Channel("code"), 15.0)):
        release = Release(channel, noise, 25)
        accountant = pld.PLDAccountant(privacy.relation(release))
        accountant.compose(privacy.event(release))
        assert accountant.get_epsilon(1e-5) == pytest.approx(privacy.epsilon(release, 1e-5), rel=2e-3)


def test_events_of_channels_that_protect_nothing_or_say_nothing():
    assert isinstance(privacy.event(Release(Channel(), 0.0)), dp_accounting.NonPrivateDpEvent)
    assert isinstance(privacy.event(Release(Channel(place="receiver"), 1.0)), dp_accounting.NonPrivateDpEvent)
    silent = Release(Channel(sample_rate=0.01), 1.0, 25)
    assert isinstance(privacy.event(silent), dp_accounting.NoOpDpEvent)
    assert privacy.epsilon(silent, 1e-4) == 0


# Laws -----------------------------------------------------------------------------------------------------------------


@given(CHANNEL, EPSILON, DELTA, HORIZON, UNITS)
@settings(max_examples=200, deadline=None)
def test_calibrated_noise_meets_the_budget_and_hardly_more(channel, epsilon, delta, horizon, unit):
    noise = privacy.calibrate(channel, epsilon, delta, horizon, unit)
    release = Release(channel, noise, horizon, unit)
    single = channel.mechanism == "response" and privacy.accounting.count(release) == 1
    cost = privacy.pure_epsilon if single else (lambda item: privacy.epsilon(item, delta))
    assert cost(release) <= epsilon * (1 + 1e-9)
    assert cost(replace(release, noise=noise * 0.999)) > epsilon
    assert privacy.epsilon(release, delta) <= epsilon


@given(CHANNEL, EPSILON, DELTA, HORIZON)
@settings(max_examples=50, deadline=None)
def test_delta_inverts_epsilon(channel, epsilon, delta, horizon):
    release = Release(channel, privacy.calibrate(channel, epsilon, delta, horizon), horizon)
    spent = privacy.epsilon(release, delta)
    assert privacy.delta(release, spent * (1 + 1e-9)) <= delta
    assert spent == 0 or privacy.delta(release, spent * (1 - 1e-9)) >= delta


@given(CHANNEL, st.floats(0.05, 20), DELTA, st.integers(1, 20), st.floats(1.01, 2))
@settings(max_examples=50, deadline=None)
def test_more_noise_more_delta_and_fewer_releases_never_cost_more(channel, epsilon, delta, horizon, factor):
    noise = privacy.calibrate(channel, epsilon, delta, horizon)
    release, slack = Release(channel, noise, horizon), 1 + 1e-9
    spent = privacy.epsilon(release, delta)
    most = 1 - 1 / channel.symbols if channel.mechanism == "response" else math.inf
    assert privacy.epsilon(replace(release, noise=min(noise * factor, most)), delta) <= spent * slack
    assert privacy.epsilon(release, delta * factor) <= spent * slack
    assert privacy.epsilon(replace(release, horizon=horizon + 7), delta) >= spent / slack
    assert privacy.epsilon(replace(release, unit="message"), delta) <= spent * slack
    assert (
        privacy.epsilon(replace(release, channel=replace(channel, copies=channel.copies + 3)), delta) >= spent / slack
    )


@given(st.floats(0.05, 50), st.integers(1, 5), st.integers(1, 40), DELTA)
@settings(deadline=None)
def test_copies_and_uses_of_a_gaussian_channel_compose_alike(sigma, copies, horizon, delta):
    many = Release(Channel(copies=copies), sigma, horizon)
    long = Release(Channel(), sigma, horizon * copies)
    less = Release(Channel(), sigma / math.sqrt(copies * horizon), 1)
    assert privacy.epsilon(many, delta) == pytest.approx(privacy.epsilon(long, delta), rel=1e-9)
    assert privacy.epsilon(many, delta) == pytest.approx(privacy.epsilon(less, delta), rel=1e-9)


@given(st.floats(0.01, 5), st.integers(2, 9), st.integers(1, 30), DELTA)
@settings(deadline=None)
def test_response_never_costs_more_than_its_pure_epsilon(each, symbols, uses, delta):
    channel = Channel("response", symbols=symbols)
    release = Release(channel, losses.response_flip(each, symbols), uses)
    assert privacy.pure_epsilon(release) == pytest.approx(uses * each, rel=1e-9)
    assert privacy.epsilon(release, delta) <= uses * each * (1 + 1e-9)


def test_one_response_has_the_closed_form():
    flip, symbols, epsilon = 0.3, 4, 0.7
    release = Release(Channel("response", symbols=symbols, period=0), flip, 25)
    expected = (1 - flip) - math.exp(epsilon) * flip / (symbols - 1)
    assert privacy.delta(release, epsilon) == pytest.approx(expected, rel=1e-12)


def test_held_symbol_is_kept_as_often_as_pure_epsilon_allows():
    flip = privacy.calibrate(Channel("response", period=0), 1.0, 1e-4, 25)
    assert 1 - flip == pytest.approx(math.e / (math.e + 2), rel=1e-12)


def test_recipients_that_are_not_drawn_are_not_charged():
    few, all_of_them = Channel(copies=4, recipient_rate=0.5), Channel(copies=4)
    assert few.sent == 2
    assert privacy.calibrate(few, 1, 1e-4) == pytest.approx(privacy.calibrate(all_of_them, 1, 1e-4) / math.sqrt(2))
    assert Channel(recipient_rate=0.5).sent == 1


def test_free_messages_need_no_noise_and_cost_everything():
    assert privacy.calibrate(Channel(), math.inf, 1e-4) == 0
    assert privacy.epsilon(Release(Channel(), 0.0), 1e-4) == math.inf
    assert privacy.delta(Release(Channel("response"), 0.0), 5.0) == 1
    assert privacy.pure_epsilon(Release(Channel("response"), 0.0)) == math.inf
    assert privacy.pure_epsilon(Release(Channel(), 1.0)) == math.inf


def test_noise_at_the_receiver_protects_nothing():
    release = Release(Channel(place="receiver"), 100.0)
    assert privacy.epsilon(release, 1e-4) == math.inf
    assert privacy.delta(release, 1.0) == 1


# A sender that samples ------------------------------------------------------------------------------------------------


def sampled_release(rate, sigma, unit: Unit = "episode", copies=1, horizon=25):
    return Release(Channel(sample_rate=rate, copies=copies), sigma, horizon, unit, "transition")


@pytest.mark.parametrize(("rate", "sigma"), [(0.04, 1.0), (0.2, 1.0), (0.2, 5.0), (0.5, 2.0)])
def test_sampled_episode_lies_between_an_attack_and_dp_accountings_bound(rate, sigma):
    release = sampled_release(rate, sigma)
    exact = privacy.epsilon(release, 1e-5)
    accountant = rdp.RdpAccountant([2, 3, 4, 6, 8, 16, 32, 64], privacy.relation(release))
    accountant.compose(privacy.event(release))
    # A message that says whether the changed transition was drawn is a Poisson-sampled Gaussian in all but name.
    parts = [
        PLD.from_gaussian_mechanism(sigma, 1, False, 1e-3, sampling_prob=gamma, use_connect_dots=False)
        for gamma in release.rates
    ]
    attack = functools.reduce(lambda whole, part: whole.compose(part), parts)
    achieved = attack.get_epsilon_for_delta(1e-5)
    assert achieved * (1 - 1e-6) <= exact <= accountant.get_epsilon(1e-5)
    assert exact <= 1.06 * achieved + 0.01
    assert exact < privacy.epsilon(replace(release, neighbours="inputs"), 1e-5)


@given(st.floats(0.05, 0.95), st.floats(0.3, 20), st.floats(1e-9, 1e-3))
@settings(max_examples=40, deadline=None)
def test_one_sampled_message_has_the_closed_form(rate, sigma, delta):
    release = sampled_release(rate, sigma, "message")
    gamma = max(math.floor(rate * t + 1e-9) / t for t in range(1, 26))
    assert release.rates == (gamma,)
    epsilon = privacy.epsilon(release, delta)
    unsampled = privacy.epsilon(Release(Channel(), sigma), delta / gamma)
    assert epsilon == pytest.approx(math.log1p(gamma * math.expm1(unsampled)), rel=1e-6)
    assert privacy.delta(release, epsilon) <= delta * (1 + 1e-6)


def test_a_rate_that_leaves_only_chance_costs_nothing():
    assert privacy.epsilon(sampled_release(0.04, 1.0, "message"), 0.05) == 0


def one_release_on_the_grid(mu, rate, gap):
    probabilities, beyond = losses.connect_dots(mu, rate, gap)
    values = gap * np.arange(len(probabilities))
    mass = np.concatenate([(probabilities * np.exp(-values))[:0:-1], probabilities])
    return losses.Loss(0.0, np.concatenate([-values[:0:-1], values]), mass, beyond)


def test_the_profile_on_the_grid_never_understates_an_attack():
    mu, rate = 1.0, 0.3
    grid = one_release_on_the_grid(mu, rate, 0.004)
    assert grid.probabilities.sum() + grid.infinite == pytest.approx(1, abs=1e-12)
    attack = PLD.from_gaussian_mechanism(1 / mu, 1, False, 1e-3, sampling_prob=rate, use_connect_dots=False)
    for epsilon in np.linspace(0, 3, 40):
        assert losses.delta_of(grid, epsilon) >= attack.get_delta_for_epsilon(epsilon) - 1e-7


@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.3), (0.2, 0.04), (3.0, 0.5), (1.0, 1.0)])
def test_the_profile_on_the_grid_is_the_closed_form_and_convex(mu, rate):
    gap = losses.amplified(losses.gaussian_bound(mu, 1e-9 / rate), rate) / losses.GRID
    grid = one_release_on_the_grid(mu, rate, gap)
    points = gap * np.arange(-losses.GRID, losses.GRID + 1)
    closed = rate * losses.gaussian_delta(losses.unamplified(np.abs(points), rate), mu)
    closed = np.where(points < 0, np.exp(points) * closed - np.expm1(points), closed)
    found = np.array([losses.delta_of(grid, point) for point in points[::50]])
    assert np.abs(found - closed[::50]).max() < 1e-12
    near = np.abs(points) < 3
    assert np.diff(np.diff(closed[near]) / np.diff(np.exp(points[near]))).min() > -1e-9


def test_no_probability_is_lost_when_releases_are_added_up():
    whole = losses.sampled(1.0, [0.2, 0.3, 0.3], 1e-2)
    assert whole.probabilities.sum() + whole.infinite >= 1
    assert whole.infinite < 1e-2 / 100


def test_sampling_amplifies_nothing_for_whole_inputs():
    channel = Channel(sample_rate=0.5)
    assert Release(channel, 1.0, 25).rates == (1.0,) * 24  # nothing can be drawn at the very first step
    assert Release(channel, 1.0, 25, "message").rates == (1.0,)


def test_real_rates_are_those_of_the_transitions_that_exist():
    assert sampled_release(0.2, 1.0, horizon=10).rates == tuple(math.floor(t / 5) / t for t in range(5, 11))


def test_a_memoryless_sender_that_does_not_sample_uses_a_transition_once():
    assert Release(Channel(), 1.0, 25, "episode", "transition").rates == (1.0,)


def test_a_transition_enters_every_round_of_its_step():
    one, three = (Release(Channel(rounds=rounds), 5.0, 25, "episode", "transition") for rounds in (1, 3))
    assert three.rates == (1.0,) * 3
    assert Release(Channel(rounds=3), 5.0, 25, "message", "transition").rates == (1.0,)
    assert privacy.epsilon(three, 1e-4) == pytest.approx(privacy.epsilon(replace(one, noise=5.0 / 3**0.5), 1e-4))


def test_recipients_who_share_the_subset_see_one_message_with_less_noise():
    shared, alone = sampled_release(0.2, 4.0, copies=4), sampled_release(0.2, 2.0)
    assert privacy.epsilon(shared, 1e-5) == pytest.approx(privacy.epsilon(alone, 1e-5), rel=1e-9)


@pytest.mark.parametrize("unit", ["message", "episode"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.001, 1e-12), (0.1, 1e-4), (1, 1e-12), (100, 1e-4)])
def test_sampled_sender_is_calibrated_in_time_and_in_memory(unit, epsilon, delta):
    channel = Channel(sample_rate=0.2)
    tracemalloc.start()
    start = time.process_time()
    sigma = privacy.calibrate(channel, epsilon, delta, 25, unit, "transition")
    seconds, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    spent = privacy.epsilon(Release(channel, sigma, 25, unit, "transition"), delta)
    assert 0.99 * epsilon <= spent <= epsilon
    assert seconds < 5
    assert peak < 200e6


def test_full_rate_is_no_sampling():
    channel = Channel(sample_rate=1.0)
    assert privacy.calibrate(channel, 1, 1e-4, 25, "episode", "transition") == privacy.calibrate(UNIT, 1, 1e-4, 25) / 2


# Bad input, speed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: privacy.calibrate(Channel(), 0.0, 1e-4), "epsilon must lie between"),
        (lambda: privacy.calibrate(Channel(), -1.0, 1e-4), "epsilon must lie between"),
        (lambda: privacy.calibrate(Channel(), math.nan, 1e-4), "epsilon must lie between"),
        (lambda: privacy.calibrate(Channel(), 1.0, 0.0), "delta must lie strictly between 0 and 1"),
        (lambda: privacy.calibrate(Channel(), 1.0, 1.0), "delta must lie strictly between 0 and 1"),
        (lambda: privacy.calibrate(Channel(), 1.0, math.nan), "delta must lie strictly between 0 and 1"),
        (lambda: privacy.calibrate(Channel(), 1.0, 1e-4, horizon=0), "horizon must be a whole number from 1"),
        (lambda: Channel(clip_norm=0.0), "clip_norm must be a finite number above 0"),
        (lambda: Channel(clip_norm=math.nan), "clip_norm must be a finite number above 0"),
        (lambda: privacy.epsilon(Release(Channel(), math.nan), 1e-4), "noise must be finite"),
        (lambda: privacy.epsilon(Release(Channel(), 1.0), 2.0), "delta must lie"),
        (lambda: privacy.delta(Release(Channel(), 1.0), -1.0), "epsilon must be finite and at least 0"),
        (lambda: privacy.calibrate(Channel(place="receiver"), 1.0, 1e-4), "no noise at the receiver meets a budget"),
        (lambda: privacy.calibrate(Channel(sample_rate=0.01), 1.0, 1e-4, 25), "never draws a transition"),
        (lambda: privacy.calibrate(Channel(sample_rate=0.04), 1.0, 0.1, 25, "message", "transition"), "below the rate"),
        (lambda: privacy.epsilon(Release(Channel("response"), 0.7), 1e-4), "flip probability must be at most"),
        (lambda: privacy.calibrate(Channel("response"), 1.0, 1e-16, 4096), "more than 2048 symbols"),
        (lambda: privacy.calibrate(Channel("subset"), 1.0, 1e-15, 4096), "more than 2048 symbols"),
        (lambda: Release(Channel(), 1.0, neighbours="all"), "neighbours must be one of"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_nonsense_is_refused_with_a_message(call, message):
    with pytest.raises(BadInput, match=message):
        call()


@pytest.mark.parametrize("mechanism", ["response", "subset", "timed"])
@pytest.mark.parametrize("epsilon", [50.0, 100.0, 740.0, 746.0, 1e6])
@pytest.mark.parametrize("horizon", [1, 3, 25])
def test_a_finite_epsilon_has_noise_that_can_be_drawn_or_is_refused_at_once(mechanism, epsilon, horizon):
    channel, start = Channel(mechanism), time.process_time()
    drawn = 1 if mechanism == "timed" else horizon
    if epsilon / drawn > 64 * math.log(2):
        with pytest.raises(BadInput, match="choose a smaller epsilon, or inf"):
            privacy.calibrate(channel, epsilon, 1e-4, horizon)
    else:
        noise = privacy.calibrate(channel, epsilon, 1e-4, horizon)
        assert noise > 0
        mechanisms.of(channel).parameters(noise)
    assert time.process_time() - start < 1
    assert privacy.calibrate(channel, math.inf, 1e-4, horizon) == 0


class Noiseless(gaussian.Gaussian):
    def calibrate(self, plain, epsilon, delta):
        return 0.0


class Careless(gaussian.Gaussian):
    def epsilon(self, release, delta):
        return 1e9


def test_no_finite_epsilon_is_met_by_no_noise_or_by_noise_that_costs_more(monkeypatch):
    for made, says in ((Noiseless, "no noise is small enough"), (Careless, "no noise is found")):
        monkeypatch.setattr(mechanisms, "of", made)
        with pytest.raises(BadInput, match=says):
            privacy.calibrate(Channel(), 1.0, 1e-4)


@pytest.mark.parametrize("mechanism", mechanisms.names())
@pytest.mark.parametrize("epsilon", [1e-6, 3e-5, 0.1, 0.7, 1.0, 7.3, 40.0])
def test_what_is_calibrated_meets_its_budget_by_its_own_account_at_every_delta(mechanism, epsilon):
    for delta, horizon in itertools.product((1e-300, 1e-100, 1e-18, 1e-9, 0.3, 0.999999), (1, 2, 7, 300)):
        for symbols in (3, 8):
            channel = Channel(mechanism, symbols=symbols)
            release = Release(channel, privacy.calibrate(channel, epsilon, delta, horizon), horizon)
            assert release.noise > 0
            assert privacy.epsilon(release, delta) <= epsilon
            assert horizon > 1 or math.isinf(privacy.pure_epsilon(release)) or privacy.pure_epsilon(release) <= epsilon


@pytest.mark.parametrize("noise", [1e-6, 1e-9, 1e-12, 1e-100, 1e-200])
def test_hardly_any_noise_has_an_epsilon_that_is_not_understated(noise):
    spent = privacy.epsilon(Release(Channel(), noise), 1e-4)
    assert spent == math.inf or 0.5 / noise**2 < spent < 0.51 / noise**2


def test_closed_form_calibration_takes_less_than_ten_milliseconds():
    channels = (Channel(), Channel("code", copies=2), Channel("response", period=0), Channel("response"))
    for channel in channels:
        times = []
        for _ in range(15):
            start = time.process_time()
            privacy.calibrate(channel, 0.7, 1e-5, 25)
            times.append(time.process_time() - start)
        assert sorted(times)[7] < 0.01
