"""What commands say to people: names as they are, plain words for what is wrong, and results that can be read."""

import dataclasses
import errno
import json
import math
import os
import re
import shlex

import pytest
from tiny import CONFIG, begin, train, untrained

from dpmac import cli
from dpmac.cli import privacy, progress, tasks
from dpmac.config import BadInput, Budget, RunConfig, dumps, to_json
from dpmac.figures import curves
from dpmac.runner import population, sweep


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run in a folder whose name reads as markup, as an emoji and as two words."""
    folder = tmp_path_factory.mktemp("words") / "a [dim]:bug: run[/x]"
    train(folder)
    return folder


# Names of folders -----------------------------------------------------------------------------------------------------


def test_names_of_folders_are_printed_as_they_are(finished, capsys, monkeypatch):
    monkeypatch.chdir(finished.parent)
    assert cli.main(["evaluate", finished.name, "--episodes", "4"]) == 0
    assert finished.name in capsys.readouterr().out
    assert cli.main(["resume", finished.name]) == 0
    assert finished.name in capsys.readouterr().out


def test_the_command_that_goes_on_can_be_pasted(finished, tmp_path, monkeypatch, capsys):
    begin(tmp_path / finished.name, pieces=1)

    def stopped(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(population, "train_folder", stopped)
    assert cli.main(["resume", str(tmp_path / finished.name)]) == 130
    said = capsys.readouterr().err.partition("go on with: ")[2].splitlines()[0]
    assert shlex.split(said) == ["dpmac", "resume", str(tmp_path / finished.name)]


def test_a_page_has_text_in_its_picture_and_is_the_same_every_time(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(finished)
    for name in ("one", "two"):
        assert cli.main(["report", ".", "--out", str(tmp_path / f"{name}.html")]) == 0
    page = (tmp_path / "one.html").read_text()
    assert "<text" in page
    assert "scale(0.0)" not in page
    assert f"<title>{finished.name}</title>" in page
    assert "Returns: sums of an episode" in page
    assert page == (tmp_path / "two.html").read_text()


def test_folders_of_one_name_are_told_apart(tmp_path, monkeypatch):
    for name in ("one/run", "two/run", "three"):
        (tmp_path / name).mkdir(parents=True)
    paths = [tmp_path / name for name in ("one/run", "two/run")]
    assert curves.names_of(paths) == ["one/run", "two/run"]
    assert curves.names_of([paths[0], tmp_path / "three"]) == ["run", "three"]
    assert curves.names_of([paths[0], paths[0]]) == ["run", "run"]
    monkeypatch.chdir(paths[1])
    assert curves.names_of([paths[1].relative_to(paths[1])]) == ["run"]


# Places ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.EROFS])
def test_a_place_where_nobody_can_write_is_bad_input_in_plain_words(number, monkeypatch, capsys):
    said = os.strerror(number)

    def fail(argv):
        raise OSError(number, said, "/far/away")

    monkeypatch.setattr(tasks, "run", fail)
    assert cli.main(["tasks"]) == 2
    assert capsys.readouterr().err == f"dpmac: /far/away: {said[0].lower()}{said[1:]}\n"


def test_a_configuration_that_nobody_may_read_is_not_called_damaged(tmp_path, monkeypatch, capsys):
    untrained(tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    (tmp_path / "run" / "config.json").mkdir()  # which not even root can read as a file
    assert cli.main(["evaluate", str(tmp_path / "run")]) == 2
    assert "config.json cannot be read: is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "privacy explain --horizon 2 --plot new/folder/x.png",
        "privacy stream --plot new/folder/x.png --horizon 3",
        "games rounds --plot new/folder/x.png --deviations 10",
    ],
)
def test_pictures_make_the_folder_that_they_lie_in(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(line)) == 0
    assert (tmp_path / "new" / "folder" / "x.png").stat().st_size > 1000


# Messages -------------------------------------------------------------------------------------------------------------


def test_messages_name_what_is_expected(finished, tmp_path, capsys):
    run, out = str(finished), str(tmp_path / "x.svg")
    asked = {
        ("plot", "--training", run, "--out", out): "the folder of a sweep?",
        ("plot", "--agents", run, "--out", out): "the folder of a frontier?",
        ("plot", str(tmp_path), "--out", out): "the folder of a run?",
        ("privacy", "ledger", "verify", str(tmp_path / "none.json")): "none.json does not exist\n",
        ("evaluate", run, "--agents", "3"): "can play with another number of agents (--share-parameters)",
    }
    for words, said in asked.items():
        assert cli.main(list(words)) == 2
        assert said in capsys.readouterr().err


def test_a_bundle_without_a_budget_is_told_of_a_private_one(tmp_path, capsys):
    untrained(tmp_path / "run", dataclasses.replace(CONFIG, budgets=(Budget((math.inf,)), Budget((3.0,)))))
    words = ["--agent", "0", "--limit", "30", "--out", str(tmp_path / "bundle")]
    assert cli.main(["deploy", "export", str(tmp_path / "run"), *words]) == 2
    assert "name one, as epsilon='3'" in capsys.readouterr().err


# Many answers ---------------------------------------------------------------------------------------------------------


def test_an_audit_of_many_teams_is_a_table_with_a_summary(finished, capsys):
    words = ["privacy", "audit", str(finished), "--episodes", "100", "--deployed-episodes", "50"]
    assert cli.main(words) == 0
    out, error = capsys.readouterr()
    assert out.count("Gaussian means") == 1
    assert out.endswith("12 verdicts: all consistent\n")
    assert error.splitlines()[0] == "auditing budget 1, seed 0, agent 0"
    assert len(error.splitlines()) == 6
    assert cli.main([*words, "--json"]) == 0
    out, error = capsys.readouterr()
    assert [answer["method"] for answer in json.loads(out)] == ["Gaussian means"] * 12
    assert not error


def test_an_eavesdropper_says_on_whom_it_is(finished, capsys):
    words = ["--episodes", "200", "--path", "simulated"]
    assert cli.main(["privacy", "eavesdrop", str(finished), *words]) == 0
    out, error = capsys.readouterr()
    assert out.endswith("8 verdicts: all within\n")
    assert "eavesdropping on budget 1, seed 0, agent 0: symbol, simulated" in error


def test_verdicts_that_differ_stand_in_their_rows():
    answers = [{"agent": 0, "unit": "episode", "verdict": "refuted", "failed_checks": ["norms: 2 above 1"]}]
    answers += [{"agent": 1, "unit": "episode", "verdict": "consistent", "failed_checks": []}]
    shared, rows, summary = privacy.tabulated(answers).split("\n\n")
    assert shared == "unit  episode"
    assert rows.splitlines()[1].split() == ["0", "refuted", "norms:", "2", "above", "1"]
    assert rows.splitlines()[2].split() == ["1", "consistent", "-"]
    assert summary == "2 verdicts: 1 refuted, 1 consistent"


def test_tasks_says_how_far_it_is_and_keeps_its_programs(monkeypatch, capsys):
    kept = []
    monkeypatch.setattr(progress, "use_cache", lambda: kept.append(True))
    assert cli.main(["tasks", "probe-value", "probe-listen", "--episodes", "2"]) == 0
    out, error = capsys.readouterr()
    assert error == "1/2 probe-value\n2/2 probe-listen\n"
    assert "Returns: sums of an episode's rewards, mean ± standard error of 2 episodes. Rewards:" in out
    assert cli.main(["tasks", "probe-value", "--episodes", "2", "--json"]) == 0
    assert not capsys.readouterr().err
    assert len(kept) == 2


# Options and their help -----------------------------------------------------------------------------------------------


def test_whole_numbers_may_be_written_with_an_exponent(capsys):
    words = ["--steps", "1e6", "--seeds", "2e0", "--explore-steps", "5e3", "--set", "agents=2e0", "--json"]
    assert cli.main(["config", "midway", *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["training"]["steps"] == 1_000_000
    assert told["seeds"] == [0, 1]
    assert told["learner_options"]["explore_steps"] == 5000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "1.5"], "'1.5' is not a whole number"),
        (["--explore-steps", "few"], "'few' is not a whole number"),
        (["--symbols", "3.5"], "'3.5' is not a whole number or auto"),
        (["--train-epsilon", "x"], "'x' is not a number"),
    ],
)
def test_what_is_no_number_is_said_in_plain_words(words, said, capsys):
    assert cli.main(["train", "ccn", "--out", "nowhere", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("config ccn --set horizon=3 --set view_radius=0.5", "--set is given twice"),
        ("config ccn --epsilon 1 --epsilon=3", "--epsilon is given twice"),
        ("config ccn --method-set past=true --method_set merge=true", "--method-set is given twice"),
        (
            "train cn --set agents=1 --steps 100 --out {out}",
            "an agent alone has nobody to send to; use --method silent",
        ),
    ],
)
def test_what_would_be_dropped_or_break_later_is_refused(line, said, tmp_path, capsys):
    assert cli.main(line.format(out=tmp_path / "out").split()) == 2
    assert said in capsys.readouterr().err


def test_a_configuration_of_one_setting_has_it_and_of_many_is_refused(tmp_path, capsys):
    path, config = tmp_path / "config.json", RunConfig("probe-listen", settings=({"learning_rate": 0.007},))
    path.write_text(dumps(to_json(config)))
    assert cli.main(["config", "--config", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["learner_options"]["learning_rate"] == 0.007
    path.write_text(dumps(to_json(dataclasses.replace(config, settings=({"tau": 0.01}, {"tau": 0.02})))))
    assert cli.main(["config", "--config", str(path)]) == 2
    assert "is of many settings; dpmac sweep trains such" in capsys.readouterr().err


def test_a_task_that_stops_the_program_is_heard(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stops.py").write_text("import sys\nsys.exit('no licence')\n")
    assert cli.main(["tasks", "stops:Task"]) == 1
    assert capsys.readouterr().err == "dpmac: no licence\n"


def test_help_fits_the_terminal_and_breaks_no_line_of_its_own(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.main(["train", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    start = lines.index("Train a team on a task. All budgets and seeds train side by")
    assert lines[start + 1 : start + 3] == ["side. The run can be interrupted and resumed.", ""]
    assert lines[start + 3 : start + 5] == [
        "Example: dpmac train ccn --method dpmac --epsilon 1 3 inf",
        "--seeds 5 --steps 1000000 --out runs/ccn",
    ]
    boxes = [line.strip("│ ") for line in lines]
    assert "are" not in boxes  # alone in a line, where a line of the source ends
    told = " ".join(" ".join(boxes).split())
    assert "Its settings are listed in their own group below." in told
    assert "--no-standardise Switches this off: whether critics learn rewards" in told
    assert "--recurrent-critic Whether critics have a recurrent layer" in told


# Options and costs that surprise --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sweep.CALLED)
def test_a_sweep_says_what_it_calls_an_option_of_train(name):
    with pytest.raises(BadInput, match=f"no setting '{name}'; what dpmac train calls so is {sweep.CALLED[name]} here"):
        sweep.read_space([f"{name}=1"], "maddpg")
    called = re.split("[=,]", sweep.CALLED[name])[0]
    assert called in sweep.kinds_of("maddpg")


def test_an_agent_says_that_it_pays_without_a_robot_too(tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise BadInput("it is enough")

    monkeypatch.setattr("dpmac.deploy.process.opened", refuse)
    (tmp_path / "peers.toml").write_text('team = "a"\nagents = ["127.0.0.1:1", "127.0.0.1:2"]')
    words = ["--peers", str(tmp_path / "peers.toml"), "--insecure"]
    assert cli.main(["deploy", "run", str(tmp_path), *words]) == 2
    *_, note, refusal = capsys.readouterr().err.splitlines()
    assert note == "note: this agent sends and pays in every episode, also while no robot is connected"
    assert refusal == "dpmac: it is enough"
