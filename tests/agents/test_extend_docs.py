"""What docs/extend.md shows works from outside the package."""

import inspect
import json
import re
import shlex
import sys
from pathlib import Path

import imageio.v3
import pytest

from dpmac.agents import commnet
from dpmac.agents.protocol import Protocol
from dpmac.cli import main
from dpmac.runner import population

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "extend.md").read_text()
TINY = "--steps 500 --batch 4 --hidden 8 --message-hidden 8 --message-size 4 --evaluations 5 --evaluation-episodes 2"


def block(language):
    """The first block of code in a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found.group(1)


def test_the_page_shows_the_built_in_file_and_it_is_short():
    assert block("python") == inspect.getsource(commnet)
    assert len(block("python").splitlines()) < 40


def test_the_page_names_everything_that_a_protocol_may_have():
    own = {name for name in vars(Protocol) if not name.startswith("_")}
    for name in own - {"AbstractMethodError"}:
        assert f"`{name}" in PAGE, name


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder of a user, as an installed command sees it."""
    (tmp_path / "own.py").write_text(block("python"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    yield tmp_path
    sys.modules.pop("own", None)


def test_a_copy_outside_the_package_does_all_that_the_page_says(outside, capsys):
    train, resume, evaluate, watch = (shlex.split(line)[1:] for line in block("sh").splitlines())
    train[train.index("--seeds") + 1] = "1"
    assert main([*train, *TINY.split(), "--json"]) == 0
    summary, run = json.loads(capsys.readouterr().out), outside / train[-1]
    assert [budget["valid"] for budget in summary["budgets"]] == [True, True]
    assert summary["budgets"][1]["exact_epsilon_episode"] == pytest.approx(1.0, rel=1e-4)
    loaded = population.load(run)
    assert type(loaded.networks.team.members.protocol).__module__ == "own"

    whole = run.rename(outside / "whole")
    population.create(run, loaded.config)
    stopped = population.train_folder(run)
    next(stopped)
    stopped.close()  # type: ignore[attr-defined]
    assert main([*resume, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == summary
    assert (run / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()

    assert main([*evaluate, "--episodes", "2", "--json"]) == 0
    assert [(row["epsilon"], row["episodes"]) for row in json.loads(capsys.readouterr().out)] == [("inf", 2), ("1", 2)]
    assert main([*watch, "--size", "64"]) == 0
    assert len(imageio.v3.imread(outside / watch[-1])) > 2


@pytest.mark.parametrize("name", ["extend.md", "methods.md"])
def test_pages_link_only_to_pages_that_exist(name):
    for link in re.findall(r"\]\(([^)#]+)", (DOCS / name).read_text()):
        assert (DOCS / link).exists()
