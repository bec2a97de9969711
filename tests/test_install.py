"""`pip install .` into an empty environment, without any extra: what the package needs is what it says it needs."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time

import made
import pytest
from pages import ROOT

from dpmac.experiments import Cell
from dpmac.results import records

pytestmark = pytest.mark.large


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """An environment with the package alone, made from a copy of its sources."""
    home = tmp_path_factory.mktemp("clean")
    (home / "project").mkdir()
    for name in ("src", "pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        place = ROOT / name
        copy = shutil.copytree if place.is_dir() else shutil.copy
        copy(place, home / "project" / name)
    subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
    install = [home / "venv/bin/pip", "install", "-q", "--constraint", "constraints.txt", "."]
    made = subprocess.run(install, cwd=home / "project", capture_output=True, text=True)
    if made.returncode and "No matching distribution" in made.stderr:
        pytest.skip("no package index can be reached")
    assert made.returncode == 0, made.stderr
    shutil.rmtree(home / "project")
    return home


def run(clean, *words):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    told = subprocess.run(
        [clean / "venv/bin" / words[0], *words[1:]], cwd=clean, env=kept, capture_output=True, text=True
    )
    assert told.returncode == 0, f"{words}\n{told.stderr}"
    return told.stdout


def test_commands_work_without_extras(clean):
    present = json.loads(run(clean, "pip", "list", "--format", "json"))
    assert not {"pettingzoo", "mpe2", "wandb", "tensorboardX", "pytest", "gymnasium"} & {
        item["name"] for item in present
    }
    assert "train a team" in run(clean, "dpmac", "--help")
    assert json.loads(run(clean, "dpmac", "privacy", "calibrate", "--epsilon", "1", "--json"))["valid"]
    assert {item["name"] for item in json.loads(run(clean, "dpmac", "tasks", "--json"))} >= {"cn", "ccn", "pp"}
    tiny = shlex.split("--steps 200 --hidden 8 --message-hidden 8 --batch 4 --evaluations 2 --evaluation-episodes 2")
    run(clean, "dpmac", "train", "ccn", *tiny, "--epsilon", "1", "--out", "run", "--quiet")
    run(clean, "dpmac", "evaluate", "run", "--episodes", "8")
    run(clean, "dpmac", "watch", "run", "--out", "film.gif", "--size", "64")


def test_the_report_finds_the_files_that_it_is_made_of(clean):
    results = made.results(lambda cell: -20.0, cells=[Cell("ccn", "dpmac")], evaluations=2, episodes=True)
    records.pack(results, clean / "results/all.json.gz")
    run(clean, "dpmac", "report", "results", "--out", "report.html")
    assert (clean / "report.html").stat().st_size > 10_000


def test_importing_it_is_quick(clean):
    def seconds(code):
        begun = time.monotonic()
        run(clean, "python", "-c", code)
        return time.monotonic() - begun

    bare = min(seconds("pass") for _ in range(5))
    assert min(seconds("import dpmac") for _ in range(5)) - bare < 0.3
