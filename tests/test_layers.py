"""Imports between layers point one way."""

import ast
import re
from pathlib import Path

import pytest

import dpmac
from dpmac.learner import base as learners
from dpmac.privacy import mechanisms

SOURCE = Path(dpmac.__file__).parent

ALLOWED = {
    "config": set(),
    "plugins": {"config"},
    "games": set(),
    "experiments": {"config"},
    "frontiers": {"config", "experiments"},
    "tasks": {"config", "plugins"},
    "agents": {"config", "plugins", "privacy"},
    "privacy": {"config", "plugins"},
    "results": {"config"},
    "learner": {"config", "plugins", "tasks", "agents", "privacy"},
    "runner": {"config", "plugins", "tasks", "agents", "learner", "experiments", "frontiers", "privacy", "results"},
    "deploy": {"config", "tasks", "agents", "learner", "privacy", "results", "runner"},
    "analysis": {"config", "tasks", "agents", "learner", "experiments", "frontiers", "privacy", "results", "runner"},
    "figures": {"config", "results", "experiments", "privacy", "games"},
}


def imports_of(file: Path) -> set[str]:
    """Our layers that a file imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            assert node.level == 0, f"{file}: imports are absolute"
        found |= {name.split(".")[1] for name in names if name.startswith("dpmac.")}
    return found & {*ALLOWED, "cli"}


def test_imports_point_one_way():
    for layer, allowed in ALLOWED.items():
        path = SOURCE / layer
        files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        for file in files:
            if file.exists():
                forbidden = imports_of(file) - allowed - {layer}
                assert not forbidden, f"{file.relative_to(SOURCE)} may not import {sorted(forbidden)}"


def test_the_documentation_shows_these_layers():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    table = page.split("| layer | may import, of ours |")[1].split("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    shown = {re.findall(r"`(\w+)`", layer)[0]: set(re.findall(r"`(\w+)`", allowed)) for layer, allowed in rows}
    assert shown == ALLOWED


def test_every_module_belongs_to_a_layer():
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__", "__main__", "cli"} <= set(ALLOWED)


def test_privacy_and_games_never_import_jax():
    for layer in ("privacy", "games", "config"):
        path = SOURCE / layer
        for file in path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]:
            assert "import jax" not in file.read_text(), file


def test_only_figures_draw():
    """Whoever draws is in `figures`; `cli` may name its types. Films are arrays and need no plots."""
    drawing = re.compile(r"^\s*(import|from) matplotlib\b", re.MULTILINE)
    found = {file.relative_to(SOURCE).parts[0] for file in SOURCE.rglob("*.py") if drawing.search(file.read_text())}
    assert found <= {"figures", "cli"}
    assert "figures" in found


def test_no_module_is_a_drawer_for_everything():
    drawers = {"utils", "common", "helpers", "types"}
    assert not [path for path in SOURCE.rglob("*.py") if path.stem in drawers]


HOMES_OF_LEARNERS = [SOURCE / name for name in ("config.py", "frontiers.py", "analysis/demo.py")]


def test_no_concrete_learner_is_named_outside_its_room():
    """The default and how version 0.1 is read stand in `config`, recipes in `frontiers` and `analysis/demo.py`;
    everything else asks the registry."""
    room = SOURCE / "learner"
    names = {path.stem for path in room.glob("*.py")} - {"__init__", "base", "private", "replay", "rollout"}
    assert names >= {"maddpg"}
    classes = {learners.find(name).__name__ for name in learners.BUILT_IN}
    for file in SOURCE.rglob("*.py"):
        if room in file.parents or file in HOMES_OF_LEARNERS:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            said = node.value if isinstance(node, ast.Constant) else getattr(node, "id", getattr(node, "attr", None))
            assert said not in names | classes, f"{file.relative_to(SOURCE)} names {said}"


NAMES = "|".join(mechanisms.names())
NAMED = re.compile(rf"""(["'`])({NAMES})\1|\bmechanism\s*(===?|!==?|in)\s""")
"""A mechanism's name as a whole string, or a comparison with one."""
HOMES = ("privacy/mechanisms/", "agents/mechanisms/", "frontiers.py", "experiments.py")
"""Where mechanisms live, and the recorded experiments."""
DEFAULT = '    mechanism: str = "gaussian"'
"""Of `config.Channel`."""


def test_no_mechanism_is_named_outside_its_home():
    """Whatever depends on which mechanism it is, is a method of it."""
    files = [file for ending in ("py", "js", "html") for file in SOURCE.rglob(f"*.{ending}")]
    found = [
        f"{name}: {line.strip()}"
        for file in files
        if not (name := file.relative_to(SOURCE).as_posix()).startswith(HOMES)
        for line in file.read_text().splitlines()
        if NAMED.search(line) and not (name == "config.py" and line == DEFAULT)
    ]
    assert len(files) > 100
    assert found == []


@pytest.mark.parametrize("line", ["if x.mechanism == y:", "kind = 'response'", 'f("code")', "a.mechanism !== 'b'"])
def test_a_named_mechanism_would_be_found(line):
    assert NAMED.search(line)
