"""Pages of documentation as programs: every block of code in them is run, in order, in one folder."""

import contextlib
import doctest
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tiny import dpmac

from dpmac import cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
DATA = {"json", "text", "csv"}
"""Languages of blocks that show something and cannot be run."""
OTHERS = ("make", "pip", "git")
"""Commands of others, which tests do not run."""

TINY = {"hidden": 8, "message-hidden": 8, "message-size": 4, "batch": 4, "evaluations": 2, "evaluation-episodes": 2}
SMALL: dict[str, dict[str, Any]] = {
    "train": {**TINY, "steps": 800, "seeds": 1},
    "evaluate": {"episodes": 8},
    "watch": {"size": 64},
    "tasks": {"episodes": 20},
    "privacy audit": {"episodes": 200, "deployed-episodes": 60},
    "privacy eavesdrop": {"episodes": 512, "deployed-episodes": 256},
    "reproduce": {"scale": "smoke", "tasks": "ccn", "methods": "tarmac", "seeds": 1},
    "sweep": {"scale": "smoke", "seeds": 1, "steps": 400, "grid": "learning_rate=3e-4,7e-4"},
    "bench env": {"episodes": 1, "rounds": 1, "seconds": 0.01, "peers": "none"},
    "bench train": {"tasks": "ccn", "populations": 1, "iterations": 1, "repeats": 1},
    "deploy world": {"episodes": 1},
    "frontier": {"scale": "smoke", "epsilon": 3, "seeds": 1, "lines": "response-once"},
}
"""What makes a command of the documentation small enough for a test."""


class Block(NamedTuple):
    """A fenced block: its language, the file that it is (if it is one), and its text."""

    language: str
    title: str
    text: str


@contextlib.contextmanager
def played(page: str, folder: Path) -> Iterator[Path]:
    """A folder of a user, as an installed command sees it, after everything on a page was done in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [part for part in sys.path if part])
        play(page)
        yield folder
    for block in blocks(page):
        sys.modules.pop(block.title.removesuffix(".py"), None)


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page."""
    return [Block(*found) for found in FENCE.findall(page)]


def made_small(words: list[str]) -> list[str]:
    """A command with its sizes replaced, or added, by those of `SMALL`."""
    name = next((name for name in SMALL if words[: len(name.split())] == name.split()), "")
    for option, value in SMALL.get(name, {}).items():
        flag = f"--{option}"
        if flag in words and "--learner" in words and option == "steps":
            value = 8000  # of as many fresh episodes as the page says
        elif option == "batch" and "--learner" in words:
            continue  # a setting of the default learner
        elif option == "message-size" and "--mechanism" in words and "gaussian" not in words:
            continue  # symbols have none
        if flag in words:
            first = words.index(flag) + 1
            last = next((i for i in range(first, len(words)) if words[i].startswith("--")), len(words))
            words = [*words[:first], str(value), *words[last:]]
        else:
            words = [*words, flag, str(value)]
    return words


def output_of(command: str, small: bool) -> str:
    """What a command prints; it must succeed."""
    program, *words = shlex.split(command)
    assert program == "dpmac", command
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert cli.main(made_small(words) if small else words) == 0, command
    return text.getvalue()


def run_console(block: Block, small: bool, running: list[subprocess.Popen]) -> None:
    """Run the lines that begin with a prompt. What stands below one is what it prints, without gaps but for `...`.

    A line that ends with & is a process of its own, and is stopped at the end of the page.
    """
    printed: list[str] = []
    gap = True
    for line in block.text.splitlines():
        if line == "...":
            gap = True
        elif line.startswith("$ dpmac ") and line.endswith(" &"):
            running.append(dpmac(*shlex.split(line)[2:-1]))
        elif not line.startswith("$ "):
            assert line in printed, f"the page shows {line!r}, the command printed on\n" + "\n".join(printed)
            where = printed.index(line)
            assert gap or where == 0, f"the page leaves out what stands before {line!r}, without a line of ..."
            printed, gap = printed[where + 1 :], False
        elif line.split()[1] not in OTHERS:
            printed, gap = output_of(line[2:], small).splitlines(), False


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run statements, or an interactive session whose answers must be right; a file is only written."""
    if block.title:
        Path(block.title).write_text(block.text)
    elif block.text.startswith(">>>"):
        session = doctest.DocTestParser().get_doctest(block.text, names, "page", None, None)
        session.globs = names
        told = io.StringIO()
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(session, out=told.write, clear_globs=False)
        assert not told.getvalue(), told.getvalue()
    else:
        exec(compile(block.text, "<page>", "exec"), names)


def play(page: str, small: bool = True) -> dict[str, Any]:
    """Run all blocks of a page in the working directory; the names that its Python has defined."""
    names: dict[str, Any] = {"__name__": "page"}
    running: list[subprocess.Popen] = []
    try:
        for block in blocks(page):
            if block.language == "console":
                run_console(block, small, running)
            elif block.language == "python":
                run_python(block, names)
            elif block.language == "toml" and block.title:
                Path(block.title).write_text(block.text)
            else:
                assert block.language in DATA, f"a block of language {block.language!r} cannot be run"
        failed = [process.stderr.read() for process in running if process.poll() is not None and process.stderr]
        assert not failed, failed
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return names
