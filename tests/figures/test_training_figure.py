"""The picture of what private training costs, from the data of a sweep."""

from typing import Any

from dpmac.cli import main
from dpmac.figures import training
from dpmac.results import store


def row(epsilon: float, steps: int, episodes: int, *returns: float) -> dict[str, Any]:
    mean = sum(returns) / len(returns) if returns else float("nan")
    point = {"train_epsilon": epsilon, "steps": steps, "episodes": episodes}
    noise = 3.73 if epsilon == 1 else 0.0
    return {"point": point, "returns": list(returns), "return_mean": mean, "noise_multiplier": noise}


FOUND: dict[str, Any] = {
    "space": {"train_epsilon": [1.0, float("inf")], "steps": [250, 2500], "episodes": [4, 16]},
    "learner": "pathwise",
    "steps": 100,
    "horizon": 25,
    "rows": [
        row(1.0, 250, 4, -9.0, -8.0),
        row(1.0, 250, 16, -5.0, -6.0),
        row(1.0, 2500, 16, -3.0, -4.0),
        row(float("inf"), 250, 4, -4.0, -4.5),
        row(float("inf"), 2500, 4),
    ],
}


def test_every_point_is_that_of_the_best_batch():
    lines = training.lines([FOUND])
    assert [(point["episodes"], point["batch"]) for point in lines["pathwise", 1.0]] == [(10, 16), (100, 16)]
    assert [point["returns"] for point in lines["pathwise", float("inf")]] == [[-4.0, -4.5]]


def test_it_is_drawn_where_both_vary(tmp_path):
    assert training.drawable(FOUND)
    assert not training.drawable({"space": {"train_epsilon": [1.0], "steps": [1, 2]}})
    training.files([FOUND], [tmp_path / "training.svg", tmp_path / "training.png"])
    assert "training episodes" in (tmp_path / "training.svg").read_text()
    assert (tmp_path / "training.png").stat().st_size > 1000


def test_several_sweeps_make_one_picture(tmp_path):
    """Each of one number of episodes, and one of another learner."""
    row = {"point": {"train_epsilon": "inf", "batch": 8}, "returns": [-7.0, -6.0], "return_mean": -6.5}
    row["noise_multiplier"] = 0.0
    other = {"space": {"train_epsilon": ["inf"]}, "learner": "maddpg", "steps": 250, "horizon": 25, "rows": [row]}
    store.write_json(tmp_path / "sweep.json", FOUND)
    store.write_json(tmp_path / "other.json", other)
    line = ["plot", "--training", str(tmp_path), str(tmp_path / "other.json"), "--out", str(tmp_path / "both.svg")]
    assert main(line) == 0
    drawn = (tmp_path / "both.svg").read_text()
    assert "maddpg, training ε = ∞ (z = 0)" in drawn
    assert "pathwise, training ε = 1 (z = 3.73)" in drawn
    assert training.lines([FOUND, other])["maddpg", float("inf")] == [
        {"episodes": 10, "batch": 8, "noise": 0.0, "returns": [-7.0, -6.0]}
    ]


def test_a_sweep_without_multipliers_is_refused(tmp_path, capsys):
    store.write_json(tmp_path / "sweep.json", {**FOUND, "rows": [{"point": {}}]})
    assert main(["plot", "--training", str(tmp_path), "--out", str(tmp_path / "both.svg")]) == 2
    assert "names no noise multipliers" in capsys.readouterr().err


def test_a_sweep_of_something_else_is_refused(tmp_path, capsys):
    store.write_json(tmp_path / "sweep.json", {"space": {"hidden": [8]}})
    assert main(["plot", "--training", str(tmp_path), "--out", str(tmp_path / "both.svg")]) == 2
    assert "is no sweep over train_epsilon" in capsys.readouterr().err
