"""Place: pointing at a number that another agent knows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac.cli import train
from dpmac.config import BadInput
from dpmac.tasks.place import Place, PlaceState

STATE = PlaceState(jnp.array([-1.0, 0.5]), jnp.ones((), jnp.int32), jnp.zeros(2))


def test_each_agent_pays_the_squared_distance_to_what_the_agent_before_it_knows():
    task = Place(spots=5)
    _, rewards = task.step(STATE, jnp.array([4, 1]))
    np.testing.assert_allclose(rewards, [-((1 - 0.5) ** 2), -((-0.5 + 1) ** 2)])
    _, same = task.step(STATE, jax.nn.one_hot(jnp.array([4, 1]), 5))
    np.testing.assert_allclose(same, rewards)


def test_nothing_is_paid_before_a_message_can_have_arrived():
    _, rewards = Place().step(STATE._replace(time=jnp.zeros((), jnp.int32)), jnp.array([0, 0]))
    np.testing.assert_array_equal(rewards, 0)


def test_an_agent_sees_its_own_place_alone():
    before = Place().observe(STATE)
    after = Place().observe(STATE._replace(known=jnp.array([0.3, 0.5])))
    assert before[0, 0] != after[0, 0]
    np.testing.assert_array_equal(before[1], after[1])


def test_the_script_points_at_the_nearest_spot():
    _, rewards = Place(spots=41).step(STATE, Place(spots=41).scripted(STATE))
    np.testing.assert_allclose(rewards, 0, atol=1e-6)


def channel(*words):
    cls, _, _ = train.with_settings(words)
    options = train.parse(cls, [*words, "--out", "nowhere"], "dpmac train", "")
    return options.run_config({}).channel


RESPONSE = ("--mechanism", "response", "--period", "0", "--symbols", "auto", "--epsilon")


@pytest.mark.parametrize(
    ("task", "epsilon", "symbols"), [("place", "5", 5), ("place", "1", 2), ("ccn", "1", 2), ("ccn", "3", 3)]
)
def test_the_budget_chooses_the_number_of_symbols(task, epsilon, symbols):
    assert channel(task, *RESPONSE, epsilon).symbols == symbols


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*RESPONSE, "1", "3"), "2 at epsilon 1, 3 at epsilon 3"),
        ((*RESPONSE, "inf"), "finite budgets"),
        (("--mechanism", "response", "--symbols", "auto", "--epsilon", "1"), "--period 0"),
    ],
)
def test_bad_input_says_what_is_allowed(words, says):
    with pytest.raises(BadInput, match=says):
        channel("ccn", *words)
