"""What private communication can be worth on CCN and midway."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from dpmac import tasks
from dpmac.analysis import limit, walk
from dpmac.config import BadInput
from dpmac.privacy import staircase
from dpmac.privacy.loss import response_flip
from dpmac.runner import train
from dpmac.tasks import particles, references

EPSILONS = (0.5, 1, 2, 3, 5, 10)
KNOWN = {
    "ccn": {
        "silence": -19.91,
        "randomised": (-19.56, -18.45, -14.88, -11.85, -9.59, -9.18),
        "public": (-19.42, -18.14, -14.64, -11.78, -9.59, -9.18),
        "bound": (-19.39, -18.10, -14.60, -11.74, -9.55, -9.14),
        "two": (-19.42, -18.16, -14.98, -12.79),
    },
    "midway": {
        "silence": -19.37,
        "randomised": (-19.11, -18.27, -15.56, -13.25, -11.53, -11.21),
        "bound": (-18.95, -17.98, -15.32, -13.15, -11.47, -11.16),
    },
}
"""Worked out once on 4,096 common starts, by another program."""


def means(found, name):
    return np.array([point["return_mean"] for point in found["lines"][name]["points"]])


@pytest.mark.large
@pytest.mark.parametrize("name", KNOWN)
def test_lines_are_the_known_ones(name):
    found = limit.curves(tasks.make(name), EPSILONS, 4096)
    assert found["silence"]["return_mean"] == pytest.approx(KNOWN[name]["silence"], abs=0.01)
    for line, known in KNOWN[name].items():
        if line != "silence":
            np.testing.assert_allclose(means(found, line)[: len(known)], known, atol=0.01, err_msg=line)


def test_the_lines_of_a_number_are_those_of_its_errors():
    found = limit.curves(tasks.make("place"), [1.0, 3.0], 10, 1e-4)
    assert list(found["lines"]) == ["fixed", "bound"]
    np.testing.assert_allclose(means(found, "fixed"), [-0.280, -0.111], atol=0.0005)
    assert (means(found, "fixed") < means(found, "bound")).all()
    assert found["silence"]["return_mean"] == pytest.approx(-1 / 3)
    assert limit.applies(tasks.make("place"))
    assert not limit.applies(tasks.make("drift"))


def test_the_lines_of_a_listener_are_those_of_being_told_in_the_task():
    """Randomised response, enumerated here, is what scripted listeners earn who are told by draws."""
    task, epsilon = tasks.make("speaker-listener"), 2.0
    found = limit.curves(task, [epsilon], 1024)
    assert references.is_informed(task)
    told = references.informed_returns(
        task, response_flip(epsilon, task.symbols), jax.random.key(train.EVALUATION_SEED), 1024
    )
    error = float(np.std(told) / 32)
    assert means(found, "randomised")[0] == pytest.approx(float(np.mean(told)), abs=4 * error)
    assert list(found["lines"]) == ["randomised", "fixed", "bound"]  # a speaker sees no landmarks
    lines = [means(found, name)[0] for name in found["lines"]]
    assert found["silence"]["return_mean"] < lines[0] <= lines[1] + 1e-9 <= lines[2]


@pytest.mark.parametrize(("name", "episodes"), [("ccn", 256), ("midway", 64)])
def test_lines_lie_in_their_order_and_near_the_known_ones(name, episodes):
    epsilons = (0.5, 2, 10)
    found = limit.curves(tasks.make(name), epsilons, episodes)
    for line, known in KNOWN[name].items():
        if line not in ("silence", "two"):
            error = found["lines"][line]["points"][0]["return_se"]
            np.testing.assert_allclose(means(found, line), np.take(known, [0, 2, 5]), atol=4 * error, err_msg=line)
    bound = means(found, "bound")
    for line in ("randomised", "two", "fixed", "shared", "public"):
        assert (means(found, line) <= bound).all(), line
    assert (means(found, "randomised") <= means(found, "fixed") + 1e-6).all()
    assert (np.diff(bound) > 0).all()


def test_scripted_walkers_walk_as_the_task_tells_them():
    """The exact mean over secrets and flips against a sample of both."""
    task, epsilon, count = tasks.make("ccn"), 1.0, 4000
    sample = references.informed_returns(task, response_flip(epsilon, 3), jax.random.key(train.EVALUATION_SEED), count)
    scenes = limit.scenes_of(task, count)
    program = staircase.program(epsilon, 3)
    mass = staircase.posteriors(program.directions)[1]
    earned = limit.walked(scenes, limit.places(scenes, program.directions))
    weights = np.where(np.arange(len(mass)) < 3, 1 / program.directions[0].sum(), 0)
    apart = np.asarray(sample, float) - limit.expected(earned, weights * mass)
    assert abs(apart.mean()) < 4 * apart.std() / np.sqrt(count)


def test_how_often_each_symbol_was_sent_is_all_that_counts():
    """What two others send, in order and weighed, against its counts."""
    scenes = limit.scenes_of(tasks.make("midway"), 16)
    np.testing.assert_allclose(limit.randomised(scenes, 2.0), limit.scripted(scenes, 2.0)["randomised"], rtol=1e-5)


def test_large_teams_have_the_line_of_being_told_in_the_task():
    task, epsilon, count = tasks.make("midway", agents=6), 3.0, 500
    found = limit.curves(task, [epsilon], count)
    assert list(found["lines"]) == ["randomised"]
    key = jax.random.key(train.EVALUATION_SEED)
    told = np.asarray(references.informed_returns(task, response_flip(epsilon, 3), key, count), float)
    assert means(found, "randomised")[0] == pytest.approx(told.mean(), abs=4 * told.std() / np.sqrt(count))
    assert found["silence"]["return_mean"] < means(found, "randomised")[0]


def walk_costs(offsets, actions, convention):
    """Squared distances to the origin, summed over time (walk,), of bodies that rest at offsets (walk, 2) and then do
    what actions (time, walk) say; None stands for the script."""
    x, y = jnp.asarray(offsets.T, jnp.float32)
    bodies, home = particles.at_rest(particles.Points(x, y)), particles.Points(0 * x, 0 * x)
    cost, first = np.zeros(len(offsets)), None
    for now in actions:
        chosen = particles.steer(bodies, home) if now is None else jnp.asarray(now)
        first = np.asarray(chosen) if first is None else first
        bodies = particles.glide(bodies, chosen, convention)
        cost += np.asarray(bodies.x**2 + bodies.y**2, float)
    return cost, first


@pytest.mark.parametrize("convention", ["openai", "mpe2"])
def test_no_sequence_of_actions_costs_less_than_the_least(convention):
    """All 3,125 walks of five steps, from each of several offsets."""
    horizon, actions = 5, np.array(list(itertools.product(range(5), repeat=5))).T
    for offset in np.random.default_rng(0).uniform(-1.8, 1.8, (20, 2)) * np.linspace(0.02, 1, 20)[:, None]:
        cost, first = walk_costs(np.tile(offset, (5**horizon, 1)), actions, convention)
        least = walk.least_cost(offset, convention, horizon)
        assert (cost >= least[first] - 1e-5).all()
        assert cost.min() - least.min() < 0.1


def test_the_script_walks_almost_as_well_as_anybody_can():
    offsets = np.random.default_rng(1).uniform(-1.8, 1.8, (400, 2))
    cost, first = walk_costs(offsets, [None] * 25, "openai")
    lost = cost - walk.least_cost(offsets, "openai", 25)[np.arange(400), first]
    assert (lost >= -1e-4).all()
    assert lost.mean() < 0.1


def test_the_least_cost_is_that_of_the_best_continuous_walk():
    """SciPy's solver of bounded least squares along each diagonal, for each first push."""
    horizon = 10
    drift, pushed = walk.moves("openai", horizon - 1)
    for distance, push in [(1.234, 0), (-0.417, 2), (3.3, 1), (0.03, 2)]:
        first = distance + 0.05 * walk.PUSHES[push]
        free = first + 0.5 * walk.PUSHES[push] * drift
        best = 2 * lsq_linear(pushed, -free, (-1, 1), method="bvls", tol=1e-14).cost + first**2
        found = float(walk.line_cost(np.array(distance), push, "openai", horizon))
        assert best - 1e-3 <= found <= best + 1e-9
    assert walk.tangents("openai", horizon).gap < 1e-5


