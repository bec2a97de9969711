"""The files around the code agree with it and with each other."""

import re
import tomllib
from importlib import metadata

import pytest
import yaml
from pages import ROOT

import dpmac

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = (ROOT / "constraints.txt").read_text().splitlines()


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == dpmac.__version__ == citation["version"]
    assert re.search(rf"^## {re.escape(dpmac.__version__)}", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert citation["license"] == PROJECT["license"] == "Apache-2.0"


def test_the_licence_is_there_in_full():
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "9. Accepting Warranty or Additional Liability." in text


def test_everything_that_is_installed_for_development_is_pinned_and_no_index_is_named():
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+-]+", pin) for pin in PINS)
    pinned = {normal(pin.split("==")[0]) for pin in PINS}
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["dev"], *extras["docs"], *extras["mpe2"]]
    names = {normal(re.split(r"[\[<>=!~ ]", item)[0]) for item in wanted} - {"dpmac"}
    assert names <= pinned


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    "pin", [pin for pin in PINS if pin.startswith(("jax", "numpy", "mkdocs", "tyro", "pettingzoo"))]
)
def test_tests_run_with_what_is_pinned(pin):
    name, version = pin.split("==")
    assert metadata.version(name) == version


def test_templates_and_hooks_can_be_read():
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert path.name == "config.yml" or {item["type"] for item in form["body"]} <= {"textarea", "markdown", "input"}
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    assert {hook["entry"].split()[0] for hook in local["hooks"]} == {
        ".venv/bin/ruff",
        ".venv/bin/pyright",
        ".venv/bin/pytest",
    }


def test_no_private_address_stands_in_the_project():
    for pattern in ("*.toml", "*.txt", "*.md", "*.yml", "*.yaml", "Makefile", ".ci/*", ".github/**/*.yml", "docs/*.md"):
        for path in ROOT.glob(pattern):
            text = path.read_text()
            assert "index-url" not in text, path
            assert "file://" not in text, path
