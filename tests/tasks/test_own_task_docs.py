"""What docs/own-task.md shows works from outside the package."""

import imageio.v3
import pytest
from pages import DOCS, blocks, played

from dpmac.privacy import ledger
from dpmac.results import store
from dpmac.runner import population
from dpmac.tasks import Abilities

PAGE = (DOCS / "own-task.md").read_text()


def test_the_page_names_everything_that_a_task_may_have_and_its_task_is_short():
    for name in Abilities._fields:
        assert f"`{name}" in PAGE, name
    (harbour,) = (block.text for block in blocks(PAGE) if block.title == "harbour.py")
    assert len(harbour.splitlines()) <= 42


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    with played(PAGE, tmp_path_factory.mktemp("outside")) as folder:
        yield folder


def test_a_task_outside_the_package_says_who_observes_what(outside):
    run = outside / "runs/harbour"
    assert type(population.load(run).program.task).__module__ == "harbour"
    assert store.read_json(run / "privacy.json")["observers"] == {"wish": "Each ship alone observes its own wish."}


def test_environments_of_pettingzoo_leave_runs_like_all_others(outside):
    assert store.read_json(outside / "runs/pursuit/privacy.json")["length"].startswith("padded")
    assert ledger.verify(outside / "runs/reference/ledger.json").book.place.entries > 1
    assert len(imageio.v3.imread(outside / "pursuit.gif")) == 20


def test_an_environment_of_jaxmarl_leaves_a_run_like_all_others(outside):
    said = store.read_json(outside / "runs/goals/privacy.json")
    assert said["length"].startswith("padded")
    assert "8 to 10" in said["observers"]["goal"]
