"""The demonstration, at a size at which nothing is learned, and it must say so."""

import dataclasses
import json

from dpmac.analysis import demo
from dpmac.cli import main


def test_what_came_of_it_is_shown_kept_and_never_called_better_than_it_is(tmp_path, capsys, monkeypatch):
    small = {"steps": 400, "episodes": 8, "evaluations": 2, "evaluation_episodes": 4}
    monkeypatch.setattr(demo, "TRAINING", dataclasses.replace(demo.TRAINING, **small))
    monkeypatch.setattr(demo, "LEARNER_OPTIONS", {"starts": 2, "learning_rate": 1e-9})
    monkeypatch.setattr(demo, "NETWORKS", dataclasses.replace(demo.NETWORKS, hidden=8, message_hidden=8, products=2))
    monkeypatch.setattr(demo, "STARTS", 32)
    command = ["demo", "--out", str(tmp_path)]
    assert main([*command, "--json"]) == 1
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert not found["separated"]
    assert "overlap" in said.err
    assert [(row["method"], row["epsilon"], row["valid"]) for row in found["runs"]] == [
        ("dpmac", "3", True),
        ("dpmac, noise switched off", "inf", None),
        ("silent", "no messages", None),
    ]
    assert 2.9 < found["runs"][0]["exact_epsilon"] <= 3
    private, free, silent = (row["limit"] for row in found["runs"])
    assert silent < private < free < 0
    assert all(value < row["limit"] for row in found["runs"] for value in row["returns"])
    for name in ("curves.png", "episode.gif", "dpmac/privacy.json"):
        assert (tmp_path / name).stat().st_size > 100

    trained = (tmp_path / "dpmac" / "metrics.csv").read_bytes()
    assert main(command) == 1  # trains nothing anew, and tells people the same
    again = capsys.readouterr().out
    assert f"{found['runs'][0]['returns'][0]:.2f}" in again
    assert "OVERLAP" in again

    monkeypatch.setattr(demo, "TRAINING", dataclasses.replace(demo.TRAINING, steps=800))
    assert main(command) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert (tmp_path / "dpmac" / "metrics.csv").read_bytes() == trained
