"""The ring of episodes, and episodes of a team in a task."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import tasks
from dpmac.agents.mechanisms import noise_scale
from dpmac.agents.team import TaskShape, Team, make_team
from dpmac.config import Channel, NetworkConfig
from dpmac.learner import replay
from dpmac.learner.replay import Episode
from dpmac.learner.rollout import returns, rollout

plain_rollout, rollout = rollout, eqx.filter_jit(rollout)
TASK = tasks.make("probe-listen", symbols="3")
CHANNEL = Channel()


def numbered(*numbers):
    """Episodes whose every entry is their number."""
    n = jnp.array(numbers, jnp.float32)
    keys = jnp.tile(n.astype(jnp.uint32)[:, None], (1, 2))
    seen = jnp.tile(n[:, None, None, None], (1, 3, 2, 1))
    return Episode(
        seen, n.astype(jnp.int8)[:, None, None], n[:, None, None], keys, noise_scale(CHANNEL, (0.0,) * len(numbers))
    )


def test_ring_keeps_the_newest_and_forgets_the_oldest():
    ring = replay.empty(3, jax.tree.map(lambda leaf: leaf[0], numbered(0)))
    for first in (1, 3, 5):
        ring = replay.add(ring, numbered(first, first + 1))
    assert sorted(np.ravel(ring.episodes.rewards)) == [4, 5, 6]
    assert int(ring.added) == 6


@pytest.mark.parametrize("added", [1, 2, 5])
def test_only_episodes_that_are_there_are_drawn_and_each_as_often(added):
    ring = replay.add(replay.empty(5, jax.tree.map(lambda x: x[0], numbered(0))), numbered(*range(1, added + 1)))
    drawn = replay.sample(ring, jax.random.key(0), 5000)
    counts = np.bincount(np.ravel(drawn.rewards).astype(int), minlength=6)[1:]
    assert not counts[added:].any()
    assert counts[:added].min() > 5000 / added * 0.85


def test_parts_of_an_episode_stay_together():
    ring = replay.add(replay.empty(4, jax.tree.map(lambda leaf: leaf[0], numbered(0))), numbered(1, 2, 3))
    drawn = replay.sample(ring, jax.random.key(1), 50)
    np.testing.assert_array_equal(drawn.observations[:, 0, 0, 0], drawn.rewards[:, 0, 0])
    np.testing.assert_array_equal(drawn.actions[:, 0, 0], drawn.rewards[:, 0, 0])
    np.testing.assert_array_equal(drawn.draws[:, 1], drawn.rewards[:, 0, 0])


@pytest.fixture(scope="module")
def team():
    shape = TaskShape(TASK.agents, TASK.observation_size, TASK.actions, TASK.horizon)
    return make_team(jax.random.key(0), shape, "dpmac", {}, CHANNEL, NetworkConfig(8, 6, 4))


def test_an_episode_is_what_the_task_makes_of_the_actions(team):
    trace = rollout(TASK, team, noise_scale(CHANNEL, (0.5, 0.5)), jax.random.key(3), 4)
    observations, actions, rewards, *_ = trace.episode
    assert observations.shape == (4, TASK.horizon + 1, 2, TASK.observation_size)
    assert actions.dtype == jnp.int8
    state = jax.tree.map(lambda leaf: leaf[2, 0], trace.states)
    for t in range(TASK.horizon):
        np.testing.assert_array_equal(TASK.observe(state), observations[2, t])
        state, reward = TASK.step(state, actions[2, t])
        np.testing.assert_array_equal(reward, rewards[2, t])
    np.testing.assert_array_equal(TASK.observe(state), observations[2, TASK.horizon])
    np.testing.assert_allclose(returns(trace.episode), np.asarray(rewards).sum(1).mean(1), rtol=1e-6)


def test_starts_chance_and_actions_differ_between_episodes_and_keys(team):
    scale = noise_scale(CHANNEL, (0.5, 0.5))
    first, second = (rollout(TASK, team, scale, jax.random.key(seed), 8) for seed in (0, 1))
    assert not np.array_equal(first.episode.actions, second.episode.actions)
    assert not np.array_equal(first.released, second.released)
    assert len(np.unique(np.asarray(first.episode.actions).reshape(8, -1), axis=0)) > 1
    assert len(np.unique(np.asarray(first.released)[:, 0, 0], axis=0)) == 8


def test_exploration_makes_actions_uniform_and_greedy_ones_follow_the_logits(team):
    scale = noise_scale(CHANNEL, (0.5, 0.5))
    team = eqx.tree_at(lambda t: t.members.actor.head.bias, team, jnp.tile(jnp.array([2.0, 0.0, -2.0]), (2, 1)))
    wild = rollout(TASK, team, scale, jax.random.key(4), 400, explore=1.0)
    shares = np.bincount(np.ravel(wild.episode.actions), minlength=3) / wild.episode.actions.size
    np.testing.assert_allclose(shares, 1 / 3, atol=0.03)
    greedy = rollout(TASK, team, scale, jax.random.key(4), 8, greedy=True)
    np.testing.assert_array_equal(greedy.episode.actions, np.asarray(greedy.logits).argmax(-1))
    sampled = rollout(TASK, team, scale, jax.random.key(4), 400)
    hits = np.asarray(sampled.episode.actions)[..., None] == np.arange(3)
    expected = np.asarray(jax.nn.softmax(sampled.logits))
    np.testing.assert_allclose(hits.mean((0, 1, 2)), expected.mean((0, 1, 2)), atol=0.03)


def test_each_episode_may_have_its_own_noise(team):
    table = jax.tree.map(
        lambda *x: jnp.stack(x), noise_scale(CHANNEL, (0.0, 0.0)), noise_scale(CHANNEL, (100.0, 100.0))
    )
    sizes = np.abs(np.asarray(rollout(TASK, team, table, jax.random.key(5), 40).released)).mean((1, 2, 3))
    assert 8 < np.sum(sizes > 20) < 32
    assert np.all((sizes > 20) | (sizes < 5))


@pytest.mark.parametrize("relaxed", [False, True])
def test_senders_that_speak_once_need_not_be_asked_again(relaxed, monkeypatch):
    """Steps after the first, without a sender, are those of a team whose sender is asked and not heard."""
    channel, task = Channel("response", period=0), tasks.make("ccn")
    shape = TaskShape(task.agents, task.observation_size, task.actions, task.horizon)
    team = make_team(jax.random.key(0), shape, "dpmac", {}, channel, NetworkConfig(8, 6, 4))

    def play():
        return eqx.filter_jit(lambda: plain_rollout(task, team, team.free, jax.random.key(1), 3, relaxed=relaxed))()

    alone = play()
    assert team.speaks_once
    monkeypatch.setattr(Team, "speaks_once", False)
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(play()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
