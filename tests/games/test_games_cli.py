"""`dpmac games`: answers as JSON and text, pictures, and clear refusals."""

import json
from pathlib import Path

import numpy as np
import pytest

from dpmac import games
from dpmac.cli import main
from dpmac.figures import games as figures
from dpmac.games import binary_sums
from dpmac.games.statements import STATEMENTS


def answer(capsys, *argv):
    assert main(["games", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys, *argv):
    """What stderr says to bad input."""
    assert main(["games", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


def test_binary_sums_answers_for_every_receiver_and_agent(capsys):
    result = answer(capsys, "binary-sums", "--agents", "3", "--epsilon", "1", "2", "inf", "--rounds", "20000")
    assert result["epsilon"][2] == "inf"
    np.testing.assert_allclose(result["epsilon"][:2], [1, 2])
    assert {row["receiver"] for row in result["receivers"]} == {"naive", "corrected", "bayes"}
    for row in result["receivers"]:
        np.testing.assert_allclose(row["simulated"]["mse"], row["closed_form"]["mse"], rtol=0.1)


def test_binary_sums_with_fixed_bits_reports_the_papers_bias(capsys):
    result = answer(capsys, "binary-sums", "--agents", "3", "--p", "0.4", "--bits", "1", "1", "0", "--rounds", "1000")
    (naive,) = [row for row in result["receivers"] if row["receiver"] == "naive"]
    np.testing.assert_allclose(naive["closed_form"]["bias"], [0.4 - 0.4, 0.4 - 0.4, 0.4 - 0.8], atol=1e-12)


def test_cgp_gives_the_closed_form_and_says_what_it_is(capsys):
    result = answer(capsys, "cgp", "--B", "1", "2", "--C", "0.6", "0.8", "--grid", "32")
    assert result["equilibria"]["kind"] == "exact"
    (found,) = result["equilibria"]["found"]
    assert (found["start"], found["end"], found["trivial"]) == ([0.6, 0.0], [0.6, 0.0], False)
    np.testing.assert_allclose(found["utility"], [0.5 - 0.18 - 0.24, 2 * (0.5 - 0.18) - 0.8])
    assert result["potential"]["exact"] is False
    np.testing.assert_allclose(result["potential"]["weights"], [1, 2])


def test_games_draw_nothing_themselves():
    assert not [file for file in Path(games.__file__).parent.glob("*.py") if "matplotlib" in file.read_text()]


def verdicts(result):
    return [(found["label"], found["verdict"]) for found in result["statements"]]


def test_every_answer_names_the_papers_statements_with_verdict_and_reason(capsys):
    small = {"binary-sums": ["--rounds", "1000"], "cgp": ["--grid", "32"], "rounds": ["--deviations", "10"]}
    for command, options in small.items():
        result = answer(capsys, command, *options)
        assert result["statements"]
        for found in result["statements"]:
            assert found["title"] == STATEMENTS[found["label"]]
            assert found["verdict"] in ("holds", "fails", "undecided", "does not apply")
            assert len(found["reason"]) > 10
        assert main(["games", command, *options]) == 0
        text = capsys.readouterr().out
        assert all(f"[{found['label']}]" in text for found in result["statements"])


def test_binary_sums_check_the_motivating_example(capsys):
    result = answer(capsys, "binary-sums", "--rounds", "1000")
    assert verdicts(result) == [
        ("theorem: randomized response privacy", "holds"),
        ("err_i", "holds"),
        ("g_i^A", "holds"),
    ]
    assert verdicts(answer(capsys, "binary-sums", "--p", "1", "--rounds", "10"))[2] == ("g_i^A", "does not apply")


def test_noise_of_the_wrong_size_refutes_its_privacy(capsys, monkeypatch):
    right = binary_sums.perturbation
    for epsilon in ("0", "1", "700", "inf"):
        assert verdicts(answer(capsys, "binary-sums", "--epsilon", epsilon, "--rounds", "10"))[0][1] == "holds"
    assert verdicts(answer(capsys, "binary-sums", "--p", "1e-310", "--rounds", "10"))[0][1] == "holds"
    monkeypatch.setattr(binary_sums, "perturbation", lambda epsilon: right(epsilon) / 2)
    result = answer(capsys, "binary-sums", "--epsilon", "1", "--rounds", "10")
    assert verdicts(result)[0][1] == "fails"
    assert "is not e^ε" in result["statements"][0]["reason"]


def test_what_is_played_is_printed_with_its_error_and_agents_of_other_budgets_apart(capsys):
    assert main(["games", "binary-sums", "--agents", "2", "--epsilon", "1", "2", "--prior", "0"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:7]]
    assert [row[:3] for row in rows if row[0] == "bayes"] == [["bayes", "1", "1"], ["bayes", "2", "2"]]
    for row in rows:
        mse, error = map(float, row[6].split("±"))
        assert abs(mse - float(row[5])) <= max(5 * error, 5e-4 * mse)


def test_the_picture_of_unequal_priors_is_of_all_agents():
    """Of the naive guess: each other's message errs by ±1 with probability p/2, on average by (1 − 2q)p/2."""
    q = np.array([0.1, 0.5, 0.9])
    (axes,) = figures.error_against_epsilon(3, q, 10, 0).axes
    assert axes.get_title() == "Binary sums, 3 agents, bits 1 with probability 0.1 to 0.9"
    (line,) = [line for line in axes.lines if line.get_label() == "naive"]
    for epsilon, drawn in np.asarray(line.get_xydata()):
        half = 1 / (np.exp(epsilon) + 1)
        means = (1 - 2 * q) * half
        spread = [sum(half - means[j] ** 2 for j in range(3) if j != i) for i in range(3)]
        expected = np.mean([spread[i] + (means.sum() - means[i]) ** 2 for i in range(3)])
        assert drawn == pytest.approx(expected)
    (equal,) = figures.error_against_epsilon(2, np.full(2, 0.3), 10, 0).axes
    assert equal.get_title() == "Binary sums, 2 agents, bits 1 with probability 0.3"


def test_an_equilibrium_next_to_silence_is_not_rounded_to_it(capsys):
    assert main(["games", "cgp", "--C", "1.9999999", "1.9999999", "--grid", "24"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "at C/B = 1.9999999 and 1.9999999 (0.99999989" in text
    assert "every point from (0.99999989" in text


def test_a_cycle_that_does_not_close_may_be_a_slow_convergence(capsys):
    near = ["--family", "quadratic", "--coupling", "0.99999996", "--C", "1", "1", "--start", "0.9", "0.9"]
    assert main(["games", "cgp", *near, "--grid", "24"]) == 0
    assert "a cycle of 2 rounds, or a very slow convergence, at (0.9, 0.9)" in capsys.readouterr().out
    assert main(["games", "cgp", "--C", "1", "1", "--grid", "24"]) == 0
    assert "simultaneous best responses: a cycle of 2 rounds, at (0, 0)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--alpha", "1e9"], True),
        (["--savings", "1e6", "--beta", "0.001"], True),
        (["--beta", "1e-10"], True),
        (["--savings", "1e100", "--alpha", "1e100"], True),
        (["--beta", "0"], False),
    ],
)
def test_rounding_decides_nothing_about_the_potentials(capsys, options, wrong):
    """The printed J counts the β of one agent N times, so it is wrong for every β > 0; the corrected one is right."""
    found = dict(verdicts(answer(capsys, "rounds", "--deviations", "50", *options)))
    assert found["theorem: mpg NE"] == "holds"
    appendix = found["theorem: NE Guarantee in Multiple Round Sums in appendix"]
    assert appendix == ("fails" if wrong else "holds")


def test_the_order_of_the_agents_makes_no_difference_to_the_verdict(capsys):
    for savings in (["0", "1", "1"], ["1", "0", "1"], ["1", "1", "0"]):
        result = answer(capsys, "rounds", "--savings", *savings, "--beta", "0", "--deviations", "10")
        assert dict(verdicts(result))["theorem: NE Guarantee in Multiple Round Sums"] == "fails"


def test_the_counterexample_refutes_the_proof_and_at_a_high_price_the_theorem(capsys):
    for options, expected in (([], "holds"), (["--C", "10", "10"], "fails")):
        found = dict(verdicts(answer(capsys, "cgp", "--family", "counterexample", "--grid", "80", *options)))
        assert found["theorem: NE in CGP"] == expected
        assert found["proof of theorem: NE in CGP"] == "fails"


def test_a_refutation_is_an_answer_and_no_failure(capsys):
    """Exit code 0, and the reason in words."""
    assert main(["games", "cgp", "--family", "counterexample", "--C", "10", "10", "--grid", "80"]) == 0
    text = capsys.readouterr().out
    assert "fails           Theorem (CGP's NE guarantee)  [theorem: NE in CGP]" in text
    assert "all of its conditions hold, but (1, 1) is the only equilibrium, as far as a search can tell" in text
    assert "(1, 1)  regret 0  (trivial: nobody says anything)" in text


def test_rounds_check_the_assumptions_and_both_versions_of_the_theorem(capsys):
    result = answer(capsys, "rounds")
    theorem = "theorem: NE Guarantee in Multiple Round Sums"
    expected = [*((f"asmp: {i}", "holds") for i in (1, 2, 3, 4)), ("asmp: 4", "fails"), ("theorem: mpg NE", "holds")]
    assert verdicts(result) == [*expected, (theorem, "fails"), (f"{theorem} in appendix", "fails")]
    free = answer(capsys, "rounds", "--beta", "0", "--horizon", "1")  # nothing printed wrongly, nobody who could react
    assert verdicts(free)[-2:] == [(theorem, "holds"), (f"{theorem} in appendix", "holds")]


def test_guesses_are_worth_their_error_or_their_bias(capsys):
    for utility in ("error", "bias"):
        result = answer(capsys, "cgp", "--family", "guesses", "--utility", utility, "--grid", "32")
        assert [found["trivial"] for found in result["equilibria"]["found"]] == [True]


USERS_GAME = """
from dpmac.games.cgp import Game

def quiet():
    value = lambda p1, p2: 3 - p1 - p2
    return Game((2.0, 2.0), (value, value), lambda alone, v: max(0.0, v - alone) ** 3, lambda p: 1 - p, (1, 1), (9, 9))

one = lambda p1, p2: 1
broken = Game((2.0, 2.0), (one, one), lambda alone, v: float("nan"), lambda p: 1 - p, (1, 1), (1, 1))
number = 3

def raising():
    raise RuntimeError("no luck")
"""


def test_a_users_own_game_is_loaded_by_name(capsys, tmp_path, monkeypatch):
    (tmp_path / "mygames.py").write_text(USERS_GAME)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = answer(capsys, "cgp", "--game", "mygames:quiet", "--grid", "32")
    assert [entry["point"] for entry in result["equilibria"]["found"]] == [[1.0, 1.0]]
    assert "b(2, 1) is nan; it must be a finite number" in refusal(capsys, "cgp", "--game", "mygames:broken")
    assert "'mygames:raising' raised RuntimeError: no luck" in refusal(capsys, "cgp", "--game", "mygames:raising")
    assert "must be a dpmac.games.cgp.Game" in refusal(capsys, "cgp", "--game", "mygames:number")
    assert "game 'mygames:none' cannot be loaded" in refusal(capsys, "cgp", "--game", "mygames:none")


def test_rounds_shows_the_equilibrium_and_both_potentials(capsys):
    result = answer(capsys, "rounds", "--savings", "1", "0.3", "2", "--discount", "0.9", "--alpha", "0.05")
    assert [agent["gives"] for agent in result["agents"]] == ["first", "never", "first"]
    for agent in result["agents"]:
        assert agent["own_value"] == pytest.approx(agent["dynamic_program"])
    gaps = result["largest_potential_gap"]
    assert gaps["corrected"] < 1e-12 < 0.1 < gaps["printed"]


@pytest.mark.parametrize("command", ["binary-sums", "cgp", "rounds"])
def test_every_command_draws_a_picture_and_prints_text_and_an_example(capsys, tmp_path, command):
    path = tmp_path / "picture.png"
    small = {"binary-sums": ["--rounds", "1000"], "cgp": ["--grid", "32"], "rounds": ["--deviations", "10"]}[command]
    assert main(["games", command, *small, "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(capsys.readouterr().out.splitlines()) > 3
    assert main(["games", command, "--help"]) == 0
    assert f"Example: dpmac games {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["binary-sums", "--agents", "1"], "at least 2 agents, not 1"),
        (["binary-sums", "--p", "1.2"], "p must lie in [0, 1]"),
        (["binary-sums", "--epsilon", "-1"], "epsilon must be at least 0"),
        (["binary-sums", "--epsilon", "1", "--p", "0.5"], "either --epsilon or --p"),
        (["binary-sums", "--bits", "1", "0"], "one for each of 5 agents, not 2"),
        (["binary-sums", "--agents", "2", "--bits", "1", "2"], "bits must be 0 or 1"),
        (["binary-sums", "--prior", "0.5", "0.5"], "one for each of 5 agents"),
        (["binary-sums", "--rounds", "0"], "rounds must be at least 1"),
        *(
            (["binary-sums", "--rounds", "10", "--plot", name], "must end in .png, .svg, .pdf")
            for name in ("x.txt", "x.pgf", "png", ".png")
        ),
        (["binary-sums", "--epsilon", "720"], "at most 700, or inf"),
        (["cgp", "--B", "0", "1"], "B must be above 0"),
        (["cgp", "--B", "1"], "--B needs two numbers"),
        (["cgp", "--C", "nan", "1"], "C/B must be finite"),
        (["cgp", "--family", "guesses", "--C", "nan", "1"], "C must hold two finite numbers"),
        (["cgp", "--B", "1e-300", "1", "--C", "1e10", "0.4"], "C/B must be finite"),
        (["cgp", "--start", "0", "2"], "start must lie in the unit square"),
        (["cgp", "--grid", "20"], "multiple of 8"),
        (["cgp", "--grid", "16"], "at least 24"),
        (["cgp", "--tolerance", "-1"], "tolerance must be above 0"),
        (["cgp", "--tolerance", "inf"], "tolerance must be above 0 and finite"),
        (["cgp", "--tolerance", "0.5"], "has them in closed form"),
        (["cgp", "--family", "guesses", "--game", "mygames:base"], "either --family or --game"),
        (["cgp", "--family", "quadratic", "--clipped"], "--clipped goes with"),
        (["cgp", "--coupling", "1"], "--coupling goes with"),
        (["cgp", "--utility", "bias"], "--utility goes with"),
        (["cgp", "--game", "nocolon"], "package.module:Name"),
        (["rounds", "--agents", "1"], "at least 2 agents"),
        (["rounds", "--agents", "-3"], "at least 2 agents, not -3"),
        (["rounds", "--savings", "-1"], "savings must be at least 0 and at most 1e+100"),
        (["rounds", "--savings", "1e308"], "savings must be at least 0 and at most 1e+100"),
        (["rounds", "--alpha", "1e308", "--savings", "10"], "alpha must be at least 0 and at most 1e+100"),
        (["rounds", "--beta", "nan"], "beta must be at least 0 and at most 1e+100"),
        (["rounds", "--discount", "2"], "discount must lie in [0, 1]"),
        (["rounds", "--deviations", "0"], "deviations must be at least 1"),
        (["rounds", "--savings", "1", "2"], "one for each of 3 agents"),
        (["rounds", "--horizon", "0"], "horizon must be at least 1"),
        (["poker"], "binary-sums, cgp, rounds"),
    ],
)
def test_bad_input_gets_one_clear_line(capsys, argv, message):
    assert message in refusal(capsys, *argv)
