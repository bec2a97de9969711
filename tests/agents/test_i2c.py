"""I2C equals its equations; it asks whom the joint critic says, and everybody where asking would reveal something."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain import act, agent_of, gru, linear, others_of, softmax

from dpmac.agents import i2c
from dpmac.agents.mechanisms import noise_scale
from dpmac.agents.team import TaskShape, make_team
from dpmac.config import BadInput, Channel, NetworkConfig, RunConfig, Training
from dpmac.learner.replay import Episode
from dpmac.learner.rollout import rollout
from dpmac.runner import population

SMALL = NetworkConfig(hidden=8, message_hidden=6, message_size=5)
HORIZON, EPISODES, OBSERVATION, ACTIONS = 4, 2, 3, 2
ASKING, PRIVATE = Channel(place="receiver"), Channel()


def team_of(agents, channel=ASKING, **options):
    shape = TaskShape(agents, OBSERVATION, ACTIONS, HORIZON)
    return make_team(jax.random.key(agents), shape, "i2c", options, channel, SMALL)


# One agent in plain NumPy ---------------------------------------------------------------------------------------------


def reply(agent, seen):
    return linear(agent.protocol.reply, np.maximum(linear(agent.protocol.shared, seen), 0))


def asks(agent, seen, others):
    """Those whom an agent asks, in the order of asking."""
    chosen = []
    for k in range(others):
        hidden = np.maximum(linear(agent.protocol.prior.hidden, np.concatenate([seen, np.eye(others)[k]])), 0)
        if linear(agent.protocol.prior.belief, hidden)[0] > 0:
            chosen.append(k)
    return chosen


def episode_logits(agents, observations):
    """Logits (time, agent, action) of one episode of free messages, and how many were asked."""
    count, asked = len(agents), 0
    memories, replies, logits = [np.zeros(SMALL.hidden)] * count, [np.zeros(SMALL.message_size)] * count, []
    for seen in observations:
        logits.append([])
        for i, agent in enumerate(agents):
            aggregated = np.zeros(SMALL.message_hidden)
            for k in asks(agent, seen[i], count - 1):
                aggregated = gru(agent.protocol.listener, replies[others_of(i, count)[k]], aggregated)
                asked += 1
            outcome, memories[i] = act(agent.actor, seen[i], aggregated, memories[i])
            logits[-1].append(outcome)
        replies = [reply(agent, seen[i]) for i, agent in enumerate(agents)]
    return np.array(logits), asked


@pytest.mark.parametrize("agents", [2, 3, 16])
def test_the_vectorised_protocol_equals_one_agent_in_plain_numpy(agents):
    team = team_of(agents)
    seen = jax.random.normal(jax.random.key(0), (EPISODES, HORIZON, agents, OBSERVATION))
    draws, scale = team.draw(jax.random.key(1), EPISODES), noise_scale(ASKING, (0.0,) * agents)
    actions = jnp.zeros((HORIZON, agents, EPISODES), int)
    logits = jax.jit(lambda team, *given: team.unroll(*given))(team, jnp.moveaxis(seen, 0, 2), actions, draws, scale)
    members = [agent_of(team, i) for i in range(agents)]
    for episode in range(EPISODES):
        expected, asked = episode_logits(members, np.asarray(seen[episode]))
        np.testing.assert_allclose(logits[:, :, episode], expected, atol=1e-5)
        assert 0 < asked < HORIZON * agents * (agents - 1)


def test_an_agent_that_asks_nobody_hears_zeros_without_nan():
    member = jax.tree.map(lambda leaf: leaf[0], team_of(3).members.protocol)
    inbox, seen = jnp.ones((2, SMALL.message_size)), jnp.ones(OBSERVATION)

    def aggregated(member, shift):
        biased = member.prior.belief.bias + shift
        shifted = eqx.tree_at(lambda m: m.prior.belief.bias, member, biased)
        return shifted.receive(inbox, jnp.ones(2, bool), seen, jnp.zeros(SMALL.hidden))

    assert not aggregated(member, -100.0).any()
    assert aggregated(member, 100.0).any()
    slope = jax.grad(lambda m: jnp.sum(aggregated(m, -100.0)))(member)
    assert all(not leaf.any() for leaf in jax.tree.leaves(slope))  # NaN would count as something


def test_replies_are_encoded_in_the_order_of_asking():
    member = jax.tree.map(lambda leaf: leaf[0], team_of(3, PRIVATE).members.protocol)
    inbox = jax.random.normal(jax.random.key(0), (2, SMALL.message_size))
    given = jnp.ones(2, bool), jnp.zeros(OBSERVATION), jnp.zeros(SMALL.hidden)
    assert np.abs(member.receive(inbox, *given) - member.receive(inbox[::-1], *given)).max() > 1e-4


# Whom to ask ----------------------------------------------------------------------------------------------------------


def kl(p, q):
    return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))


def test_an_effect_is_the_divergence_of_what_is_known_alone_from_what_the_other_s_action_says():
    """By sums over the joint distribution: KL(P(a_i) ‖ P(a_i | a_j)), and the other way round in the early form."""
    scores, taken = np.random.default_rng(0).normal(size=(4, 3, 5)) * 2, np.array([0, 4, 2, 1])
    informed, alone = i2c.implied(jnp.asarray(scores), jnp.asarray(taken))
    for row in range(4):
        joint = np.exp(scores[row]) / np.exp(scores[row]).sum()
        knowing, without = joint[:, taken[row]] / joint[:, taken[row]].sum(), joint.sum(axis=1)
        np.testing.assert_allclose(np.exp(informed[row]), knowing, atol=1e-5)
        np.testing.assert_allclose(i2c.divergence(alone, informed)[row], kl(without, knowing), atol=1e-5)
        np.testing.assert_allclose(i2c.divergence(informed, alone)[row], kl(knowing, without), atol=1e-5)


def test_an_action_that_adds_to_the_value_by_itself_has_no_effect():
    own, other = jnp.arange(3.0)[:, None], jnp.array([5.0, -1.0, 0.3])
    alike, differing = i2c.implied(own + other, jnp.array(1)), i2c.implied(own * other, jnp.array(1))
    assert i2c.divergence(*alike) == pytest.approx(0.0, abs=1e-6)
    assert i2c.divergence(*differing) > 0.1


def test_the_prior_learns_from_half_large_and_half_small_effects():
    """Worked out by hand: of five effects the 80th percentile is 0.42, so that the last alone is above it; its entropy
    weighs as much as that of the four others together. In the early form it weighs a fifth."""
    belief = jnp.array([[1.0, 0.0, -1.0, 2.0, 0.5], [0.0, 0.0, 0.0, 0.0, 0.0]])
    effect = jnp.array([[0.1, 0.2, 0.3, 0.4, 0.5], [5.0, 1.0, 2.0, 3.0, 4.0]])
    small = [np.log(1 + np.e), np.log(2), np.log(1 + 1 / np.e), np.log(1 + np.e**2)]
    large = np.log(1 + np.exp(-0.5))
    found = i2c.prior_loss(belief, effect, 80.0, "authors")
    assert found[0] == pytest.approx((large + sum(small) / 4) / 2, rel=1e-5)
    assert found[0] == pytest.approx(0.7929, abs=1e-4)
    assert found[1] == pytest.approx(np.log(2), rel=1e-5)
    # 3.2 is the 80th percentile of all ten: nothing of the first agent is above it.
    early = i2c.prior_loss(belief, effect, 80.0, "early")
    assert early[0] == pytest.approx((sum(small) + np.log(1 + np.exp(0.5))) / 5, rel=1e-5)


def test_labels_that_say_nothing_leave_the_prior_at_even_odds():
    """With raw classes a prior that sees nothing ends at odds of 1 to 4, below the threshold of asking: silence."""
    effect = jnp.asarray(np.random.default_rng(0).permutation(100)[None], jnp.float32)

    def slope(form):
        return float(jax.grad(lambda b: i2c.prior_loss(jnp.full((1, 100), b), effect, 80.0, form)[0])(0.0))

    assert slope("authors") == pytest.approx(0.0, abs=1e-6)
    assert slope("early") == pytest.approx(0.3, abs=1e-6)  # (80 - 20) / 100 / 2, downwards


def test_policies_are_drawn_to_centred_values_over_their_maximum_with_an_inverse_temperature_of_eight():
    values = np.array([3.0, 1.0, 2.0])  # centred 1, -1, 0; the maximum is 1
    expected = softmax(np.array([8.0, -8.0, 0.0]))
    for scale, shift in ((1.0, 0.0), (100.0, -7.0)):
        np.testing.assert_allclose(np.exp(i2c.sharpened(jnp.asarray(scale * values + shift))), expected, rtol=1e-4)


def auxiliary(form, weight):
    """The loss of a team of two and its logits' gradient, in a world where only equal actions are worth something."""
    team = team_of(2, form=form, weight=weight)
    observations = jax.random.normal(jax.random.key(0), (HORIZON + 1, 2, EPISODES, OBSERVATION))
    actions = jax.random.randint(jax.random.key(1), (HORIZON, 2, EPISODES), 0, ACTIONS)
    episode = Episode(observations, actions, jnp.zeros(0), jnp.zeros(0), team.free)
    logits = jax.random.normal(jax.random.key(2), (HORIZON, 2, EPISODES, ACTIONS))

    def values(o, a):
        return jnp.moveaxis(jnp.sum(a[:, :, 0] * a[:, :, 1], axis=-1), 0, 1)

    return jax.value_and_grad(lambda x: i2c.I2C.auxiliary(team.members, episode, x, values, jax.random.key(3))[0])(
        logits
    )


