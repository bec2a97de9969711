"""Teams at work: alone or together they do the same, nobody can guess their noise, and the books hold all of it."""

import dataclasses
import json
import math
import os
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest, kstest
from tiny import CONFIG, begin

import dpmac
from dpmac import privacy
from dpmac.config import BadInput, Budget, Channel
from dpmac.deploy import team as deploy
from dpmac.deploy.channel import Entropy, Voice
from dpmac.privacy import BudgetSpent, Ledger, checks
from dpmac.privacy.mechanisms import additive
from dpmac.runner import noise as scales
from dpmac.runner import population

HORIZON, AGENTS = 5, 3


def planted(seed):
    """A source of bytes that can be repeated."""
    return Entropy(np.random.default_rng(seed).bytes)


def deployed(folder, channel=None, epsilon=(3.0, 1.0, math.inf), seed=0, limit=math.inf, **changes):
    """An untrained team of three with planted draws."""
    budget = Budget(epsilon, unit="episode")
    config = dataclasses.replace(
        CONFIG, task="probe-neighbour", channel=channel or Channel(), budgets=(budget,), **changes
    )
    program = population.check(config)
    spec = program.team(jax.random.key(1)).channel.spec
    noise = scales.noise_scales(budget, spec, AGENTS, HORIZON)
    team, scale = program.team(jax.random.key(1)), scales.scale_of(config, program, budget)
    folder.mkdir(exist_ok=True)
    sources = [planted((seed, agent)) for agent in range(AGENTS)]
    path = folder / "ledger.json"
    books = lambda: Ledger(path, [limit] * AGENTS, 1e-4, create=not path.exists())  # noqa: E731
    return deploy.DeployedTeam(program, team, scale, noise, books, sources)


def play_team(team, key=0):
    """Actions (time, agent), what was released (time, agent, …) and the last hidden states in an episode."""
    task = team.program.task
    state, carry, actions, released = task.reset(jax.random.key(key)), team.start(), [], []
    for _ in range(HORIZON):
        chosen, carry = team.act(task.observe(state), carry)
        state, _ = task.step(state, jnp.asarray(chosen))
        actions.append(chosen)
        released.append(np.asarray(carry.released))
    return np.stack(actions), np.stack(released), np.asarray(carry.hidden)


def play_apart(agents, task, key=0):
    """The same by agents that see nothing but their own observation and what reached them."""
    state, boxes, actions, log = task.reset(jax.random.key(key)), [{} for _ in agents], [], []
    memories = [agent.start() for agent in agents]
    for _ in range(HORIZON):
        seen, post, chosen = np.asarray(task.observe(state)), [{} for _ in agents], []
        for i, agent in enumerate(agents):
            action, sent, memories[i] = agent.act(seen[i].copy(), boxes[i], memories[i])
            chosen.append(action)
            for recipient, message in sent.items():
                post[recipient][i] = message.copy()
        boxes = post
        log.append(post)
        state, _ = task.step(state, jnp.asarray(chosen))
        actions.append(chosen)
    return np.array(actions), log, np.stack([carry.hidden for carry in memories])


