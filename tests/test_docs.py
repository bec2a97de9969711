"""The documentation: it builds, its links lead somewhere, and everything in it that can be run is run."""

import dataclasses
import re
import shlex
import sys

import numpy as np
import pytest
import tyro
from pages import DOCS, ROOT, blocks, play

from dpmac import config, experiments, privacy
from dpmac.agents import mechanisms
from dpmac.cli import completion, parse, reproduce

PAGES = sorted(DOCS.glob("*.md"))
OWN, LONG = {"extend", "own-task"}, {"reproduction", "frontier", "deploy"}
"""Pages that another test plays, and looks closer; pages whose commands take their time even when they are small."""
PLAYED = [
    pytest.param(page, marks=pytest.mark.large if page.stem in LONG else (), id=page.stem)
    for page in PAGES
    if page.stem not in OWN and blocks(page.read_text())
]


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder of a user, as an installed command sees it."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.parametrize("page", PLAYED)
def test_every_block_of_code_runs(page, outside):
    play(page.read_text())


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_every_command_in_a_sentence_can_be_parsed(page):
    commands = completion.described()
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for found in re.findall(r"`dpmac ([a-z][^`]*)`", text):
        words = shlex.split(found)
        name = next((name for name in commands if words[: len(name.split())] == name.split()), None)
        assert name is not None or words[0] in completion.groups_of(commands), found
        given = words[len(name.split()) :] if name else []
        if name and any(word.startswith("-") for word in given):
            fields = {field.name for field in dataclasses.fields(commands[name].options)}
            needs_out = "out" in fields and "--out" not in given
            out = ["--out", "somewhere.html"] if needs_out else []
            tyro.cli(commands[name].options, args=[*given, *out], config=(tyro.conf.FlagCreatePairsOff,))


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.stem)
def test_links_and_pictures_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert "://" not in link, f"{link}: nothing is loaded from elsewhere"
        assert (page.parent / link).exists(), link


def test_the_paper_s_figure_on_the_page_for_newcomers_is_that_of_the_results():
    picture = (DOCS / "pictures" / "paper-step-1.png").read_bytes()
    assert picture == (ROOT / "results" / "figures" / "step-1.0.png").read_bytes()


def test_every_page_is_in_the_navigation():
    nav = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(nav) == sorted(page.name for page in PAGES)


def test_every_test_that_the_proofs_name_exists():
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "privacy-proofs.md").read_text()))
    written = {
        found
        for path in (ROOT / "tests").rglob("test_*.py")
        for found in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(named) > 30
    assert named <= written, named - written


@pytest.mark.parametrize("name", privacy.mechanisms.names())
def test_every_mechanism_has_a_class_a_price_and_a_twin_for_deployment(name, tmp_path):
    """What the page on extensions asks of a new one."""
    spec = config.Channel(mechanism=name)
    noise = privacy.calibrate(spec, 1.0, 1e-4, horizon=3)
    assert privacy.epsilon(privacy.Release(spec, noise, horizon=3), 1e-4) == pytest.approx(1.0, rel=1e-3)
    size = mechanisms.mechanism(spec, 8).size
    ledger = privacy.Ledger(tmp_path / "ledger.json", [1.0], 1e-4, create=True)
    measurement = privacy.Measurement(ledger, 0, privacy.Release(spec, noise, horizon=3), size)
    measurement.begin()
    assert measurement.release(0, np.arange(size)).copies.shape == (1, size)  # type: ignore[union-attr]


def test_the_commands_of_a_full_reproduction_plan_as_many_runs_as_the_page_says():
    page, new, planned = (DOCS / "reproduction.md").read_text(), [], set()
    for line in re.findall(r"^    dpmac reproduce (.*)$", page, re.MULTILINE):
        wanted = reproduce.wanted_of(parse(reproduce.Reproduce, shlex.split(line), "dpmac reproduce", ""))
        names = {run for name, config in wanted.items() for run in experiments.run_names(name, config).values()}
        new.append(len(names - planned))
        planned |= names
    assert "They train {}, {}, {} and {} runs".format(*new) in page
