"""Teams at work: alone or together they do the same, nobody can guess their noise, and the ledger holds all of it."""

import dataclasses
import json
import math
import os
import random
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import CONFIG, untrained

import dpmac
from dpmac.config import BadInput, Budget, Channel
from dpmac.deploy import team as deploy
from dpmac.privacy import BudgetSpent, Entropy, Ledger, Measurement
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
    "running sums": (Channel("correlated", stream_decay=0.9), {}),
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
    assert agents[0]._measurement is not agents[1]._measurement
    assert agents[0]._measurement._entropy is not agents[1]._measurement._entropy


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
    untrained(found)
    dpmac.load(found, epsilon=1, limit=math.inf, new_ledger=True)
    return found


def opened(folder, epsilon: Any = "1", limit: Any = math.inf, **others):
    return dpmac.load(folder, epsilon, limit=limit, **others)


def test_training_seed_does_not_reveal_deployment_noise(folder):
    """With all seeds set alike, a team says something else each time, and never what it says in simulation."""

    def speak():
        random.seed(0)
        np.random.seed(0)
        team = opened(folder)
        seen = np.zeros((2, team.program.task.observation_size))
        return team, np.asarray(team.act(seen, team.start())[1].released)

    (team, first), (_, second) = speak(), speak()
    simulated = [np.asarray(team.simulate(jax.random.key(seed)).released) for seed in (0, 1)]
    others = np.concatenate([second, *(said.reshape(-1, first.shape[-1]) for said in simulated)])
    assert np.mean(first[:, None] == others, axis=-1).max() < 1  # single numbers may meet, for all lie on a grid
    assert team._measurements[0]._entropy.read is os.urandom


def test_charges_of_an_episode_are_what_the_claim_says(folder):
    claims = json.loads((folder / "privacy.json").read_text())["claims"]
    team = opened(folder, seed=1)
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


def test_no_step_can_be_acted_twice(tmp_path):
    """Neither from the same carry nor from an older one; a new episode has noise of its own."""
    team = deployed(tmp_path)
    carry, seen = team.start(), np.zeros((AGENTS, team.program.task.observation_size))
    _, later = team.act(seen, carry)
    for _ in range(300):
        with pytest.raises(BadInput, match="step 1 comes next, not 0"):
            team.act(seen, carry)
    assert team.ledger.charged(0).total() == 1
    _, other = team.act(seen, team.start())
    assert np.all(np.any(np.asarray(later.released[:2]) != np.asarray(other.released[:2]), axis=-1))
    (agent, *_) = team.agents()
    first = agent.start()
    agent.act(seen[0], {}, first)
    with pytest.raises(BadInput, match="step 1 comes next, not 0"):
        agent.act(seen[0], {}, first)


def test_everything_random_is_drawn_when_an_episode_starts(tmp_path):
    team = deployed(tmp_path, Channel("response"))
    calls = []
    for source in team._sources:
        read = source.read
        source.read = lambda count, read=read: calls.append(count) or read(count)
    for measurement, source in zip(team._measurements, team._sources, strict=True):
        measurement._entropy = source
    play_team(team)
    before = len(calls)
    assert before == 2 * AGENTS  # the words of all releases, and keys of the senders' own draws
    carry = team.start()
    assert len(calls) == 2 * before
    team.act(np.ones((AGENTS, team.program.task.observation_size)), carry)
    assert len(calls) == 2 * before


def test_a_deployed_team_has_no_public_way_around_its_measurements(tmp_path):
    team = deployed(tmp_path, Channel(sample_rate=0.5))
    public = {name: getattr(team, name) for name in dir(team) if not name.startswith("_")}
    assert not any(isinstance(one, Measurement | list) for one in public.values())
    (agent, *_) = team.agents()
    assert not any(isinstance(getattr(agent, name), Measurement) for name in dir(agent) if not name.startswith("_"))
    carry = team.start()
    _, carry = team.act(np.ones((AGENTS, team.program.task.observation_size)), carry)
    assert not np.any(np.asarray(carry.history))  # messages before the noise stay inside


def test_steps_without_a_release_cost_nothing(tmp_path):
    team = deployed(tmp_path, Channel(period=3))
    play_team(team)
    assert team.ledger.charged(0).total() == 2
    sampling = deployed(tmp_path / "sampling", Channel(sample_rate=0.4))
    play_team(sampling)
    assert sampling.ledger.charged(0).total() == 3  # of ⌊0.4·(t + 1)⌋, two are none


def test_the_limit_is_said_by_whoever_opens_the_ledger_and_never_changes(tmp_path):
    untrained(tmp_path / "run")
    run = tmp_path / "run"
    with pytest.raises(BadInput, match="limit must be said"):
        dpmac.load(run, epsilon=1, new_ledger=True)
    with pytest.raises(BadInput, match=r"no ledger\.json: begin one"):
        dpmac.load(run, epsilon=1, limit=5.0)
    assert not (run / "ledger.json").exists()
    dpmac.load(run, epsilon=1, limit=5.0, new_ledger=True)
    assert dpmac.load(run, epsilon=1, limit=5).ledger.epsilon == (5.0, 5.0)
    with pytest.raises(BadInput, match="begun with other limits"):
        dpmac.load(run, epsilon=1, limit=50.0)
    with pytest.raises(BadInput, match="exists"):
        dpmac.load(run, epsilon=1, limit=5.0, new_ledger=True)
    for wrong in ("5", True, -1.0, math.nan, None, (5.0, "5")):
        with pytest.raises(BadInput, match="limit must be"):
            dpmac.load(run, epsilon=1, limit=wrong)  # type: ignore[arg-type]


