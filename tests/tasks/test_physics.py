"""What physics says of every state, over random ones."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpmac import tasks
from dpmac.config import BadInput
from dpmac.tasks import ccn, cn, particles, pp
from dpmac.tasks.particles import Bodies, Points

quick = settings(max_examples=60, deadline=None)
small = st.floats(-2, 2, width=32).map(lambda value: round(value * 64) / 64)  # coincidences happen, sums are exact


def reals(*shape):
    return arrays(np.float32, shape, elements=small)


def bodies_from(values):
    return Bodies(*(jnp.asarray(row) for row in values))


@jax.jit
def cn_step(state, actions):
    return cn.CN().step(state, actions)


@jax.jit
def cn_observe(state):
    return cn.CN().observe(state)


@quick
@given(reals(4, 3), reals(2, 3), st.tuples(small, small))
def test_cn_observation_moves_with_the_world_except_own_position(moving, marks, shift):
    bodies, landmarks = bodies_from(moving), Points(*map(jnp.asarray, marks))
    before = cn_observe(cn.CNState(bodies, landmarks))
    dx, dy = shift
    after = cn_observe(
        cn.CNState(bodies._replace(x=bodies.x + dx, y=bodies.y + dy), Points(landmarks.x + dx, landmarks.y + dy))
    )
    np.testing.assert_allclose(after[:, 2:4] - before[:, 2:4], np.tile(shift, (3, 1)), atol=1e-6)
    keep = np.r_[0:2, 4:14]
    np.testing.assert_allclose(after[:, keep], before[:, keep], atol=1e-6)


@quick
@given(reals(4, 3), reals(2, 3), st.permutations(range(3)))
def test_permuted_landmarks_permute_their_columns_and_nothing_else(moving, marks, order):
    bodies, order = bodies_from(moving), np.array(order)
    before = cn_observe(cn.CNState(bodies, Points(*map(jnp.asarray, marks))))
    after = cn_observe(cn.CNState(bodies, Points(*map(jnp.asarray, marks[:, order]))))
    columns = np.concatenate([np.arange(4), (4 + 2 * order[:, None] + np.arange(2)).ravel(), np.arange(10, 14)])
    np.testing.assert_array_equal(after, before[:, columns])


@quick
@given(reals(4, 4))
def test_contact_conserves_momentum(moving):
    fx, fy = particles.contact_forces(bodies_from(moving), 0.5)
    scale = 1 + float(jnp.abs(fx).max() + jnp.abs(fy).max())
    assert abs(float(fx.sum())) / scale < 1e-5
    assert abs(float(fy.sum())) / scale < 1e-5


def test_overlapping_discs_push_each_other_apart():
    x = jnp.array([0.0, 0.1])
    fx, fy = particles.contact_forces(Bodies(x, 0 * x, 0 * x, 0 * x), 0.15)
    np.testing.assert_allclose(fx, [-20.0, 20.0], rtol=1e-5)  # 100 × penetration of 0.2
    np.testing.assert_allclose(fy, 0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_every_pair_counts_once(count):
    """Forces and contacts equal a plain double loop, for odd and even numbers."""
    x, y = np.random.default_rng(count).uniform(-0.3, 0.3, (2, count))
    force, touched = np.zeros((2, count)), np.zeros(count)
    for i in range(count):
        for j in set(range(count)) - {i}:
            away = np.array([x[i] - x[j], y[i] - y[j]])
            gap = np.hypot(*away)
            force[:, i] += 100 * away / gap * np.logaddexp(0, (0.3 - gap) / 1e-3) * 1e-3
            touched[i] += gap < 0.3
    bodies = Bodies(*(jnp.asarray(row, jnp.float32) for row in (x, y, 0 * x, 0 * x)))
    np.testing.assert_allclose(particles.contact_forces(bodies, 0.15), force, atol=1e-3)
    np.testing.assert_array_equal(particles.contacts(bodies, 0.15), touched)


@pytest.mark.parametrize("name", ["cn", "ccn", "pp"])
@pytest.mark.parametrize("convention", ["openai", "mpe2"])
def test_nothing_becomes_nan_with_all_bodies_at_one_point(name, convention):
    task: Any = tasks.make(name, convention=convention)
    state = jax.tree.map(jnp.zeros_like, task.reset(jax.random.key(0)))
    for action in (0, 2):
        state, rewards = task.step(state, jnp.full(task.agents, action))
        found = [*jax.tree.leaves(state), rewards, task.observe(state), task.scripted(state)]
        assert all(jnp.isfinite(leaf).all() for leaf in found)


@quick
@given(reals(4, 3), reals(2, 3), arrays(np.int32, 3, elements=st.integers(0, 4)))
def test_steps_stay_finite_from_any_state(moving, marks, actions):
    state, rewards = cn_step(cn.CNState(bodies_from(moving), Points(*map(jnp.asarray, marks))), actions)
    assert all(np.isfinite(leaf).all() for leaf in [*jax.tree.leaves(state), rewards])


@quick
@given(reals(4, 3), reals(2, 3), st.integers(0, 2), st.tuples(small, small))
def test_what_lies_beyond_the_view_is_hidden(moving, marks, index, shift):
    """Moving a landmark about outside everybody's view changes no observation; others keep their columns."""
    task = cn.CN(view_radius=0.5)
    bodies = bodies_from(moving)
    far = np.array(marks)
    far[:, index] = 100
    farther = far.copy()
    farther[:, index] += shift
    seen, still = (task.observe(cn.CNState(bodies, Points(*map(jnp.asarray, m)))) for m in (far, farther))
    np.testing.assert_array_equal(seen, still)
    hidden = seen[:, 4 + 3 * index : 7 + 3 * index]
    np.testing.assert_array_equal(hidden, 0)
    kept = [4 + 3 * k for k in range(3) if k != index]
    whole = cn.CN().observe(cn.CNState(bodies, Points(*map(jnp.asarray, far))))
    for column in kept:
        visible = seen[:, column + 2] == 1
        full = whole[:, 4 + 2 * (column - 4) // 3 :][:, :2]
        np.testing.assert_array_equal(seen[visible, column : column + 2], full[visible])


@pytest.mark.parametrize("name", ["cn", "ccn", "pp"])
def test_an_endless_view_adds_no_features_and_a_wide_one_hides_nothing(name):
    endless, wide = tasks.make(name), tasks.make(name, view_radius=50)
    state = endless.reset(jax.random.key(1))
    assert endless.observe(state).shape == (endless.agents, {"cn": 14, "ccn": 11, "pp": 10}[name])
    flags = wide.observation_size - endless.observation_size
    assert np.isin(np.asarray(endless.observe(state)), np.asarray(wide.observe(state))).all()
    assert flags == {"cn": 5, "ccn": 3, "pp": 3}[name]


@pytest.mark.parametrize("view_radius", [0.5, float("inf")])
@pytest.mark.parametrize("name", ["cn", "ccn", "pp"])
def test_observations_have_the_stated_shape(name, view_radius):
    task = tasks.make(name, view_radius=view_radius)
    observation = task.observe(task.reset(jax.random.key(0)))
    assert observation.shape == (task.agents, task.observation_size)
    assert observation.dtype == jnp.float32


def test_ccn_agent_sees_the_colour_of_the_others_target_only():
    task = ccn.CCN()
    state = task.reset(jax.random.key(0))._replace(target=jnp.array([0, 2]))
    np.testing.assert_allclose(task.observe(state)[:, -3:], [[0.25, 0.25, 0.75], [0.75, 0.25, 0.25]])
    np.testing.assert_array_equal(task.secrets(state)["target"], [2, 0])
    other = state._replace(target=jnp.array([1, 2]))
    np.testing.assert_array_equal(task.observe(state)[0], task.observe(other)[0])


def test_ccn_landmarks_start_within_their_square():
    starts = jax.vmap(ccn.CCN().reset)(jax.random.split(jax.random.key(0), 2000))
    assert 0.79 < jnp.abs(jnp.stack(starts.landmarks)).max() <= 0.8
    assert 0.99 < jnp.abs(jnp.stack(starts.bodies)).max() <= 1
    assert set(np.unique(starts.target)) == {0, 1, 2}


def prey_flight(prey, predators, fence: pp.Fence = "adds"):
    px, py = np.array(predators, np.float32).T
    x, y = (jnp.array([value], jnp.float32) for value in prey)
    state = pp.PPState(Bodies(jnp.array(px), jnp.array(py), 0 * px, 0 * py), Bodies(x, y, 0 * x, 0 * y))
    return tuple(float(part[0]) for part in pp.flight(state, fence))


def test_prey_flees_the_nearest_predator_along_the_dominant_axis():
    assert prey_flight((0, 0), [(0.5, 0.1), (-0.9, 0)]) == (-1, 0)
    assert prey_flight((0, 0), [(0.1, -0.5), (-0.9, 0)]) == (0, 1)


@pytest.mark.parametrize(
    ("prey", "predator", "push"),
    [
        ((0.9, 0.1), (0.5, 0.1), (-1, 0)),  # flees outwards with 1 and is pushed back with 2
        ((0.9, 0.1), (1.2, 0.1), (-3, 0)),  # both inwards
        ((0.9, 0.1), (0.9, -0.5), (-2, 1)),  # one along each axis
        ((0.1, -0.9), (0.1, 0), (0, 1)),
        ((0.79, 0.1), (0.5, 0.1), (1, 0)),  # still inside
    ],
)
def test_prey_beyond_the_fence_flees_and_is_pushed_back_with_two(prey, predator, push):
    """What I2C's code and the paper's release do, worked out from their rule."""
    assert prey_flight(prey, [predator]) == push


def test_the_fence_replaces_flight_on_demand():
    assert prey_flight((0.9, 0.1), [(0.5, 0.1)], "replaces") == (-2, 0)
    assert prey_flight((0.1, -0.9), [(0.1, 0)], "replaces") == (0, 2)
    assert prey_flight((0.79, 0.1), [(0.5, 0.1)], "replaces") == (1, 0)


def test_cn_landmarks_start_within_the_share_of_the_square_that_is_asked_for():
    def reach(task):
        starts = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), 1000))
        return [float(jnp.abs(jnp.stack([part.x, part.y])).max()) for part in (starts.bodies, starts.landmarks)]

    assert reach(cn.CN(landmark_range=0.8)) == pytest.approx([1, 0.8], abs=0.01)
    assert reach(cn.CN()) == pytest.approx([1, 1], abs=0.01)
    with pytest.raises(BadInput, match="landmark_range"):
        cn.CN(landmark_range=0)


