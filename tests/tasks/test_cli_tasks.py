"""`dpmac tasks`."""

import json

import pytest
from PIL import Image

from dpmac import cli


def test_json_holds_sizes_units_and_both_returns(capsys):
    assert cli.main(["tasks", "ccn", "--set", "horizon=3", "--episodes", "20", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["agents"], row["actions"], row["observation_size"], row["horizon"]) == (2, 5, 11, 3)
    assert row["reward_unit"].startswith("team")
    assert row["random"]["return_mean"] < row["scripted"]["return_mean"] < 0
    assert row["random"]["return_se"] > 0
    assert row["options"]["view_radius"] == "inf"


def test_table_and_film(capsys, tmp_path):
    film = tmp_path / "film.gif"
    assert cli.main(["tasks", "ccn", "--set", "horizon=3", "--episodes", "20", "--film", str(film)]) == 0
    assert "scripted" in capsys.readouterr().out
    with Image.open(film) as frames:
        assert getattr(frames, "n_frames", 1) == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nope"], "allowed are cn"),
        (["cn", "--set", "agents=0"], "from 1 to 256"),
        (["cn", "--set", "view_radius=-1"], "above 0"),
        (["cn", "--set", "colour=red"], "allowed are agents"),
        (["cn", "--episodes", "1"], "at least 2"),
        (["cn", "--seed", "-1"], "seed must lie"),
        (["cn", "--episodes", "2", "--set", "horizon=2", "--film", "film.avi"], ".gif"),
    ],
)
def test_bad_input_exits_with_two_and_one_clear_line(arguments, says, capsys):
    assert cli.main(["tasks", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
