"""`dpmac bench env`."""

import json

import jax
import numpy as np
import pytest
from scipy.stats import chisquare

from dpmac import cli
from dpmac.cli.bench_env import random_actions

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
        (["--peers", "gym"], "jaxmarl, vmas, mpe2"),
        (["--task", "pp", "--peers", "mpe2"], "simple_spread"),
        (["--episodes", "0"], "from 1"),
        (["--rounds", "0"], "at least 1"),
        (["--seconds", "0"], "above 0"),
    ],
)
def test_bad_input_exits_with_two(arguments, says, capsys):
    assert cli.main(["bench", "env", *arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(("agents", "actions"), [(3, 5), (20, 5), (2, 2), (3, 64)])
def test_random_actions_are_uniform_for_every_agent(agents, actions):
    chosen = np.asarray(random_actions(jax.random.key(0), (10, 2000, agents), actions))
    assert chosen.shape == (10, 2000, agents)
    for column in chosen.reshape(-1, agents).T:
        assert chisquare(np.bincount(column, minlength=actions)).pvalue > 1e-4
