"""What docs/extend.md shows works from outside the package."""

import inspect
import sys

import imageio.v3
import pytest

from dpmac.agents import commnet
from dpmac.agents.protocol import Protocol
from dpmac.privacy import ledger
from dpmac.results import store
from dpmac.runner import population
from pages import DOCS, blocks, play

PAGE = (DOCS / "extend.md").read_text()
FILES = {block.title: block.text for block in blocks(PAGE) if block.title}


def test_the_page_shows_the_built_in_file_and_it_is_short():
    assert FILES["own.py"] == inspect.getsource(commnet)
    assert len(FILES["own.py"].splitlines()) < 40


def test_the_page_names_everything_that_a_protocol_may_have():
    own = {name for name in vars(Protocol) if not name.startswith("_")}
    for name in own - {"AbstractMethodError"}:
        assert f"`{name}" in PAGE, name


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A folder of a user, as an installed command sees it, after everything on the page was done in it."""
    folder = tmp_path_factory.mktemp("outside")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [part for part in sys.path if part])
        play(PAGE)
        yield folder
    for file in FILES:
        sys.modules.pop(file.removesuffix(".py"), None)


def test_a_protocol_outside_the_package_trains_resumes_and_is_filmed(outside):
    run = outside / "runs/own"
    claims = store.read_json(run / "privacy.json")["claims"]
    assert [entry["valid"] for entries in claims.values() for entry in entries] == [True] * 4
    loaded = population.load(run)
    assert type(loaded.teams.members.protocol).__module__ == "own"
    assert len(imageio.v3.imread(outside / "own.gif")) > 2

    again = outside / "runs/again"
    population.create(again, loaded.config)
    stopped = population.train_folder(again)
    next(stopped)
    stopped.close()  # type: ignore[attr-defined]
    for _ in population.train_folder(again):
        pass
    assert (again / "metrics.csv").read_bytes() == (run / "metrics.csv").read_bytes()


def test_a_task_outside_the_package_says_who_observes_what(outside):
    run = outside / "runs/harbour"
    assert type(population.load(run).program.task).__module__ == "harbour"
    assert store.read_json(run / "privacy.json")["observers"] == {"wish": "Each ship alone observes its own wish."}


def test_environments_of_pettingzoo_leave_runs_like_all_others(outside):
    assert store.read_json(outside / "runs/pursuit/privacy.json")["length"].startswith("padded")
    assert ledger.verify(outside / "runs/reference/ledger.json").book.place.entries > 1
    assert len(imageio.v3.imread(outside / "pursuit.gif")) == 20
