"""Every command of the design, as a user types it there, one after the other in one folder."""

import json
import shlex

import pytest
from pages import made_small

from dpmac import cli
from dpmac.experiments import FIGURES

BUDGET = "--delta 1e-4 --unit episode --horizon 25 --copies 1 --clip-norm 0.5"
LINES: list[tuple[str, str]] = [
    ("tasks", "name agents horizon reward_unit random scripted"),
    (
        "train ccn --method dpmac --epsilon 1 3 inf --unit episode --accountant exact --seeds 5 --steps 1000000 "
        "--out runs/ccn",
        "",
    ),
    ("config ccn", "task method learner budgets channel training"),
    ("resume runs/ccn", ""),
    ("evaluate runs/ccn", "return_mean return_ci95 return_iqm reward_unit episodes epsilon seed"),
    ("plot runs/ccn --out curves.png", "picture"),
    ("watch runs/ccn --out ccn.gif", ""),
    (f"privacy calibrate --epsilon 1 {BUDGET}", "sigma epsilon delta unit accountant valid exact_epsilon"),
    (f"privacy account --sigma 0.66 {BUDGET}", "epsilon"),
    ("privacy audit runs/ccn", "claimed_epsilon lower_bound confidence episodes verdict"),
    ("games binary-sums", ""),
    ("games cgp", ""),
    ("games rounds", ""),
    ("reproduce all --scale smoke --out results/", ""),
    ("report results/ --out report.html", ""),
    ("report runs/ccn --out run.html", "page runs"),
    ("bench env", ""),
    ("bench train", ""),
    ("frontier ccn", ""),
    ("doctor", ""),
]
"""Commands, and what their JSON must hold."""
FILES = {
    "train": "runs/ccn/config.json",
    "plot": "curves.png",
    "watch": "ccn.gif",
    "reproduce": "results/runs",
    "report": "report.html",
    "frontier": "frontiers/ccn/frontier.svg",
}


def said(line: str, small: bool, capsys) -> dict:
    """What a command prints as JSON; of a list its first entry."""
    words = shlex.split(line)
    assert cli.main([*(made_small(words) if small else words), "--json"]) == 0, f"{line}\n{capsys.readouterr().err}"
    told = json.loads(capsys.readouterr().out)
    return told[0] if isinstance(told, list) else told


@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.large)], ids=["small", "as written"])
def test_all_commands_work_one_after_the_other(small, tmp_path, monkeypatch, capsys):
    """As they are written but for sizes; where they are played in full, only training a million steps is not."""
    monkeypatch.chdir(tmp_path)
    long = ("train", "frontier", "bench")
    for line, keys in LINES:
        if small and line == "doctor":  # which has a test of its own
            continue
        told = said(line, small or line.startswith(long), capsys)
        assert told.keys() >= set(keys.split()), line
        file = FILES.get(line.split()[0])
        assert file is None or (tmp_path / file).exists(), line


def test_every_figure_has_the_name_that_reproduce_takes(tmp_path, capsys):
    names = "nonprivate step-0.1 step-1.0 step-dpmac tarmac i2c episode-0.1 episode-1.0 episode-dpmac"
    assert set(names.split()) <= set(FIGURES)
    line = ["reproduce", *names.split(), "--scale", "smoke", "--out", str(tmp_path), "--time-limit", "1e-9", "--json"]
    assert cli.main(line) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] > 0
    assert told["finished"] == 0
