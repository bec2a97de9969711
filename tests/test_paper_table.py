"""The table that leads from the paper to the code and back: its names exist, and nothing of the paper is missing."""

import importlib
import re

import pytest
from pages import DOCS

from dpmac import experiments
from dpmac.games.statements import STATEMENTS

PAGE = (DOCS / "paper.md").read_text()
FORTH, BACK = PAGE.split("## Back")
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in FORTH.splitlines()
    if line.startswith("| ") and not line.startswith("| in the paper")
]
"""(place, label, names, deviations)."""
LABELS = """
def: epsilon, delta-DP
theorem: randomized response privacy
theorem: privacy for dpmac
eq:eq_wo_dp
eq:eq_w_dp
def: CGP
eq: utility function in CGP
theorem: NE in CGP
theorem: NE Guarantee in Multiple Round Sums
alg:algorithm
def: RDP
def: l2-sensitivity
lem:rdp_amplification
prop:prop1
prop:prop2
eq:pf_thm5.1
theorem:multi_step_privacy
def: potential game
def: privacy loss function
def: benefit function
def: value function in CGP
theorem: NE
eq: induction 1
theorem: single round binary sums
eq: utility function in single round binary sums
def: markov potential game
asmp: 1
asmp: 2
asmp: 3
asmp: 4
theorem: mpg NE
eq: ref 1
eq: ref 2
eq: multi-step game reward
theorem: NE Guarantee in Multiple Round Sums in appendix
table: hyper param
appendix: environment details
""".strip().splitlines()
"""Of all definitions, theorems, propositions, lemmas, assumptions, numbered equations and algorithms in the paper's
source, and of its hyperparameters and environments."""
UNLABELLED = {"err_i", "g_i^A", "proof of theorem: NE in CGP"}
"""Keys of `STATEMENTS` that are no labels."""
ALGORITHM_LINES = 17


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def resolve(name: str) -> object:
    """What a dotted name under `dpmac` stands for."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["dpmac", *parts[:count]]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def test_every_name_of_the_table_can_be_imported():
    names = {name for row in ROWS for name in named(row[2])}
    assert len(names) > 80
    for name in names:
        assert resolve(name) is not None


@pytest.mark.parametrize("name", ["privacy.theorem.nothing", "nowhere.sigma"])
def test_a_name_that_does_not_exist_would_be_found(name):
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        resolve(name)


def test_every_label_of_the_paper_is_covered_and_no_other_is_named():
    covered = {label for row in ROWS for label in named(row[1])}
    assert covered == set(LABELS)
    assert set(STATEMENTS) - UNLABELLED <= covered


def test_every_line_of_the_algorithm_is_covered():
    lines = [re.search(r"Algorithm 1, lines? (\d+)(?: and (\d+))?", row[0]) for row in ROWS]
    assert [int(number) for found in lines if found for number in found.groups() if number] == [
        *range(1, ALGORITHM_LINES + 1)
    ]


def test_every_row_says_where_it_stands_here():
    assert all(len(row) == 4 and named(row[2]) for row in ROWS)
    assert len({row[0] for row in ROWS}) == len(ROWS)
    assert all(figure.source.startswith("fig: ") for figure in experiments.FIGURES.values())


def test_departures_are_numbers_of_the_list_of_deviations():
    known = set(re.findall(r"^(\d+)\.", (DOCS / "deviations.md").read_text(), re.MULTILINE))
    cited = {number for row in ROWS for number in re.findall(r"\d+", row[3])}
    assert cited <= known
    assert len(cited) > 15


def test_the_way_back_is_the_inverse_of_the_way_there():
    inverse: dict[str, list[str]] = {}
    for place, _, names, _ in ROWS:
        for name in named(names):
            inverse.setdefault(name, []).append(place)
    wanted = [f"| `{name}` | {'; '.join(inverse[name])} |" for name in sorted(inverse)]
    assert [line for line in BACK.splitlines() if line.startswith("| `")] == wanted
