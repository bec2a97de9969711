"""The day of a researcher: what is trained can be configured, followed, stopped, drawn and reported, and cannot lie."""

import dataclasses
import json
import re
import tomllib
import xml.etree.ElementTree

import pytest
from PIL import Image
from tiny import CONFIG, OPTIONS, contents, train

import dpmac
from dpmac import cli, config
from dpmac.cli import completion, progress
from dpmac.cli.train import read_file
from dpmac.results import store
from dpmac.runner import population, schedule, statement
from dpmac.runner.population import Progress
from dpmac.runner.train import complete


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("day") / "run"
    train(folder)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of a finished run, to be damaged."""
    import shutil

    return shutil.copytree(finished, tmp_path / "run")


# Statements are recomputed --------------------------------------------------------------------------------------------


def rewrite(folder, change):
    path = folder / "privacy.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


CHANGES = {
    "a smaller epsilon": lambda data: data["claims"]["1"][0].update(epsilon=0.1, exact_epsilon=0.1),
    "less noise": lambda data: data["claims"]["1"][1].update(noise=0.5),
    "a claim that is called true": lambda data: data["claims"]["1"][0].update(valid=1),
    "an agent less": lambda data: data["claims"]["1"].pop(),
    "a budget less": lambda data: data["claims"].pop("1"),
    "another name": lambda data: data.update(claims={"0.1": data["claims"]["1"]}),
    "no claims": lambda data: data.pop("claims"),
    "a list": lambda data: data.update(claims=[]),
    "everything is covered": lambda data: data.update(covers="everything", not_covered="nothing"),
    "another path is meant": lambda data: data.update(about="the run's own messages"),
    "simulated noise protects": lambda data: data.update(simulated="it protects as well"),
    "another length": lambda data: data.update(length="nobody sees the length"),
    "nobody else observes it": lambda data: data["observers"].clear(),
    "an observer more": lambda data: data["observers"].update(place="nobody"),
    "a sentence of one's own": lambda data: data.update(certified="by somebody"),
    "training that was not private": lambda data: data.update(training={"valid": True}),
    "no warnings": lambda data: data["claims"]["1"][0].update(warnings=[]),
    "another warning": lambda data: data["claims"]["1"][0].update(warnings=["none"]),
    "a failed condition": lambda data: data["claims"]["1"][0].update(failed_conditions=[{"name": "none"}]),
    "other neighbours": lambda data: data["claims"]["1"][0].update(neighbours="two episodes that differ in nothing"),
    "the old neighbours of a message": lambda data: data["claims"]["1"][0].update(
        neighbours="two inputs of one agent that one single message is made from, all else the same"
    ),
    "another agent": lambda data: data["claims"]["1"][0].update(agent=1),
    "written in another way": lambda data: data["claims"]["1"][0].update(released_as="one bit"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_rewritten_statement_is_refused(change, copied):
    rewrite(copied, change)
    with pytest.raises(config.BadInput, match=r"privacy\.json does not say what follows from config\.json"):
        population.load(copied)


@pytest.mark.parametrize(
    "line",
    [
        "privacy audit {}",
        "privacy eavesdrop {}",
        "resume {}",
        "evaluate {}",
        "watch {} --out film.gif",
        "report {} --out page.html",
    ],
)
def test_every_command_that_reads_a_statement_refuses_one_that_was_rewritten(line, copied, capsys, monkeypatch):
    rewrite(copied, CHANGES["a smaller epsilon"])
    monkeypatch.chdir(copied.parent)
    assert cli.main(line.format("run").split()) == 2
    assert "privacy.json does not say what follows from config.json" in capsys.readouterr().err


def test_results_with_a_rewritten_statement_are_refused(tmp_path, capsys):
    import made

    from dpmac.experiments import Cell
    from dpmac.results import records

    results = made.results(lambda cell: -20.0, cells=[Cell("ccn", "dpmac", "step-0.1")], seeds=1, evaluations=2)
    statement.check_records(results)
    (run,) = results.runs.values()
    run.claims[0]["exact_epsilon"] = 0.1
    records.pack(results, tmp_path / "results.json.gz")
    assert cli.main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    assert "does not follow from its configuration" in capsys.readouterr().err


def test_statements_of_version_0_1_and_of_the_results_that_are_shipped_still_hold():
    from pages import ROOT

    from dpmac.results import records

    shipped = sorted((ROOT / "results").rglob("*.json.gz"))
    assert ROOT / "results/version-0.1/paper.json.gz" in shipped
    for path in shipped:
        statement.check_records(records.unpack(path))


def test_an_old_sentence_is_read_as_the_one_that_says_the_same_today_and_as_no_other():
    from dpmac.runner import earlier

    for old, new in earlier.TODAY.items():
        assert statement.same_value(old, new)
        assert not statement.same_value(new, old)
        assert not any(statement.same_value(old, other) for other in earlier.TODAY.values() if other != new)


# Training that breaks -------------------------------------------------------------------------------------------------


def broken(tmp_path, **changes):
    """What is said where training is no longer finite, and what is left."""
    folder = tmp_path / "run"
    population.create(folder, dataclasses.replace(CONFIG, **changes))
    with pytest.raises(config.Failure) as told:
        for _ in population.train_folder(folder, checkpoint_seconds=0):
            pass
    assert all(abs(row.value) < float("inf") for row in store.read_metrics(folder) if row.name != "signal_to_noise")
    saved = any((folder / "checkpoints").glob("group-*"))
    assert f"{folder} {'keeps its last good checkpoint' if saved else 'has no checkpoint yet'}" in str(told.value)
    return str(told.value), folder


def test_a_nan_observation_stops_the_run_and_is_named(tmp_path):
    said, folder = broken(tmp_path, task="nowhere:Blind")
    assert "observations of the task" in said
    assert "epsilon 1, seed 0 (4 of 4 runs)" in said
    assert not list((folder / "checkpoints").glob("group-*"))


def test_a_learning_rate_that_is_too_large_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path, capsys):
    options = CONFIG.learner_options | {"learning_rate": 1e30, "gradient_norm": 1e30}
    said, folder = broken(tmp_path, learner_options=options)
    assert "weights of the team" in said
    before = contents(folder)
    assert cli.main(["resume", str(folder), "--quiet"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("dpmac: training became not finite before step ")
    assert "Traceback" not in error
    assert contents(folder) == before


# Resuming -------------------------------------------------------------------------------------------------------------


def test_a_finished_run_with_a_damaged_checkpoint_is_refused(copied, capsys):
    (path,) = (copied / "checkpoints").glob("*.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for command in ("resume", "evaluate"):
        assert cli.main([command, str(copied)]) == 2
        assert "is truncated or altered" in capsys.readouterr().err


@pytest.mark.parametrize("epsilon", ["1", "1.0", "1e0"])
def test_budgets_compare_as_numbers(epsilon, finished, tmp_path):
    assert (
        cli.main(["watch", str(finished), "--out", str(tmp_path / "a.gif"), "--size", "32", "--epsilon", epsilon]) == 0
    )
    team = dpmac.load(finished, epsilon=float(epsilon), limit=5.0, new_ledger=not (finished / "ledger.json").exists())
    assert team.noise[0] > 0


# Configuration files --------------------------------------------------------------------------------------------------


def test_a_printed_configuration_is_the_one_that_trains(tmp_path, capsys, monkeypatch):
    words = [*OPTIONS, "--first-seed", "7"]
    assert cli.main(["config", *words]) == 0
    text = capsys.readouterr().out
    assert "# Width of actors" in text
    assert tomllib.loads(text)["budgets"][1]["epsilon"] == [2.0, float("inf")]
    (tmp_path / "run.toml").write_text(text)
    assert cli.main(["config", *words, "--json"]) == 0
    (tmp_path / "run.json").write_text(capsys.readouterr().out)
    wanted = complete(dataclasses.replace(CONFIG, seeds=(7, 8)))
    assert read_file(tmp_path / "run.toml") == read_file(tmp_path / "run.json") == wanted


def created(monkeypatch, capsys, *words):
    """The configuration that a command would train, or its message."""
    seen = []

    def create(folder, config):
        seen.append(complete(config))
        raise config_error

    config_error = config.BadInput("far enough")
    monkeypatch.setattr(population, "create", create)
    assert cli.main(["train", *words]) == 2
    return seen[0] if seen else capsys.readouterr().err


def test_a_file_and_options_beside_it_which_win(tmp_path, monkeypatch, capsys):
    path = tmp_path / "run.json"
    path.write_text(config.dumps(complete(CONFIG)))
    out = ["--out", str(tmp_path / "run")]
    assert created(monkeypatch, capsys, "--config", str(path), *out) == complete(CONFIG)
    changed = created(
        monkeypatch, capsys, "--config", str(path), "--hidden", "16", "--batch", "5", "--seeds", "1", *out
    )
    assert (changed.networks.hidden, changed.learner_options["batch"], changed.seeds) == (16, 5, (0,))
    assert changed.networks.message_hidden == CONFIG.networks.message_hidden
    said = created(monkeypatch, capsys, "--config", str(path), "--learner", "mappo", *out)
    assert "--learner mappo needs a file of its own" in said


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "task = ", "is damaged"),
        ("a.json", "{", "is damaged"),
        ("a.json", '{"task": "ccn", "colour": 1}', "has no field colour"),
        ("a.json", "[]", "must be an object"),
        ("a.yaml", "task: ccn", "NAME.json or NAME.toml"),
        ("a.toml", 'task = "ccn"\nseeds = [0, 2]', "follow each other"),
        ("a.toml", 'task = "ccn"\n[networks]\nhidden = 0', "hidden must be"),
        ("a.toml", 'task = "ccn"\n[learner_options]\ncolour = 1', "has no option 'colour'"),
        ("a.toml", None, "cannot be read"),
        ("a.toml", "", "RunConfig needs task"),
        ("a.json", '{"task": "ccn", "task": "cn"}', "the key 'task' stands twice"),
        ("a.json", "[" * 100_000, "it nests too deeply"),
        ("a.json", '{"task": "ccn", "training": {"steps": true}}', "training: steps: expected a whole number"),
    ],
)
def test_files_that_cannot_be_right_are_refused(name, text, said, tmp_path, capsys):
    if text is not None:
        (tmp_path / name).write_text(text)
    assert cli.main(["train", "--config", str(tmp_path / name), "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# Pictures and pages ---------------------------------------------------------------------------------------------------


def test_curves_of_one_and_of_many_runs_are_drawn(finished, copied, tmp_path, capsys):
    assert cli.main(["plot", str(finished), "--out", str(tmp_path / "one.png")]) == 0
    with Image.open(tmp_path / "one.png") as picture:
        assert picture.size[0] > 600
    many = [str(finished), str(copied), "--metric", "message_norm", "--out", str(tmp_path / "many.svg")]
    assert cli.main(["plot", *many]) == 0
    text = (tmp_path / "many.svg").read_text()
    xml.etree.ElementTree.fromstring(text)
    assert text.count("ε = 2:inf (2 seeds)") == 2
    for bad, said in ((["--metric", "colour"], "it has "), (["--out", "x.pdf"], "ends in .png, .svg")):
        assert cli.main(["plot", str(finished), "--out", str(tmp_path / "x.png"), *bad]) == 2
        assert said in capsys.readouterr().err
    assert dpmac.plot(finished).axes[0].get_xlabel() == "environment steps"


def test_a_report_is_made_of_any_run(finished, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert cli.main(["report", str(finished), "--out", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["step"] == 200
    text = page.read_text()
    assert "<svg" in text
    assert "exact ε of an episode" in text
    assert "2:inf" in text
    assert not re.search(r'(src|href)="?https?:', text)
    assert cli.main(["report", str(finished), "--out", str(page), "--figures", str(tmp_path / "f")]) == 2
    assert "--figures is for results" in capsys.readouterr().err


# Progress -------------------------------------------------------------------------------------------------------------


def piece(step, seconds, group=0, groups=1):
    rows = [store.Metric(step, "1", seed, "return", 2.0) for seed in (0, 1)]
    return Progress(step, 1000, group, groups, rows, seconds)


def test_time_that_is_left_leaves_compilation_out():
    pace = progress.Pace()
    pace.add(piece(100, 90.0))
    assert pace.left() is None
    assert "left" not in progress.line(piece(100, 90.0), pace)
    pace.add(piece(200, 2.0))
    assert pace.left() == pytest.approx(16.0)
    assert "0:16 left" in progress.line(piece(200, 2.0), pace)
    assert "100 steps/s" in progress.line(piece(200, 2.0), pace)
    pace = progress.Pace()
    for one in (piece(500, 60.0, 0, 2), piece(1000, 5.0, 0, 2), piece(500, 70.0, 1, 2)):
        pace.add(one)
    assert pace.left() == pytest.approx(5.0)


def test_the_rest_of_many_jobs_is_told_from_their_first_evaluation_on(monkeypatch):
    now = iter([100.0, 160.0, 170.0, 180.0])
    monkeypatch.setattr("dpmac.runner.schedule.time.monotonic", lambda: next(now))
    watch = schedule.Watch()
    assert watch.read(0.1) == (60.0, None)
    assert watch.read(0.2) == (70.0, pytest.approx(80.0))
    assert watch.read(1.0) == (80.0, 0.0)


def test_a_clock_runs_while_a_program_is_compiled(monkeypatch):
    import io
    import time

    from rich.console import Console

    told = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress.Compiling(told, quiet=False):
        time.sleep(1.2)
    assert "compiling, and training to the first evaluation: 0:01" in told.file.getvalue()  # type: ignore[attr-defined]
    silent = Console(file=io.StringIO(), force_terminal=True)
    with progress.Compiling(silent, quiet=True):
        time.sleep(0.01)
    assert silent.file.getvalue() == ""  # type: ignore[attr-defined]


# Options --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", completion.described())
def test_every_option_is_explained(name):
    import tyro

    help_text = tyro.extras.get_parser(
        completion.described()[name].options, config=(tyro.conf.FlagCreatePairsOff,)
    )._actions
    bare = [action.option_strings or action.dest for action in help_text if not words_of(action.help)]
    assert not bare


def words_of(text):
    """A help text without what only names the default."""
    return re.sub(r"\([^()]*\)\s*$", "", str(text or "")).strip()


REFUSED = {
    "--anneal-from 0.5 --epsilon 1": "anneal-from must be at least every budget",
    "--anneal-from 5 --epsilon inf": "all messages of this run are free",
    "--anneal-share 0.5": "--anneal-share needs --anneal-from",
    "--symbols 4": "--symbols is not for the mechanism gaussian",
    "--mechanism response --clip-norm 2": "--clip-norm is not for the mechanism response",
    "--mechanism response --message-size 4": "--message-size is not for the mechanism response",
    "--epsilon 1e300": "epsilon must lie between 1e-6 and 1e6, or be inf",
    "--epsilon 1e-300": "epsilon must lie between 1e-6 and 1e6, or be inf",
    "--copies 2": "copies must be 1 (broadcast), for there is one other agent, not 2",
    "--method-set colour=red": "method dpmac has no option 'colour'; allowed are deterministic",
    "--method-set deterministic=5": "dpmac: deterministic must be true or false, not 5",
    "--method commnet --method-set a=1": "method commnet has no option 'a'; allowed are none",
    "--first-seed -1": "seeds must lie in [0, 2^32)",
    "--seeds 1000000": "seeds must be a whole number from 1 to 10,000",
    "--explore-steps -1": "explore_steps must be a whole number from 0",
}


@pytest.mark.parametrize("line", REFUSED)
def test_options_that_would_be_ignored_or_cannot_be_are_refused(line, tmp_path, capsys):
    out = tmp_path / "run"
    assert cli.main(["train", "probe-listen", *line.split(), "--out", str(out)]) == 2
    assert REFUSED[line] in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_exploration_fits_the_length_of_the_run():
    def explored(steps):
        short = dataclasses.replace(CONFIG, learner_options={}, training=config.Training(steps=steps))
        return complete(short).learner_options["explore_steps"]

    assert [explored(steps) for steps in (8_000, 100_000, 1_000_000)] == [4_000, 50_000, 50_000]


# What the sharp edges promise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["gaussian", "response"])
def test_a_run_says_that_its_own_messages_are_simulated(mechanism, tmp_path, capsys):
    """Sharp edges 2 and 20."""
    folder = tmp_path / "run"
    private = dataclasses.replace(CONFIG, channel=config.Channel(mechanism), budgets=(config.Budget((1.0,), 1e-300),))
    program = population.create(folder, private)
    progress.warn(folder, program.task)
    said = json.loads((folder / "privacy.json").read_text())["simulated"]
    assert "from a seed, and protects nothing" in said
    assert said in capsys.readouterr().err


def test_a_refuted_claim_is_exit_code_one(capsys):
    line = "privacy audit --epsilon 1 --accountant paper --episodes 1000 --json"
    assert cli.main(line.split()) == 1
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "refuted"


# Limits ---------------------------------------------------------------------------------------------------------------


def test_horizons_have_a_limit_with_a_message(finished, tmp_path, capsys):
    for mechanism in ("gaussian", "response"):
        with pytest.raises(config.BadInput, match=r"horizon must be a whole number from 1 to 10\^6"):
            dpmac.privacy.calibrate(config.Channel(mechanism), 1.0, 1e-4, horizon=10**9)
    assert dpmac.privacy.calibrate(config.Channel(), 1.0, 1e-4, horizon=10**6) == pytest.approx(3185.5, rel=1e-3)
    line = ["watch", str(finished), "--out", str(tmp_path / "film.gif")]
    assert cli.main([*line, "--size", "100000"]) == 2
    assert "from 16 to 2048, not 100000" in capsys.readouterr().err
    assert cli.main([*line, "--fps", "1e9"]) == 2
    assert "between 0.1 and 100" in capsys.readouterr().err