def test_delta_moves_the_bound_a_little_and_upwards():
    for name, most in (("ccn", 0.001), ("midway", 0.02)):
        scenes = limit.scenes_of(tasks.make(name), 16)
        moved = limit.bound(scenes, 1.0, 1e-4) - limit.bound(scenes, 1.0)
        assert (moved > 0).all()
        assert moved.mean() < most


def test_four_landmarks_have_limits_with_delta_however_many_senders():
    """Two of them would take 19,321 columns, so the bound without δ is raised instead."""
    for agents in (2, 3):
        task = tasks.make("midway", agents=agents, landmarks=4)
        assert limit.applies(task)
        pure, wide = (limit.curves(task, [1.0, 5.0, 20.0], 8, delta) for delta in (0.0, 1e-4))
        for line in ("fixed", "shared", "public"):
            assert (means(wide, line) <= means(wide, "bound")).all()
        rise = means(wide, "bound") - means(pure, "bound")
        assert (rise >= -1e-9).all()
        assert (rise < 0.01).all()


def test_a_budget_below_all_others_is_worth_as_much_as_silence():
    found = limit.curves(tasks.make("ccn"), [staircase.SMALLEST], 8, 1e-4)
    for line in ("fixed", "shared", "public"):
        assert means(found, line)[0] == pytest.approx(found["silence"]["return_mean"], abs=1e-3)


