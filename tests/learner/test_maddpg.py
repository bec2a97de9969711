"""MADDPG: where gradients go, what targets are, and what an update changes."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import tasks
from dpmac.agents.mechanisms import noise_scale
from dpmac.agents.team import TaskShape, make_team
from dpmac.config import Channel, NetworkConfig
from dpmac.learner import maddpg, replay
from dpmac.learner.base import Rollout
from dpmac.learner.maddpg import Maddpg
from dpmac.learner.replay import Episode
from dpmac.learner.rollout import describe, rollout

rollout, describe = eqx.filter_jit(rollout), eqx.filter_jit(describe)
actor_loss, values = eqx.filter_jit(maddpg.actor_loss), eqx.filter_jit(maddpg.values)

unroll = eqx.filter_jit(lambda team, *given: team.unroll(*given))
TASK = tasks.make("probe-neighbour", horizon="4")
LEARNER = Maddpg(batch=4, logit_penalty=0.0)
SENDER, RECEIVER = ("shared", "mean", "log_deviation"), ("key", "query", "value")
EPISODES = 6


def build(channel=None, learner=LEARNER):
    team_key, critic_key, episode_key = jax.random.split(jax.random.key(0), 3)
    shape = TaskShape(TASK.agents, TASK.observation_size, TASK.actions, TASK.horizon)
    team = make_team(team_key, shape, "dpmac", {}, channel or Channel(), NetworkConfig(8, 6, 4))
    networks, optimisers, _ = eqx.filter_jit(learner.init)(critic_key, team, Rollout(TASK, 4), EPISODES)
    scale = noise_scale(channel or Channel(), (0.1, 0.1, 0.1))
    episodes = rollout(TASK, team, scale, episode_key, EPISODES).episode
    return networks, optimisers, episodes, scale


@pytest.fixture(scope="module")
def parts():
    return build()


def inside(episodes):
    """Axes of an update: (time, agent, episode, …)."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 2), episodes._replace(draws=None, scale=None))


@pytest.fixture(scope="module")
def gradients_of_each(parts):
    """For each agent i, the gradient of its loss -Q_i alone, into the networks of all agents."""
    networks, _, episodes, scale = parts
    draws = networks.team.draw(jax.random.key(1), EPISODES)
    gumbel = jax.random.gumbel(jax.random.key(2), (TASK.horizon, 3, EPISODES, TASK.actions))

    def loss(team, agent):
        only = jax.tree.map(
            lambda leaf: leaf * (jnp.arange(3) == agent).reshape(3, *[1] * (leaf.ndim - 1)), networks.critics
        )
        return maddpg.actor_loss(team, only, inside(episodes), draws, gumbel, scale, 0.0)[0]

    gradient = jax.jit(jax.grad(loss))
    return [jax.tree.map(np.asarray, gradient(networks.team, agent).members) for agent in range(3)]


def size(gradient, agent):
    """The largest entry of a gradient that belongs to an agent."""
    return max(np.abs(leaf[agent]).max() for leaf in jax.tree.leaves(gradient))


def layers(gradient, names):
    return [getattr(gradient.protocol, name) for name in names]


def test_gradients_reach_the_senders_of_the_others_and_never_an_agents_own(gradients_of_each):
    for loss in range(3):
        for agent in range(3):
            found = size(layers(gradients_of_each[loss], SENDER), agent)
            assert (found > 1e-8) if agent != loss else (found == 0), (loss, agent, found)


def test_gradients_stay_with_the_own_receiver_and_actor(gradients_of_each):
    for loss in range(3):
        for agent in range(3):
            received = size(layers(gradients_of_each[loss], RECEIVER), agent)
            acted = size(gradients_of_each[loss].actor, agent)
            assert (received > 0) == (acted > 0) == (agent == loss)


def test_own_action_comes_from_the_policy_and_those_of_the_others_from_the_replay(parts):
    """With one-hot own actions planted by huge Gumbel noise, the loss is -Q of exactly that joint action."""
    networks, _, episodes, scale = parts
    batch, team = inside(episodes), networks.team
    planted = (batch.actions + 1) % TASK.actions
    gumbel = 1e4 * jax.nn.one_hot(planted, TASK.actions)
    draws = team.draw(jax.random.key(1), EPISODES)
    found, _ = actor_loss(team, networks.critics, batch, draws, gumbel, scale, 0.0)
    wanted = 0.0
    for agent in range(3):
        joint = batch.actions.at[:, agent].set(planted[:, agent])
        q = values(networks.critics, batch.observations[:-1], jax.nn.one_hot(joint, TASK.actions))
        wanted -= float(jnp.mean(q[:, agent]))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("terminal", [True, False])