CHANNELS = {
    "every step": (Channel(), {}),
    "held": (Channel(period=3), {}),
    "some recipients, a copy for each": (Channel(recipient_rate=0.5, copies=2), {}),
    "past transitions": (Channel(sample_rate=0.5, period=2), {}),
    "symbols, with receivers that know the noise": (
        Channel("response"),
        {"networks": dataclasses.replace(CONFIG.networks, aware=True)},
    ),
    "code points": (Channel("code"), {}),
    "subsets": (Channel("subset", symbols=5), {"networks": dataclasses.replace(CONFIG.networks, aware=True)}),
    "tarmac": (Channel(), {"method": "tarmac"}),
    "i2c, which hears the others in order": (Channel(), {"method": "i2c"}),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_agents_that_share_nothing_play_the_same_episode_as_the_team(name, tmp_path):
    channel, changes = CHANNELS[name]
    together = deployed(tmp_path / "together", channel, **changes)
    agents = deployed(tmp_path / "apart", channel, **changes).agents()
    actions, released, hidden = play_team(together)
    alone, log, remembered = play_apart(agents, together.program.task)
    np.testing.assert_array_equal(alone, actions)
    np.testing.assert_allclose(remembered, hidden, rtol=1e-4, atol=1e-5)
    for t in np.flatnonzero(together.team.sends):
        for recipient, box in enumerate(log[t]):
            for sender, message in box.items():
                other = (recipient - sender - 1) % AGENTS
                said = released[t, sender, other] if channel.copies > 1 else released[t, sender]
                np.testing.assert_allclose(message, said, rtol=1e-5, atol=1e-5)
    assert sum(len(box) for box in log[0]) == AGENTS * channel.recipients(AGENTS - 1)
    for agent in range(AGENTS):
        assert agents[agent].ledger.charged(agent) == together.ledger.charged(agent)


def test_agents_hold_no_array_of_another_agent(tmp_path):
    agents = deployed(tmp_path).agents()
    pointers = [{leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(agent.member)} for agent in agents]
    assert not pointers[0] & pointers[1]
    assert {leaf.ndim for leaf in jax.tree.leaves(agents[0].member)} <= {1, 2}
    assert agents[0].ledger is not agents[1].ledger
    assert agents[0].voice.entropy is not agents[1].voice.entropy


def test_without_noise_a_deployed_team_does_what_the_simulation_does(tmp_path):
    team = deployed(tmp_path, epsilon=(math.inf,), method_options={"deterministic": True})
    trace = team.simulate(jax.random.key(5))
    carry = team.start()
    for t in range(HORIZON):
        actions, carry = team.act(trace.episode.observations[0, t], carry)
        np.testing.assert_array_equal(actions, trace.episode.actions[0, t])
        np.testing.assert_allclose(carry.released, trace.released[0, t], rtol=1e-5, atol=1e-6)


def test_simulation_is_repeatable_and_charged_to_nobody(tmp_path):
    team = deployed(tmp_path)
    first, second = (team.simulate(jax.random.key(1), episodes=3) for _ in range(2))
    np.testing.assert_array_equal(first.released, second.released)
    assert first.released.shape[0] == 3
    assert team.spent(0) == 0


# The run's folder -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("deploy") / "run"
    begin(found, pieces=1)
    return found


def test_training_seed_does_not_reveal_deployment_noise(folder):
    """With all seeds set alike, a team says something else each time, and never what it says in simulation."""

    def speak():
        random.seed(0)
        np.random.seed(0)
        team = dpmac.load(folder)
        seen = np.zeros((2, team.program.task.observation_size))
        return team, np.asarray(team.act(seen, team.start())[1].released)

    (team, first), (_, second) = speak(), speak()
    simulated = [np.asarray(team.simulate(jax.random.key(seed)).released) for seed in (0, 1)]
    others = np.concatenate([second, *(said.reshape(-1, first.shape[-1]) for said in simulated)])
    assert np.mean(first[:, None] == others, axis=-1).max() < 1  # single numbers may meet, for all lie on a grid
    assert team.voices[0].entropy.read is os.urandom


def test_charges_of_an_episode_are_what_the_claim_says(folder):
    claims = json.loads((folder / "privacy.json").read_text())["claims"]
    team = dpmac.load(folder, epsilon="1", seed=1)
    before = team.ledger.charged(0).total()
    task, carry = team.program.task, team.start()
    for _ in range(task.horizon):
        _, carry = team.act(np.zeros((2, task.observation_size)), carry)
    assert team.ledger.charged(0).total() - before == task.horizon
    release = next(iter(team.ledger.charged(0)))
    assert release.noise == claims["1"][0]["noise"]
    alone = Ledger(folder / "other.json", [math.inf], 1e-4, create=True)
    alone.charge({0: release}, task.horizon)
    assert alone.spent(0) == pytest.approx(claims["1"][0]["exact_epsilon_episode"], rel=1e-6)


def test_a_release_that_would_overspend_is_refused_and_does_not_leave(tmp_path):
    team = deployed(tmp_path, epsilon=(3.0,), limit=3.0)
    play_team(team)
    assert team.spent(0) == pytest.approx(3.0, rel=1e-4)
    with pytest.raises(BudgetSpent, match="agent 0 would spend"):
        play_team(team)
    assert team.ledger.charged(0).total() == HORIZON
    (agent, *_) = team.agents()
    with pytest.raises(BudgetSpent):
        agent.act(np.zeros(team.program.task.observation_size), {}, agent.start())


def test_acting_twice_from_one_memory_is_charged_twice(tmp_path):
    team = deployed(tmp_path)
    carry, seen = team.start(), np.zeros((AGENTS, team.program.task.observation_size))
    first, second = (team.act(seen, carry)[1].released for _ in range(2))
    assert np.all(np.any(np.asarray(first[:2]) != np.asarray(second[:2]), axis=-1))
    assert team.ledger.charged(0).total() == 2


def test_steps_without_a_release_cost_nothing(tmp_path):
    team = deployed(tmp_path, Channel(period=3))
    play_team(team)
    assert team.ledger.charged(0).total() == 2
    sampling = deployed(tmp_path / "sampling", Channel(sample_rate=0.4))
    play_team(sampling)
    assert sampling.ledger.charged(0).total() == 3  # of ⌊0.4·(t + 1)⌋, two are none


def test_the_limit_is_fixed_by_the_first_who_opens_the_ledger(folder, tmp_path):
    begin(tmp_path / "run", pieces=1)
    dpmac.load(tmp_path / "run", limit=5.0)
    assert dpmac.load(tmp_path / "run").ledger.epsilon == (5.0, 5.0)
    with pytest.raises(BadInput, match="begun with other limits"):
        dpmac.load(tmp_path / "run", limit=50.0)
    assert dpmac.load(folder).ledger.epsilon == (math.inf, math.inf)


def test_a_silent_team_acts_and_spends_nothing(tmp_path):
    team = deployed(tmp_path, epsilon=(math.inf,), method="silent")
    play_team(team)
    assert team.spent(0) == 0


def test_what_cannot_be_deployed_is_refused(tmp_path, folder):
    with pytest.raises(BadInput, match="at the receivers"):
        deployed(tmp_path, Channel(place="receiver"))
    with pytest.raises(BadInput, match="2 rounds"):
        deployed(tmp_path, Channel(rounds=2), method="tarmac")
    with pytest.raises(BadInput, match="budgets are"):
        dpmac.load(folder, epsilon="99")
    with pytest.raises(BadInput, match="one number or 2"):
        dpmac.load(folder, limit=(1.0, 1.0, 1.0))


def test_what_does_not_fit_is_refused_before_anything_is_charged(tmp_path):
    team = deployed(tmp_path)
    size, carry = team.program.task.observation_size, team.start()
    for wrong in (np.zeros((2, size)), np.full((AGENTS, size), np.nan)):
        with pytest.raises(BadInput, match="expected finite numbers"):
            team.act(wrong, carry)
    (agent, *_) = team.agents()
    with pytest.raises(BadInput, match="nobody sends before step 0"):
        agent.act(np.zeros(size), {1: np.zeros(4)}, agent.start())
    assert team.ledger.charged(0).total() == 0
    _, _, later = agent.act(np.zeros(size), {}, agent.start())
    with pytest.raises(BadInput, match="hears agents"):
        agent.act(np.zeros(size), {0: np.zeros(4)}, later)
    for _ in range(HORIZON):
        _, carry = team.act(np.zeros((AGENTS, size)), carry)
    with pytest.raises(BadInput, match="over after 5 steps"):
        team.act(np.zeros((AGENTS, size)), carry)


# Voices ---------------------------------------------------------------------------------------------------------------


def test_normal_numbers_of_the_operating_system_are_normal():
    numbers = Entropy().normal(20_000)
    assert kstest(numbers, "norm").pvalue > 1e-4
    assert len(np.unique(numbers)) == len(numbers)
    ends = [bytes([255] * 8), bytes(8), bytes([254] + [255] * 7), bytes([1] + [0] * 7)]
    found = [float(Entropy(lambda _, end=end: end).normal(1)[0]) for end in ends]
    np.testing.assert_allclose(found, [0, -9.155, 0, 9.155], atol=0.01)


@pytest.mark.parametrize("spec", [Channel(clip_norm=0.5), Channel("code", clip_norm=0.5)])
def test_what_leaves_passes_the_checks_of_a_gaussian_channel_and_lies_on_the_grid(spec):
    sigma, size = 3.3, 8 if spec.mechanism == "gaussian" else spec.symbols
    rng, speaker = np.random.default_rng(0), Voice(spec, 10, 2, sigma, Entropy())
    raw = 3 * rng.standard_normal((20, 10, 2, size))
    released = np.stack([speaker.release(message)[0][0] for message in raw.reshape(-1, size)]).reshape(raw.shape)
    if spec.mechanism == "gaussian":
        sent = raw * np.minimum(1, 0.5 / np.linalg.norm(raw, axis=-1, keepdims=True))
    else:
        sent = math.sqrt(0.5) * np.eye(size)[raw.argmax(-1)]
    sent = np.trunc(sent / 2.0**-11) * 2.0**-11
    assert checks.failures(checks.check_gaussian(sent, released, spec, sigma), 0.9999) == []
    grid = 2.0 ** additive.grid_exponent(spec.clip_norm, sigma)
    assert released.dtype == np.float32
    np.testing.assert_array_equal(released / grid, np.rint(released / grid))
    assert np.abs(released / grid).max() < 2**24


def test_symbols_flip_at_their_rate():
    spec, flip, count = Channel("response", symbols=4), 0.3, 4000
    speaker = Voice(spec, 1, 2, flip, Entropy())
    said = [int(speaker.release(np.eye(4)[2])[0][0].argmax()) for _ in range(count)]
    counts = np.bincount(said, minlength=4)
    assert binomtest(count - int(counts[2]), count, flip).pvalue > 1e-4
    assert np.delete(counts, 2).min() > 0.8 * count * flip / 3


def test_messages_that_are_not_numbers_are_sent_as_nothing():
    for bad in (np.nan, np.inf):
        said = Voice(Channel(), 1, 1, 1e-3, Entropy()).privatised(np.array([bad, 1.0]))
        assert np.abs(said).max() < 0.01


def test_deployment_is_as_private_as_the_statement_says(tmp_path):
    """Whole transcripts of two neighbouring canaries through a voice: the bound stays below ε, and comes near it."""
    release = privacy.Release(Channel(), privacy.calibrate(Channel(), 3.0, 1e-4, HORIZON), HORIZON)
    canary = privacy.canary(release, 4)
    speaker = Voice(release.channel, HORIZON, 1, release.noise, Entropy())

    def sample(side, episodes, _):
        inputs = (canary.first, canary.second)[side]
        return np.stack([[speaker.release(message)[0][:1] for message in inputs] for _ in range(episodes)])

    bound = privacy.audit_gaussian(sample, 1e-4, 1000, release.noise, canary.direction, 0.999)
    assert 1.5 < bound.epsilon < 3.0
