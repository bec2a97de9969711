"""What a run says about itself is true, and says what a projection must know."""

import json
import math
import subprocess
import sys

import pytest

from dpmac import config, privacy
from dpmac.config import BadInput, Budget, Channel, Release

KEYS = {
    "agent",
    "epsilon",
    "delta",
    "unit",
    "covers",
    "neighbours",
    "accountant",
    "mechanism",
    "noise",
    "valid",
    "exact_epsilon",
    "exact_epsilon_message",
    "exact_epsilon_episode",
    "failed_conditions",
    "released_as",
    "warnings",
}


def test_every_agent_has_its_own_budget():
    budget = Budget((1.0, 0.1, math.inf))
    levels = privacy.noise_scales(budget, Channel(), 3, 25)
    assert levels == (
        privacy.calibrate(Channel(), 1.0, 1e-4, 25),
        privacy.calibrate(Channel(), 0.1, 1e-4, 25),
        0.0,
    )
    claims = privacy.claim(budget, Channel(), 3, 25)
    assert [entry["epsilon"] for entry in claims] == [1.0, 0.1, math.inf]
    assert [entry["noise"] for entry in claims] == list(levels)
    assert [entry["agent"] for entry in claims] == [0, 1, 2]


def test_a_budget_for_another_number_of_agents_is_refused():
    with pytest.raises(BadInput, match="names 2 agents"):
        privacy.noise_scales(Budget((1.0, 2.0)), Channel(), 3, 25)


@pytest.mark.parametrize("mechanism", privacy.mechanisms.names())
@pytest.mark.parametrize("unit", ["message", "episode"])
def test_exact_claim_is_valid_and_hardly_pessimistic(mechanism, unit):
    for entry in privacy.claim(Budget((2.0,), unit=unit), Channel(mechanism), 2, 25):
        assert set(entry) == KEYS
        assert entry["valid"]
        assert 1.999 <= entry["exact_epsilon"] <= 2.0
        assert entry["exact_epsilon"] == entry[f"exact_epsilon_{unit}"]
        assert entry["exact_epsilon_message"] <= entry["exact_epsilon_episode"]


@pytest.mark.parametrize(("unit", "sigma", "exact"), [("message", 0.6596, 6.29), ("episode", 3.298, 6.29)])
def test_papers_claim_keeps_the_papers_noise_and_says_what_is_true(unit, sigma, exact):
    entry = privacy.claim(Budget((1.0,), unit=unit, accountant="paper"), Channel(), 1, 25)[0]
    assert entry["noise"] == pytest.approx(sigma, rel=1e-3)
    assert entry["exact_epsilon"] == pytest.approx(exact, rel=1e-3)
    assert entry["valid"] is False
    names = [item["name"] for item in entry["failed_conditions"]]
    assert {"gamma2 < 1", "alpha <= bound", "sender draws a random subset at rate gamma1"} <= set(names)
    assert "theorem does not apply" in entry["warnings"][0]


def test_a_sender_that_does_sample_is_not_accused_of_not_sampling():
    sampling = Channel(sample_rate=1 / 25)
    entry = privacy.claim(Budget((1.0,), accountant="paper"), sampling, 1, 25)[0]
    assert "sender draws a random subset at rate gamma1" not in [item["name"] for item in entry["failed_conditions"]]
    assert not entry["valid"]


@pytest.mark.parametrize("mechanism", ["response", "code", "subset"])
def test_paper_knows_only_the_gaussian_channel(mechanism):
    with pytest.raises(BadInput, match="only gaussian"):
        privacy.noise_scales(Budget((1.0,), accountant="paper"), Channel(mechanism), 1, 25)


@pytest.mark.parametrize("accountant", ["exact", "paper"])
def test_noise_at_the_receiver_is_as_large_and_claims_nothing(accountant):
    budget, sender, receiver = Budget((1.0,), accountant=accountant), Channel(), Channel(place="receiver")
    assert privacy.noise_scales(budget, receiver, 1, 25) == privacy.noise_scales(budget, sender, 1, 25)
    entry = privacy.claim(budget, receiver, 1, 25)[0]
    assert entry["valid"] is False
    assert entry["exact_epsilon"] == math.inf
    assert "seen the raw message" in entry["warnings"][0]