def test_targets_stop_at_the_horizon_or_see_through_it(parts, terminal):
    networks, _, episodes, scale = parts
    batch, learner = inside(episodes), Maddpg(discount=0.9, bootstrap_horizon=not terminal)
    draws = networks.team.draw(jax.random.key(3), EPISODES)
    target = eqx.filter_jit(maddpg.targets)(learner, networks, batch, draws, scale)
    logits = unroll(networks.target_team, batch.observations, batch.actions, draws, scale)
    greedy = jax.nn.one_hot(jnp.argmax(logits, -1), TASK.actions)
    following = np.array(values(networks.target_critics, batch.observations[1:], greedy[1:]))
    if terminal:
        following[-1] = 0
    np.testing.assert_allclose(target, batch.rewards + 0.9 * following, rtol=1e-5, atol=1e-6)


def test_a_critic_of_each_agent_sees_all_observations_and_actions(parts):
    networks, _, episodes, _ = parts
    batch = inside(episodes)
    observations, actions = batch.observations[:-1], jax.nn.one_hot(batch.actions, TASK.actions)
    q = values(networks.critics, observations, actions)
    assert q.shape == (TASK.horizon, 3, EPISODES)
    for given in (0, 1):
        slope = jax.grad(lambda *both: maddpg.values(networks.critics, *both)[2, 1, 3], given)(observations, actions)
        assert np.all(np.abs(slope).max(-1)[2, :, 3] > 0)
        assert np.count_nonzero(np.abs(slope).max(-1)) == 3


@pytest.fixture(scope="module")
def updated(parts):
    """One update from the replay."""
    networks, optimisers, episodes, _ = parts
    ring = replay.add(replay.empty(8, jax.tree.map(lambda leaf: leaf[0], episodes)), episodes)
    update = jax.jit(lambda n, o, r, k: maddpg.update(LEARNER, n, o, r, k, 4))
    with jax.debug_key_reuse(True):
        return update(networks, optimisers, ring, jax.random.key(4))


def test_one_update_uses_every_key_once_and_moves_every_network(parts, updated):
    before, (after, _, report) = parts[0], updated
    for name in ("team", "critics"):
        old, new = (jax.tree.leaves(getattr(networks, name)) for networks in (before, after))
        assert all(bool(jnp.any(a != b)) for a, b in zip(old, new, strict=True) if a.ndim == 3)
    assert {"critic_loss", "actor_loss"} <= set(report)
    assert all(np.isfinite(value) for value in report.values())


def test_targets_follow_slowly(parts, updated):
    before, after = parts[0], updated[0]
    for slow, fast in (("target_team", "team"), ("target_critics", "critics")):
        old, new, goal = (jax.tree.leaves(getattr(n, f)) for n, f in ((before, slow), (after, slow), (after, fast)))
        for a, b, c in zip(old, new, goal, strict=True):
            np.testing.assert_allclose(b - a, LEARNER.tau * (c - a), rtol=1e-3, atol=1e-7)


def test_gradients_are_clipped_for_each_agent_apart():
    """An agent with huge gradients moves as it would alone; Adam's first step is as long as the learning rate."""
    optimiser = jax.vmap(LEARNER.optimiser.update)
    gradient = {"w": jnp.array([[3e6, -4e6], [0.3, 0.4]])}
    state = jax.vmap(LEARNER.optimiser.init)(gradient)
    step, state = optimiser(gradient, state, gradient)
    np.testing.assert_allclose(jnp.abs(step["w"]), LEARNER.learning_rate, rtol=1e-3)
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.shape == (2, 2)]
    np.testing.assert_allclose(moments[0], [[0.06, -0.08], [0.03, 0.04]], rtol=1e-4)


def test_what_senders_do_is_described():
    networks, _, episodes, _ = build(channel=Channel(clip_norm=1e-3))
    one = jax.tree.map(lambda leaf: leaf[0], episodes)
    told, free = (describe(networks.team, one, noise_scale(Channel(), (noise,) * 3)) for noise in (0.5, 0.0))
    assert {"message_norm", "share_clipped", "signal_to_noise", "learned_deviation"} == set(told)
    assert told["share_clipped"] == 1
    assert 0 < float(told["signal_to_noise"]) <= 1e-6 / (4 * 0.25)
    assert np.isinf(free["signal_to_noise"])


