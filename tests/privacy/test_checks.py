"""White-box checks: each planted fault is caught, and a sound channel is left alone."""

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from faulty_channel import GAUSSIAN_FAULTS, RESPONSE_FAULTS, gaussian, response
from scipy.stats import binom

from dpmac import config, privacy
from dpmac.config import BadInput, Budget, Channel, Release
from dpmac.privacy import Ledger, checks

EPISODES, HORIZON, AGENTS, SIZE, SIGMA = 40, 10, 3, 8, 3.0
GAUSSIAN, RESPONSE = Channel(), Channel("response")


def rollout(rng, channel=GAUSSIAN, fault=None, recipients=2, sigma=SIGMA, episodes=EPISODES):
    means = rng.standard_normal((episodes, HORIZON, AGENTS, SIZE))
    return gaussian(means, 0.3, channel, sigma, rng, recipients, fault)


def symbols(rng, channel=RESPONSE, fault=None, recipients=2, flip=0.4):
    sent = rng.integers(channel.symbols, size=(EPISODES, HORIZON, AGENTS))
    return sent, response(sent, channel, flip, rng, recipients, fault)


EXPECTED = {
    "no clipping": "message within clip_norm",
    "clips the mean before sampling": "message within clip_norm",
    "noise for C instead of 2C": "noise variance at every step",
    "the same noise at every step": "noise independent over time",
    "fresh noise for two copies counted as one": "copies as declared",
    "noise missing at the first step": "noise variance at every step",
    "sigma squared": "noise variance of every agent",
    "sigma square-rooted": "noise is Gaussian",
    "one noise for all episodes": "noise independent between episodes",
    "one noise for all agents": "noise independent between agents",
    "flip probability times k/(k-1)": "flip rate of every agent",
    "flip probability times (k-1)/k": "flip rate of every agent",
    "flips to the next symbol only": "flips reach all other symbols alike",
    "the same flips at every step": "flips independent",
    "confidence travels beside the symbol": "alphabet of exactly k symbols",
}


@pytest.mark.parametrize("fault", GAUSSIAN_FAULTS)
def test_planted_fault_in_a_gaussian_channel_is_caught(fault):
    sent, released = rollout(np.random.default_rng(2), fault=fault)
    failed = checks.failures(checks.check_gaussian(sent, released, Channel(), SIGMA))
    assert EXPECTED[fault] in [check.name for check in failed]


@pytest.mark.parametrize("fault", RESPONSE_FAULTS)
def test_planted_fault_in_randomised_response_is_caught(fault):
    sent, released = symbols(np.random.default_rng(3), fault=fault)
    failed = checks.failures(checks.check_response(sent, released, Channel("response"), 0.4))
    expected = "flip rate at every step" if fault == "noise missing at the first step" else EXPECTED[fault]
    assert expected in [check.name for check in failed]


def fails_too_often(failed, runs, confidence=0.99):
    return failed > binom.ppf(0.999, runs, 1 - confidence)


@pytest.mark.parametrize("copies", [1, 2])
def test_a_sound_gaussian_channel_is_rarely_accused(copies):
    channel, runs = Channel(copies=copies), 300
    failed = 0
    for seed in range(runs):
        sent, released = rollout(np.random.default_rng(seed), channel, episodes=12)
        failed += bool(checks.failures(checks.check_gaussian(sent, released, channel, SIGMA)))
    assert not fails_too_often(failed, runs)


@pytest.mark.parametrize("copies", [1, 2])
def test_sound_randomised_response_is_rarely_accused(copies):
    channel, runs = Channel("response", copies=copies), 150
    failed = 0
    for seed in range(runs):
        sent, released = symbols(np.random.default_rng(seed), channel)
        failed += bool(checks.failures(checks.check_response(sent, released, channel, 0.4)))
    assert not fails_too_often(failed, runs)


def test_float32_rollouts_pass():
    sent, released = rollout(np.random.default_rng(5), recipients=1)
    sent, released = sent.astype(np.float32), released[:, :, :, 0].astype(np.float32)
    assert checks.failures(checks.check_gaussian(sent, released, Channel(), SIGMA)) == []


def test_copies_with_one_noise_that_were_declared_fresh_are_caught():
    sent, released = rollout(np.random.default_rng(6), Channel())
    failed = checks.failures(checks.check_gaussian(sent, released, Channel(copies=2), SIGMA))
    assert "copies as declared" in [check.name for check in failed]


def test_many_episodes_and_single_agents_are_checked_too():
    rng = np.random.default_rng(7)
    sent, released = gaussian(rng.standard_normal((300, 10, 1, 8)), 0.3, Channel(), SIGMA, rng)
    found = checks.check_gaussian(sent, released, Channel(), SIGMA)
    assert checks.failures(found) == []
    assert {check.name: check.p_value for check in found}["noise independent between agents"] == 1
    twice = released.copy()
    twice[1] = sent[1, :, :, None] + released[0] - sent[0, :, :, None]
    failed = checks.failures(checks.check_gaussian(sent, twice, Channel(), SIGMA))
    assert {check.name for check in failed} == {
        "noise independent between episodes",
        "no noise twice, and none missing",
    }


