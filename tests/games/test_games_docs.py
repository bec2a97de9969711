"""What `docs/games.md` shows is what the package does."""

import re

import numpy as np

from dpmac.games import rounds
from pages import DOCS, play

PAGE = DOCS / "games.md"


def test_the_example_runs_and_its_equilibria_are_found(capsys):
    names = play(PAGE.read_text())
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == names["result"].guarantee
    assert [a.point for a in names["result"].equilibria.approximate] == [(0.0, 0.0), (1.0, 1.0)]


def test_every_picture_exists():
    pictures = re.findall(r"\]\((pictures/[^)]+)\)", PAGE.read_text())
    assert len(pictures) == 5
    assert all((PAGE.parent / picture).read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_the_table_of_strategies_holds():
    game, savings = rounds.Rounds(), np.ones(3)
    strategies = {
        "equilibrium": rounds.equilibrium(game, savings),
        "never share": rounds.never_share(game, savings),
        "always share, all at once": rounds.always_share(game, savings),
        "always share, evenly": rounds.always_share(game, savings, evenly=True),
    }
    rows = re.findall(r"^\| ([a-z, ]+) \| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [row[0] for row in rows] == list(strategies)
    best = rounds.values(game, strategies["equilibrium"]).mean()
    for name, value, share, regret in rows:
        mean = rounds.values(game, strategies[name]).mean()
        assert f"{mean:.5g}" == value
        assert abs(100 * mean / best - float(share)) < 0.06
        assert f"{rounds.regret(game, strategies[name]).max():.5g}" == regret
