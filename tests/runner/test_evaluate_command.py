"""`dpmac evaluate`."""

import json

import numpy as np
import pytest
from tiny import CONFIG, contents, train

from dpmac import cli
from dpmac.runner import population


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("evaluate") / "run"
    train(found)
    return found


def evaluate(capsys, *arguments):
    assert cli.main(["evaluate", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_one_entry_for_each_budget_and_seed_with_returns_on_common_starts(folder, capsys):
    rows = evaluate(capsys, folder, "--episodes", 32)
    assert [(row["epsilon"], row["seed"]) for row in rows] == [("1", 0), ("1", 1), ("2:inf", 0), ("2:inf", 1)]
    loaded = population.load(folder)
    scores = np.asarray(population.scores(loaded.program, loaded.teams, loaded.scale, 32))
    for row, returns in zip(rows, scores, strict=True):
        assert row["return_mean"] == pytest.approx(returns.mean(), abs=1e-5)
        assert row["return_iqm"] == pytest.approx(np.sort(returns)[8:24].mean(), abs=1e-5)
        low, high = row["return_ci95"]
        assert high - low == pytest.approx(2 * 1.96 * returns.std(ddof=1) / np.sqrt(32), rel=1e-4)
        assert (row["reward_unit"], row["episodes"], row["step"]) == ("team: share of right answers", 32, 200)


def test_a_team_is_evaluated_at_another_budget_than_it_was_trained_at(folder, capsys):
    before = contents(folder)
    own = evaluate(capsys, folder, "--episodes", 32)
    same = evaluate(capsys, folder, "--episodes", 32, "--epsilon", 1)
    assert [row["trained_epsilon"] for row in same] == ["1", "1", "2:inf", "2:inf"]
    assert {row["epsilon"] for row in same} == {"1"}
    assert [row["return_mean"] for row in same[:2]] == [row["return_mean"] for row in own[:2]]
    free = evaluate(capsys, folder, "--episodes", 32, "--epsilon", "inf", "0.01", "--unit", "message")
    assert len(free) == 8
    assert free[0]["noise"] == [0, 0]
    assert free[4]["noise"][0] == pytest.approx(172.6, rel=1e-3)  # 345.1 · C for one message
    assert contents(folder) == before


def test_table_shows_the_middle_of_the_seeds(folder, capsys):
    assert cli.main(["evaluate", str(folder), "--episodes", "16"]) == 0
    told = capsys.readouterr().out
    assert told.count("IQM") == 2
    assert "16 episodes on common starts" in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--episodes", "1"], "from 2"),
        (["--epsilon", "1:2:3"], "names 3 agents"),
        (["--epsilon", "-1"], "between 1e-6 and 1e6"),
        (["--epsilon", "1", "--delta", "1"], "delta"),
        (["--unit", "message"], "--unit describes --epsilon"),
        (["--all-secrets"], "no secrets that can be set"),
        (["--agents", "3"], "share their parameters"),
    ],
)
def test_bad_input_gets_one_clear_line(folder, arguments, says, capsys):
    assert cli.main(["evaluate", str(folder), *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1


def test_a_folder_without_a_run_or_a_checkpoint_is_refused(tmp_path, capsys):
    assert cli.main(["evaluate", str(tmp_path / "nothing")]) == 2
    assert "does not exist" in capsys.readouterr().err
    population.create(tmp_path / "run", CONFIG)
    assert cli.main(["evaluate", str(tmp_path / "run")]) == 2
    assert "no checkpoint yet" in capsys.readouterr().err
