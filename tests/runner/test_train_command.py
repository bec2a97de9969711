"""`dpmac train` and `dpmac resume`: killed, starved and misused."""

import json
import random
import signal
import time
from pathlib import Path

import pytest
from tiny import CONFIG, OPTIONS, begin, changed, contents, dpmac, killed

from dpmac import cli
from dpmac.cli.train import with_settings
from dpmac.config import to_json
from dpmac.results import store
from dpmac.runner.train import Program, complete

QUICK = ("--checkpoint-seconds", "0", "--quiet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("command") / "run"
    assert cli.main(["train", *OPTIONS, "--out", str(folder), *QUICK]) == 0
    return folder


def line(folder):
    """What trains a folder from where it stands."""
    begun = (folder / "config.json").exists()
    return [*(["resume", folder] if begun else ["train", *OPTIONS, "--out", folder]), *QUICK]


def finish(folder):
    """Train a folder to its end."""
    assert cli.main([str(word) for word in line(folder)]) == 0


def test_killed_and_resumed_run_is_bit_identical(finished, tmp_path):
    """Once before there is a checkpoint, and once after the first."""
    folder = tmp_path / "run"
    assert killed(line(folder), changed(folder / "lock"))
    assert killed(line(folder), (folder / "checkpoints/group-0.json").exists)
    finish(folder)
    assert contents(folder) == contents(finished)


@pytest.mark.large
def test_run_killed_at_a_hundred_random_moments_is_bit_identical(finished, tmp_path, record_property):
    """Many short runs, each killed several times, at moments spread over starting, loading, training and saving."""
    draws, kills, attempt = random.Random(1), 0, 0
    while kills < 100:
        folder = tmp_path / f"run-{attempt}"
        for _ in range(5):
            begun = changed(folder / "lock") if draws.random() < 0.8 else lambda: True
            kills += killed(line(folder), begun, draws.uniform(0.0, 3.0))
        finish(folder)
        assert contents(folder) == contents(finished), folder
        attempt += 1
    record_property("counted", f"train killed {kills} times in {attempt} runs, which all ended with the same bits")


def test_interrupted_run_saves_and_says_how_to_go_on(finished, tmp_path):
    process = dpmac("train", *OPTIONS, "--out", tmp_path / "run", "--quiet")
    while process.poll() is None and not (tmp_path / "run/metrics.csv").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert f"go on with: dpmac resume {tmp_path / 'run'}" in error.replace("\n", "")
    assert "Traceback" not in error
    assert (tmp_path / "run/checkpoints/group-0.json").exists()
    finish(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(finished)


def test_full_disk_ends_with_one_clear_line_and_the_last_good_checkpoint(finished, tmp_path):
    begin(tmp_path / "run")
    checkpoints = contents(tmp_path / "run/checkpoints")
    process = dpmac("resume", tmp_path / "run", *QUICK, largest_file=40)  # metrics fit, a checkpoint does not
    _, error = process.communicate()
    assert process.returncode == 1
    assert "Traceback" not in error
    line = error.strip().splitlines()[-1]
    assert line.startswith("dpmac: ")
    assert "file too large" in line
    assert "checkpoints/group-0-" in line
    assert contents(tmp_path / "run/checkpoints") == checkpoints
    finish(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(finished)


def test_the_command_line_describes_the_same_run(finished):
    assert store.load_config(finished) == complete(CONFIG)


def test_result_as_json_says_returns_and_what_the_claim_is_worth(finished, capsys):
    assert cli.main(["resume", str(finished), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step"] == 200
    assert told["reward_unit"] == "team: share of right answers"
    assert [entry["epsilon"] for entry in told["budgets"]] == ["1", "2:inf"]
    assert all(len(entry["returns"]) == 2 for entry in told["budgets"])
    assert told["episodes"] == 40  # it was trained on no more; a long run is scored on 4,096
    for entry in told["budgets"]:
        low, high = entry["return_ci95"]
        assert low <= min(entry["returns"]) <= entry["return_mean"] <= max(entry["returns"]) <= high
    assert told["budgets"][0]["exact_epsilon_episode"] == pytest.approx(1.0, rel=1e-4)
    assert told["budgets"][1]["exact_epsilon_episode"] == "inf"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--method", "telepathy"], "unknown method 'telepathy'; allowed are dpmac"),
        (["--method", "silent", "--epsilon", "1"], "sends no messages"),
        (["--epsilon", "1:1:1"], "names 3 agents, but the team has 2"),
        (["--epsilon", "small"], "epsilon must be a number, inf"),
        (["--epsilon", "0"], "epsilon must lie between"),
        (["--epsilon", "1", "1"], "budgets must differ"),
        (["--learner", "nobody"], "unknown learner 'nobody'; allowed are maddpg"),
        (["--seeds", "0"], "seeds must be a whole number from 1"),
        (["--updates-per-episode", "0.3"], "must be a whole number from 1"),
        (["--set", "colour=red"], "has no option 'colour'"),
        (["--set", "colour"], "KEY=VALUE"),
        (["--delta", "2"], "delta must lie"),
        (["--clip-norm", "-1"], "clip_norm"),
        (["--copies", "7"], "copies must be 1"),
        (["--noise-at", "receiver", "--mechanism", "response"], "receiver"),
        (["--buffer", "1"], "buffer"),
        (["--hidden", "0"], "hidden"),
        (["--checkpoint-seconds", "-1"], "checkpoint-seconds must be at least 0"),
        (["--most-at-once", "-1"], "most-at-once must be"),
    ],
)
def test_bad_input_exits_with_two_one_clear_line_and_no_folder(arguments, says, tmp_path, capsys):
    place = OPTIONS.index("--epsilon")  # which takes all budgets at once
    options = OPTIONS[:place] + OPTIONS[place + 3 :] if "--epsilon" in arguments else OPTIONS
    assert cli.main(["train", *options, "--out", str(tmp_path / "run"), "--quiet", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_that_already_holds_a_run_is_refused_and_left_as_it_is(finished, capsys):
    before = contents(finished)
    assert cli.main(["train", *OPTIONS, "--out", str(finished)]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert contents(finished) == before


def test_a_folder_that_holds_no_run_is_refused_and_not_made(tmp_path, capsys):
    assert cli.main(["resume", str(tmp_path / "nothing")]) == 2
    assert "does not exist; is" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()


def test_help_shows_an_example(capsys):
    for command in ("train", "resume"):
        assert cli.main([command, "--help"]) == 0
        assert f"Example: dpmac {command}" in " ".join(capsys.readouterr().out.split())


def test_defaults_are_the_papers():
    cls, group, _ = with_settings(["pp"])
    options = cls(task="pp", out=Path("run"))
    config = options.run_config(to_json(getattr(options, group)))
    program = Program.of(config)
    assert program.learner.batch_size(program.rollout) == 256
    assert (config.learner_options["discount"], config.learner_options["learning_rate"]) == (0.99, 7e-4)
    assert (config.networks.hidden, config.networks.message_hidden, config.networks.message_size) == (128, 32, 8)