def test_agents_with_a_limited_view_have_the_bound_alone():
    found, whole = (limit.curves(tasks.make("ccn", view_radius=radius), [2.0], 8) for radius in (0.3, np.inf))
    assert list(found["lines"]) == ["bound"]
    assert "silence" not in found
    assert means(found, "bound") == means(whole, "bound")
    assert not limit.applies(tasks.make("midway", agents=6, view_radius=0.3))


def test_without_delta_an_alarms_symbols_share_the_budget_evenly():
    """Each is right with probability e^(ε/T)/(1 + e^(ε/T)); two slots, enumerated."""
    found = limit.curves(tasks.make("alarm", horizon=2), [1.0], 2)
    right = np.exp(0.5) / (1 + np.exp(0.5))
    # in step 0 nothing has begun; in step 1 it has for one moment of two, and the first symbol says so
    assert means(found, "every")[0] == pytest.approx((1 + right) / 2)


def test_no_bound_on_a_number_is_above_the_largest_return():
    assert means(limit.curves(tasks.make("place"), [50.0], 2, 1e-4), "bound")[0] == 0


def test_a_message_after_the_end_tells_nothing():
    task = tasks.make("ccn", horizon=1)
    scenes = limit.scenes_of(task, 8)
    np.testing.assert_allclose(limit.bound(scenes, 0.5), limit.bound(scenes, 5.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "episodes", "message"),
    [
        (tasks.make("cn"), 10, "ccn"),
        (tasks.make("ccn", convention="mpe2"), 10, "ccn"),
        (tasks.make("midway", agents=40), 10, "40 agents"),
        (tasks.make("ccn"), 1, "at least 2 episodes"),
    ],
)
def test_bad_input_is_named(task, episodes, message):
    with pytest.raises(BadInput, match=message):
        limit.curves(task, [1.0], episodes)
