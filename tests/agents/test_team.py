"""A team: one function for rollout and training, messages one step later, noise that is always fresh."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import tasks
from dpmac.agents import protocol
from dpmac.agents.dpmac import Dpmac
from dpmac.agents.mechanisms import noise_scale
from dpmac.agents.protocol import masked_softmax
from dpmac.agents.team import TaskShape, make_team
from dpmac.config import BadInput, Channel, NetworkConfig
from dpmac.learner.rollout import Randomness, play

SMALL = NetworkConfig(hidden=8, message_hidden=6, message_size=4)
TASK = tasks.make("probe-neighbour", horizon="7")
EPISODES = 4


class Recalling(Dpmac):
    """A protocol whose messages depend on the actor's carry, so that episodes must be replayed step by step."""

    sequential = True

    def send(self, observation, action, carry, draws):
        return super().send(observation, action, carry, draws) + carry[:1]


EVERY_STEP = Channel()


@cache
def team_of(channel=EVERY_STEP, method="dpmac", networks=SMALL, task=TASK, seed=0, options=()):
    shape = TaskShape(task.agents, task.observation_size, task.actions, task.horizon)
    return make_team(jax.random.key(seed), shape, method, dict(options), channel, networks)


@partial(jax.jit, static_argnums=0)
def play_all(task, team, scale, *given):
    nothing = jnp.zeros((team.uses, team.agents, 0))
    return jax.vmap(lambda *each: play(task, team, False, False, None, scale, Randomness(*each, jitter=nothing)))(
        *given
    )


def record(team, scale, seed=0, episodes=EPISODES):
    """Episodes of random and greedy actions, with the draws of their messages."""
    start_key, draw_key, wander_key, uniform_key = jax.random.split(jax.random.key(seed), 4)
    shape = (episodes, TASK.horizon, TASK.agents)
    keys = jax.random.split(draw_key, episodes)
    wander = jax.random.bernoulli(wander_key, 0.5, shape)
    uniform = jax.random.randint(uniform_key, shape, 0, TASK.actions)
    starts, gumbel = jax.random.split(start_key, episodes), jnp.zeros((*shape, TASK.actions))
    data = jax.random.key_data(keys)
    return play_all(TASK, team, scale, starts, data, gumbel, wander, uniform), jax.vmap(team.noise_draws)(keys)


@jax.jit
def unroll(team, *given):
    return team.unroll(*given)


def replayed(team, episode, draws, scale):
    """Logits (episode, time, agent, action) of `Team.unroll`."""
    last = [jnp.moveaxis(x, 0, 2) for x in (episode.observations, episode.actions)]
    return np.moveaxis(np.asarray(unroll(team, *last, draws, scale)), 2, 0)


SEQUENTIAL = "test_team:Recalling"
CHANNELS = {
    "every step": Channel(),
    "once": Channel(period=0),
    "every third step": Channel(period=3),
    "a copy for each": Channel(copies=2),
    "a copy for each, every third step": Channel(copies=2, period=3),
    "past transitions": Channel(sample_rate=0.5),
    "past transitions, every second step": Channel(sample_rate=0.5, period=2),
    "some recipients": Channel(recipient_rate=0.5),
    "some recipients, a copy for each": Channel(recipient_rate=0.5, copies=2, period=2),
    "noise at receivers": Channel(place="receiver"),
    "response": Channel("response", period=2),
    "response for each": Channel("response", copies=2),
    "code": Channel("code"),
    "when it wants": Channel("timed"),
    "running sums": Channel("correlated", stream_decay=0.9),
}


RELEASE = (("bounded", True), ("past", True), ("rescale", True), ("merge", True))
"""DPMAC as in the paper's release."""

CASES = [("dpmac", name) for name in CHANNELS] + [
    (SEQUENTIAL, name) for name in ("every step", "a copy for each, every third step", "past transitions")
]


