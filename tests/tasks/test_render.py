"""The one renderer."""

import numpy as np
import pytest
from PIL import Image

from dpmac.config import BadInput
from dpmac.tasks import Body, Scene
from dpmac.tasks.render import extent_of, render, save_film

BLUE = (0.0, 0.0, 1.0)
SCENE = Scene((Body(-0.6, 0.0, 0.1, BLUE), Body(0.6, 0.0, 0.1, BLUE)), (Body(0.0, 0.6, 0.1, (1.0, 0.0, 0.0)),))


def test_bodies_stand_where_the_scene_says_with_y_upwards():
    picture = render(SCENE, size=240, extent=1.2)
    assert tuple(picture[120, 60]) == (0, 0, 255)
    assert tuple(picture[120, 180]) == (0, 0, 255)
    assert tuple(picture[60, 120]) == (255, 0, 0)
    assert tuple(picture[180, 120]) == (255, 255, 255)


def test_messages_are_drawn_from_sender_to_receiver_and_silence_is_not():
    plain = render(SCENE, size=240)
    silent = render(SCENE, size=240, messages=np.zeros((2, 2)))
    np.testing.assert_array_equal(plain, silent)
    there, back = np.zeros((2, 2)), np.zeros((2, 2))
    there[0, 1] = back[1, 0] = 1
    arrow, reverse = render(SCENE, size=240, messages=there), render(SCENE, size=240, messages=back)
    changed = np.argwhere((arrow != plain).any(-1))
    assert 110 < changed[:, 0].min() <= changed[:, 0].max() < 130  # between the two agents
    heads = [
        (pic[:, 70:120] != plain[:, 70:120]).sum() < (pic[:, 120:170] != plain[:, 120:170]).sum()
        for pic in (arrow, reverse)
    ]
    assert heads == [True, False]


def test_stronger_messages_are_more_visible():
    weak, strong = (render(SCENE, messages=np.array([[0, s], [0, 0]])).astype(int) for s in (0.2, 1.0))
    assert strong.sum() < weak.sum() < render(SCENE).astype(int).sum()


def test_caption_is_drawn():
    assert not np.array_equal(render(SCENE), render(SCENE, caption="step 1"))


def test_view_holds_whoever_ran_away():
    away = Scene((Body(3.0, 0.0, 0.1, BLUE),))
    assert extent_of([SCENE]) == 1.2
    assert extent_of([SCENE, away]) == pytest.approx(3.1)


def test_film_has_all_frames(tmp_path):
    frames = [render(SCENE, size=64, caption=f"{t}") for t in range(5)]
    with Image.open(save_film(frames, tmp_path / "new" / "film.gif", fps=5)) as film:
        assert getattr(film, "n_frames", 1) == 5
        assert film.info["duration"] == 200
    with pytest.raises(BadInput, match=r"\.gif, \.webp, \.png"):
        save_film(frames, tmp_path / "film.avi")
