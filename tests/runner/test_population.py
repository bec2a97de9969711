"""Populations: members are what they would be alone, and a resumed run is bit-identical."""

import dataclasses
import json
import shutil
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import CONFIG, begin, contents, leaves, train

from dpmac.config import BadInput, Budget, Channel
from dpmac.results import store
from dpmac.runner import devices, noise, population
from dpmac.runner import train as single
from dpmac.runner.population import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("population") / "run"
    train(found)
    return found


@pytest.fixture(scope="module")
def trained(folder):
    return population.load(folder)


def test_population_member_equals_its_single_run_after_ten_updates(trained, tmp_path):
    alone = train(tmp_path / "one", dataclasses.replace(CONFIG, budgets=CONFIG.budgets[1:], seeds=(1,)))
    assert trained.runs[3] == alone.runs[0]
    assert trained.program.iterations == 10
    for many, one in zip(leaves(trained), leaves(alone), strict=True):
        np.testing.assert_allclose(many[3], one[0], atol=1e-5)


def test_points_of_a_curve_take_turns_through_the_starts_that_finished_teams_are_scored_on(trained, monkeypatch):
    monkeypatch.setattr(single, "STARTS", 10)
    team, scale = trained.one(0)
    whole = np.asarray(single.evaluate(trained.program, team, scale, 10).observations)
    assert trained.program.evaluations == 5
    for step, places in ((40, [0, 1, 2, 3]), (80, [4, 5, 6, 7]), (120, [8, 9, 0, 1])):
        seen = single.glance(trained.program, team, scale, jnp.asarray(step)).observations
        np.testing.assert_array_equal(seen, whole[places])


def test_an_evaluation_after_each_fifth_of_the_run_has_an_index_of_its_own():
    """Evaluations lie on whole iterations, not always evenly; each takes its own turn all the same."""
    config = dataclasses.replace(CONFIG, training=dataclasses.replace(CONFIG.training, steps=1340, evaluations=9))
    program = single.Program.of(config)
    points = np.array(population.evaluations_of(program)) * program.steps_per_iteration
    index = np.round(points / program.steps * program.evaluations).astype(int) - 1
    np.testing.assert_array_equal(index, np.arange(9))


def test_seeds_and_budgets_differ(trained):
    first, second, third, _ = (np.concatenate([leaf[run].ravel() for leaf in leaves(trained)]) for run in range(4))
    assert np.mean(first != second) > 0.9
    assert np.mean(first != third) > 0.5


def test_population_split_into_groups_gives_the_same_results(trained, folder, tmp_path):
    parts = train(tmp_path / "parts", most=2)
    for whole, part in zip(leaves(trained), leaves(parts), strict=True):
        np.testing.assert_allclose(part, whole, atol=1e-5)
    ours, theirs = (sorted(store.read_metrics(where)) for where in (tmp_path / "parts", folder))
    assert [row[:4] for row in ours] == [row[:4] for row in theirs]
    np.testing.assert_allclose([row.value for row in ours], [row.value for row in theirs], rtol=1e-3, atol=1e-4)
    assert sorted(path.stem for path in (tmp_path / "parts/checkpoints").glob("group-?.json")) == ["group-0", "group-1"]


def test_stopped_and_resumed_run_is_bit_identical(folder, tmp_path):
    begin(tmp_path / "run", pieces=2)
    halfway = population.load(tmp_path / "run")
    assert halfway.step == 80
    for _ in population.train_folder(tmp_path / "run"):
        pass
    assert contents(tmp_path / "run") == contents(folder)


def test_a_run_whose_metrics_were_cut_off_is_rewound(folder, tmp_path):
    begin(tmp_path / "run", pieces=2)
    path = tmp_path / "run/metrics.csv"
    path.write_text(path.read_text() + "120,1,0,return,3.0\n120,1,0,actor_")
    for _ in population.train_folder(tmp_path / "run"):
        pass
    assert contents(tmp_path / "run") == contents(folder)


