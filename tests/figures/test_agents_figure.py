"""The picture of return and time against the number of agents, from the data of frontiers."""

import json

from dpmac.cli import main
from dpmac.figures import agents


def frontier(count, once, silent):
    """A frontier with so many agents."""
    shared = {"epsilon": 3.0, "train_seconds": 10.0 * count}
    return {
        "agents": count,
        "steps": 1000,
        "limits": {
            "silence": {"return_mean": -7.0 * count},
            "lines": {"randomised": {"points": [{"epsilon": 3.0, "return_mean": -4.0 * count}]}},
        },
        "rows": [
            {"line": "response-once", "label": "once", "returns": once, **shared},
            {"line": "silent", "label": "silence", "returns": silent, **shared, "epsilon": 0.0},
        ],
    }


FOUND = [frontier(5, [-21.0, -23.0], [-36.0]), frontier(3, [-13.0, -13.5], [-22.0])]


def test_teams_stand_beside_the_limit_for_their_number():
    small, large = agents.points(FOUND)
    assert small[0] == 3
    assert small[3:] == ([-13.0 / 3, -4.5], -4.0, -7.0, 30.0)
    assert (large.agents, large.label) == (5, "once, ε = 3")


def test_lines_and_budgets_that_one_frontier_alone_has_are_left_out():
    more = frontier(3, [-13.0], [-22.0])
    more["rows"].append({**more["rows"][0], "epsilon": 10.0})
    assert [point.label for point in agents.points([FOUND[0], more])] == ["once, ε = 3"] * 2


def test_the_command_prints_a_table_and_draws_a_picture(tmp_path, capsys):
    paths = [tmp_path / f"{index}.json" for index in range(2)]
    for path, found in zip(paths, FOUND, strict=True):
        path.write_text(json.dumps(found))
    line = ["plot", "--agents", *map(str, paths), "--out", str(tmp_path / "agents.svg")]
    assert main(line) == 0
    assert "| once, ε = 3 | 5 | 2 | -22.00 | -4.400 | -4.000 | -7.000 | 50 |" in capsys.readouterr().out
    assert "return of an agent" in (tmp_path / "agents.svg").read_text()


def test_other_files_are_bad_input(tmp_path, capsys):
    (tmp_path / "frontier.json").write_text(json.dumps({"rows": []}))
    assert main(["plot", "--agents", str(tmp_path), "--out", str(tmp_path / "agents.svg")]) == 2
    assert "agents" in capsys.readouterr().err
