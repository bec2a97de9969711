"""Runs and results of version 0.1, kept as they were written, are still read."""

import dataclasses
import gzip
import json
import shutil
from pathlib import Path

import pytest

from dpmac import cli, experiments
from dpmac.config import BadInput, dumps, run_config
from dpmac.experiments import SCALES
from dpmac.results import records, store
from dpmac.runner import population, schedule
from dpmac.runner.checkpoint import digest

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture
def run(tmp_path):
    shutil.copytree(DATA / "run-0.1", tmp_path / "run")
    return tmp_path / "run"


def test_a_finished_run_is_evaluated_to_the_same_returns(run, capsys):
    assert cli.main(["evaluate", str(run), "--episodes", "32", "--json"]) == 0
    found, before = json.loads(capsys.readouterr().out), json.loads((DATA / "evaluate-0.1.json").read_text())
    assert [(row["epsilon"], row["seed"], row["step"]) for row in found] == [("inf", 0, 200), ("3", 0, 200)]
    assert found[0]["return_mean"] == before[0]["return_mean"]  # free messages; noise is drawn in another way today
    assert found[1]["noise"] == pytest.approx(before[1]["noise"])


def test_a_finished_run_has_a_page_though_it_says_less_about_its_privacy(run, tmp_path):
    assert cli.main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert "not covered" in (tmp_path / "page.html").read_text()


def test_the_settings_of_the_one_learner_are_its_own_now():
    data = json.loads((DATA / "silent-0.1/config.json").read_text())
    config = run_config(data)
    assert (config.method, config.learner) == ("silent", "maddpg")
    options = config.learner_options
    assert (options["recurrent_critic"], options["updates_per_episode"], options["tau"]) == (True, 0.25, 0.005)
    assert options["bootstrap_horizon"] is False
    assert config.training.steps == data["learning"]["steps"]


def test_a_silent_team_with_recurrent_critics_is_read_without_them(tmp_path):
    shutil.copytree(DATA / "silent-0.1", tmp_path / "run")
    loaded = population.load(tmp_path / "run")
    assert loaded.step == 200
    assert loaded.teams.members.actor.head.weight.shape == (1, 2, 6, 2)


def test_resuming_a_finished_run_changes_nothing(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert cli.main(["resume", str(run), "--quiet"]) == 0
    assert {path: path.read_bytes() for path in before} == before


def test_an_unfinished_run_is_refused_with_what_to_do(run, capsys):
    place = run / "checkpoints/group-0.json"
    data = json.loads(place.read_text())
    data |= {"finished": False}
    del data["seal"]
    place.write_text(json.dumps({**data, "seal": digest(dumps(data).encode())}))
    assert cli.main(["resume", str(run), "--quiet"]) == 2
    assert "begun by version 0.1 of dpmac" in capsys.readouterr().err


def test_results_keep_their_numbers_and_get_the_names_of_today():
    results = records.unpack(DATA / "results-0.1.json.gz")
    assert {record.config.method for record in results.runs.values()} == {"dpmac", "silent"}
    assert all(name == record.name for name, record in results.runs.items())
    assert not any("maddpg" in name for name in results.runs)
    packed = json.loads(gzip.decompress((DATA / "results-0.1.json.gz").read_bytes()))
    returns = {run["final"]["return_mean"] for run in packed["runs"].values()}
    assert {record.final_return for record in results.runs.values()} == returns


def test_the_mark_of_a_configuration_is_that_of_its_own_text(run):
    assert store.mark(run) == json.loads((run / "checkpoints/group-0.json").read_text())["config"]


def plan(tasks, methods):
    training = dataclasses.replace(SCALES["paper"].training, episodes=16, evaluation_episodes=32)
    scale = dataclasses.replace(SCALES["paper"], training=training)
    wanted = experiments.populations(experiments.targets(["all"]), scale, tasks, methods)
    return schedule.plan(DATA.parents[1] / "results" / "version-0.1", wanted)


def test_nothing_that_version_0_1_has_trained_is_trained_again():
    assert plan(("cn", "ccn"), ("dpmac", "tarmac", "silent")) == []


@pytest.mark.parametrize(("task", "method", "differing"), [("pp", "dpmac", "task"), ("ccn", "i2c", "method")])
def test_what_version_0_1_trained_otherwise_is_not_taken_for_what_this_one_would_train(task, method, differing):
    with pytest.raises(BadInput, match=f"with another {differing}_options"):
        plan((task,), (method,))


def test_a_run_of_version_0_1_says_in_which_form_it_was_made():
    found = records.unpack(DATA.parents[1] / "results/version-0.1/paper.json.gz").runs
    assert found["pp-silent-free-seed-0"].config.task_options == {"fence": "replaces"}
    assert found["ccn-i2c-free-seed-0"].config.method_options == {"form": "early"}
    assert found["ccn-dpmac-free-seed-0"].config.task_options == {}
