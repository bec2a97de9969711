"""TarMAC equals its equations, and every round of it is paid for."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain import act, agent_of, clip, linear, others_of, softmax

from dpmac import privacy
from dpmac.agents.mechanisms import noise_scale
from dpmac.agents.team import TaskShape, make_team
from dpmac.config import BadInput, Budget, Channel, NetworkConfig, Release
from dpmac.privacy import accounting

SMALL = NetworkConfig(hidden=8, message_hidden=6, message_size=5)
SIGNATURE = 2  # half of five numbers
HORIZON, EPISODES, OBSERVATION, ACTIONS = 4, 2, 3, 2
CLIP = 0.5


def team_of(agents, channel, **options):
    shape = TaskShape(agents, OBSERVATION, ACTIONS, HORIZON)
    return make_team(jax.random.key(agents), shape, "tarmac", options, channel, SMALL)


def hear(agent, carry, inbox):
    """c = Σ_j softmax_j(q·k_j / √|k|) v_j, over one's own message and those of the others."""
    own, query = np.split(linear(agent.protocol.said, carry), [SMALL.message_size])
    everybody = [own, *inbox]
    weights = softmax(np.array([query @ m[:SIGNATURE] for m in everybody]) / math.sqrt(SIGNATURE))
    return sum(weight * message[SIGNATURE:] for weight, message in zip(weights, everybody, strict=True))


def release(message, noise, sigma):
    return clip(message, CLIP) + sigma * noise if sigma else message


def episode_logits(agents, observations, noise, sigma, rounds):
    """Logits (time, agent, action) of one episode; noise (use, agent, message) of a channel at the sender."""
    count, use = len(agents), 0
    memories = [np.zeros(SMALL.hidden)] * count
    thoughts, arrived, logits = memories, [np.zeros(SMALL.message_size)] * count, []

    def inbox(index):
        return [arrived[j] for j in others_of(index, count)]

    for seen in observations:
        aggregated = [hear(agent, thoughts[i], inbox(i)) for i, agent in enumerate(agents)]
        acted = [act(agent.actor, seen[i], aggregated[i], memories[i]) for i, agent in enumerate(agents)]
        logits.append([each for each, _ in acted])
        memories = thoughts = [carry for _, carry in acted]
        for turn in range(rounds):
            if turn:
                aggregated = [hear(agent, thoughts[i], inbox(i)) for i, agent in enumerate(agents)]
                thoughts = [
                    np.tanh(linear(agent.protocol.ponderer, np.concatenate([aggregated[i], thoughts[i]])))
                    for i, agent in enumerate(agents)
                ]
            messages = [
                linear(agent.protocol.said, thoughts[i])[: SMALL.message_size] for i, agent in enumerate(agents)
            ]
            arrived = [release(message, noise[use, i], sigma[i]) for i, message in enumerate(messages)]
            use += 1
    return np.array(logits)


def replayed(team, scale, seed=0):
    """Random observations (episode, time, agent, feature), their draws, and the team's logits for them."""
    seen = jax.random.normal(jax.random.key(seed), (EPISODES, HORIZON, team.agents, OBSERVATION))
    draws = team.draw(jax.random.key(seed + 1), EPISODES)
    actions = jnp.zeros((HORIZON, team.agents, EPISODES), int)
    logits = jax.jit(lambda team, *given: team.unroll(*given))(team, jnp.moveaxis(seen, 0, 2), actions, draws, scale)
    return np.asarray(seen), draws, np.moveaxis(np.asarray(logits), 2, 0)


@pytest.mark.parametrize(("agents", "rounds", "sigma"), [(2, 1, 0.0), (3, 2, 0.3), (3, 1, 0.3), (16, 1, 0.0)])
def test_the_vectorised_protocol_equals_one_agent_in_plain_numpy(agents, rounds, sigma):
    channel = Channel(clip_norm=CLIP, rounds=rounds)
    sigmas = tuple(sigma * (i > 0) for i in range(agents))  # the first agent's messages are free
    team = team_of(agents, channel)
    seen, draws, logits = replayed(team, noise_scale(channel, sigmas))
    members = [agent_of(team, i) for i in range(agents)]
    for episode in range(EPISODES):
        noise = np.asarray(draws.channel[episode], np.float64)
        expected = episode_logits(members, seen[episode], noise, sigmas, rounds)
        np.testing.assert_allclose(logits[episode], expected, atol=1e-5)


