"""What `dpmac` has at its top level."""

import dataclasses
import json
import subprocess
import sys

import pytest
from tiny import CONFIG

import dpmac
from dpmac import cli
from dpmac.config import BadInput
from dpmac.runner import population

HEAVY = {"jax", "numpy", "scipy", "matplotlib", "equinox"}


def test_importing_the_package_imports_neither_jax_nor_matplotlib():
    program = "import sys, dpmac; dpmac.RunConfig('ccn'); print(*sorted(m.partition('.')[0] for m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not HEAVY & set(loaded.split())


def test_privacy_and_games_need_no_jax():
    program = "import sys, dpmac; dpmac.privacy.epsilon; dpmac.games.GameError; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {"jax", "matplotlib"} & set(loaded.split())


def test_everything_that_is_promised_is_there():
    for name in dpmac.__all__:
        assert getattr(dpmac, name) is not None
        assert name in dir(dpmac)
    assert dpmac.tasks.make("probe-listen").agents == 2
    with pytest.raises(AttributeError, match="nonsense"):
        _ = dpmac.nonsense  # pyright: ignore[reportAttributeAccessIssue]


class Enough(Exception):
    """Stops training from outside."""


def test_a_run_is_trained_resumed_loaded_and_evaluated_as_by_the_commands(tmp_path, capsys):
    out, seen = tmp_path / "run", []

    def stop(piece):
        seen.append(piece.step)
        raise Enough

    with pytest.raises(Enough) as stopped:
        dpmac.train(CONFIG, out, stop)
    assert stopped.tb is not None  # its frames are still there, as in a notebook; the folder is free all the same
    assert population.load(out).step == seen[0]
    loaded = dpmac.train(CONFIG, str(out), lambda piece: seen.append(piece.step))
    assert loaded.step == seen[-1] == 200
    assert len(seen) > 2
    assert len(loaded.runs) == len(CONFIG.budgets) * len(CONFIG.seeds)

    again = []
    assert dpmac.train(CONFIG, out, again.append).step == 200
    assert again == []  # nothing was left to do

    assert cli.main(["evaluate", str(out), "--episodes", "8", "--epsilon", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert dpmac.evaluate(out, episodes=8, epsilon=2) == printed
    assert dpmac.evaluate(out, episodes=8, epsilon=["2"]) == printed


def test_a_folder_that_holds_another_run_is_refused(tmp_path):
    population.create(tmp_path / "run", CONFIG)
    with pytest.raises(BadInput, match="holds another run"):
        dpmac.train(dataclasses.replace(CONFIG, seeds=(7,)), tmp_path / "run")


def test_bad_arguments_of_evaluate_say_what_is_allowed(tmp_path):
    with pytest.raises(BadInput, match="folder of a run"):
        dpmac.evaluate(tmp_path)
