"""What a message adds is measured right where it is known."""

import numpy as np
import pytest

from dpmac.results.information import explained, information

EPISODES, STEPS, SIZE = 200, 10, 3


@pytest.fixture
def chance():
    return np.random.default_rng(0)


def seen(chance, shared):
    """Observations (episode, T + 1, agent, feature) of two agents: a fact each of its own, held for an episode."""
    facts = chance.normal(size=(EPISODES, 1, 2, SIZE)).repeat(STEPS + 1, axis=1)
    return np.concatenate([facts, facts[:, :, ::-1]], axis=-1) if shared else facts


def test_a_message_that_tells_the_fact_explains_it(chance):
    observations = seen(chance, shared=False)
    found = information(observations, observations[:, :STEPS])
    assert found["observation"] < 0.05
    assert found["with_messages"] == pytest.approx(1.0, abs=1e-3)


def test_a_message_adds_nothing_to_what_is_seen_anyway(chance):
    observations = seen(chance, shared=True)
    found = information(observations, observations[:, :STEPS, :, :SIZE])
    assert found["observation"] == pytest.approx(1.0, abs=1e-3)
    assert found["with_messages"] == pytest.approx(found["observation"], abs=1e-3)


def test_a_message_of_noise_adds_nothing(chance):
    found = information(seen(chance, shared=False), chance.normal(size=(EPISODES, STEPS, 2, SIZE)))
    assert found["with_messages"] < 0.05


def test_noise_is_averaged_away_over_an_episode(chance):
    observations = seen(chance, shared=False)
    released = observations[:, :STEPS] + chance.normal(size=(EPISODES, STEPS, 2, SIZE))
    # With unit noise one message explains a half; the mean of up to nine explains more.
    assert 0.6 < information(observations, released)["with_messages"] < 0.9


def test_facts_that_never_change_do_not_count(chance):
    facts = chance.normal(size=(EPISODES, STEPS, 2))
    constant = np.concatenate([facts, np.ones((EPISODES, STEPS, 1))], axis=-1)
    assert explained(facts, constant) == pytest.approx(1.0, abs=1e-3)
    assert explained(facts, np.ones((EPISODES, STEPS, 2))) == 0.0
