"""Every command and every line of Python that the README shows is run; the `make` lines are what runs this."""

import re

import pytest
from pages import ROOT, blocks, run_console

from dpmac import privacy

README = (ROOT / "README.md").read_text()
CONSOLE = [block for block in blocks(README) if block.language == "console"]


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.text.splitlines()[0])
@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.large)], ids=["small", "as written"])
def test_the_commands_work_and_print_what_is_shown(block, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_console(block, small, [])


def test_the_python_is_right():
    (block,) = (block for block in blocks(README) if block.language == "python")
    names: dict = {}
    lines = block.text.strip().splitlines()
    exec("\n".join(lines[:-1]), names)
    assert names["sigma"] == pytest.approx(15.93, abs=0.005)
    assert eval(lines[-1].split("#")[0], names) == pytest.approx(1.0, abs=1e-4)


def test_what_an_eavesdropper_tells_is_compared_with_what_the_same_unit_allows():
    """An episode's messages with an episode's budget, and the number is that of the accountant."""
    allowed = 100 * privacy.private_accuracy(1.0, 1e-4, 3)
    (sentence,) = re.findall(r"A budget of ε = 1 for the whole episode[^.]*\.\d[^.]*\.", README.replace("\n", " "))
    assert f"{allowed:.1f} %" in sentence


def test_it_is_short_and_shows_a_result_early():
    lines = README.splitlines()
    assert len(lines) < 100
    assert any("exact_epsilon" in line for line in lines[:15])
