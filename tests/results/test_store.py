"""A run's folder: complete files or none, and a metrics.csv that survives a cut."""

import errno
import fcntl
import os
import sys

import pytest

from dpmac.config import BadInput, RunConfig
from dpmac.results import store
from dpmac.results.store import Metric

ROWS = [Metric(20, "1", 0, "return", -1.5), Metric(20, "1:inf", 1, "loss", float("inf")), Metric(40, "1", 0, "x", 1e-9)]


def test_what_a_killed_process_has_left_beside_a_file_is_swept_by_the_next(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for name in (".config.json.99.aside", "checkpoints/.groups.json.99.aside", "config.json"):
        (tmp_path / name).write_text("{}")
    with store.locked(tmp_path):
        assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["config.json", "lock"]


def test_metrics_come_back_as_they_were_written(tmp_path):
    store.rewind_metrics(tmp_path, ROWS[:1])
    store.append_metrics(tmp_path, ROWS[1:])
    assert store.read_metrics(tmp_path) == ROWS
    assert (tmp_path / "metrics.csv").read_text().splitlines()[0] == "step,budget,seed,name,value"


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path):
    store.rewind_metrics(tmp_path, ROWS)
    path = tmp_path / "metrics.csv"
    whole = path.read_text()
    for length in range(len(whole) - 1, whole.rindex("\n", 0, -1), -1):
        path.write_text(whole[:length])
        assert store.read_metrics(tmp_path) == ROWS[:2]


def test_no_metrics_yet_is_no_error_and_nonsense_is(tmp_path):
    assert store.read_metrics(tmp_path) == []
    (tmp_path / "metrics.csv").write_text("step,budget,seed,name,value\n1,2\n")
    with pytest.raises(BadInput, match=r"metrics\.csv is damaged"):
        store.read_metrics(tmp_path)


def test_writing_that_fails_leaves_the_file_before_and_nothing_beside(tmp_path, monkeypatch):
    path = tmp_path / "some.json"
    store.write_json(path, {"kept": True})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*some\.json"):
        store.write_json(path, {"kept": False})
    monkeypatch.undo()
    assert store.read_json(path) == {"kept": True}
    assert [entry.name for entry in tmp_path.iterdir()] == ["some.json"]


def test_a_folder_that_holds_a_run_is_refused_and_left_alone(tmp_path):
    store.create(tmp_path / "run", RunConfig("cn"), {"claims": {}}, {})
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    with pytest.raises(BadInput, match="already holds a run"):
        store.create(tmp_path / "run", RunConfig("pp"), {}, {})
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert store.load_config(tmp_path / "run") == RunConfig("cn")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadInput, match="is not a folder"):
        store.create(tmp_path / "file", RunConfig("cn"), {}, {})
    assert (tmp_path / "file").read_text() == "mine"


def test_what_is_no_run_is_said_to_be_none(tmp_path):
    with pytest.raises(BadInput, match=r"is .* the folder of a run"):
        store.load_config(tmp_path)
    (tmp_path / "config.json").write_text('{"task": "cn", "colour": "red"}')
    with pytest.raises(BadInput, match="no field colour"):
        store.load_config(tmp_path)


def test_only_one_holds_a_folder_and_a_lock_ends_with_its_holder(tmp_path):
    with store.locked(tmp_path), pytest.raises(BadInput, match="another process"), store.locked(tmp_path):
        pass
    with store.locked(tmp_path):
        pass


def test_a_file_system_without_locks_is_no_other_process(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(BadInput, match="cannot be locked: No locks available") as caught, store.locked(tmp_path):
        pass
    assert not isinstance(caught.value, store.Held)


def test_a_folder_that_another_process_begins_is_not_begun(tmp_path):
    with store.locked(tmp_path), pytest.raises(store.Held):
        store.create(tmp_path, RunConfig("cn"), {}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_configurations_that_differ_have_different_digests():
    assert store.digest(RunConfig("cn")) == store.digest(RunConfig("cn"))
    assert store.digest(RunConfig("cn")) != store.digest(RunConfig("cn", seeds=(1,)))


def test_a_system_without_posix_locks_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(BadInput, match="Windows does not have; use dpmac in WSL"), store.locked(tmp_path):
        pass
