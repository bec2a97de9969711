"""Traffic junction: roads, collisions and costs by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import tasks
from dpmac.tasks import references
from dpmac.tasks.traffic_junction import TrafficJunction, TrafficState, paths

TASK = TrafficJunction(arm=1, horizon=6, arrivals=3)
RIGHT, STRAIGHT, LEFT = range(3)
GONE = 99


def state_of(progress, route, waited=(0, 0, 0, 0)):
    still, nothing = jnp.zeros(4, bool), jnp.zeros((2, 4))
    return TrafficState(jnp.array(progress), jnp.array(route), jnp.array(waited), still, nothing)


def test_cars_drive_on_the_right_and_leave_by_the_road_of_their_route():
    cells, counts = paths(1)
    south, east, north, west = cells.astype(int).tolist()
    assert counts.tolist() == [3, 4, 5]
    assert south[STRAIGHT][:4] == [[1, -1], [1, 0], [1, 1], [1, 2]]
    assert south[RIGHT][:3] == [[1, -1], [1, 0], [2, 0]]
    assert south[LEFT][:5] == [[1, -1], [1, 0], [1, 1], [0, 1], [-1, 1]]
    assert east[STRAIGHT][:4] == [[2, 1], [1, 1], [0, 1], [-1, 1]]
    assert north[STRAIGHT][:4] == [[0, 2], [0, 1], [0, 0], [0, -1]]
    assert west[LEFT][:5] == [[-1, 0], [0, 0], [1, 0], [1, 1], [1, 2]]


def test_two_cars_in_one_cell_collide_and_everybody_pays_for_the_time():
    """The car from the west drives straight on, that from the south enters its second cell of the junction."""
    state = state_of([0, GONE, GONE, 1], [STRAIGHT] * 4, [1, 9, 9, 2])
    after, rewards = TASK.step(state, jnp.array([1, 0, 0, 1]))
    np.testing.assert_array_equal(TASK.cells(after)[np.array([0, 3])], [[1, 0], [1, 0]])
    np.testing.assert_array_equal(TASK.collided(after), [True, False, False, True])
    np.testing.assert_allclose(rewards, [-10.02, 0, 0, -10.03], rtol=1e-6)
    braked, rewards = TASK.step(state, jnp.array([0, 0, 0, 1]))
    assert not TASK.collided(braked).any()
    np.testing.assert_allclose(rewards, [-0.02, 0, 0, -0.03], rtol=1e-6)


def test_a_car_that_has_left_costs_nothing_and_is_in_nobodys_way():
    state = state_of([3, 3, GONE, GONE], [STRAIGHT, LEFT, 0, 0], [4, 4, 9, 9])
    after, rewards = TASK.step(state, jnp.array([1, 1, 1, 1]))
    np.testing.assert_array_equal(TASK.under_way(after), [False, True, False, False])
    np.testing.assert_allclose(rewards, [0, -0.05, 0, 0], rtol=1e-6)
    assert after.progress.tolist() == [4, 4, GONE, GONE]


def test_a_car_that_has_not_arrived_sees_nothing_and_comes_nearer_whatever_it_does():
    state = state_of([-2, 0, 0, 0], [STRAIGHT] * 4)
    for action in (0, 1):
        after, rewards = TASK.step(state, jnp.array([action, 0, 0, 0]))
        assert after.progress[0] == -1
        assert rewards[0] == 0
    seen = np.asarray(TASK.observe(state))
    np.testing.assert_array_equal(seen[0], [*np.zeros(8), 1, 0, 0, 0])
    np.testing.assert_allclose(seen[1], [1, 1, 0.5, 0, 0, 0, 1, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(TASK.with_secrets(state, jnp.array([2, 1, 0, 1])).route, [2, 1, 0, 1])


def test_the_gradient_of_an_action_is_the_difference_that_the_other_one_would_make():
    start = state_of([0, 0, -1, -2], [STRAIGHT, LEFT, STRAIGHT, LEFT])
    actions = jnp.array(np.random.default_rng(1).uniform(size=(TASK.horizon, 4)) < 0.7).astype(int).at[4:].set(1)

    def total(actions, nudge=None):
        state, earned = start, 0.0
        for t in range(TASK.horizon):
            now = (
                actions[t]
                if nudge is None
                else jax.nn.one_hot(actions[t], 2) + nudge[t] - jax.lax.stop_gradient(nudge[t])
            )
            state, rewards = TASK.step(state, now)
            earned += jnp.sum(rewards)
        return earned

    found = jax.jit(jax.grad(lambda nudge: total(actions, nudge)))(jnp.zeros((TASK.horizon, 4, 2)))[..., 1]
    flips = jnp.eye(4 * TASK.horizon, dtype=int).reshape(-1, TASK.horizon, 4)
    other = jax.jit(jax.vmap(total))(actions ^ flips).reshape(TASK.horizon, 4)
    np.testing.assert_allclose(found, np.where(actions, 1, -1) * (total(actions) - other), atol=1e-4)
    assert np.abs(found).max() > 9


def test_the_script_never_collides_and_leaves_in_time():
    task = TrafficJunction()
    states, _ = jax.vmap(lambda key: references.play(task, "scripted", key))(jax.random.split(jax.random.key(0), 64))
    assert not jax.vmap(jax.vmap(task.collided))(states).any()
    assert not jax.vmap(task.under_way)(jax.tree.map(lambda leaf: leaf[:, -1], states)).any()
    assert len(task.scene(task.reset(jax.random.key(0))).agents) == 4


@pytest.mark.parametrize(("options", "says"), [({"agents": 5}, "from 2 to 4"), ({"crash": -1.0}, "from 0")])
def test_what_does_not_fit_is_refused(options, says):
    with pytest.raises(ValueError, match=says):
        tasks.make("traffic-junction", **options)
