"""Bad input, by the thousand: one clear message, exit code 2, and nothing is written."""

import copy
import json
import os
import random

import pytest
from lines import bad_lines, single_lines

from dpmac import cli
from dpmac.config import BadInput, RunConfig, dumps, from_json, to_json
from dpmac.runner import population
from dpmac.runner.train import Program

SIZES = [pytest.param(150, 1, id="150"), pytest.param(2500, 2, id="2500", marks=pytest.mark.large)]


@pytest.mark.parametrize(("count", "seed"), [*SIZES, pytest.param(None, 0, id="each", marks=pytest.mark.large)])
def test_command_lines_that_cannot_be_right_are_refused(count, seed, tmp_path, monkeypatch, capfd, record_property):
    """By chance, several wrong things in a line; and each wrong thing alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPMAC_DEBUG", raising=False)
    given = list(bad_lines(count, seed) if count else single_lines())
    for number, line in enumerate(given):
        code = cli.main(line)
        out, error = capfd.readouterr()
        told = f"line {number}: {line}\n{out}{error}"
        assert code == 2, told
        assert "Traceback" not in out + error, told
        assert error.strip(), told
        assert len(error) < 20_000, told
        assert not os.listdir(tmp_path), told
    record_property("counted", f"{len(given)} bad command lines refused, nothing written")


LEAVES = [
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    -(10**30),
    "",
    "x",
    "inf",
    "nan",
    [],
    [[]],
    {},
    {"a": 1},
    "a" * 5000,
    "\u202e",
]


def damaged(data, chance: random.Random):
    """A configuration's data with something in it replaced, dropped or added."""
    data = copy.deepcopy(data)
    place = data
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        inner = place[key]
        if not (isinstance(inner, (dict, list)) and inner) or chance.random() < 0.2:
            break
        place = inner
    kind = chance.random()
    if kind < 0.7:
        place[key] = chance.choice(LEAVES)
    elif kind < 0.85:
        del place[key]
    elif isinstance(place, dict):
        place[chance.choice(["bogus", "", "__class__", "task "])] = chance.choice(LEAVES)
    else:
        place.insert(0, chance.choice(LEAVES))
    return data


@pytest.mark.parametrize(("count", "seed"), SIZES)
def test_damaged_configurations_are_refused_or_mean_what_they_say(count, seed, record_property):
    chance, right = random.Random(seed), to_json(RunConfig("probe-listen"))
    refused = 0
    for _ in range(count):
        data = json.loads(json.dumps(damaged(right, chance)))
        try:
            config = from_json(RunConfig, data)
            Program.of(config)
            if chance.random() < 0.1:
                population.check(config)
        except BadInput:
            refused += 1
        else:
            assert from_json(RunConfig, json.loads(dumps(config))) == config
    assert refused > count / 2
    record_property("counted", f"{count} damaged configurations: {refused} refused, {count - refused} still right")
