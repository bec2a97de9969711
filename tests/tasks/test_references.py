"""What the reference policies earn, and that an episode is what it says."""

import jax
import numpy as np
import pytest

from dpmac import tasks
from dpmac.config import BadInput
from dpmac.tasks import references

EPISODES = 4000


@pytest.fixture(scope="module")
def earned():
    return {
        convention: tasks.reference_returns(tasks.make("cn", convention=convention), jax.random.key(0), EPISODES)
        for convention in ("openai", "mpe2")
    }


def test_random_cn_returns_are_the_published_ones(earned):
    for convention, known in (("openai", -231.0), ("mpe2", -26.0)):
        mean, error = earned[convention]["random"]
        assert abs(mean - known) < 3 * error + 0.5  # the published ones are rounded to whole numbers


@pytest.mark.parametrize(("name", "better"), [("cn", 100.0), ("ccn", 50.0), ("pp", 40.0)])
def test_scripted_policy_beats_the_random_one_by_far(name, better):
    found = tasks.reference_returns(tasks.make(name), jax.random.key(1), 500)
    assert found["scripted"][0] > found["random"][0] + better
    assert 0 < found["scripted"][1] < 2


def test_standard_error_is_that_of_the_mean():
    task = tasks.make("ccn", horizon=3)
    sample = np.asarray(references.returns(task, "random", jax.random.key(2), 100))
    mean, error = tasks.reference_returns(task, jax.random.key(2), 100)["random"]
    assert mean == pytest.approx(sample.mean(), rel=1e-6)
    assert error == pytest.approx(sample.std(ddof=1) / 10, rel=1e-5)
    with pytest.raises(BadInput, match="at least 2"):
        tasks.reference_returns(task, jax.random.key(2), 1)


@pytest.mark.parametrize("name", tasks.names())
def test_an_episode_has_exactly_the_horizons_steps(name):
    task = tasks.make(name)
    states, rewards = references.play(task, "random", jax.random.key(0))
    assert rewards.shape == (task.horizon, task.agents)
    assert len(references.states_of(states)) == task.horizon + 1


def plain_key(states):
    return {"key": jax.random.key_data(states.key)} if hasattr(states, "key") else {}


@pytest.mark.parametrize("name", tasks.names())
def test_the_key_decides_the_episode(name):
    task = tasks.make(name)

    def states(seed):
        found = references.play(task, "random", jax.random.key(seed))[0]
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found._replace(**plain_key(found)))])

    np.testing.assert_array_equal(states(0), states(0))
    if name != "probe-value":  # where nothing is left to chance
        assert not np.array_equal(states(0), states(1))


@pytest.mark.parametrize("name", tasks.names())
def test_every_secret_says_who_observes_it(name):
    task = tasks.make(name)
    secrets = task.secrets(task.reset(jax.random.key(0)))
    assert set(secrets) == set(task.observers)
    assert all(value.shape[0] == task.agents for value in secrets.values())
    assert all(sentence.endswith(".") for sentence in task.observers.values())
