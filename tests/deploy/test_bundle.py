"""Bundles: one agent, nothing of the others, a ledger of its own; and what an agent does when its budget is spent."""

import dataclasses
import json
import math
import subprocess
import sys
from typing import Any, cast

import jax
import numpy as np
import pytest
import safetensors.numpy
import tiny
from exported import AGENTS, HORIZON, copied, export, run_of, untrained
from tiny import CONFIG

import dpmac
import dpmac.deploy
from dpmac.cli import main
from dpmac.config import BadInput
from dpmac.deploy import bundle
from dpmac.deploy.agent import step_agent
from dpmac.privacy import BudgetSpent, chain
from dpmac.privacy import ledger as ledgers
from dpmac.runner import population


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    return export(run, tmp_path_factory.mktemp("bundles"), limit=7.0)


@pytest.fixture
def bundles(exported, tmp_path):
    return copied(exported, tmp_path)


def play(agents, episodes=1):
    """Actions and messages of agents that get what the others sent them, and observe nothing."""
    log = []
    for _ in range(episodes):
        carries, boxes = [agent.start() for agent in agents], [{} for _ in range(AGENTS)]
        for _ in range(HORIZON):
            post = [{} for _ in range(AGENTS)]
            for i, agent in enumerate(agents):
                seen = np.full(agent.observation_size, 0.5)
                action, sent, carries[i] = agent.act(seen, boxes[i], carries[i])
                for recipient, message in sent.items():
                    post[recipient][i] = message
                log.append((i, action, sent))
            boxes = post
    return log


def test_a_bundle_holds_its_own_agent_alone(run, bundles):
    loaded = population.load(run)
    members = loaded.one(0)[0].members
    for agent, folder in enumerate(bundles):
        assert {path.name for path in folder.iterdir()} == {
            "agent.json",
            "weights.safetensors",
            "privacy.json",
            "ledger.json",
        }
        arrays = safetensors.numpy.load_file(folder / "weights.safetensors")
        for path, leaf in jax.tree.leaves_with_path(members):
            np.testing.assert_array_equal(arrays.pop(jax.tree_util.keystr(path)), leaf[agent])
        assert not arrays
        claim = json.loads((folder / "privacy.json").read_text())["claim"]
        assert (claim["agent"], claim["epsilon"], claim["valid"]) == (agent, 3.0, True)
        described = bundle.read(folder)
        assert described.noise == (claim["noise"],) * AGENTS
        assert described.limit == 7.0


def test_agents_of_bundles_do_what_the_team_does(run, bundles):
    """The same bits, given the same random bytes."""
    agents = [dpmac.deploy.Agent.open(folder) for folder in bundles]
    team = dpmac.load(run, epsilon=3, limit=math.inf, new_ledger=not (run / "ledger.json").exists())
    ours, theirs = play(planted(agents)), play(planted(team.agents()))
    assert [(i, action) for i, action, _ in ours] == [(i, action) for i, action, _ in theirs]
    for (_, _, left), (_, _, right) in zip(ours, theirs, strict=True):
        assert {k: v.tolist() for k, v in left.items()} == {k: v.tolist() for k, v in right.items()}


def planted(agents):
    for index, agent in enumerate(agents):
        agent._entropy.read = agent._measurement._entropy.read = np.random.default_rng(index).bytes
    return agents


def test_every_agent_has_a_ledger_of_its_own(bundles):
    agents = [dpmac.deploy.Agent.open(folder) for folder in bundles]
    play(agents[:1])
    assert [agent.ledger.charged(0).total() for agent in agents] == [HORIZON, 0, 0]
    assert len({agent.ledger.path for agent in agents}) == AGENTS


def test_compiling_costs_no_budget(bundles, run):
    agent = dpmac.deploy.Agent.open(bundles[0])
    agent.compile()
    assert agent.ledger.charged(0).total() == 0
    team = dpmac.load(run, epsilon=3, limit=math.inf, new_ledger=not (run / "ledger.json").exists())
    before = team.ledger.charged(0).total()
    team.compile()
    assert team.ledger.charged(0).total() == before


def test_what_was_compiled_takes_a_step_with_forbidden_actions_too(bundles):
    agent, step = dpmac.deploy.Agent.open(bundles[0]), cast(Any, step_agent)
    jax.clear_caches()
    agent.compile()
    known = step._cache_size()
    seen, open_to = np.zeros(agent.observation_size), [0, 1]
    for available in (None, open_to):
        agent.act(seen, {}, agent.start(), available)
    assert step._cache_size() == known


def test_whether_an_episode_can_be_paid_is_known_without_its_cost_being_computed_again(tmp_path, monkeypatch):
    """However long the account is."""
    (folder, *_), computed = untrained(tmp_path, limit=1e6), []
    agent = dpmac.deploy.Agent.open(folder)
    agent.ledger.charge({0: agent._measurement.cost}, 10_000)
    agent = dpmac.deploy.Agent.open(folder)
    price = ledgers._priced
    monkeypatch.setattr(ledgers, "_priced", lambda *given: (computed.append(given), price(*given))[1])
    for _ in range(2000):
        assert agent.affords()
        agent.ledger.charge({0: agent._measurement.cost}, HORIZON)
    assert len(computed) <= 2