@pytest.mark.parametrize("form", ["authors", "early"])
def test_what_is_over_or_forbidden_teaches_nothing(form):
    """An action that nobody may take might as well not exist, nor might steps after the end."""

    def learned(worth, logit, late, masked):
        team = team_of(2, form=form, weight=0.5)
        shape, can = (HORIZON, 2, EPISODES), np.arange(ACTIONS) > 0
        observations = jax.random.normal(jax.random.key(0), (HORIZON + 1, 2, EPISODES, OBSERVATION))
        over = jnp.zeros((HORIZON + 1, 2, EPISODES), bool).at[2:].set(True)
        available = jnp.broadcast_to(can, (HORIZON + 1, 2, EPISODES, ACTIONS))
        actions = jax.random.randint(jax.random.key(1), shape, 1, ACTIONS)
        if late:
            observations, actions = observations.at[2:].add(late), actions.at[2:].set(1)
        given = {"over": over, "available": available if masked else None}
        episode = Episode(observations, actions, jnp.zeros(0), jnp.zeros(0), team.free, **given)
        logits = jax.random.normal(jax.random.key(2), (*shape, ACTIONS)).at[..., 0].add(logit)

        def values(o, a):
            equal = jnp.sum(a[:, :, 0] * a[:, :, 1] * jnp.arange(ACTIONS), axis=-1)
            return jnp.moveaxis(equal + worth * (a[:, :, 0, ..., 0] + a[:, :, 1, ..., 0]), 0, 1)

        return float(i2c.I2C.auxiliary(team.members, episode, logits, values, jax.random.key(3))[0])

    plain = learned(0.0, 0.0, 0.0, masked=True)
    assert np.isfinite(plain)
    assert learned(5.0, 3.0, 7.0, masked=True) == pytest.approx(plain, rel=1e-5)
    assert learned(5.0, 3.0, 7.0, masked=False) != pytest.approx(plain, rel=1e-3)


