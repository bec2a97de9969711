"""Midway: what is seen, what is earned, and what being told is worth, here and on CCN."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import tasks
from dpmac.analysis import limit
from dpmac.config import BadInput
from dpmac.tasks import references
from dpmac.tasks.ccn import CCN
from dpmac.tasks.midway import Midway, MidwayState
from dpmac.tasks.particles import Bodies, Points

EPISODES = 20_000


def state_of(places, marks, known):
    x, y = jnp.array(places, float).T
    return MidwayState(Bodies(x, y, 0 * x, 0 * x), Points(*jnp.array(marks, float).T), jnp.array(known))


STATE = state_of([(0, 0), (0.5, 0.25), (0, 1)], [(0, 0), (1, 0), (0, 1)], [1, 2, 2])


def test_a_place_is_the_middle_of_what_the_others_know():
    place = Midway().place(STATE, jax.nn.one_hot(STATE.known, 3))
    np.testing.assert_allclose(place.x, [0, 0.5, 0.5])
    np.testing.assert_allclose(place.y, [1, 0.5, 0.5])
    np.testing.assert_allclose(Midway().rewards(STATE), -(1 + 0.0625 + 0.5))


def test_each_agent_sees_its_own_landmark_marked_and_nobody_elses():
    before = Midway().observe(STATE)
    assert before.shape == (3, Midway().observation_size)
    np.testing.assert_allclose(before[:, -3:], [[0.25, 0.75, 0.25], [0.25, 0.25, 0.75], [0.25, 0.25, 0.75]])
    after = Midway().observe(STATE._replace(known=jnp.array([0, 2, 2])))
    assert np.any(np.asarray(after[0] != before[0]))
    np.testing.assert_array_equal(after[1:], before[1:])
    moved = STATE._replace(bodies=STATE.bodies._replace(x=STATE.bodies.x.at[0].add(0.3)))
    np.testing.assert_array_equal(Midway().observe(moved)[1:], before[1:])


def test_with_two_agents_it_is_ccn():
    """The same walk earns the same where each agent's target is what the other one knows."""
    ccn, two = CCN(), Midway(agents=2)
    one = ccn.reset(jax.random.key(3))
    other = MidwayState(one.bodies, one.landmarks, one.target[::-1])
    np.testing.assert_allclose(two.observe(other), ccn.observe(one), atol=1e-6)
    np.testing.assert_allclose(two.rewards(other), ccn.rewards(one), rtol=1e-5)
    np.testing.assert_array_equal(two.scripted(other), ccn.scripted(one))


def worth(name, epsilon):
    """What being told at this ε earns."""
    task = tasks.make(name)
    assert references.is_informed(task)
    flip = (task.symbols - 1) / (math.exp(epsilon) + task.symbols - 1)
    earned = np.asarray(references.informed_returns(task, flip, jax.random.key(1), EPISODES))
    return earned.mean()


@pytest.mark.parametrize(("epsilon", "known"), [(0.0, -20.0), (1.0, -18.5), (3.0, -11.9), (10.0, -9.2), (40.0, -9.2)])
def test_being_told_is_worth_on_ccn_what_others_found(epsilon, known):
    assert worth("ccn", epsilon) == pytest.approx(known, abs=0.2)


def test_being_told_matters_on_midway():
    silent, one, three, all_of_it = (worth("midway", epsilon) for epsilon in (0.0, 1.0, 3.0, 40.0))
    assert silent + 0.5 < one < three - 3
    assert three + 1 < all_of_it
    scripted = tasks.reference_returns(tasks.make("midway"), jax.random.key(1), EPISODES)["scripted"][0]
    assert all_of_it < scripted < all_of_it + 0.6  # what the first step costs, of which nothing is known yet


def test_told_agents_know_nothing_in_the_first_step():
    task, key = Midway(horizon=1), jax.random.key(0)
    told, untold = (references.informed_returns(task, flip, key, 50) for flip in (0.0, 2 / 3))
    np.testing.assert_allclose(told, untold, rtol=1e-6)


def test_tasks_say_whether_being_told_has_a_worth():
    assert [name for name in tasks.names() if references.is_informed(tasks.make(name))] == [
        "ccn",
        "midway",
        "speaker-listener",
    ]


@pytest.mark.parametrize(("options", "says"), [({"agents": 1}, "from 2"), ({"landmarks": 1}, "from 2")])
def test_bad_input_says_what_is_allowed(options, says):
    with pytest.raises(BadInput, match=says):
        tasks.make("midway", **options)


@pytest.mark.parametrize("name", ["ccn", "midway"])
def test_landmarks_may_be_numbered_by_how_far_out_they_lie_and_are_else_the_same(name):
    """The numbers change, the scenes do not: scripted walkers who are told nothing earn the same on the same starts."""
    plain, sorted_ = tasks.make(name), tasks.make(name, order="spread")
    keys = jax.random.split(jax.random.key(0), 500)
    one, other = jax.vmap(plain.reset)(keys), jax.vmap(sorted_.reset)(keys)
    far = sum((part - part.mean(1, keepdims=True)) ** 2 for part in map(np.asarray, other.landmarks))
    assert (np.diff(far, axis=1) <= 0).all()
    np.testing.assert_array_equal(np.sort(one.landmarks.x, axis=1), np.sort(other.landmarks.x, axis=1))
    assert 0.1 < np.mean(np.asarray(one.landmarks.x) == np.asarray(other.landmarks.x)) < 0.5
    np.testing.assert_allclose(*(limit.silence(limit.scenes_of(task, 50)) for task in (plain, sorted_)), rtol=1e-4)
    with pytest.raises(BadInput, match="random"):
        tasks.make(name, order="size")