@pytest.mark.parametrize(("method", "name"), CASES)
def test_rollout_and_training_give_the_same_logits(method, name):
    channel = CHANNELS[name]
    team, scale = team_of(channel, method), noise_scale(channel, (0.3, 0.0, 0.6))
    trace, draws = record(team, scale)
    logits = replayed(team, trace.episode, draws, scale)[:, :-1]
    np.testing.assert_allclose(logits, trace.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("period", [1, 3])
def test_rollout_and_training_give_the_same_logits_in_the_form_of_the_release(period):
    channel = Channel(period=period)
    networks = NetworkConfig(8, 6, 4, layers=2, layer_norm=True)
    team, scale = team_of(channel, networks=networks, options=RELEASE), noise_scale(channel, (0.3, 0.0, 0.6))
    trace, draws = record(team, scale)
    logits = replayed(team, trace.episode, draws, scale)[:, :-1]
    np.testing.assert_allclose(logits, trace.logits, rtol=1e-4, atol=1e-5)


def test_a_private_message_of_the_release_is_made_from_one_past_observation_and_the_current_action():
    team = team_of(options=(("past", True), ("deterministic", True)))
    scale = noise_scale(EVERY_STEP, (0.3, 0.0, 0.6))
    trace, draws = record(team, scale)
    chosen = np.asarray(draws.subset)  # (episode, use, agent, time)
    assert np.all(np.sum(chosen == 1, axis=-1) == 1)
    steps = np.argmax(chosen, axis=-1)
    assert np.all(steps <= np.arange(TASK.horizon)[:, None])
    many = np.argmax(team.draw(jax.random.key(5), 2000).subset[:, 3, 0], axis=-1)
    np.testing.assert_allclose(np.bincount(many, minlength=4) / 2000, 0.25, atol=0.04)  # uniform over the four so far
    for t, agent in np.ndindex(TASK.horizon, TASK.agents):
        member = jax.tree.map(lambda leaf, i=agent: leaf[i], team.members.protocol)
        step = steps[0, t, agent] if agent != 1 else t  # agent 1 is free, and sends what it observes
        action = jax.nn.one_hot(trace.episode.actions[0, t, agent], TASK.actions)
        made = member.send(trace.episode.observations[0, step, agent], action, jnp.zeros(0), jnp.zeros(4))
        np.testing.assert_allclose(trace.raw[0, t, agent], made, rtol=1e-4, atol=1e-5)


def test_the_release_scales_private_messages_to_the_clip_norm_and_leaves_free_ones():
    team = team_of(options=(("rescale", True),))
    trace, _ = record(team, noise_scale(EVERY_STEP, (0.3, 0.0, 0.6)))
    norms = np.linalg.norm(trace.raw, axis=-1)
    np.testing.assert_allclose(norms[..., [0, 2]], EVERY_STEP.clip_norm, rtol=1e-4)
    assert norms[..., 1].std() > 1e-3


def test_the_release_bounds_the_deviation_and_merges_what_messages_attend_to():
    team = team_of(options=RELEASE)
    assert not team.members.protocol.deployable
    member = jax.tree.map(lambda leaf: 50 * leaf[0], team.members.protocol)
    assert isinstance(member, Dpmac)
    seen = jax.random.normal(jax.random.key(0), (64, TASK.observation_size))
    spread = jax.vmap(lambda o: member.distribution(o, jnp.zeros(TASK.actions))[1])(seen)
    assert float(spread.min()) == pytest.approx(1 / np.e, rel=1e-3)
    assert float(spread.max()) == pytest.approx(np.e, rel=1e-3)
    member = jax.tree.map(lambda leaf: np.asarray(leaf[0]), team.members.protocol)
    inbox = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    query, key, value = (inbox @ layer.weight + layer.bias for layer in (member.query, member.key, member.value))
    scores = np.exp(query @ key.T / np.sqrt(value.shape[1]))
    attended = scores / scores.sum(axis=1, keepdims=True) @ value
    expected = attended.reshape(-1) @ member.merge.weight + member.merge.bias
    found = member.receive(jnp.asarray(inbox), jnp.ones(2, bool), seen[0], jnp.zeros(0))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert found.shape == (4,)  # as many numbers as a message has


@pytest.mark.parametrize("name", ["every third step", "response for each", "running sums"])
def test_receivers_that_know_the_noise_hear_the_same_in_rollout_and_training(name):
    team = team_of(CHANNELS[name], networks=NetworkConfig(8, 6, 4, aware=True))
    scale = noise_scale(CHANNELS[name], (0.3, 0.2, 0.6))
    trace, draws = record(team, scale)
    logits = replayed(team, trace.episode, draws, scale)[:, :-1]
    np.testing.assert_allclose(logits, trace.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["dpmac", SEQUENTIAL])
def test_the_observation_after_the_horizon_is_heard_with_the_last_message(method):
    """Training may bootstrap through the horizon: T + 1 logits, of which only the last hears the last message."""
    team, scale = team_of(method=method), noise_scale(EVERY_STEP, (0.3, 0.0, 0.6))
    trace, draws = record(team, scale)
    logits = replayed(team, trace.episode, draws, scale)
    assert logits.shape[1] == TASK.horizon + 1
    louder = draws._replace(channel=draws.channel.at[:, -1].add(1.0))
    moved = np.abs(replayed(team, trace.episode, louder, scale) - logits).max(axis=(0, 2, 3))
    assert not moved[:-1].any()
    assert moved[-1] > 0


@pytest.mark.parametrize(
    ("period", "use", "aggregated"), [(1, 2, [3]), (3, 1, [4, 5, 6]), (0, 0, [1, 2, 3, 4, 5, 6, 7])]
)
def test_a_message_arrives_one_step_later_and_is_held_until_the_next(period, use, aggregated):
    """Actors without carry show at which steps the noise of one release is aggregated."""
    channel = Channel(period=period)
    team, scale = (
        team_of(channel, networks=NetworkConfig(8, 6, 4, recurrent_actor=False)),
        noise_scale(channel, (1.0, 1.0, 1.0)),
    )
    trace, draws = record(team, scale)
    louder = draws._replace(channel=draws.channel.at[:, use].add(3.0))
    moved = replayed(team, trace.episode, louder, scale) - replayed(team, trace.episode, draws, scale)
    np.testing.assert_array_equal(np.flatnonzero(np.abs(moved).max(axis=(0, 2, 3)) > 0), aggregated)


@pytest.mark.parametrize("copies", [1, 2])
def test_noise_is_fresh_for_every_episode_step_sender_and_recipient(copies):
    channel = Channel(copies=copies, clip_norm=1e-6)
    team, scale = team_of(channel), noise_scale(channel, (1.0, 1.0, 1.0))
    trace, draws = record(team, scale)
    noise = np.asarray(trace.released)
    assert noise.shape == (EPISODES, TASK.horizon, 3, *((2,) if copies == 2 else ()), 4)
    assert len(np.unique(noise)) == noise.size
    np.testing.assert_allclose(noise, draws.channel, atol=1e-4)
    rows = noise.reshape(-1, 4)
    assert np.abs(np.corrcoef(rows)[np.triu_indices(len(rows), 1)]).max() < 1.0 - 1e-6


def test_a_broadcast_message_is_the_same_for_all_and_a_copy_for_each_is_not():
    for copies in (1, 2):
        channel = Channel(copies=copies)
        team, scale = team_of(channel), noise_scale(channel, (1.0, 1.0, 1.0))
        trace, draws = record(team, scale)
        inbox, mask = team.deliver(trace.released[0, 0], draws.recipients[0, 0], scale)
        assert mask.all()
        # Other k of agent i is (i + 1 + k) mod 3: agent 0 hears 2 as its other 1, agent 1 hears 2 as its other 0.
        assert np.array_equal(inbox[0, 1], inbox[1, 0]) == (copies == 1)
        np.testing.assert_array_equal(
            inbox[0, 1], trace.released[0, 0, 2] if copies == 1 else trace.released[0, 0, 2, 0]
        )
        np.testing.assert_array_equal(
            inbox[1, 0], trace.released[0, 0, 2] if copies == 1 else trace.released[0, 0, 2, 1]
        )


def test_recipients_are_as_many_as_the_rate_says_and_each_as_often():
    team = team_of(Channel(recipient_rate=0.5))
    recipients = np.asarray(team.draw(jax.random.key(0), 400).recipients)
    assert (recipients.sum(-1) == 1).all()
    assert abs(recipients[..., 0].mean() - 0.5) < 4 * 0.5 / np.sqrt(recipients[..., 0].size)


def test_a_message_reaches_only_its_recipients():
    channel = Channel(recipient_rate=0.5)
    team, scale = team_of(channel), noise_scale(channel, (0.0, 0.0, 0.0))
    to_first = jnp.zeros((3, 2), bool).at[0, 0].set(True).at[1, 0].set(True).at[2, 0].set(True)
    released = jnp.arange(12.0).reshape(3, 4)
    inbox, mask = team.deliver(released, to_first, scale)
    np.testing.assert_array_equal(mask, [[False, True]] * 3)  # other 0 of agent j is j + 1, to whom j is other 1

    def hear(inbox):
        return team.receive(inbox, mask, jnp.zeros((3, TASK.observation_size)), jnp.zeros((3, 8)), None, scale)

    np.testing.assert_array_equal(hear(inbox), hear(inbox.at[:, 0].add(100.0)))
    assert np.any(hear(inbox) != hear(inbox.at[:, 1].add(1.0)))


def test_a_sampling_sender_draws_as_many_past_transitions_as_the_accountant_counts():
    channel = Channel(sample_rate=0.5, period=2)
    subset = np.asarray(team_of(channel).draw(jax.random.key(2), 50).subset)
    for use, step in enumerate(range(0, 7, 2)):
        drawn = (subset[:, use] > 0).sum(-1)
        np.testing.assert_array_equal(drawn, channel.draws(step))
        assert not subset[:, use, :, step + 1 :].any()
        if channel.draws(step):
            np.testing.assert_allclose(subset[:, use].sum(-1), 1.0, rtol=1e-6)
    assert (subset[:, 3] > 0).mean(axis=(0, 1)).min() > 0.25


def test_chance_differs_between_episodes_and_keys():
    team = team_of()
    first, second = (team.draw(jax.random.key(seed), 2) for seed in (0, 1))
    assert not np.array_equal(first.sender, second.sender)
    assert not np.array_equal(first.channel[0], first.channel[1])
    assert not np.array_equal(first.channel, first.sender)


# Protocols ------------------------------------------------------------------------------------------------------------


def test_attention_does_not_depend_on_the_order_of_the_others_and_ignores_those_who_did_not_send():
    member = jax.tree.map(lambda leaf: leaf[0], team_of().members.protocol)
    inbox, mask = jax.random.normal(jax.random.key(0), (5, 4)), jnp.array([True, False, True, True, False])
    aggregated = member.receive(inbox, mask, jnp.zeros(1), jnp.zeros(1))
    order = jnp.array([3, 1, 0, 4, 2])
    np.testing.assert_allclose(
        member.receive(inbox[order], mask[order], jnp.zeros(1), jnp.zeros(1)), aggregated, atol=1e-6
    )
    np.testing.assert_allclose(
        member.receive(inbox[mask], mask[mask], jnp.zeros(1), jnp.zeros(1)), aggregated, atol=1e-6
    )
    assert not member.receive(inbox, jnp.zeros(5, bool), jnp.zeros(1), jnp.zeros(1)).any()


def test_masked_softmax_has_finite_gradients_even_if_everything_is_masked():
    scores = jnp.array([[1e4, -1e4, 3.0], [0.0, 0.0, 0.0]])
    for mask in ([True, False, True], [False, False, False]):
        slope = jax.grad(lambda s, m: jnp.sum(masked_softmax(s, m) ** 2))(scores, jnp.array(mask))
        assert np.isfinite(slope).all()


def test_a_sender_without_chance_sends_its_mean():
    shape = TaskShape(2, 3, 2, 4)
    sampled, plain = (
        make_team(jax.random.key(0), shape, "dpmac", options, Channel(), SMALL)
        for options in ({}, {"deterministic": True})
    )
    given = jnp.ones((2, 3)), jnp.zeros(2, int), jnp.zeros((2, 8))
    draws = jnp.ones((2, 4))
    np.testing.assert_array_equal(plain.compose(*given, draws), plain.compose(*given, -draws))
    middle = (sampled.compose(*given, draws) + sampled.compose(*given, -draws)) / 2
    np.testing.assert_allclose(middle, plain.compose(*given, draws), atol=1e-6)
    assert np.all(np.asarray(sampled.compose(*given, draws)) > np.asarray(plain.compose(*given, draws)))


def test_silent_agents_hear_nothing():
    team, scale = team_of(method="silent"), noise_scale(EVERY_STEP, (0.0,) * 3)
    trace, draws = record(team, scale)
    assert trace.released.size == 0
    logits = replayed(team, trace.episode, draws, scale)[:, :-1]
    np.testing.assert_allclose(logits, trace.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"method": "nope"}, "allowed are dpmac, silent"),
        ({"method": "nowhere.to:Find"}, "cannot be loaded"),
        ({"method": "math:pi"}, "is not a dpmac.agents.protocol.Protocol"),
        ({"channel": Channel(copies=3)}, "copies must be 1"),
        (
            {"channel": Channel(place="receiver"), "networks": NetworkConfig(8, 6, 4, aware=True)},
            "aware needs noise at the sender",
        ),
        *(
            ({"channel": Channel(name), "options": (("past", True),)}, "draws a past observation has no stream")
            for name in ("correlated", "sums")
        ),
    ],
)
def test_what_cannot_be_built_is_refused(given, says):
    with pytest.raises(BadInput, match=says):
        team_of(**given)


def test_unknown_options_of_a_method_are_refused():
    with pytest.raises(BadInput, match="loudness"):
        make_team(jax.random.key(0), TaskShape(2, 3, 2, 4), "dpmac", {"loudness": 3}, Channel(), SMALL)


def test_every_built_in_method_can_be_found():
    for name in protocol.BUILT_IN:
        assert issubclass(protocol.find(name), protocol.Protocol)