def test_code_points_further_apart_than_declared_are_caught():
    rng, channel = np.random.default_rng(8), Channel("code", symbols=4)
    sent = np.eye(4)[rng.integers(4, size=(EPISODES, HORIZON, AGENTS))] * math.sqrt(2) * channel.clip_norm
    released = sent + SIGMA * rng.standard_normal(sent.shape)
    assert checks.failures(checks.check_gaussian(sent, released, channel, SIGMA)) == []
    wide = checks.check_gaussian(1.1 * sent, released, channel, SIGMA)
    assert "message within clip_norm" in [check.name for check in checks.failures(wide)]
    fewer = checks.check_gaussian(sent, released, replace(channel, symbols=3), SIGMA)
    assert "message within clip_norm" in [check.name for check in checks.failures(fewer)]


def test_two_symbols_have_only_one_other():
    rng, channel = np.random.default_rng(9), Channel("response", symbols=2)
    sent, released = symbols(rng, channel, recipients=1, flip=0.3)
    assert checks.failures(checks.check_response(sent, released[:, :, :, 0], channel, 0.3)) == []
    alone = checks.check_response(sent[:, :1, :1], released[:, :1, :1], channel, 0.3)
    assert checks.failures(alone) == []


@pytest.mark.parametrize("hits", [0, 1, 3, 7, 8])
def test_flip_rate_is_the_exact_binomial_test(hits):
    flips = (np.arange(8) < hits).reshape(8, 1, 1)
    below, above = binom.cdf(hits, 8, 0.4), binom.sf(hits - 1, 8, 0.4)
    assert checks.flip_rate(flips, 1, 0.4, "rate").p_value == pytest.approx(min(1.0, 2 * min(below, above)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: checks.check_gaussian(np.zeros((2, 2)), np.zeros((2, 2)), Channel(), 1.0),
        lambda: checks.check_gaussian(np.zeros((2, 2, 2, 2)), np.zeros((2, 2, 2, 2)), Channel(), 0.0),
        lambda: checks.check_response(np.zeros((2, 2)), np.zeros((2, 2)), Channel("response"), 0.4),
        lambda: checks.check_response(np.zeros((2, 2, 2)), np.zeros((2, 2, 2, 3)), Channel("response"), 0.0),
    ],
)
def test_nonsense_is_refused_with_a_message(call):
    with pytest.raises(BadInput, match="must"):
        call()


# Books and statements -------------------------------------------------------------------------------------------------


def test_an_episode_that_was_not_charged_is_caught(tmp_path):
    ledger = Ledger(tmp_path / "ledger", [math.inf], 1e-4, create=True)
    release, released = Release(Channel(), 5.0, 25), []
    for episode in range(30):
        if episode != 17:
            ledger.charge({0: release})
        released.append(release)
    check = checks.check_charges(ledger.charged(0), released)
    assert checks.failures([check]) == [check]
    assert check.detail == "1 releases not charged"
    ledger.charge({0: release})
    assert checks.failures([checks.check_charges(ledger.charged(0), released)]) == []


def test_charging_too_much_is_no_fault():
    release = Release(Channel(), 5.0, 25)
    assert checks.check_charges(Counter({release: 3}), [release]).p_value == 1


def statement(**changes):
    entry = privacy.claim(Budget((1.0,), unit="episode"), Channel(), 1, 25)[0]
    return {**json.loads(config.dumps(entry)), **changes}


def test_a_true_statement_passes():
    assert checks.failures(checks.check_claim(statement(), Channel(), 25)) == []


def test_epsilon_of_a_message_reported_as_that_of_an_episode_is_caught():
    entry = privacy.claim(Budget((1.0,), unit="message"), Channel(), 1, 25)[0]
    false = {**entry, "unit": "episode", "exact_epsilon": entry["exact_epsilon_message"], "valid": True}
    failed = [check.name for check in checks.failures(checks.check_claim(false, Channel(), 25))]
    assert failed == ["exact_epsilon as stated"]


@pytest.mark.parametrize("mechanism", ["gaussian", "correlated"])
def test_a_true_statement_about_an_increment_passes_and_not_as_one_about_all_inputs(mechanism):
    channel = Channel(mechanism, increments=True)
    entry = privacy.claim(Budget((1.0,), neighbours="increment"), channel, 1, 25)[0]
    assert entry["valid"]
    assert checks.failures(checks.check_claim(entry, channel, 25)) == []
    more = {**entry, "covers": "episode"}
    failed = [check.name for check in checks.failures(checks.check_claim(more, channel, 25))]
    assert failed == ["exact_epsilon as stated"]


def test_a_claim_that_is_called_valid_without_holding_is_caught():
    entry = privacy.claim(Budget((1.0,), unit="episode", accountant="paper"), Channel(), 1, 25)[0]
    assert checks.failures(checks.check_claim(entry, Channel(), 25)) == []
    failed = checks.failures(checks.check_claim({**entry, "valid": True}, Channel(), 25))
    assert [check.name for check in failed] == ["valid only where it holds"]
    hidden = {**entry, "valid": True, "failed_conditions": []}
    assert checks.failures(checks.check_claim(hidden, Channel(), 25))


def test_free_messages_are_stated_as_free():
    entry = privacy.claim(Budget((math.inf,)), Channel(), 1, 25)[0]
    assert checks.failures(checks.check_claim(entry, Channel(), 25)) == []
