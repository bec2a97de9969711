"""The wheel: built without a network, and what it holds works where nothing else of the project is."""

import importlib.metadata
import json
import os
import subprocess
import sys
import zipfile

import pytest
from pages import ROOT

import dpmac


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder into which the built file was installed."""
    if int(importlib.metadata.version("setuptools").split(".")[0]) < 77:
        assert "CI" not in os.environ, "continuous integration must build the wheel: install setuptools 77 or newer"
        pytest.skip("setuptools 77 or newer is not installed")
    home = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    build = [*pip, "wheel", "--no-build-isolation", *offline, "--wheel-dir", home / "built", "."]
    sources = tmp_path_factory.mktemp("sources")
    subprocess.run(
        ["cp", "-r", *(ROOT / name for name in ("src", "pyproject.toml", "README.md", "LICENSE")), sources], check=True
    )
    subprocess.run(build, cwd=sources, check=True, capture_output=True, text=True)
    (wheel,) = (home / "built").iterdir()
    subprocess.run([*pip, "install", *offline, "--target", home / "there", wheel], check=True, capture_output=True)
    return wheel, home / "there"


def run(installed, *words):
    """What a fresh interpreter says that finds the installed package first, and not the sources."""
    environment = {**os.environ, "PYTHONPATH": str(installed[1])}
    told = subprocess.run([sys.executable, *words], cwd=installed[1], env=environment, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_the_wheel_has_its_version_its_licence_and_every_module(installed):
    wheel, _ = installed
    assert wheel.name == f"dpmac-{dpmac.__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert modules <= names
    assert {f"dpmac/figures/explorer.{kind}" for kind in ("css", "html", "js")} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith("tests") for name in names)


def test_the_installed_package_works(installed):
    said = run(installed, "-c", "import dpmac; print(dpmac.__file__, dpmac.__version__)").split()
    assert said == [str(installed[1] / "dpmac" / "__init__.py"), dpmac.__version__]
    told = json.loads(run(installed, "-m", "dpmac", "privacy", "calibrate", "--epsilon", "1", "--json"))
    assert told["valid"]
    assert told["sigma"] == pytest.approx(15.93, abs=0.01)
    assert "train a team" in run(installed, "-m", "dpmac", "--help")
