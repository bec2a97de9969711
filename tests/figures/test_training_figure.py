"""The picture of what private training costs, from the data of a sweep."""

from typing import Any

from dpmac.figures import training


def row(epsilon: float, steps: int, episodes: int, *returns: float) -> dict[str, Any]:
    mean = sum(returns) / len(returns) if returns else float("nan")
    point = {"train_epsilon": epsilon, "steps": steps, "episodes": episodes}
    return {"point": point, "returns": list(returns), "return_mean": mean}


FOUND: dict[str, Any] = {
    "space": {"train_epsilon": [1.0, float("inf")], "steps": [250, 2500], "episodes": [4, 16]},
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
    lines = training.lines(FOUND)
    assert [(point["episodes"], point["batch"]) for point in lines[1.0]] == [(10, 16), (100, 16)]
    assert [point["returns"] for point in lines[float("inf")]] == [[-4.0, -4.5]]


def test_it_is_drawn_where_both_vary(tmp_path):
    assert training.drawable(FOUND)
    assert not training.drawable({"space": {"train_epsilon": [1.0], "steps": [1, 2]}})
    training.files(FOUND, tmp_path)
    text = (tmp_path / "training.svg").read_text()
    assert "training episodes" in text
    assert (tmp_path / "training.png").stat().st_size > 1000
