"""Running sums with correlated or independent noise: what they cost, and what neighbours can do at most."""

import dataclasses

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from dpmac import privacy
from dpmac.analysis import audit
from dpmac.config import BadInput, Budget, Channel, Release, RunConfig
from dpmac.privacy import Measurement, mechanisms, streams

DELTA, STEPS = 1e-4, 6
SUMS = {name: Channel(name, stream_decay=0.9, increments=True) for name in ("correlated", "sums")}


def released(channel, messages, noise=1.0):
    """What leaves (time, number) without any draws of noise, on the grid of this noise, for messages (time, number)."""
    host = mechanisms.of(channel)
    windows = [np.concatenate([messages[step::-1], np.zeros_like(messages[step + 1 :])]) for step in range(STEPS)]
    return np.stack([host.release(window, np.zeros(messages.shape[1], np.int32), noise) for window in windows])


def most(release):
    """How far two neighbours are apart at most, by the accountant."""
    host = mechanisms.of(release.channel)
    return release.channel.sensitivity * host.squares(release) ** 0.5  # type: ignore[attr-defined]


@pytest.mark.parametrize("neighbours", ["increment", "inputs"])
@pytest.mark.parametrize("name", SUMS)
def test_the_cost_is_that_of_dp_accounting(name, neighbours):
    noise = privacy.calibrate(SUMS[name], 3.0, DELTA, 25, "episode", neighbours)
    release = Release(SUMS[name], noise, 25, "episode", neighbours)
    exact = privacy.epsilon(release, DELTA)
    assert 2.999 < exact <= 3.0
    accountant = PLDAccountant(privacy.relation(release), value_discretization_interval=1e-3)
    accountant.compose(privacy.event(release))
    assert accountant.get_epsilon(DELTA) == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize("neighbours", ["increment", "inputs"])
@pytest.mark.parametrize("name", SUMS)
def test_no_neighbours_are_farther_apart_than_is_charged_and_the_canaries_are_as_far(name, neighbours):
    rng, release = np.random.default_rng(0), Release(SUMS[name], 1.0, STEPS, "episode", neighbours)
    canary = privacy.canary(release, size=3)
    gap = released(SUMS[name], canary.first) - released(SUMS[name], canary.second)
    assert 0.999 * most(release) < np.linalg.norm(gap) <= most(release)
    cosine = np.sum(gap * canary.direction[:, 0]) / np.linalg.norm(gap) / np.linalg.norm(canary.direction)
    assert cosine == pytest.approx(1.0, abs=1e-6)
    for _ in range(50):
        first, second = rng.standard_normal((2, STEPS, 3)) * 10.0 ** rng.uniform(-2, 2, (2, STEPS, 1))
        if neighbours == "increment":
            other = np.arange(STEPS) != rng.integers(STEPS)
            second[other] = first[other]
        apart = np.linalg.norm(released(SUMS[name], first) - released(SUMS[name], second))
        assert apart <= most(release)


@pytest.mark.parametrize("name", SUMS)
def test_receivers_have_the_running_sum_of_what_was_clipped(name):
    """B·E·u is the stream, to a few steps of the grid."""
    host, said = mechanisms.of(SUMS[name]), 0.2 * np.random.default_rng(1).standard_normal((STEPS, 2))
    decoded = streams.toeplitz(host.back(STEPS)) @ released(SUMS[name], said)  # type: ignore[attr-defined]
    np.testing.assert_allclose(decoded, streams.toeplitz(0.9 ** np.arange(STEPS)) @ said, atol=1e-4)


def test_one_increment_costs_less_than_an_episode_and_plain_messages_one_message():
    for channel in (Channel(increments=True), *SUMS.values()):
        one, whole = (Release(channel, 2.0, 25, "episode", reading) for reading in ("increment", "inputs"))
        assert privacy.epsilon(one, DELTA) < 0.6 * privacy.epsilon(whole, DELTA)
        assert privacy.epsilon(one, DELTA) == privacy.epsilon(Release(channel, 2.0, 25, "message"), DELTA)


def audited(path, share, episodes, confidence):
    """A bound on ε of a channel with this share of the noise that ε = 2 for an increment needs."""
    noise = share * privacy.calibrate(SUMS["correlated"], 2.0, DELTA, STEPS, "episode", "increment")
    release = Release(SUMS["correlated"], noise, STEPS, "episode", "increment")
    return audit.audit_channel(release, 3, DELTA, episodes, confidence, path=path).epsilon


def test_an_audit_comes_close_and_finds_noise_that_is_too_small():
    assert 1.85 < audited("simulated", 1.0, 20_000, 0.99) <= 2.0
    assert audited("simulated", 0.5, 20_000, 0.99) > 2.5


def test_deployed_noise_is_consistent_and_would_be_found_out_if_it_were_far_too_small():
    """Nobody seeds it, so that nearly certain things alone can be said."""
    assert audited("deployed", 1.0, 200, 1 - 1e-6) <= 2.0
    assert audited("deployed", 1 / 16, 200, 1 - 1e-6) > 2.0


def test_an_episode_is_paid_for_at_its_first_message_as_if_all_inputs_differed():
    account, release = audit.Tally(), Release(SUMS["correlated"], 1.5, STEPS, "episode", "increment")
    measurement = Measurement(account, 0, release, size=3)
    assert measurement.cost == dataclasses.replace(release, neighbours="inputs")
    for episode in range(1, 3):
        measurement.begin()
        for step in range(STEPS):
            assert measurement.release(step, np.ones(3)) is not None
            assert account.charges == episode
    assert measurement.charges == 1


def test_a_statement_for_an_increment_says_what_the_episode_costs():
    (claim,) = privacy.claim(Budget((3.0,), neighbours="increment"), SUMS["correlated"], 1, 25)
    assert claim["valid"]
    assert claim["covers"] == "increment"
    assert claim["exact_epsilon"] == pytest.approx(3.0, abs=1e-4)
    assert claim["exact_epsilon_episode"] > 50
    assert "what one single step adds" in claim["neighbours"]
    assert f"epsilon {claim['exact_epsilon_episode']:.4g}" in claim["warnings"][0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Release(Channel(), 1.0, 5, "episode", "increment"), "given their step's increment alone"),
        (lambda: Release(SUMS["sums"], 1.0, 5, "message", "increment"), "unit must be episode"),
        (lambda: Budget(neighbours="increment", unit="message"), "goes with unit episode"),
        (lambda: Budget(neighbours="transition"), "inputs or increment"),
        (lambda: RunConfig("drift", budgets=(Budget((1.0,), neighbours="increment"),)), "senders are given"),
        (lambda: Channel(increments=True, sample_rate=0.5), "sample_rate must be 0"),
        (lambda: Channel("sums", stream_decay=1.5), "stream_decay must lie"),
        (lambda: mechanisms.of(Channel("sums", period=2)), "at every step"),
        (lambda: mechanisms.of(Channel("correlated", copies=2)), "at every step"),
        (lambda: privacy.calibrate(SUMS["sums"], 1.0, DELTA, 2000), "room for 1024 steps"),
    ],
)
def test_what_would_break_the_claim_is_refused(call, message):
    with pytest.raises(BadInput, match=message):
        call()