def test_budget_of_a_message_says_how_many_an_adversary_sees():
    entry = privacy.claim(Budget((1.0,), unit="message"), Channel(), 1, 25)[0]
    assert any("25 messages" in warning for warning in entry["warnings"])
    once = privacy.claim(Budget((1.0,), unit="message"), Channel(period=0), 1, 25)[0]
    assert not any("messages" in warning for warning in once["warnings"])


def test_free_messages_are_called_free():
    entry = privacy.claim(Budget(), Channel(), 1, 25)[0]
    assert entry["warnings"] == ["no noise: messages are released as they are"]
    assert entry["valid"]
    paper = privacy.claim(Budget(accountant="paper"), Channel(), 1, 25)[0]
    assert paper["failed_conditions"] == []


def test_a_mechanism_that_makes_no_noise_of_a_finite_epsilon_is_called_free(monkeypatch):
    monkeypatch.setattr(privacy.statement, "noise_scales", lambda *_: (0.0,))
    entry = privacy.claim(Budget((1.0,)), Channel(), 1, 25)[0]
    assert entry["valid"] is False
    assert entry["warnings"] == ["no noise: messages are released as they are"]


def test_claim_is_json():
    entry = privacy.claim(Budget((1.0, math.inf), accountant="paper"), Channel(), 2, 25)
    assert json.loads(config.dumps(entry))[1]["exact_epsilon"] == "inf"


def test_simulated_noise_is_not_sold_as_real_protection():
    gaussian = privacy.claim(Budget((1.0,)), Channel(), 1, 25)[0]
    assert any("float32" in warning for warning in gaussian["warnings"])
    response = privacy.claim(Budget((1.0,)), Channel("response"), 1, 25)[0]
    assert response["warnings"] == []


# The package as a whole -----------------------------------------------------------------------------------------------


def test_every_public_name_is_there_and_no_other():
    for name in privacy.__all__:
        assert getattr(privacy, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'secrets'"):
        privacy.secrets  # noqa: B018


def test_importing_the_package_brings_in_nothing_heavy():
    heavy = "[name for name in ('jax', 'scipy', 'dp_accounting') if name in sys.modules]"
    code = f"import sys; from dpmac import privacy; print({heavy})"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_using_all_of_it_never_brings_in_jax():
    everything = "[getattr(privacy, name) for name in privacy.__all__]"
    code = f"import sys; from dpmac import privacy; {everything}; print('jax' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_explain_sets_the_paper_beside_the_truth():
    told = privacy.explain(Budget((1.0,), unit="message"), Channel(), 25)
    paper, exact = told["paper"], told["exact"]
    assert paper["noise"] == pytest.approx(0.6596, rel=1e-3)
    assert paper["exact_epsilon_episode"] == pytest.approx(56.1, rel=1e-3)
    assert paper["naive_episode_epsilon"] == 13
    assert paper["feasible"] is None
    assert exact["noise"] == pytest.approx(6.371 / 2, rel=1e-3)
    assert exact["valid"]
    assert not paper["valid"]
    for kind in (paper, exact):
        assert kind["eavesdropper_accuracy"] <= kind["limit_accuracy"]
    episode = privacy.explain(Budget((10.0,)), Channel(), 25)
    assert episode["paper"]["naive_episode_epsilon"] == 10
    assert episode["paper"]["feasible"]["gamma1"] >= 1 / 25
    assert privacy.explain(Budget((1.0,)), Channel(), 1)["paper"]["feasible"] is None


def test_explain_has_no_paper_for_symbols():
    told = privacy.explain(Budget((1.0,)), Channel("response", period=0), 25)
    assert "paper" not in told
    assert told["exact"]["eavesdropper_accuracy"] == pytest.approx(0.576, abs=5e-4)


@pytest.mark.parametrize("budget", [Budget((1.0, 2.0)), Budget()])
def test_explain_needs_one_finite_epsilon(budget):
    with pytest.raises(BadInput, match="one finite epsilon"):
        privacy.explain(budget, Channel(), 25)


def test_explain_refuses_messages_without_numbers():
    with pytest.raises(BadInput, match="size"):
        privacy.explain(Budget((1.0,)), Channel(), 25, size=0)


def test_release_and_channel_come_from_one_source():
    assert privacy.Release is Release
    assert privacy.Channel is Channel
