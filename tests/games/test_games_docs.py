"""What `docs/games.md` shows is what the package does."""

import dataclasses
import json
import re

import numpy as np
import pytest
from pages import DOCS, play

from dpmac.cli import main
from dpmac.games import assumptions, families, markov, rounds
from dpmac.games.markov import MarkovGame, Region
from dpmac.games.statements import conclude

PAGE = DOCS / "games.md"


def test_the_example_runs_and_its_equilibria_are_found(capsys):
    names = play(PAGE.read_text())
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == names["result"].guarantee
    assert "theorem: NE in CGP holds all of its conditions hold" in printed
    assert [a.point for a in names["result"].equilibria.approximate] == [(0.0, 0.0), (1.0, 1.0)]


def test_every_module_that_the_page_names_is_in_the_reference():
    table = PAGE.read_text().split("| modules of `dpmac.games` |\n")[1].split("\n\n")[0]
    named = {name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[3])}
    reference = (DOCS / "reference-games.md").read_text()
    assert set(re.findall(r"^::: dpmac\.games\.(\w+)$", reference, re.MULTILINE)) == named
    assert len(named) == 10


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


def test_the_table_of_receivers_is_what_the_command_prints(capsys):
    assert main(["games", "binary-sums", "--agents", "5", "--epsilon", "1"]) == 0
    printed = {line.split()[0]: line.split()[3:] for line in capsys.readouterr().out.splitlines()[1:4]}
    rows = re.findall(r"^\| (naive|corrected|bayes) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert {name: cells.replace("−", "-").split(" | ") for name, cells in rows} == printed


def test_the_numbers_of_the_counterexample_and_of_the_potentials_are_what_the_commands_print(capsys):
    text = " ".join(PAGE.read_text().split())
    assert main(["games", "cgp", "--family", "counterexample", "--json"]) == 0
    cycle = json.loads(capsys.readouterr().out)["potential"]["worst_cycle"]
    assert f"to ({cycle['opposite'][0]:g}, {cycle['opposite'][1]:g}) sum to {cycle['gains']:.4g}" in text
    assert main(["games", "rounds", "--json"]) == 0
    gaps = json.loads(capsys.readouterr().out)["largest_potential_gap"]
    assert gaps["corrected"] < 1e-14
    assert "less than 1e-14 for the corrected potential" in text
    assert f"by {gaps['printed']:.3g} for the printed one" in text
    assert f"The gap is then {gaps['corrected_reacting']:.3g} " in text


GRID = Region(np.zeros(6), np.ones(6), lambda w: bool(np.all(2 * w == np.round(2 * w))))
SUMS = markov.bounded_rounds(rounds.Rounds(), np.ones(3))
ROWS: dict[str, list[MarkovGame]] = {
    "multiple-round sums, 0 ≤ b ≤ x ≤ x₀": [SUMS],
    "the same as printed, x ∈ ℝ and no bound on b": [markov.printed_rounds(rounds.Rounds(), 3)],
    "the same with an agent that has x₀ = 0": [markov.bounded_rounds(rounds.Rounds(), [1.0, 1.0, 0.0])],
    "the same with a grid of actions, as in the task `rounds`": [dataclasses.replace(SUMS, parameters=GRID)],
    "binary sums, quadratic games, the counterexample": [
        *map(markov.one_step, (families.binary_sums(), families.quadratic(), families.counterexample()))
    ],
    "binary sums, clipped": [markov.one_step(families.binary_sums(clipped=True))],
}


@pytest.mark.parametrize("row", ROWS)
def test_the_table_of_assumptions_holds(row):
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row} |")]
    stated = [cell.strip(" *") for cell in line.split("|")[2:-1]]
    for game in ROWS[row]:
        conditions = assumptions.check(game)
        assert [conclude(f"asmp: {i}", conditions).verdict for i in (1, 2, 3, 4)] == stated
