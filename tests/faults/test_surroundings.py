"""Trouble from outside: other processes, unwritable folders, clocks that go backwards, services that fail."""

import importlib.util
import json
import math
import sys
import time
import types
from typing import Any

import pytest
from tiny import OPTIONS, begin, contents, dpmac, train

from dpmac import cli
from dpmac.results import store
from dpmac.runner import population


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("surroundings") / "run"
    train(folder)
    return folder


def test_a_second_process_on_a_run_is_refused_and_the_first_goes_on(finished, tmp_path):
    begin(tmp_path / "run", pieces=1)
    before = contents(tmp_path / "run")
    with store.locked(tmp_path / "run"):
        second = dpmac("resume", tmp_path / "run", "--quiet")
        out, error = second.communicate()
        assert second.returncode == 2
        assert error.strip() == f"dpmac: another process is at work on {tmp_path / 'run'}"
        assert not out
        assert contents(tmp_path / "run") == before
    for _ in population.train_folder(tmp_path / "run"):
        pass
    assert contents(tmp_path / "run") == contents(finished)


REPRODUCE = ["reproduce", "nonprivate", "--scale", "smoke", "--tasks", "ccn", "--methods", "silent"]


@pytest.mark.parametrize("command", [REPRODUCE, ["frontier", "ccn", "--scale", "smoke"]], ids=["reproduce", "frontier"])
def test_a_second_process_on_results_is_refused_and_writes_nothing(command, tmp_path, capsys):
    with store.locked(tmp_path / "out"):
        assert cli.main([*command, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.strip() == f"dpmac: another process is at work on {tmp_path / 'out'}"
    assert contents(tmp_path / "out") == {}


def test_reproduce_on_a_full_disk_ends_with_one_clear_line_and_goes_on_later(tmp_path, capsys):
    line = [*REPRODUCE, "--out", tmp_path, "--checkpoint-seconds", "0", "--skip-figures", "--json"]
    full = dpmac(*line, largest_file=40)  # small files fit, a checkpoint does not
    _, error = full.communicate()
    assert full.returncode == 1
    assert "Traceback" not in error
    last = error.strip().splitlines()[-1]
    assert last.startswith("dpmac: ")
    assert "file too large" in last
    assert "jobs/ccn-silent" in last
    assert cli.main([str(word) for word in line]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["finished"] == told["runs"] == 2


@pytest.mark.parametrize(
    "command",
    [
        ["train", *OPTIONS, "--out", "/proc/nowhere/run", "--quiet"],
        ["reproduce", "tarmac", "--scale", "smoke", "--tasks", "ccn", "--out", "/proc/nowhere"],
        ["watch", "RUN", "--out", "/proc/nowhere/film.gif", "--size", "64"],
        ["demo", "--out", "/proc/nowhere"],
    ],
    ids=lambda command: command[0],
)
def test_a_folder_that_nobody_can_write_is_one_clear_line(command, finished, capfd):
    """Not even root can write into /proc."""
    assert cli.main([str(finished) if word == "RUN" else word for word in command]) in (1, 2)
    error = capfd.readouterr().err
    assert "Traceback" not in error
    last = error.strip().splitlines()[-1]
    assert last.startswith("dpmac: ")
    assert "nowhere" in last


def test_a_clock_that_runs_backwards_changes_nothing(finished, tmp_path, monkeypatch):
    start, calls = time.time(), [0]

    def backwards() -> float:
        calls[0] += 1
        return start - 3600 * calls[0]

    monkeypatch.setattr(time, "time", backwards)
    train(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(finished)


class Service:
    """Weights & Biases or TensorBoard, failing where it is told to."""

    def __init__(self, fails: str):
        self.fails, self.calls = fails, 0
        self.given: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []

    def attempt(self, what: str) -> None:
        self.calls += 1
        if what == self.fails:
            raise SystemExit("no network") if what == "exit" else RuntimeError(f"{what} failed")

    def modules(self) -> dict[str, types.ModuleType]:
        wandb, board = types.ModuleType("wandb"), types.ModuleType("tensorboardX")
        for module in (wandb, board):
            module.__spec__ = types.SimpleNamespace(name=module.__name__)  # type: ignore[assignment]
        wandb.init = lambda **given: self.begun(**given)  # type: ignore[attr-defined]
        board.SummaryWriter = lambda *place, **given: self.begun(place=place, **given)  # type: ignore[attr-defined]
        return {"wandb": wandb, "tensorboardX": board}

    def begun(self, **given: Any) -> "Service":
        self.attempt("begin")
        self.attempt("exit")
        self.given.append(given)
        return self

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.attempt("log")
        self.logged.append((step, {name: value}))

    def log(self, values: dict[str, float], step: int) -> None:
        self.attempt("log")
        self.logged.append((step, values))

    def flush(self) -> None:
        self.attempt("flush")


@pytest.mark.parametrize(
    ("flag", "fails"),
    [
        ("--wandb", "begin"),
        ("--wandb", "exit"),
        ("--wandb", "log"),
        ("--tensorboard", "begin"),
        ("--tensorboard", "flush"),
    ],
)
def test_a_service_that_fails_never_stops_training(flag, fails, finished, tmp_path, monkeypatch, capfd):
    service = Service(fails)
    for name, module in service.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    assert cli.main(["train", *OPTIONS, "--out", str(tmp_path / "run"), "--quiet", flag]) == 0
    error = capfd.readouterr().err
    assert error.count("failed and is left alone from here on") == 1
    assert service.calls > 0
    assert without_loggers(tmp_path / "run") == contents(finished)


def without_loggers(folder):
    return {name: digest for name, digest in contents(folder).items() if name != "loggers.json"}


@pytest.mark.parametrize("flag", ["--wandb", "--tensorboard"])
def test_every_run_is_one_of_the_services_and_goes_on_when_it_is_resumed(flag, tmp_path, monkeypatch, capfd):
    """Every finite number, with one run for each budget and seed, in one group, with the configuration."""
    service, folder = Service("never"), tmp_path / "run"
    for name, module in service.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("WANDB_RUN_GROUP", "mine")
    free = ["--epsilon", "inf", "2"]
    words = [*OPTIONS[:1], *OPTIONS[4:], *free, "--out", str(folder), "--quiet", "--checkpoint-seconds", "0", flag]
    real, pieces = population.train_folder, []

    def interrupted(*given, **named):
        for piece in real(*given, **named):
            yield piece
            pieces.append(piece)
            if len(pieces) == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(population, "train_folder", interrupted)
    assert cli.main(["train", *words]) == 130
    monkeypatch.setattr(population, "train_folder", real)
    assert cli.main(["resume", str(folder), "--quiet"]) == 0
    assert "left alone" not in capfd.readouterr().err
    rows = [row for row in store.read_metrics(folder) if math.isfinite(row.value)]
    assert len(rows) < len(store.read_metrics(folder))  # the signal-to-noise ratio of free messages
    assert sum(len(values) for _, values in service.logged) == len(rows)
    assert len(service.given) == 8
    before, after = service.given[:4], service.given[4:]
    if flag == "--wandb":
        assert [one["id"] for one in before] == [one["id"] for one in after]
        assert len({one["id"] for one in before}) == 4
        assert {one["name"] for one in before} == {f"epsilon-{e}-seed-{s}" for e in ("inf", "2") for s in (0, 1)}
        assert all(one["resume"] == "allow" and one["config"]["networks"]["hidden"] == 8 for one in before)
        assert all(one["project"] == "dpmac" and "group" not in one for one in before)  # that is the environment's
    else:
        assert {one["place"] for one in before} == {
            (str(folder / "events" / f"epsilon-{e}" / f"seed-{s}"),) for e in ("inf", "2") for s in (0, 1)
        }
        assert [one["purge_step"] for one in before] == [40] * 4
        assert [one["purge_step"] for one in after] == [120] * 4


@pytest.mark.parametrize("flag", ["--wandb", "--tensorboard"])
def test_a_service_that_is_not_installed_is_refused_before_anything_is_written(flag, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["train", *OPTIONS, "--out", str(tmp_path / "run"), flag]) == 2
    assert f"pip install {'wandb' if flag == '--wandb' else 'tensorboardX'}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
