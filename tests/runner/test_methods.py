"""Every method on every task: free, with a budget for each message and with one for the episode."""

import json
import math

import numpy as np
import pytest
from tiny import begin, leaves

from dpmac import tasks
from dpmac.agents import protocol
from dpmac.cli import main
from dpmac.config import Budget, Channel, NetworkConfig, RunConfig, Training
from dpmac.results import store
from dpmac.runner import population

FREE, MESSAGE, EPISODE = Budget(), Budget((1.0,), unit="message"), Budget((1.0,))
QUICK = [("cn", "tarmac"), ("pp", "i2c")]
REST = [(task, method) for task in tasks.names() for method in protocol.BUILT_IN if (task, method) not in QUICK]


def config_of(task, method, budgets=(FREE, MESSAGE, EPISODE), **others):
    kind, made = protocol.find(method), tasks.make(task, **others)
    return RunConfig(
        task,
        method,
        task_options=others,
        channel=Channel(place=kind.private_at),
        budgets=budgets if kind.speaks else (FREE,),
        networks=NetworkConfig(hidden=8, message_hidden=8, message_size=4),
        learner_options={"batch": 2, "updates_per_episode": 0.5},
        training=Training(steps=8 * made.horizon, episodes=2, evaluations=2, evaluation_episodes=2),
    )


@pytest.mark.parametrize(("task", "method"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.large) for case in REST)])
def test_a_method_trains_resumes_is_evaluated_and_filmed(task, method, tmp_path, capsys):
    config, run = config_of(task, method), tmp_path / "run"
    begin(run, config, pieces=1)
    before = leaves(population.load(run))
    assert main(["resume", str(run), "--quiet"]) == 0
    loaded = population.load(run)
    assert loaded.step == config.training.steps
    assert all(np.isfinite(leaf).all() for leaf in leaves(loaded))
    assert any(np.any(old != new) for old, new in zip(before, leaves(loaded), strict=True))
    assert main(["watch", str(run), "--out", str(tmp_path / "film.gif"), "--size", "64"]) == 0
    assert (tmp_path / "film.gif").stat().st_size > 0
    capsys.readouterr()
    assert main(["evaluate", str(run), "--episodes", "3", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert len(scores) == len(config.budgets)
    assert all(math.isfinite(row["return_mean"]) and row["episodes"] == 3 for row in scores)
    if protocol.find(method).speaks:
        claims = store.read_json(run / "privacy.json")["claims"]
        assert len(claims) == 3
        for budget, entries in zip(config.budgets, claims.values(), strict=True):
            assert {entry["unit"] for entry in entries} == {budget.unit}
            true = not budget.private or config.channel.place == "sender"
            assert all(entry["valid"] == true for entry in entries)


@pytest.mark.parametrize("method", ["tarmac", "i2c", pytest.param("commnet", marks=pytest.mark.large)])
def test_sixteen_agents_train(method, tmp_path):
    begin(tmp_path, config_of("probe-neighbour", method, (EPISODE,), agents=16), pieces=1)
    loaded = population.load(tmp_path)
    assert loaded.scale.value.shape == (1, 16)
    assert all(np.isfinite(leaf).all() for leaf in leaves(loaded))
    assert all(math.isfinite(row.value) for row in store.read_metrics(tmp_path))
