"""Tasks by name, their options, and what a user gets wrong."""

import sys

import pytest

from dpmac import plugins, tasks
from dpmac.config import BadInput
from dpmac.tasks import base

OWN = """
import dataclasses
from dpmac.tasks.cn import CN

@dataclasses.dataclass(frozen=True)
class Wide(CN):
    agents: int = 4
"""


@pytest.mark.parametrize("name", tasks.names())
def test_every_task_is_hashable_and_equal_to_its_twin(name):
    assert hash(tasks.make(name)) == hash(tasks.make(name))
    assert tasks.make(name) == tasks.make(name)
    assert tasks.make(name).name == name


def test_options_may_be_text():
    assert tasks.make("cn", agents="5", view_radius="inf", convention="mpe2").agents == 5
    assert tasks.make("cn", view_radius="0.5") == tasks.make("cn", view_radius=0.5)
    assert tasks.make("probe-listen", fresh="true") != tasks.make("probe-listen")


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("nope", {}, "allowed are cn, ccn, pp"),
        ("no.such.module:Task", {}, "cannot be loaded"),
        ("..cn:CN", {}, "cannot be loaded"),
        ("dpmac.tasks.cn:RADIUS", {}, "is not a dataclass"),
        ("cn", {"agents": 0}, "from 1 to 256, not 0"),
        ("cn", {"agents": "2.5"}, "whole number"),
        ("cn", {"agents": True}, "whole number"),
        ("cn", {"landmarks": 0}, "from 1 to 256"),
        ("cn", {"view_radius": -1.0}, "above 0"),
        ("cn", {"view_radius": "nan"}, "above 0"),
        ("ccn", {"view_radius": "wide"}, "number or inf"),
        ("ccn", {"convention": "gym"}, "openai, mpe2"),
        ("ccn", {"agents": 3}, "allowed are convention, view_radius, order, horizon"),
        ("pp", {"reward": "all"}, "preys, predators"),
        ("pp", {"horizon": 0}, "from 1 to"),
        ("probe-listen", {"fresh": "maybe"}, "true or false"),
        ("probe-neighbour", {"agents": 2}, "from 3"),
        ("probe-partner", {"agents": 5}, "even number, not 5"),
    ],
)
def test_bad_input_says_what_is_allowed(name, options, says):
    with pytest.raises(BadInput, match=says):
        tasks.make(name, **options)


def test_a_constructor_checks_too():
    from dpmac.tasks.cn import CN

    with pytest.raises(BadInput, match="view_radius"):
        CN(view_radius=0)


def test_settings_are_pairs():
    with pytest.raises(BadInput, match="KEY=VALUE"):
        plugins.settings(["agents"])


def test_own_task_joins_from_outside(tmp_path, monkeypatch):
    (tmp_path / "own_task.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])  # as under an installed command
    assert tasks.make("own_task:Wide", landmarks="2").agents == 4
    monkeypatch.setattr(base, "REGISTRY", dict(tasks.REGISTRY))
    tasks.register("wide", "own_task:Wide")
    assert "wide" in tasks.names()
    assert tasks.make("wide").agents == 4
    with pytest.raises(BadInput, match="exists already"):
        tasks.register("cn", "own_task:Wide")
