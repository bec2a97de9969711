"""`dpmac privacy` from the shell's point of view."""

import json
import resource
import subprocess
import sys

import pytest

from dpmac import cli
from dpmac.cli.privacy import conclude


def call(capsys, *arguments):
    code = cli.main(["privacy", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def answer(capsys, *arguments, exits=0):
    code, out, _ = call(capsys, *arguments, "--json")
    assert code == exits
    return json.loads(out)


def test_a_failed_check_is_an_exit_code_of_one(capsys):
    sound = {"verdict": "consistent", "failed_checks": []}
    conclude([sound], True, "refuted")
    with pytest.raises(SystemExit) as raised:
        conclude([sound, sound | {"failed_checks": ["noise independent over time: p=1e-30"]}], True, "refuted")
    assert raised.value.code == 1


def test_calibrate_gives_the_promised_fields(capsys):
    found = answer(
        capsys,
        "calibrate",
        "--epsilon",
        "1",
        "--delta",
        "1e-4",
        "--unit",
        "episode",
        "--horizon",
        "25",
        "--copies",
        "1",
    )
    assert {"sigma", "epsilon", "delta", "unit", "accountant", "valid", "exact_epsilon"} <= set(found)
    assert found["sigma"] == pytest.approx(31.86 / 2, rel=1e-3)


def test_account_inverts_calibrate(capsys):
    sigma = answer(capsys, "calibrate", "--epsilon", "2", "--mechanism", "code")["sigma"]
    found = answer(capsys, "account", "--sigma", str(sigma), "--mechanism", "code")
    assert found["epsilon"] == pytest.approx(2, rel=1e-4)


def test_account_of_the_papers_noise(capsys):
    assert answer(capsys, "account", "--sigma", "0.6596", "--clip-norm", "0.5")["epsilon"] == pytest.approx(
        56.1, rel=1e-3
    )


def test_paper_warns_on_stderr_and_answers_all_the_same(capsys):
    code, out, err = call(capsys, "calibrate", "--accountant", "paper", "--unit", "message", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["sigma"] == pytest.approx(0.6596, rel=1e-3)
    assert found["valid"] is False
    assert found["failed_conditions"]
    assert found["exact_epsilon"] == pytest.approx(6.29, rel=1e-3)
    assert "warning: the paper's theorem does not apply" in err


def test_budgets_may_differ_between_agents(capsys):
    found = answer(capsys, "calibrate", "--epsilon", "1:0.1:inf")
    assert [item["agent"] for item in found] == [0, 1, 2]
    assert found[2]["sigma"] == 0


def test_symbols_have_a_flip_probability(capsys):
    found = answer(capsys, "calibrate", "--mechanism", "response", "--period", "0")
    assert found["flip_probability"] == pytest.approx(2 / (2.718281828 + 2))
    again = answer(
        capsys, "account", "--mechanism", "response", "--period", "0", "--flip", str(found["flip_probability"])
    )
    assert again["pure_epsilon"] == pytest.approx(1)


def test_a_sampling_sender_needs_less_noise_for_one_transition(capsys):
    whole = answer(capsys, "calibrate", "--sample-rate", "0.2")
    one = answer(capsys, "calibrate", "--sample-rate", "0.2", "--neighbours", "transition")
    assert one["sigma"] < whole["sigma"] / 3
    assert one["valid"]
    assert "one transition" in one["neighbours"]


def test_text_is_readable(capsys):
    _, out, _ = call(capsys, "calibrate", "--accountant", "paper")
    assert "sigma" in out
    assert "alpha <= bound: 19.42 against" in out
    _, out, _ = call(capsys, "explain", "--unit", "message")
    assert "FAILS  alpha <= bound" in out
    assert "none" in out
    _, out, _ = call(capsys, "explain", "--epsilon", "10")
    assert "gamma1 = " in out
    _, out, _ = call(capsys, "explain", "--mechanism", "response")
    assert "paper" not in out


def test_explain_draws_its_plot(capsys, tmp_path):
    path = tmp_path / "plot.png"
    found = answer(capsys, "explain", "--plot", str(path))
    assert found["exact"]["valid"]
    assert path.read_bytes().startswith(b"\x89PNG")


def test_audit_refutes_the_paper_and_not_the_exact_accountant(capsys):
    paper = answer(capsys, "audit", "--accountant", "paper", "--episodes", "3000", exits=1)
    assert paper[0]["verdict"] == "refuted"
    assert paper[0]["lower_bound"] > 5
    assert {"claimed_epsilon", "lower_bound", "confidence", "episodes", "verdict"} <= set(paper[0])
    exact = answer(capsys, "audit", "--epsilon", "1:3", "--episodes", "6000")
    assert [item["verdict"] for item in exact] == ["consistent"] * 2
    assert [item["confidence"] for item in exact] == [0.995] * 2
    assert exact[1]["lower_bound"] > 0.8 * 3


def test_audit_of_a_channel_goes_through_the_measurement_where_asked(capsys):
    line = ("audit", "--epsilon", "3", "--horizon", "2", "--episodes", "1000", "--deployed-episodes", "1500")
    found = answer(capsys, *line, "--path", "both")
    assert [(item["path"], item["episodes"]) for item in found] == [("simulated", 1000), ("deployed", 1500)]
    assert all(1.5 < item["lower_bound"] < 3 for item in found)


@pytest.mark.parametrize("copies", ["1", "2"])
def test_audit_of_the_shipped_code_channel_comes_close(capsys, copies):
    found = answer(capsys, "audit", "--mechanism", "code", "--copies", copies, "--epsilon", "3", "--episodes", "6000")
    assert 0.8 * 3 < found[0]["lower_bound"] <= 3
    assert found[0]["method"] == "Gaussian means"


def test_audit_of_the_shipped_response_channel_comes_close(capsys):
    found = answer(capsys, "audit", "--mechanism", "response", "--period", "0", "--episodes", "20000")
    assert 0.8 < found[0]["lower_bound"] <= 1
    assert found[0]["method"] == "symbol counts"


def test_audit_can_do_without_the_gaussian_form(capsys):
    found = answer(capsys, "audit", "--distribution-free", "--epsilon", "3", "--horizon", "2", "--episodes", "20000")
    assert found[0]["method"] == "distribution-free"
    assert 0.5 < found[0]["lower_bound"] <= 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("calibrate --epsilon 0", "epsilon must lie between 1e-6 and 1e6, or be inf"),
        ("calibrate --epsilon -1", "epsilon must lie between 1e-6 and 1e6, or be inf"),
        ("calibrate --epsilon nan", "epsilon must lie between 1e-6 and 1e6, or be inf"),
        ("calibrate --epsilon much", "epsilon must be a number"),
        ("calibrate --delta 0", "delta must lie strictly between 0 and 1"),
        ("calibrate --delta 1", "delta must lie strictly between 0 and 1"),
        ("calibrate --clip-norm 0", "clip_norm must be a finite number above 0"),
        ("calibrate --clip-norm nan", "clip_norm must be a finite number above 0"),
        ("calibrate --horizon 0", "horizon must be a whole number from 1"),
        ("calibrate --sample-rate 0.01", "never draws a transition"),
        ("calibrate --mechanism response --accountant paper", "only gaussian"),
        ("calibrate --neighbours transition --accountant paper", "goes with --accountant exact"),
        (
            "calibrate --mechanism laplace",
            "allowed are gaussian, response, code, subset, timed, correlated, sums, or your own as package.module:Name",
        ),
        ("calibrate --mechanism json:dumps", "is not a dpmac.privacy.mechanisms.base.Mechanism"),
        ("calibrate --mechanism nowhere:Class", "cannot be loaded"),
        ("account", "--sigma is needed"),
        ("account --mechanism subset --flip 0.1", "--ratio is needed"),
        ("account --mechanism response --sigma 1", "--flip is needed"),
        ("account --sigma 1 --flip 0.1", "--flip is not for"),
        ("account --sigma nan", "noise must be finite"),
        ("account --mechanism response --flip 0.9", "flip probability must be at most"),
        ("audit --epsilon inf", "an audit needs noise"),
        ("audit --episodes 3", "episodes must be"),
        ("audit --deployed-episodes 0", "deployed-episodes must be a whole number from 50 to 10^6, not 0"),
        ("audit --neighbours transition", "--neighbours inputs"),
        ("audit --size 0", "size must be"),
        ("explain --epsilon inf", "one finite epsilon"),
        ("explain --neighbours transition", "--neighbours inputs"),
        ("explain --plot plot.docx", "must end in"),
        ("guess", "dpmac privacy has: calibrate, account, audit, audit-training, eavesdrop, explain, stream, ledger"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_two(capsys, arguments, message):
    code, out, err = call(capsys, *arguments.split())
    assert code == 2
    assert out == ""
    assert message in err
    assert err.strip().count("\n") == 0


@pytest.mark.parametrize("name", ["calibrate", "account", "audit", "explain"])
def test_help_has_an_example(capsys, name):
    code, out, _ = call(capsys, name, "--help")
    assert code == 0
    assert f"dpmac privacy {name} --" in " ".join(out.split())


def test_calibrate_answers_within_three_seconds_and_without_jax():
    code = (
        "import sys; from dpmac.cli import main; main(['privacy', 'calibrate', '--epsilon', '1', '--json']);"
        "print('jax' in sys.modules, file=sys.stderr)"
    )
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)  # whatever else runs here
        assert done.stderr.strip().endswith("False")
    assert min(times) < 3


def test_a_stream_is_followed_best_with_correlated_noise_where_an_increment_is_protected(capsys, tmp_path):
    path = tmp_path / "stream.svg"
    rows = answer(capsys, "stream", "--epsilon", "3", "--plot", str(path))["rows"]
    errors = {(row["reading"], row["kind"]): row["error"] for row in rows}
    assert min(errors, key=lambda name: errors[name]) == ("increment", "root")
    assert all(row["episode_epsilon"] <= 3 for row in rows if row["reading"] == "episode")
    assert all(row["episode_epsilon"] > 20 for row in rows if row["reading"] == "increment")
    assert path.stat().st_size > 10_000
    _, out, _ = call(capsys, "stream")
    assert "the whole episode" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--epsilon", "inf"], "finite"),
        (["--decay", "1"], "decay"),
        (["--plot", "a.docx"], ".svg"),
        (["--delta", "0"], "delta"),
    ],
)
def test_a_stream_that_cannot_be_is_bad_input(words, says, capsys):
    code, _, error = call(capsys, "stream", *words)
    assert code == 2
    assert says in error