@pytest.mark.parametrize("form", ["authors", "early"])
def test_the_weight_is_that_of_the_policies_divergence(form):
    (nothing, still), (some, moved) = auxiliary(form, 0.0), auxiliary(form, 0.5)
    assert not still.any()
    assert moved.any()
    assert float(some) > float(nothing)


def test_pair_values_change_the_two_actions_and_leave_the_others():
    agents, episodes = 4, 3
    rng = np.random.default_rng(1)
    observations = rng.normal(size=(agents, episodes, 2)).astype(np.float32)
    actions, other = rng.integers(ACTIONS, size=(agents, episodes)), rng.integers(agents - 1, size=(agents, episodes))
    partner = (np.arange(agents)[:, None] + 1 + other) % agents
    table = rng.normal(size=(agents, agents, ACTIONS)).astype(np.float32)

    def value(critic, o, one_hot):
        """Any function of everybody's observations (agent, feature) and actions (agent, action)."""
        return np.tanh(np.sum(table[critic] * one_hot) + np.sum(o[:, 0]) * np.prod(1 + one_hot[:, 0]))

    def values(o, a):
        given = np.asarray(o), np.asarray(a)
        return jnp.array(
            [
                [[value(i, given[0][t, :, e], given[1][i, t, :, e]) for e in range(episodes)] for i in range(agents)]
                for t in range(len(given[0]))
            ]
        )

    found = i2c.pair_values(values, jnp.asarray(observations), jnp.asarray(actions), jnp.asarray(partner), ACTIONS)
    for i, e, mine, theirs in np.ndindex(agents, episodes, ACTIONS, ACTIONS):
        joint = actions[:, e].copy()
        joint[i], joint[partner[i, e]] = mine, theirs
        assert found[i, e, mine, theirs] == pytest.approx(
            value(i, observations[:, e], np.eye(ACTIONS)[joint]), abs=1e-5
        )


