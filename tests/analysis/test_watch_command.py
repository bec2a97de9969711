"""`dpmac watch`: films show what was said."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from tiny import CONFIG, untrained

from dpmac import cli
from dpmac.analysis import film
from dpmac.config import BadInput, Channel
from dpmac.runner import noise, population
from dpmac.tasks import render


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("watch") / "run"
    untrained(found)
    return found


def test_a_team_with_noise_is_filmed_beside_itself_without(folder, tmp_path, capsys):
    assert cli.main(["watch", str(folder), "--out", str(tmp_path / "film.gif"), "--size", "64"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as pictures:
        assert pictures.size[0] == 64 + 2 + 64
        assert getattr(pictures, "n_frames", 1) == 5


def test_a_team_that_is_silent_or_free_has_one_picture(tmp_path):
    untrained(tmp_path / "run", dataclasses.replace(CONFIG, method="silent", budgets=(FREE,)))
    film.save(tmp_path / "run", tmp_path / "film.png", size=64)
    with Image.open(tmp_path / "film.png") as pictures:
        assert pictures.size == (64, 64)


FREE = dataclasses.replace(CONFIG.budgets[0], epsilon=(float("inf"),))


def panels(channel=None, task="probe-neighbour"):
    """Two panels of an untrained team, with noise and without, and the team."""
    config = dataclasses.replace(CONFIG, task=task, channel=channel or Channel(), budgets=CONFIG.budgets[:1])
    program = population.check(config)
    team = program.team(jax.random.key(0))
    scale = noise.scale_of(config, program, config.budgets[0])
    quiet = jax.tree.map(jnp.zeros_like, scale)
    return [film.panel(program, team, each, jax.random.key(3), "") for each in (scale, quiet)]


def test_both_pictures_begin_alike_and_only_one_has_noise():
    noisy, quiet = panels()
    assert noisy.scenes[0] == quiet.scenes[0]
    assert np.abs(noisy.said).max() > 5 * np.abs(quiet.said).max()


def test_arrows_are_messages_of_the_step_before():
    _, quiet = panels()
    assert quiet.arrows.shape == (5, 3, 3)
    assert not quiet.arrows[0].any()
    norms = np.linalg.norm(quiet.said, axis=-1)
    for t in range(1, 5):
        for sender in range(3):
            row = np.delete(quiet.arrows[t, sender], sender)
            np.testing.assert_allclose(row, norms[t - 1, sender] / norms.max(), rtol=1e-5)
            assert quiet.arrows[t, sender, sender] == 0


def test_held_messages_are_faint_and_only_recipients_get_any():
    noisy, _ = panels(Channel(period=3, recipient_rate=0.5))
    assert ((noisy.arrows[1:] > 0).sum(-1) == 1).all()
    np.testing.assert_allclose(noisy.arrows[2], film.HELD * noisy.arrows[1], rtol=1e-6)
    np.testing.assert_array_equal(noisy.said[0], noisy.said[2])


def test_cells_are_orange_above_zero_and_blue_below():
    picture = film.strip(np.array([[1.0, -1.0, 0.0]]), 1.0, 14 + 60)
    assert tuple(picture[7, 14 + 10]) == render.ARROW
    assert tuple(picture[7, 14 + 30]) == film.MINUS
    assert tuple(picture[7, 14 + 50]) == (255, 255, 255)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "film.avi"], ".gif"),
        (["--out", "film.gif", "--epsilon", "7"], "budgets are 1, 2:inf"),
        (["--out", "film.gif", "--seed", "9"], "seeds 0, 1"),
        (["--out", "film.gif", "--episode", "-1"], "episode"),
        (["--out", "film.gif", "--size", "3"], "size"),
        (["--out", "film.gif", "--fps", "0"], "fps"),
    ],
)
def test_bad_input_gets_one_clear_line(folder, arguments, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["watch", str(folder), *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_members_are_found_by_budget_and_seed(folder):
    loaded = population.load(folder)
    assert [population.member(loaded, run.label, run.seed) for run in loaded.runs] == [0, 1, 2, 3]
    assert population.member(loaded, None, 1) == 1
    with pytest.raises(BadInput, match="seeds 0, 1"):
        population.member(loaded, "1", 2)


def test_a_task_that_cannot_be_drawn_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.delattr("dpmac.tasks.probes.SymbolProbe.scene")
    with pytest.raises(BadInput, match=r"probe-listen has no method scene"):
        film.save(folder, tmp_path / "film.gif")
