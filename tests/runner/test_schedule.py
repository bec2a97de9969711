"""The scheduler trains what is missing, each run once, whatever interrupts it."""

import contextlib
import dataclasses
import json
import logging
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax
import made
import numpy as np
import pytest
from tiny import changed, contents, killed

from dpmac import experiments
from dpmac.cli import main
from dpmac.config import BadInput, Member
from dpmac.experiments import BUDGETS, SCALES, Cell
from dpmac.results import records, store
from dpmac.runner import crew, finish, population, processes, schedule

SMOKE = SCALES["smoke"]
METHODS = ("dpmac", "silent")
COMMAND = ["reproduce", "nonprivate", "--scale", "smoke", "--methods", *METHODS]
OPTIONS = schedule.Options(final_episodes=SMOKE.final_episodes)
WANTED = experiments.populations(["nonprivate"], SMOKE, SMOKE.tasks, METHODS)
GONE = Cell("ccn", "silent").run(1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Results of a figure at the smallest scale, and what the command said."""
    out = tmp_path_factory.mktemp("results") / "out"
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("builtins.print", lambda *text, **_: said.append(" ".join(map(str, text))))
        assert main([*COMMAND, "--out", str(out), "--export", str(out.parent / "all.json.gz"), "--json"]) == 0
    return out, json.loads(said[-1])


@pytest.fixture
def copy(finished, tmp_path):
    """The same results, to be spoilt."""
    return shutil.copytree(finished[0], tmp_path / "out")


@contextlib.contextmanager
def compiles_logged():
    """Compilations are logged, in all threads."""
    jax.config.update("jax_log_compiles", True)
    yield
    jax.config.update("jax_log_compiles", False)


def run_all(out, wanted=None):
    jobs = schedule.plan(out, WANTED if wanted is None else wanted)
    return jobs, list(schedule.work(out, jobs, OPTIONS))


def test_every_run_gets_a_folder_of_its_own_that_other_commands_can_read(finished):
    out, said = finished
    assert said["finished"] == said["runs"] == said["trained_now"] == 4
    assert {path.name for path in (out / "runs").iterdir()} == {
        name for key, config in WANTED.items() for name in experiments.run_names(key, config).values()
    }
    assert list((out / "jobs").iterdir()) == []
    loaded = population.load(out / "runs" / Cell("ccn", "dpmac").run(1))
    assert [run.seed for run in loaded.runs] == [1]
    assert loaded.step == SMOKE.training.steps


def test_scores_are_those_of_the_finished_team_on_the_common_starts(finished):
    record = records.read(finished[0]).runs[Cell("ccn", "dpmac").run(1)]
    loaded = population.load(finished[0] / "runs" / record.name)
    own = population.scores(loaded.program, loaded.teams, loaded.scale, SMOKE.final_episodes)
    assert record.final_return == pytest.approx(float(np.mean(own)), rel=1e-4)
    assert record.final["return_at"]["free"] == record.final["return_mean"]
    assert record.final["return_at"].keys() == set(experiments.PAPER_BUDGETS)
    assert len(record.steps) == SMOKE.training.evaluations
    assert {"return", "message_norm", "share_clipped", "learned_deviation"} <= record.metrics.keys()


def test_silent_teams_are_scored_at_no_noise_but_their_own(finished):
    assert records.read(finished[0]).runs[GONE].final["return_at"].keys() == {"free"}


def test_one_seed_keeps_example_episodes_with_what_was_said(finished):
    runs = records.read(finished[0]).runs
    first, second = (runs[Cell("ccn", "dpmac").run(seed)].episodes for seed in (0, 1))
    assert second == []
    episode = first[0]
    assert np.shape(episode["places"]) == (25, 5, 2)
    assert np.shape(episode["released"]) == np.shape(episode["noise"]) == (25, 2, SMOKE.networks.message_size)
    assert np.all(np.array(episode["noise"]) == 0)  # these messages are free


def test_what_messages_tell_is_measured_where_there_are_any(finished):
    runs = records.read(finished[0]).runs
    found = runs[Cell("ccn", "dpmac").run(1)].final["information"]
    assert 0 <= found["observation"] <= 1
    assert 0 <= found["with_messages"] <= 1
    assert runs[GONE].final["information"] is None


def test_finished_results_are_not_trained_again(finished, monkeypatch, capsys):
    monkeypatch.setattr(population, "train_folder", None)
    assert schedule.plan(finished[0], WANTED) == []
    assert main([*COMMAND, "--out", str(finished[0]), "--skip-figures", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["trained_now"], said["finished"]) == (0, 4)


def test_an_exported_file_stands_for_the_runs_in_it(finished, tmp_path):
    shutil.copy(finished[0].parent / "all.json.gz", tmp_path)
    assert schedule.plan(tmp_path, WANTED) == []
    assert records.read(tmp_path).runs.keys() == records.read(finished[0]).runs.keys()


def test_sessions_are_summed(finished):
    (session,) = records.read(finished[0]).slices
    assert session["runs"] == 4
    assert session["seconds"] > 0
    assert session["versions"]["jax"] == jax.__version__


def test_a_deleted_run_is_retrained_alone_through_interruptions_and_compiled_once(copy, caplog):
    before = records.read_run(copy / "runs" / GONE)
    kept = {path: path.stat().st_mtime_ns for path in (copy / "runs").rglob("*") if GONE not in str(path)}
    shutil.rmtree(copy / "runs" / GONE)
    (job,) = schedule.plan(copy, WANTED)
    assert list(job.names.values()) == [GONE]
    with compiles_logged(), caplog.at_level(logging.WARNING):
        stopped = schedule.work(copy, [job], OPTIONS)
        next(stopped)
        stopped.close()  # type: ignore[attr-defined]  # as a time limit or Ctrl-C does
        (again,) = schedule.plan(copy, WANTED)
        assert again.folder == job.folder
        statuses = list(schedule.work(copy, [again], OPTIONS))
    assert [status.piece.step for status in statuses] == [800, 1200, 1600]  # the first 400 were kept
    assert statuses[-1].share == 1
    assert len(re.findall(r"Compiling jit\(advance\)", caplog.text)) <= 1  # by `prepare`; training found it there
    after = records.read_run(copy / "runs" / GONE)
    np.testing.assert_allclose(after.returns, before.returns, rtol=1e-3)
    assert after.final_return == pytest.approx(before.final_return, rel=1e-3)
    assert all(path.stat().st_mtime_ns == changed for path, changed in kept.items())


def test_time_that_is_up_stops_before_anything_is_lost(copy):
    shutil.rmtree(copy / "runs" / GONE)
    jobs = schedule.plan(copy, WANTED)
    assert list(schedule.work(copy, jobs, schedule.Options(SMOKE.final_episodes, time_limit=0.0))) == []
    assert len(schedule.plan(copy, WANTED)) == 1


def test_a_population_that_was_trained_but_not_written_out_is_only_written_out(copy):
    shutil.rmtree(copy / "runs" / GONE)
    (job,) = schedule.plan(copy, WANTED)
    population.create(job.folder, job.config)
    for _ in population.train_folder(job.folder):
        pass
    jobs, statuses = run_all(copy)
    assert [again.folder for again in jobs] == [job.folder]
    assert statuses == []  # no evaluation was made
    assert records.finished(copy / "runs" / GONE)
    assert not job.folder.exists()


def test_one_process_at_a_time_writes_a_population_out(copy):
    shutil.rmtree(copy / "runs" / GONE)
    (job,) = schedule.plan(copy, WANTED)
    population.create(job.folder, job.config)
    list(population.train_folder(job.folder))
    end = (job.folder, copy / "runs", job.names, SMOKE.final_episodes, {})
    with store.locked(job.folder), pytest.raises(store.Held, match="another process is at work"):
        finish.finish(*end)
    assert not (copy / "runs" / GONE).exists()
    finish.finish(*end)
    assert records.finished(copy / "runs" / GONE)
    finish.finish(*end)  # by a process that was second
    assert not job.folder.exists()


def test_runs_of_another_scale_are_refused(finished):
    scale = dataclasses.replace(SMOKE, learner_options={**SMOKE.learner_options, "updates_per_episode": 0.5})
    other = experiments.populations(["nonprivate"], scale, SMOKE.tasks, METHODS)
    with pytest.raises(BadInput, match="another learner_options"):
        schedule.plan(finished[0], other)


@pytest.mark.parametrize("changes", [{"seeds": (7,)}, {"seeds": (0,), "budgets": (BUDGETS["step-1"],)}])
def test_other_seeds_and_budgets_of_a_population_are_trained_like_its_runs(finished, changes):
    name = Cell("ccn", "dpmac").population
    config = dataclasses.replace(WANTED[name], **changes)
    (job,) = schedule.plan(finished[0], {name: config})
    assert len(job.names) == 1
    training = dataclasses.replace(config.training, episodes=8)
    with pytest.raises(BadInput, match="another training"):
        schedule.plan(finished[0], {name: dataclasses.replace(config, training=training)})


def test_missing_runs_are_covered_exactly():
    cells = experiments.cells("ccn", "dpmac", ("free", "step-1", "step-0.1"))
    config = experiments.configuration(cells, SCALES["paper"])
    free, one, tenth = (BUDGETS[cell.budget] for cell in cells)
    missing = [Member((), *each) for each in ((free, 0), (one, 0), (tenth, 3), (tenth, 4))]
    parts = schedule.products(config, missing)
    assert [(part.budgets, part.seeds) for part in parts] == [((free, one), (0,)), ((tenth,), (3, 4))]


def test_small_populations_are_first_so_that_others_compile_meanwhile(tmp_path):
    scale = SCALES["paper"]
    jobs = schedule.plan(tmp_path, experiments.populations(experiments.targets(["all"]), scale, scale.tasks))
    assert [job.work for job in jobs] == sorted(job.work for job in jobs)
    assert jobs[0].config.method == "silent"


def test_planning_reads_packed_results_of_the_whole_paper(tmp_path):
    records.pack(made.results(lambda cell: -20.0, evaluations=2), tmp_path / "all.json.gz")
    scale = SCALES["paper"]
    wanted = experiments.populations(experiments.targets(["all"]), scale, scale.tasks)
    assert schedule.plan(tmp_path, wanted) == []


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["figure-7"], "episode-dpmac"),
        (["all", "--tasks", "chess"], "cn, ccn, pp"),
        (["all", "--methods", "guess"], "tarmac"),
        (["all", "--time-limit", "0"], "above 0"),
        (["tarmac", "--methods", "silent"], "no run is of these"),
        (["narrow"], "--tasks cn --methods dpmac silent"),
        (["all", "--export", "all.csv"], "json.gz"),
        (["all", "--updates-per-episode", "0.3"], "whole number"),
    ],
)
def test_bad_input_says_what_is_allowed(arguments, allowed, tmp_path, capsys):
    assert main(["reproduce", *arguments, "--scale", "smoke", "--out", str(tmp_path / "out")]) == 2
    assert allowed in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.large)])
def test_killed_again_and_again_it_ends_with_the_same_bits_and_trains_nothing_twice(
    kills, finished, tmp_path, record_property, capsys
):
    """At moments spread over starting, compiling, training, scoring and writing out."""
    draws, attempt, count, before = random.Random(kills), 0, 0, {}
    methods = METHODS if kills > 3 else ["silent"]
    while count < kills:
        out = tmp_path / f"out-{attempt}"
        line = [*COMMAND[: COMMAND.index(METHODS[0])], *methods, "--out", out, "--checkpoint-seconds", "0", "--json"]
        for _ in range(min(kills, 5)):
            before = kept(out)
            begun = changed(out / "lock") if draws.random() < 0.9 else lambda: True
            count += killed([*line, "--skip-figures"], begun, draws.uniform(0.0, 6.0))
            assert kept(out).items() >= before.items()  # what was finished stays as it was
        assert main([str(word) for word in (*line, "--skip-figures")]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["trained_now"] <= told["runs"] - len({name.split("/")[0] for name in before})
        wanted = {name: bits for name, bits in kept(finished[0]).items() if any(f"-{key}-" in name for key in methods)}
        assert kept(out) == wanted
        assert list((out / "jobs").iterdir()) == []
        attempt += 1
    record_property(
        "counted", f"reproduce killed {count} times in {attempt} folders, which all ended with the same bits"
    )


def kept(out):
    """Weights and learning curves of all finished runs, to the bit."""
    found = contents(out / "runs") if (out / "runs").exists() else {}
    there = {path.parent.name for path in out.glob("runs/*/final.json") if not path.parent.name.startswith(".")}
    wanted = ("metrics.csv", ".safetensors", "config.json", "privacy.json")
    return {name: bits for name, bits in found.items() if name.split("/")[0] in there and name.endswith(wanted)}


TWO = [*COMMAND, "--processes", "2", "--skip-figures", "--json", "--checkpoint-seconds", "0"]


def test_several_processes_train_the_same_bits_as_one(finished, tmp_path, capsys):
    assert main([*TWO, "--out", str(tmp_path / "out")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trained_now"] == told["runs"] == told["finished"]
    assert kept(tmp_path / "out") == kept(finished[0])
    assert store.read_json(tmp_path / "out/slices.json")[0]["processes"] == 2
    assert list((tmp_path / "out/jobs").iterdir()) == []
    assert [path.name for path in (tmp_path / "out").glob(".*")] == []


def test_processes_end_with_a_killed_driver_and_the_same_command_goes_on(finished, tmp_path):
    out = tmp_path / "out"
    driver = subprocess.Popen([sys.executable, "-m", "dpmac", *TWO, "--out", out], stdout=subprocess.DEVNULL)
    begun = time.monotonic()
    while not list(out.glob("jobs/*/metrics.csv")):
        assert driver.poll() is None
        assert time.monotonic() - begun < 300
        time.sleep(0.02)
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    driver.kill()
    driver.wait()
    while any(Path(f"/proc/{child}/stat").exists() for child in children):
        assert time.monotonic() - begun < 330
        time.sleep(0.1)
    assert len(children) >= 2
    assert main([*TWO, "--out", str(out)]) == 0
    assert kept(out) == kept(finished[0])


def test_the_failure_of_a_job_is_named_when_the_others_are_done(tmp_path):
    """The first of two has a damaged folder."""
    jobs = schedule.plan(tmp_path, WANTED)
    spoilt = max(jobs, key=lambda job: job.work)
    spoilt.folder.mkdir(parents=True)
    (spoilt.folder / "config.json").write_text("{")
    with contextlib.closing(processes.Processes(1)) as crew, pytest.raises(BadInput, match=spoilt.folder.name):
        list(crew.work(tmp_path, jobs, OPTIONS))
    assert len(list((tmp_path / "runs").iterdir())) == sum(len(job.names) for job in jobs if job != spoilt)


class Slow(crew.Crew):
    """Processes that do not look whether they are to stop before the driver has gone."""

    interrupted = True

    @property
    def slots(self):
        return 1

    def begin(self, job, out, options, stop):
        return stop

    def ended(self, handles, seconds, everything=False):
        if self.interrupted and not everything:
            raise KeyboardInterrupt
        return [] if self.interrupted else handles

    def outcome(self, handle):
        return None

    def close(self):
        pass


def test_the_wish_to_stop_outlives_a_driver_that_did_not_wait(tmp_path):
    hired, jobs = Slow(), schedule.plan(tmp_path, WANTED)
    with pytest.raises(KeyboardInterrupt):
        list(hired.work(tmp_path, jobs, OPTIONS))
    assert len(list(tmp_path.glob(".stop-*"))) == 1
    hired.interrupted = False
    list(hired.work(tmp_path, jobs, OPTIONS))
    assert list(tmp_path.glob(".stop-*")) == []
