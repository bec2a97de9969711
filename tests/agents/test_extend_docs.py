"""What docs/extend.md shows works from outside the package."""

import inspect
import itertools
import json
import math
from dataclasses import replace
from typing import Any

import imageio.v3
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from pages import DOCS, blocks, played
from test_same_bits import differing

import dpmac
from dpmac import cli, privacy
from dpmac.agents import commnet
from dpmac.agents.mechanisms import NoiseScale, mechanism
from dpmac.agents.mechanisms import base as twin
from dpmac.agents.protocol import Protocol
from dpmac.config import Channel, Release
from dpmac.learner.base import Learner
from dpmac.privacy.mechanisms import base as host
from dpmac.results import store
from dpmac.runner import population

PAGE = (DOCS / "extend.md").read_text()
FILES = {block.title: block.text for block in blocks(PAGE) if block.title}


def test_the_page_shows_the_built_in_file_and_it_is_short():
    assert FILES["own.py"] == inspect.getsource(commnet)
    assert len(FILES["own.py"].splitlines()) < 40


def test_the_page_names_everything_that_a_protocol_may_have():
    own = {name for name in vars(Protocol) if not name.startswith("_")}
    for name in own - {"AbstractMethodError"}:
        assert f"`{name}" in PAGE, name


def test_the_page_names_everything_that_a_learner_may_have():
    for name in {name for name in vars(Learner) if not name.startswith("_")}:
        assert f"`{name}" in PAGE, name


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    with played(PAGE, tmp_path_factory.mktemp("outside")) as folder:
        yield folder


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


def test_the_page_names_everything_that_a_mechanism_may_have():
    for side in (host.Mechanism, twin.Mechanism):
        own = {name for name in vars(side) if not name.startswith("_")} | set(side.__annotations__)
        for name in own - {"AbstractMethodError", "host", "spec", "channel"}:
            assert f"`{name}" in PAGE, name


def test_a_mechanism_outside_the_package_is_priced_audited_and_deployed(outside, capsys):
    spec = Channel("unary:Unary", symbols=8, period=0)
    found = privacy.mechanisms.of(spec)
    noise = privacy.calibrate(spec, 1.0, 1e-4)
    bits = np.array(list(itertools.product((0, 1), repeat=8)))

    def law(symbol):
        flipped = (bits != np.eye(8, dtype=int)[symbol]).sum(1)
        return noise**flipped * (1 - noise) ** (8 - flipped)

    for epsilon in np.linspace(0, 1.2, 7):
        exact = np.maximum(law(0) - math.exp(epsilon) * law(5), 0).sum()
        assert privacy.delta(Release(spec, noise), float(epsilon)) == pytest.approx(exact, abs=1e-12)
    chances = np.stack([law(symbol) for symbol in range(8)], axis=1)
    heard = mechanism(spec, 8).decode(jnp.asarray(bits, jnp.float32), NoiseScale(jnp.asarray(noise), ()))
    np.testing.assert_allclose(heard + 1 / 8, chances / chances.sum(1, keepdims=True), atol=1e-5)
    many = replace(spec, period=1)
    several = Release(many, privacy.calibrate(many, 1.0, 1e-4, 5), 5)
    accountant = PLDAccountant(privacy.relation(several))
    accountant.compose(privacy.event(several))
    assert accountant.get_epsilon(1e-4) == pytest.approx(privacy.epsilon(several, 1e-4), rel=2e-3)
    assert found.best_guess(Release(spec, noise), 8) <= privacy.private_accuracy(1.0, 0.0, 8) + 1e-9

    line = "privacy audit --mechanism unary:Unary --symbols 8 --period 0 --epsilon 1 --episodes 100000 --json"
    assert cli.main(line.split()) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["method"] == "symbol counts"
    assert 0.85 < entry["lower_bound"] <= 1
    assert differing(spec) == 0

    claims = store.read_json(outside / "runs/unary/privacy.json")["claims"]
    assert [entry["valid"] for entry in claims["3"]] == [True, True]
    team = dpmac.load(outside / "runs/unary", epsilon="3", limit=3.01, new_ledger=True)
    _, carry = team.act(np.zeros((2, team.program.task.observation_size)), team.start())
    assert set(np.unique(carry.released)) <= {0, 1}
    assert team.spent(0) == pytest.approx(3, rel=1e-3)


def test_a_learner_outside_the_package_keeps_its_settings(outside):
    config = store.load_config(outside / "runs/reinforce")
    assert (config.learner, config.learner_options["entropy"]) == ("reinforce:Reinforce", 0.01)


@pytest.mark.large
@pytest.mark.parametrize("probe", ["probe-value", "probe-memory", "probe-listen", "probe-neighbour", "probe-partner"])
def test_a_learner_outside_the_package_trains_every_probe(outside, probe, monkeypatch, record_property):
    monkeypatch.chdir(outside)
    out = f"runs/reinforce-{probe}"
    size = "--hidden 16 --message-hidden 16 --message-size 4 --episodes 64 --steps 160000 --evaluations 2"
    assert cli.main(f"train {probe} --learner reinforce:Reinforce {size} --out {out} --quiet".split()) == 0
    loaded = population.load(outside / out)
    task: Any = loaded.program.task
    scores = population.scores(loaded.program, loaded.teams, loaded.scale, 256)
    record_property("counted", f"REINFORCE on {probe}: {scores.mean():.2f} of {task.optimal_return:.2f}")
    assert float(scores.mean()) > 0.9 * task.optimal_return