@pytest.mark.parametrize("start", [0.0, -1e5])
def test_standardised_rewards_are_centred_and_scaled_by_what_the_ring_really_holds(start):
    """Empty slots do not count, and the map is the same for every reward, so the order of policies stays. Squares of
    large rewards, of which float32 keeps seven digits, would hide how little they differ."""
    rewards = start + jnp.arange(24.0).reshape(4, 3, 2)
    one = Episode(
        jnp.zeros((4, 2, 1)),
        jnp.zeros((3, 2), jnp.int8),
        rewards[0],
        jnp.zeros(2, jnp.uint32),
        noise_scale(Channel(), (0.0, 0.0)),
    )
    episodes = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (4, *leaf.shape)), one)._replace(rewards=rewards)
    ring = replay.add(replay.empty(16, one), episodes)
    found = np.asarray(maddpg.standardised(episodes, ring).rewards)
    np.testing.assert_allclose(found, (rewards - rewards.mean()) / rewards.std(), rtol=1e-4)


def with_ticking_clock(critics):
    """Critics start without a weight on the time; these have one."""
    return eqx.tree_at(lambda critics: critics.clock, critics, jnp.ones((TASK.agents, 8)))


def test_a_critic_with_a_clock_values_the_same_state_by_the_time_that_is_left():
    networks, _, episodes, _ = build(learner=replace(LEARNER, clock=True))
    still = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), inside(episodes))
    actions = jax.nn.one_hot(still.actions, TASK.actions)
    ticking = with_ticking_clock(networks.critics)
    for critics, differs in ((networks.critics, False), (ticking, True)):
        q = values(critics, still.observations[:-1], actions)
        assert bool(jnp.any(jnp.abs(q - q[:1]) > 1e-4)) == differs


def test_the_clock_is_learned_and_the_same_for_states_and_for_what_follows_them():
    networks, _, episodes, _ = build(learner=replace(LEARNER, clock=True))
    batch = inside(episodes)
    ticking = with_ticking_clock(networks.critics)
    actions = jax.nn.one_hot(jnp.concatenate([batch.actions, batch.actions[-1:]]), TASK.actions)
    long = values(ticking, batch.observations, actions)
    np.testing.assert_allclose(long[:-1], values(ticking, batch.observations[:-1], actions[:-1]), rtol=1e-5)
    slope = jax.grad(maddpg.critic_loss)(networks.critics, batch, jnp.zeros_like(batch.rewards), networks.team.policy)
    assert bool(jnp.any(slope.clock != 0))


def test_episodes_are_replayed_at_the_noise_scales_that_they_were_played_at():
    """Symbols that were flipped when they were played stay flipped, and no others are, however the budget has moved
    since: otherwise what was done upon a message would tell its secret a second time."""
    channel = Channel("response", symbols=2)
    networks, *_ = build(channel=channel)
    team, loud, quiet = networks.team, *(noise_scale(channel, (flip,) * 3) for flip in (0.45, 0.05))
    played = rollout(TASK, team, loud, jax.random.key(5), 64)
    ring = replay.add(replay.empty(64, jax.tree.map(lambda leaf: leaf[0], played.episode)), played.episode)
    later = rollout(TASK, team, quiet, jax.random.key(6), 64).episode  # the budget has moved on
    assert not np.allclose(later.scale.value, played.episode.scale.value)
    batch = replay.by_time(replay.sample(ring, jax.random.key(7), 32))
    np.testing.assert_array_equal(batch.scale.value, np.broadcast_to(loud.value, (32, 3)))
    draws = jax.vmap(team.noise_draws)(jax.random.wrap_key_data(played.episode.draws))
    turned = replay.by_time(played.episode)
    logits = unroll(team, turned.observations[:-1], turned.actions, draws, turned.scale)
    np.testing.assert_allclose(jnp.moveaxis(logits, 2, 0), played.logits, rtol=1e-4, atol=1e-5)
    wrong = unroll(team, turned.observations[:-1], turned.actions, draws, later.scale)
    assert float(jnp.max(jnp.abs(jnp.moveaxis(wrong, 2, 0) - played.logits))) > 1e-2


def test_with_fresh_noise_the_draws_that_were_kept_play_no_part():
    networks, optimisers, episodes, scale = build()
    update = eqx.filter_jit(maddpg.update)

    def report(noise, draws):
        ring = replay.add(replay.empty(EPISODES, jax.tree.map(lambda x: x[0], episodes)), episodes)
        played = ring.episodes._replace(scale=jax.tree.map(lambda x: jnp.stack([x] * EPISODES), noise), draws=draws)
        learner = replace(LEARNER, replay_noise=False)
        return update(learner, networks, optimisers, ring._replace(episodes=played), jax.random.key(7), 4)[2]

    free = noise_scale(Channel(), (0.0, 0.0, 0.0))
    other = jnp.zeros_like(episodes.draws)
    assert (
        report(scale, episodes.draws)["actor_loss"] == report(scale, other)["actor_loss"]
    )  # the kept draws are unused
    assert report(scale, other)["actor_loss"] != report(free, other)["actor_loss"]
