"""`dpmac bench env`."""

import json

import pytest

from dpmac import cli

QUICK = ["--rounds", "2", "--seconds", "0.01"]


def test_speed_is_reported_for_each_number_of_episodes_beside_an_installed_peer(capsys):
    assert cli.main(["bench", "env", "--episodes", "1", "2", "--peers", "mpe2", *QUICK, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["episodes"], row["name"]) for row in rows] == [(1, "dpmac"), (1, "mpe2"), (2, "dpmac"), (2, "mpe2")]
    for row in rows:
        assert row["steps_per_second"] > 0
        assert row["compile_seconds"] >= 0
        assert row["ratio"] == 1 if row["name"] == "dpmac" else row["ratio"] > 1


def test_any_task_can_be_timed_alone(capsys):
    assert cli.main(["bench", "env", "--task", "probe-listen", "--episodes", "2", *QUICK]) == 0
    assert "dpmac" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--task", "nope"], "allowed are cn"),
        (["--peers", "gym"], "jaxmarl, jaxmarl-step_env, vmas, mpe2"),
        (["--task", "pp", "--peers", "mpe2"], "simple_spread"),
        (["--episodes", "0"], "from 1"),
        (["--rounds", "0"], "at least 1"),
        (["--seconds", "0"], "above 0"),
    ],
)
def test_bad_input_exits_with_two(arguments, says, capsys):
    assert cli.main(["bench", "env", *arguments]) == 2
    assert says in capsys.readouterr().err