def test_prey_stays_when_touched():
    assert prey_flight((0, 0), [(0.08, 0)]) == (0, 0)
    assert prey_flight((0.9, 0), [(0.95, 0)]) == (0, 0)
    assert prey_flight((0, 0), [(0.1, 0)]) == (-1, 0)


def test_pp_rewards_by_hand():
    predators = Bodies(*jnp.array([[0.0, 0.05, 1.0], [0.0, 0.0, 0.0], [0.0] * 3, [0.0] * 3]))
    preys = Bodies(*jnp.array([[0.0, 2.0], [0.5, 0.0], [0.0] * 2, [0.0] * 2]))
    state = pp.PPState(predators, preys)
    np.testing.assert_allclose(pp.PP().rewards(state), -(0.5 + 1.0) - 1)
    by_predator = -(0.5 + np.hypot(0.05, 0.5) + 1.0) - 1
    np.testing.assert_allclose(pp.PP(reward="predators").rewards(state), by_predator, rtol=1e-6)


def test_pp_predator_sees_the_nearest_prey_only():
    task = pp.PP()
    state = task.reset(jax.random.key(0))
    gap = np.hypot(state.preys.x[None] - state.predators.x[:, None], state.preys.y[None] - state.predators.y[:, None])
    near = gap.argmin(1)
    seen = np.asarray(task.observe(state)[:, 4:6])
    np.testing.assert_allclose(seen[:, 0], np.asarray(state.preys.x)[near] - state.predators.x, rtol=1e-6)
    np.testing.assert_allclose(seen[:, 1], np.asarray(state.preys.y)[near] - state.predators.y, rtol=1e-6)


def test_pp_predator_sees_the_nearest_of_the_others_first_on_demand():
    """By hand: predator 0 at the origin, 1 at distance 0.9, 2 at 0.5."""
    predators = Bodies(*jnp.array([[0.0, 0.9, 0.0], [0.0, 0.0, 0.5], [0.0] * 3, [0.0] * 3]))
    state = pp.PPState(predators, Bodies(*jnp.zeros((4, 2))))
    np.testing.assert_allclose(pp.PP().observe(state)[0, 6:], [0.9, 0.0, 0.0, 0.5])
    np.testing.assert_allclose(pp.PP(others="nearest").observe(state)[0, 6:], [0.0, 0.5, 0.9, 0.0])