def test_an_agent_whose_budget_is_spent_acts_on_and_says_nothing(bundles):
    """It decides so before the episode: the last one that fits is said in full, and of the next one nothing."""
    agents = [dpmac.deploy.Agent.open(folder) for folder in bundles]
    log = play(agents, episodes=8)
    said = [bool(sent) for i, _, sent in log if i == 0]
    whole = [said[k : k + HORIZON] for k in range(0, len(said), HORIZON)]
    assert all(set(episode) in ({True}, {False}) for episode in whole)
    assert whole[0][0]
    assert not whole[-1][0]
    assert sorted(whole, reverse=True) == whole
    ledger = agents[0].ledger
    assert ledger.charged(0).total() == sum(said)
    assert ledger.spent(0) <= 7.0
    assert ledger.affordable(0, agents[0]._measurement.cost, HORIZON) < HORIZON
    assert agents[0].silent
    assert "no room" in agents[0].refused


def test_an_agent_may_raise_instead(bundles):
    agents = [dpmac.deploy.Agent.open(folder, when_spent="raise") for folder in bundles]
    with pytest.raises(BudgetSpent, match="would spend"):
        play(agents, episodes=100)
    with pytest.raises(BadInput, match="when_spent must be one of raise, silent"):
        dpmac.deploy.Agent.open(bundles[0], when_spent="go on")  # type: ignore[arg-type]


def test_a_full_disk_silences_an_agent_and_nothing_raw_leaves(bundles, monkeypatch):
    agents, full = [dpmac.deploy.Agent.open(folder) for folder in bundles], [False]
    write = chain.write

    def short(*given):
        if full[0]:
            raise OSError(28, "No space left on device")
        write(*given)

    monkeypatch.setattr(chain, "write", short)
    agent = agents[0]
    carry = agent.start()
    _, sent, carry = agent.act(np.zeros(agent.observation_size), {}, carry)
    assert sent
    full[0] = True
    for _ in range(1, HORIZON):
        action, sent, carry = agent.act(np.zeros(agent.observation_size), {}, carry)
        assert action >= 0
        assert not sent
    assert "No space left" in agent.refused
    full[0] = False
    agent.act(np.zeros(agent.observation_size), {}, agent.start())
    assert not agent.silent
    assert agent.ledger.charged(0).total() == 2


def test_a_budget_must_be_named_where_there_are_several_and_raw_messages_always(run, tmp_path):
    out = tmp_path / "bundle"
    with pytest.raises(BadInput, match="this run's budgets are 3, inf: name one"):
        bundle.export(run, 0, out, 30.0)
    with pytest.raises(BadInput, match="no limit but inf can hold"):
        bundle.export(run, 0, out, 30.0, "inf")
    with pytest.raises(BadInput, match=r"agent must lie in 0\.\.2"):
        bundle.export(run, 3, out, 30.0, "3")
    with pytest.raises(BadInput, match="limit must be a number above 0"):
        bundle.export(run, 0, out, -1.0, "3")
    with pytest.raises(BadInput, match="seeds 0, 1"):
        bundle.export(run, 0, out, 30.0, "3", seed=5)
    assert not out.exists()
    made = bundle.export(run, 0, out, math.inf, "inf")
    assert made.noise == (0.0,) * AGENTS
    with pytest.raises(BadInput, match="exists already"):
        bundle.export(run, 0, out, math.inf, "inf")


def test_senders_of_simulations_are_not_exported(tmp_path):
    config = dataclasses.replace(CONFIG, budgets=CONFIG.budgets[:1], method_options={"past": True})
    tiny.untrained(tmp_path / "run", config)
    with pytest.raises(BadInput, match="are not deployed"):
        bundle.export(tmp_path / "run", 0, tmp_path / "bundle", 30.0)
    assert not (tmp_path / "bundle").exists()


def test_a_damaged_bundle_is_refused(bundles):
    first, second, third = bundles
    (first / "weights.safetensors").write_bytes(b"short")
    with pytest.raises(BadInput, match="truncated or altered"):
        dpmac.deploy.Agent.open(first)
    (second / "ledger.json").unlink()
    with pytest.raises(BadInput, match="does not exist"):
        dpmac.deploy.Agent.open(second)
    data = json.loads((third / "agent.json").read_text())
    for wrong, says in (({"format": 2}, "format 2"), ({"agent": 7}, "agent must lie"), ({"noise": [0.1]}, "noise")):
        (third / "agent.json").write_text(json.dumps(data | wrong))
        with pytest.raises(BadInput, match=says):
            dpmac.deploy.Agent.open(third)
    with pytest.raises(BadInput, match="is no bundle"):
        dpmac.deploy.Agent.open(third / "nothing")


def test_an_agent_loads_nothing_that_only_training_needs(bundles):
    code = (
        "import sys, dpmac.deploy\n"
        f"dpmac.deploy.Agent.open({str(bundles[0])!r})\n"
        "print([name for name in sys.modules if name.startswith(('dpmac.learner', 'dpmac.tasks', 'optax'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_command_exports(run, tmp_path, capsys):
    words = ["deploy", "export", str(run), "--agent", "1", "--epsilon", "3", "--limit", "30"]
    assert main([*words, "--out", str(tmp_path / "bundle")]) == 0
    assert "agent 1 of 3, epsilon 3 an episode, limit 30" in capsys.readouterr().out
    assert main([*words, "--out", str(tmp_path / "bundle")]) == 2
    assert main([*words[:-4], "--limit", "30", "--out", str(tmp_path / "other")]) == 2
    assert "budgets are 3, inf" in capsys.readouterr().err
