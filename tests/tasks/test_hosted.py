"""Environments from outside as tasks: what they show and earn is what they would have by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds
from mpe2 import simple_reference_v3

from dpmac import tasks
from dpmac.config import BadInput, RunConfig
from dpmac.learner.rollout import rollout
from dpmac.runner.train import Program
from dpmac.tasks import environments, hosted
from dpmac.tasks.environments import grid
from dpmac.tasks.hosted import Hosted

REFERENCE = "pettingzoo:mpe2.simple_reference_v3"
PURSUIT = "pettingzoo:pettingzoo.sisl.pursuit_v5"
SMALL = {"n_pursuers": "2", "n_evaders": "2", "x_size": "8", "y_size": "8", "horizon": "6"}


def make(name: str, **options: Any) -> Hosted:
    task = tasks.make(name, **options)
    assert isinstance(task, Hosted)
    return task


def played(task, key, actions):
    """Observations (T + 1, agent, feature) and rewards (T, agent) of a compiled episode."""

    @jax.jit
    def episode(key, actions):
        start = task.reset(key)

        def step(state, now):
            state, rewards = task.step(state, now)
            return state, (state.observations, rewards)

        state, (seen, rewards) = jax.lax.scan(step, start, actions)
        return state, jnp.concatenate([start.observations[None], seen]), rewards

    return jax.device_get(episode(key, actions))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (REFERENCE, {"max_cycles": "6"}),
        (REFERENCE, {"max_cycles": "6", "continuous_actions": "true"}),
        (PURSUIT, SMALL),
    ],
)
def test_a_compiled_episode_is_that_of_the_environment(name, options):
    task = make(name, **options)
    assert task.horizon == 6
    actions = np.random.default_rng(0).integers(0, task.actions, (6, task.agents))
    state, seen, rewards = played(task, jax.random.key(0), actions)

    env = environments.build(task.source, dict(task.settings))
    observations, _ = env.reset(seed=int(state.seed))
    for t in range(6):
        for row, agent in enumerate(env.possible_agents):
            np.testing.assert_array_equal(seen[t, row], np.asarray(observations[agent], np.float32).ravel())
        observations, earned, *_ = env.step(task.layout.assign(actions[t], env.agents))
        mean = np.mean(list(earned.values()))
        np.testing.assert_allclose(rewards[t], [mean] * task.agents, rtol=1e-6)
    assert not np.array_equal(seen[0], played(task, jax.random.key(1), actions)[1][0])


def test_a_state_is_a_value_that_can_be_stepped_from_again():
    task = make("pettingzoo:worlds:World")
    start = task.reset(jax.random.key(3))
    once, _ = task.step(start, jnp.array([1, 2]))
    further, earned = task.step(once, jnp.array([0, 0]))
    task.step(further, jnp.array([0, 0]))
    again, same = task.step(once, jnp.array([0, 0]))
    np.testing.assert_array_equal(further.observations, again.observations)
    np.testing.assert_array_equal(earned, same)
    other, _ = task.step(start, jnp.array([0, 0]))
    np.testing.assert_array_equal(start.done, np.zeros((5, 2)))
    assert other.done[0].tolist() == [0, 0]
    assert once.done[0].tolist() == [1, 2]


def test_few_environments_serve_many_episodes(monkeypatch):
    monkeypatch.setattr(hosted, "MOST_ENVIRONMENTS", 3)
    task = make("pettingzoo:worlds:World", levels=7)  # a pool of its own
    keys = jax.random.split(jax.random.key(0), 8)
    actions = jnp.asarray(np.random.default_rng(0).integers(0, 3, (5, 2)))
    together = jax.vmap(lambda key: task.reset(key).observations)(keys)

    @jax.jit
    def all_played(keys):
        def one(key):
            return jax.lax.scan(task.step, task.reset(key), actions)[1]

        return jax.vmap(one)(keys)

    crowded = np.asarray(all_played(keys))
    pool = hosted.pool(task)
    assert pool.count <= 3
    for key, seen, rewards in zip(keys, together, crowded, strict=True):
        _, alone, earned = played(task, key, actions)
        np.testing.assert_array_equal(alone[0], seen)
        np.testing.assert_array_equal(earned, rewards)


def test_what_ends_early_is_padded_and_who_has_left_sees_nothing():
    task = make("pettingzoo:worlds:Leaving")
    _, seen, rewards = played(task, jax.random.key(0), np.zeros((5, 2), int))
    assert seen.shape == (6, 2, 3)
    assert seen[:, 0].any(-1).tolist() == [True, True, True, False, False, False]
    assert seen[:, 1].any(-1).tolist() == [True, True, True, True, False, False]
    np.testing.assert_allclose(rewards.sum(-1), [2, 2, 1, 0, 0])
    own = make("pettingzoo:worlds:Leaving", rewards="own")
    np.testing.assert_allclose(played(own, jax.random.key(0), np.zeros((5, 2), int))[2].sum(0), [2, 3])


@pytest.mark.parametrize("episodes", [3, 4, 9])
def test_episodes_a_few_at_a_time_are_those_side_by_side_though_parts_of_them_hold_nothing(episodes):
    class Few:
        at_once = 4

    def play(seed, nothing):
        return {"said": jnp.zeros((2, 0)), "earned": seed * jnp.arange(3) + jnp.sum(nothing)}

    given = jnp.arange(float(episodes)), jnp.zeros((episodes, 0))
    found, wanted = tasks.each_episode(Few(), play, *given), jax.vmap(play)(*given)  # type: ignore[arg-type]
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    assert found["said"].shape == (episodes, 2, 0)


def test_a_shorter_horizon_cuts_off():
    task = make("pettingzoo:worlds:World", horizon="3")
    assert played(task, jax.random.key(0), np.zeros((3, 2), int))[1].shape == (4, 2, 3)


def test_uneven_agents_are_padded():
    task = make("pettingzoo:worlds:Uneven")
    assert (task.agents, task.actions, task.observation_size) == (2, 4, 6)
    seen = task.layout.gather(worlds.Uneven().seen())
    np.testing.assert_allclose(seen, np.stack([np.arange(6) / 6, np.eye(6)[2]]))
    chosen = [task.layout.assign([action] * 2, ["sender", "hearer"]) for action in range(4)]
    assert [one["sender"] for one in chosen] == [5, 6, 5, 6]
    assert [one["hearer"] for one in chosen] == [0, 1, 2, 3]
    assert task.layout.assign([1, 1], ["hearer"]) == {"hearer": 1}


@pytest.mark.parametrize("name", ["Masked", "Hinted"])
def test_forbidden_actions_are_known_and_never_taken(name):
    """The environment itself would fail."""
    task = make(f"pettingzoo:worlds:{name}")
    assert task.observation_size == 3
    state = task.reset(jax.random.key(0))
    assert state.masks.sum(-1).tolist() == [2, 2]  # type: ignore[union-attr]
    assert len(list(task.cautions())) == 1, "whether it repeats is tried out with allowed actions"
    earned, _ = tasks.reference_returns(task, jax.random.key(1), 8)["random"]
    assert earned > 0
    program = Program.of(RunConfig(f"pettingzoo:worlds:{name}", learner="mappo"))
    team = program.team(jax.random.key(0))
    episode = jax.jit(lambda key: rollout(task, team, team.free, key, 8, explore=0.5).episode)(jax.random.key(2))
    assert episode.rewards.sum() > 0


def test_spaces_of_several_parts_are_flattened():
    task = make("pettingzoo:worlds:Parted")
    assert (task.actions, task.observation_size) == (12, 9)
    np.testing.assert_allclose(task.reset(jax.random.key(0)).observations[0], [0, 1, 0, 0, 1, 0.1, 0.2, 0.3, 0.4])
    given = [task.layout.assign([action] * 2, ["sender", "hearer"]) for action in range(12)]
    assert len({str(one["sender"]) for one in given}) == 6
    assert len({str(one["hearer"]) for one in given}) == 12
    _, rewards = task.step(task.reset(jax.random.key(0)), jnp.array([5, 11]))
    assert rewards.tolist() == [1.0, 1.0]


def test_an_environment_that_ends_early_says_so_and_is_not_stepped_again():
    task = make("pettingzoo:worlds:Leaving")
    state = task.reset(jax.random.key(4))
    ended = []
    for _ in range(5):
        state, _ = tasks.advance(task, state, jnp.array([0, 0]))  # type: ignore[arg-type]
        ended.append(bool(task.over(state)))
    assert ended == [False, False, True, True, True]
    assert int(state.time) == 3
    assert "padded" in tasks.abilities(task).length  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "horizon", "ended"), [("World", 5, 0), ("World", 7, 3), ("World", 3, 0), ("Leaving", 3, 1)]
)
def test_a_cut_at_the_horizon_is_no_end(name, horizon, ended):
    """Values may go on there; before the horizon a cut ends the episode, as whatever ends by itself does."""
    task = make(f"pettingzoo:worlds:{name}", horizon=horizon)
    state, over, earned = task.reset(jax.random.key(4)), [], []
    for _ in range(horizon):
        state, rewards = tasks.advance(task, state, jnp.array([0, 0]))  # type: ignore[arg-type]
        over, earned = [*over, bool(task.over(state))], [*earned, float(rewards.sum())]
    assert over == [False] * (horizon - ended) + [True] * ended
    assert not any(earned[5:])


@pytest.mark.parametrize("learner", ["maddpg", "mappo"])
def test_values_go_on_at_the_horizon_where_the_environment_is_cut_off_there(learner):
    def program(horizon):
        options = {"bootstrap_horizon": True}
        name = "pettingzoo:worlds:World"
        return Program.of(RunConfig(name, task_options={"horizon": horizon}, learner=learner, learner_options=options))

    assert program(5).learner.bootstrap_horizon  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="worlds:World cuts off after 5 of 7 steps: give it horizon=5"):
        program(7)


def test_continuous_actions_are_points_of_a_grid():
    np.testing.assert_allclose(grid(np.zeros(2), np.array([1.0, 2.0]), 2), [[0, 0], [0, 2], [1, 0], [1, 2]])
    many = grid(-np.ones(6), np.ones(6), 3)  # 729 combinations are too many: one number moves at a time
    assert len(many) == 1 + 2 * 6
    assert (np.count_nonzero(many, axis=1) <= 1).all()
    env = simple_reference_v3.parallel_env(continuous_actions=True)
    task = make(REFERENCE, continuous_actions=True)
    assert task.actions == 1 + 2 * 15
    for action in range(task.actions):
        for agent, point in task.layout.assign([action] * 2, env.possible_agents).items():
            assert env.action_space(agent).contains(point)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("pettingzoo:no.such.module", {}, "cannot load parallel_env of 'no.such.module'.*pettingzoo:package.module"),
        ("pettingzoo:", {}, "cannot load"),
        ("pettingzoo:..worlds", {}, "cannot load"),
        ("pettingzoo:worlds:Nothing", {}, "cannot load Nothing"),
        ("pettingzoo:worlds:np", {}, "not the class of a PettingZoo ParallelEnv"),
        ("pettingzoo:mpe2.simple_reference_v3:env", {}, "not the class of a PettingZoo ParallelEnv"),
        (REFERENCE, {"speed": "3"}, "cannot be made with speed=3"),
        ("pettingzoo:worlds:World", {"colour": "red"}, "it takes render_mode"),
        ("pettingzoo:worlds:World", {"horizon": "0"}, "horizon must be a whole number from 1"),
        ("pettingzoo:worlds:World", {"horizon": "long"}, "whole number"),
        ("pettingzoo:worlds:World", {"levels": "1"}, "levels must be a whole number from 2"),
        ("pettingzoo:worlds:World", {"rewards": "mine"}, "team, own"),
        ("pettingzoo:worlds:Endless", {}, "give the option horizon=STEPS"),
        ("pettingzoo:worlds:Named", {}, "sender observes a Text space; allowed are Box"),
        ("pettingzoo:worlds:Writing", {}, "sender acts in a Text space; allowed are at most 127 actions"),
        ("pettingzoo:worlds:Many", {}, "sender has 132 actions; allowed are at most 127 actions"),
        ("pettingzoo:worlds:Unbounded", {}, "without bounds"),
        ("pettingzoo:worlds:Crowded", {}, "has 128 actions; allowed are at most 127"),
        ("pettingzoo:worlds:Wide", {}, "makes 141 actions"),
        ("pettingzoo:worlds:Unseeded", {}, "Unseeded does not follow PettingZoo's interface in reset.*seed"),
        ("pettingzoo:worlds:Old", {}, "Old does not follow PettingZoo's interface"),
        (
            "pettingzoo:worlds:Shrinking",
            {"max_cycles": "0", "horizon": "5"},
            "sender observes 1 numbers, and its space has 2",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(name, options, says):
    with pytest.raises(BadInput, match=says):
        make(name, **options)


def test_observations_that_change_their_length_are_not_padded():
    task = make("pettingzoo:worlds:Shrinking", horizon=5)
    with pytest.raises(Exception, match="sender observes 1 numbers, and its space has 2"):
        jax.block_until_ready(task.step(task.reset(jax.random.key(0)), jnp.array([0, 0])))


def test_it_says_that_it_is_slow_and_whether_it_repeats():
    slow, *more = make("pettingzoo:worlds:World").cautions()
    assert "slower" in slow
    assert not more
    slow, forgetful = make("pettingzoo:worlds:Forgetful").cautions()
    assert "does not repeat" in forgetful
    assert hosted.repeats(make(PURSUIT, **SMALL))


def test_a_picture_is_the_environments_own():
    task = make("pettingzoo:worlds:World")
    state = task.reset(jax.random.key(0))
    for t in range(3):
        assert task.scene(state).picture[0, 0, 0] == 40 * t
        state, _ = task.step(state, jnp.array([0, 0]))
    for name in ("Blind", "Undrawn"):
        blind = make(f"pettingzoo:worlds:{name}")
        with pytest.raises(BadInput, match=r"cannot be filmed: its render\(\) gives no picture"):
            blind.scene(blind.reset(jax.random.key(0)))


def test_random_play_is_the_only_reference():
    task = make("pettingzoo:worlds:World")
    found = tasks.reference_returns(task, jax.random.key(0), 1000)  # type: ignore[arg-type]
    assert list(found) == ["random"]
    assert found["random"][0] == pytest.approx(4 / 3, abs=0.5)  # a third of four steps that count
