"""Every command and every line of Python that the README shows is run; the `make` lines are what runs this."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from dpmac import cli

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def output_of(command: str) -> str:
    program, *arguments = command.split()
    assert program == "dpmac", command
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert cli.main(arguments) == 0, command
    return text.getvalue()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_the_commands_work_and_print_what_is_shown(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = ""
    for line in block.splitlines():
        if line.startswith("$ "):
            shown = output_of(line[2:])
        else:
            assert line in shown.splitlines(), f"the README shows {line!r}, the command printed\n{shown}"


def test_the_python_is_right():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict = {}
    lines = code.strip().splitlines()
    exec("\n".join(lines[:-1]), names)
    assert names["sigma"] == pytest.approx(15.93, abs=0.005)
    assert eval(lines[-1].split("#")[0], names) == pytest.approx(1.0, abs=1e-4)


def test_it_is_short_and_shows_a_result_early():
    lines = README.splitlines()
    assert len(lines) < 100
    assert any("exact_epsilon" in line for line in lines[:15])


def test_its_links_lead_somewhere():
    root = Path(__file__).parent.parent
    for target in re.findall(r"\]\((docs/[^)]+)\)", README):
        assert (root / target).exists(), target