def played(team, scale):
    """The messages (time, agent, …) that leave the agents in an episode."""
    seen, draws, _ = replayed(team, scale)

    def step(carry, now):
        _, carry = team.listen(carry, now, first, scale)
        carry = team.speak(carry, now, jnp.zeros(team.agents, int), first, scale)
        return carry, carry.released

    first = jax.tree.map(lambda x: x[0], draws)
    return np.asarray(jax.lax.scan(step, team.start(), jnp.asarray(seen[0]))[1]), first


def test_signature_and_value_are_clipped_together_in_every_round():
    channel = Channel(clip_norm=0.01, rounds=2)
    scale = noise_scale(channel, (1.0, 1.0, 1.0))
    released, draws = played(team_of(3, channel), scale)
    messages = released.reshape(HORIZON, 3, 2, SMALL.message_size).swapaxes(1, 2).reshape(2 * HORIZON, 3, -1)
    norms = np.linalg.norm(messages - np.asarray(draws.channel), axis=-1)
    np.testing.assert_allclose(norms, 0.01, rtol=1e-3)  # all of them are longer than that


def test_what_an_adversary_sees_of_two_rounds_is_twice_as_much_and_costs_as_much():
    one, two = Channel(), Channel(rounds=2)
    assert two.uses(25) == 50
    single = accounting.epsilon(Release(one, 10.0, horizon=50), 1e-4)
    assert accounting.epsilon(Release(two, 10.0, horizon=25), 1e-4) == pytest.approx(single)
    ratio = accounting.calibrate(two, 1.0, 1e-4, 25) / accounting.calibrate(one, 1.0, 1e-4, 25)
    assert ratio == pytest.approx(math.sqrt(2))
    free = noise_scale(two, (0.0,) * 3)
    assert played(team_of(3, two), free)[0].shape == (HORIZON, 3, 2 * SMALL.message_size)


def test_noise_at_the_receiver_is_told_to_protect_nothing():
    claims = privacy.claim(Budget((1.0,)), Channel(place="receiver"), agents=2, horizon=25)
    for claim in claims:
        assert not claim["valid"]
        assert claim["exact_epsilon"] == math.inf
        assert "receiver has seen the raw message" in claim["warnings"][0]


def test_noise_at_the_receiver_falls_on_the_clipped_aggregate():
    channel = Channel(clip_norm=1e-6, place="receiver")
    team, scale = team_of(3, channel), noise_scale(channel, (2.0, 2.0, 2.0))
    inbox, mask, said = jnp.ones((3, 2, 5)), jnp.ones((3, 2), bool), jnp.ones((3, 5 + SIGNATURE))
    noise = jax.random.normal(jax.random.key(0), (3, 3))
    aggregated = team.receive(inbox, mask, jnp.zeros((3, OBSERVATION)), said, noise, scale)
    np.testing.assert_allclose(aggregated, 2.0 * noise, atol=1e-5)


def test_an_agent_that_hears_nobody_attends_to_itself_without_nan():
    member = jax.tree.map(lambda leaf: leaf[0], team_of(3, Channel()).members.protocol)
    inbox, carry = jnp.ones((2, SMALL.message_size)), jnp.linspace(-1, 1, SMALL.hidden)

    def aggregated(member, mask):
        return member.receive(inbox, mask, jnp.zeros(OBSERVATION), member.project(carry))

    alone = aggregated(member, jnp.zeros(2, bool))
    np.testing.assert_allclose(alone, member.said(carry)[SIGNATURE : SMALL.message_size], atol=1e-6)
    assert np.any(alone != aggregated(member, jnp.array([True, False])))
    slope = jax.grad(lambda m: jnp.sum(aggregated(m, jnp.zeros(2, bool))))(member)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


@pytest.mark.parametrize("method", ["dpmac", "i2c", "commnet"])
def test_methods_that_do_not_ponder_refuse_rounds(method):
    with pytest.raises(BadInput, match=f"method {method} makes one exchange a step, not 2 rounds"):
        make_team(jax.random.key(0), TaskShape(2, 3, 2, 4), method, {}, Channel(rounds=2), SMALL)


@pytest.mark.parametrize("options", [{"signature": 5}, {"signature": -1}, {"loudness": 1}])
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(BadInput, match="method tarmac"):
        team_of(2, Channel(), **options)


@pytest.mark.parametrize("values", [{"rounds": 0}, {"rounds": 17}, {"rounds": 2, "sample_rate": 0.5}])
def test_rounds_that_cannot_be_are_refused(values):
    with pytest.raises(BadInput, match="round"):
        Channel(**values)