def test_a_budget_is_named_by_its_numbers_where_there_are_several(folder):
    for same in (1, 1.0, "1", "1.0", np.float32(1)):
        assert opened(folder, same).noise[1] > 0
    assert opened(folder, "2:inf").noise[1] == 0
    assert opened(folder, "2.0:inf").noise[1] == 0
    with pytest.raises(BadInput, match="this run's budgets are 1, 2:inf: name one, as epsilon='1'"):
        opened(folder, None)
    for wrong in ("2", 3, math.inf):
        with pytest.raises(BadInput, match=f"no budget of this run is {wrong}"):
            opened(folder, wrong)
    with pytest.raises(BadInput, match="must be a number"):
        opened(folder, "much")


def test_budgets_of_two_kinds_are_named_in_full(tmp_path):
    budgets = (Budget((1.0,)), Budget((1.0,), unit="message"))
    untrained(tmp_path / "run", dataclasses.replace(CONFIG, budgets=budgets))
    with pytest.raises(BadInput, match="said of several"):
        opened(tmp_path / "run", 1, new_ledger=True)
    labels = dataclasses.replace(CONFIG, budgets=budgets).labels
    assert opened(tmp_path / "run", labels[1], new_ledger=True).noise[0] > 0


def test_messages_that_leave_as_they_are_must_be_asked_for_and_need_no_limit(tmp_path):
    untrained(tmp_path / "run", dataclasses.replace(CONFIG, budgets=(Budget(),)))
    with pytest.raises(BadInput, match="messages of epsilon inf leave as they are: if they may, say epsilon='inf'"):
        dpmac.load(tmp_path / "run", new_ledger=True)
    team = dpmac.load(tmp_path / "run", epsilon="inf", new_ledger=True)
    assert team.ledger.epsilon == (math.inf, math.inf)
    team.act(np.zeros((2, team.program.task.observation_size)), team.start())
    assert team.spent(0) == math.inf


def test_a_silent_team_acts_and_spends_nothing(tmp_path):
    team = deployed(tmp_path, epsilon=(math.inf,), method="silent")
    play_team(team)
    assert team.spent(0) == 0


def test_what_was_compiled_takes_a_step_of_a_task_that_forbids_actions(tmp_path):
    config = dataclasses.replace(CONFIG, task="probe-mask", budgets=CONFIG.budgets[:1])
    untrained(tmp_path / "run", config)
    team, step = dpmac.load(tmp_path / "run", limit=math.inf, new_ledger=True), cast(Any, deploy.step_team)
    jax.clear_caches()
    team.compile()
    known = step._cache_size()
    team.act(np.zeros((2, 3)), team.start(), [[0, 1, 1]] * 2)
    assert step._cache_size() == known


def test_what_cannot_be_deployed_is_refused(tmp_path, folder):
    with pytest.raises(BadInput, match="at the receivers"):
        deployed(tmp_path, Channel(place="receiver"))
    with pytest.raises(BadInput, match="2 rounds"):
        deployed(tmp_path, Channel(rounds=2), method="tarmac")
    with pytest.raises(BadInput, match="seeds 0, 1"):
        opened(folder, seed=9)
    with pytest.raises(BadInput, match="one number or 2"):
        opened(folder, limit=(1.0, 1.0, 1.0))


def test_what_does_not_fit_is_refused_before_anything_is_charged(tmp_path):
    team = deployed(tmp_path)
    size, carry = team.program.task.observation_size, team.start()
    for wrong, says in (
        (np.zeros((2, size)), r"shape \(3, \d\), not \(2, \d\)"),
        (np.full((AGENTS, size), np.nan), f"finite numbers, and {AGENTS * size} are not"),
        ([[0.0], [0.0, 1.0]], "expected numbers of the shape"),
        ("what", "expected numbers of the shape"),
    ):
        with pytest.raises(BadInput, match=says):
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


FORGED = {
    "gaussian": [[0.1, 0.0, 0.0, 0.0], [np.nan] * 4, [np.inf] * 4, [0.0] * 3],
    "response": [[1.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.0] * 3, [2.0, -1.0, 0.0]],
    "subset": [[1.0, 1.0, 1.0], [0.0] * 3, [0.5, 0.5, 0.0]],
}


@pytest.mark.parametrize("name", FORGED)
def test_messages_from_outside_are_ones_that_the_channel_can_release(name, tmp_path):
    (agent, *_) = deployed(tmp_path, Channel(name)).agents()
    seen = np.zeros(agent.observation_size)
    _, _, carry = agent.act(seen, {}, agent.start())
    for forged in FORGED[name]:
        with pytest.raises(BadInput, match=r"no message of its channel|finite numbers|shape"):
            agent.act(seen, {1: forged}, carry)
    assert agent.ledger.charged(0).total() == 1