def test_resuming_a_finished_run_changes_nothing(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    assert list(population.train_folder(tmp_path / "run")) == []
    assert contents(tmp_path / "run") == contents(folder)


def test_metrics_hold_every_number_of_every_run_at_every_evaluation(folder):
    rows = store.read_metrics(folder)
    names = {"return", "critic_loss", "actor_loss", "message_norm", "share_clipped", "learned_deviation"}
    assert names | {"signal_to_noise"} == {row.name for row in rows}
    assert {row.step for row in rows} == {40, 80, 120, 160, 200}
    assert {(row.budget, row.seed) for row in rows} == {("1", 0), ("1", 1), ("2:inf", 0), ("2:inf", 1)}
    assert len(rows) == len({row[:4] for row in rows}) == 5 * 4 * 7
    assert all(np.isfinite(row.value) for row in rows)


def test_every_agent_gets_the_noise_of_its_own_budget(trained, folder):
    assert trained.scale.value.shape == (4, 2)
    claims = json.loads((folder / "privacy.json").read_text())["claims"]
    for run, label in ((0, "1"), (2, "2:inf")):
        np.testing.assert_allclose(trained.scale.value[run], [entry["noise"] for entry in claims[label]], rtol=1e-6)
    assert trained.scale.value[2, 1] == 0
    assert [entry["valid"] for entry in claims["2:inf"]] == [True, True]
    assert claims["2:inf"][1]["epsilon"] == claims["2:inf"][1]["exact_epsilon"] == "inf"


def test_the_statement_says_which_messages_it_is_about(folder):
    told = json.loads((folder / "privacy.json").read_text())
    assert "deployed" in told["about"]
    assert "from a seed" in told["simulated"]
    assert "picked by an adversary" in told["claims"]["1"][0]["neighbours"]


def test_evaluation_starts_are_the_same_for_all(trained):
    """Copies of one team that hears nothing score alike at every start, whatever the noise of their budgets."""
    copies = jax.tree.map(lambda leaf: jnp.stack([leaf[0]] * 4), trained.teams)
    value = jax.tree.map(jnp.zeros_like, copies.members.protocol.value)
    deaf = eqx.tree_at(lambda team: team.members.protocol.value, copies, value)
    scores = np.asarray(population.scores(trained.program, deaf, trained.scale, 16))
    np.testing.assert_array_equal(scores, scores[:1].repeat(4, 0))
    assert len(np.unique(scores[0])) > 1
    assert np.any(np.asarray(population.scores(trained.program, copies, trained.scale, 16)) != scores)


def test_one_iteration_uses_every_key_once():
    config = dataclasses.replace(CONFIG, task="ccn", task_options={"horizon": 5})
    program = population.check(config)
    table = noise.tables_of(config, program, config.budgets[:1], 0.0)
    table = jax.tree.map(lambda leaf: leaf[0], table)
    with jax.debug_key_reuse(True):
        state = jax.jit(partial(single.init, program))(jax.random.key(0))
        after, _ = jax.jit(partial(single.iterate, program))(state, table, program.settings)
    assert int(after.steps) == 20


def test_budgets_anneal_geometrically_and_end_where_they_should():
    config = dataclasses.replace(CONFIG, anneal_from=16.0, anneal_share=0.5)
    budget = Budget((1.0, float("inf")))
    shares = {share: noise.training_budgets(config, budget, share)[0].epsilon for share in (0, 0.25, 0.5, 0.9)}
    np.testing.assert_allclose([epsilon[0] for epsilon in shares.values()], [16, 4, 1, 1])
    assert {epsilon[1] for epsilon in shares.values()} == {float("inf")}


@pytest.mark.parametrize(
    ("runs", "most", "expected"), [(4, 0, 4), (4, 2, 2), (5, 3, 3), (7, 3, 3), (4, 1, 1), (4, 9, 4)]
)
def test_groups_are_as_even_as_they_can_be(runs, most, expected):
    program = population.check(CONFIG)
    assert devices.side_by_side(program, runs, most) == expected
    members = [Run("1", Budget(), seed) for seed in range(runs)]
    groups = population.groups_of(members, expected)
    assert [run for group in groups for run in group] == members


def test_a_population_that_does_not_fit_in_memory_is_split(monkeypatch):
    program = population.check(CONFIG)
    monkeypatch.setattr(devices, "available_bytes", lambda: 2.5 * devices.bytes_per_run(program))
    assert devices.side_by_side(program, 4, 0) == 2
    monkeypatch.setattr(devices, "available_bytes", lambda: 1)
    assert devices.side_by_side(program, 4, 0) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"method": "silent"}, "sends no messages"),
        ({"budgets": (Budget((1.0, 1.0, 1.0)),)}, "names 3 agents, but the team has 2"),
        ({"learner_options": {"updates_per_episode": 0.3}}, "whole number from 1, not 1.2"),
        ({"learner_options": {"sight": 1}}, "no option 'sight'; allowed are updates_per_episode"),
        ({"learner": "nobody"}, "unknown learner"),
        ({"task": "nowhere"}, "unknown task"),
        ({"method": "loud"}, "unknown method"),
        ({"channel": Channel(copies=5)}, "copies must be 1"),
        ({"method_options": {"loudness": 1}}, "loudness"),
    ],
)
def test_what_does_not_go_together_is_refused_and_leaves_no_folder(change, says, tmp_path):
    with pytest.raises(BadInput, match=says):
        population.create(tmp_path / "run", dataclasses.replace(CONFIG, **change))
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_checkpoint_cannot_be_loaded(tmp_path):
    population.create(tmp_path / "run", CONFIG)
    with pytest.raises(BadInput, match="no checkpoint yet"):
        population.load(tmp_path / "run")