def test_with_noise_at_the_sender_everybody_is_always_asked():
    private, asking = (team_of(3, channel).members.protocol for channel in (PRIVATE, ASKING))
    assert isinstance(private, i2c.I2C)
    assert isinstance(asking, i2c.I2C)
    assert private.prior is None
    assert asking.prior is not None
    for seed in range(3):
        assert private.asks(jax.random.normal(jax.random.key(seed), (OBSERVATION,))).all()


def run_of(task, channel=ASKING, **others):
    return RunConfig(task, "i2c", channel=channel, **others)


@pytest.mark.parametrize("critic", [{"recurrent_critic": True}, {"clock": True}])
def test_a_learner_without_the_values_of_actions_refuses_i2c_by_name(critic):
    with pytest.raises(BadInput, match="I2C needs the values of single actions"):
        population.check(run_of("ccn", learner_options=critic))


@pytest.mark.parametrize(
    "options", [{"percentile": 101}, {"temperature": 0}, {"weight": -1}, {"form": "x"}, {"loudness": 1}]
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(BadInput, match="i2c"):
        team_of(2, **options)


def trained(folder, task, **others):
    """A run and the metrics of its last evaluation."""
    training = Training(steps=10_000, evaluations=2, evaluation_episodes=64)
    # Rewards as they are: the temperature of the critics' policies is then in the task's own units.
    options = {"batch": 32, "explore_steps": 5000, "learning_rate": 2e-3, "standardise": False}
    networks = NetworkConfig(hidden=32, message_hidden=16, message_size=4)
    population.create(folder, run_of(task, learner_options=options, training=training, networks=networks, **others))
    *_, last = population.train_folder(folder)
    return population.load(folder), {row.name: row.value for row in last.rows}


@pytest.fixture(scope="module")
def partners(tmp_path_factory):
    """I2C trained on pairs of agents who matter to each other alone."""
    return trained(tmp_path_factory.mktemp("i2c") / "partners", "probe-partner")


@pytest.mark.large
def test_agents_ask_the_one_whose_actions_matter_to_theirs(partners):
    loaded, _ = partners
    team, scale = (jax.tree.map(lambda x: x[0], tree) for tree in (loaded.teams, loaded.scale))
    seen = rollout(loaded.program.task, team, scale, jax.random.key(0), 64).episode.observations[:, 1:-1]
    each = jax.vmap(jax.vmap(jax.vmap(lambda p, o: p.asks(o)), in_axes=(None, 0)), in_axes=(None, 0))
    rates = np.asarray(each(team.members.protocol, seen).mean(axis=(0, 1)))
    partner = np.array([0, 2, 0, 2])  # agent 0's partner is 1, its other 0; agent 1's is 0, its other 2; and so on
    is_partner = np.arange(3) == partner[:, None]
    assert rates[is_partner].min() > 0.8
    assert rates[~is_partner].max() < 0.2


@pytest.mark.large
def test_the_metrics_say_how_often_each_agent_asks(partners):
    _, last = partners
    assert last["return"] > 3.9  # of 4; 2 without messages
    for agent in range(4):
        assert last[f"asks_{agent}"] == pytest.approx(4 / 15, abs=0.05)  # one of three, in four of five steps


@pytest.mark.large
def test_where_only_knowledge_matters_messages_help_once_everybody_is_asked(tmp_path):
    """docs/methods.md says so: I2C sees effects of actions, and on this task there are none."""
    _, asking = trained(tmp_path / "asking", "probe-listen")
    _, everybody = trained(tmp_path / "everybody", "probe-listen", method_options={"percentile": 0})
    assert asking["effect"] < 1e-3
    assert asking["return"] < 2.5
    assert everybody["asks_1"] > 0.9
    assert everybody["return"] > 3.9
