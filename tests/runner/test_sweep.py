"""A sweep asks for every point once, compiles once for all that may share a program, and survives kills."""

import csv
import dataclasses
import json
import re
import shutil

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from pages import DOCS
from tiny import contents, killed, learning

from dpmac import experiments
from dpmac.cli import main
from dpmac.config import BadInput, Budget, Member, NetworkConfig, RunConfig, Training, run_config
from dpmac.learner import base as learners
from dpmac.results import records, store
from dpmac.runner import population, schedule, sweep

RATES = (3e-4, 7e-4, 2e-3)
GRID = ["hidden=8,12", "message_size=2,4", f"learning_rate={','.join(map(str, RATES))}"]
COMMAND = ["sweep", "probe-listen", "--scale", "smoke", "--seeds", "2", "--steps", "80", "--json", "--grid"]
BASE = RunConfig(
    "probe-listen",
    learner_options={"batch": 4, "explore_steps": 100},
    seeds=(0, 1),
    networks=NetworkConfig(hidden=8, message_hidden=8, message_size=4),
    training=Training(steps=80, evaluations=2, evaluation_episodes=4),
)


def swept(arguments, capsys):
    assert main([*COMMAND, *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A grid of 2 x 2 x 3 points, and what the command said."""
    out = tmp_path_factory.mktemp("sweep") / "out"
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("builtins.print", lambda *text, **_: said.append(" ".join(map(str, text))))
        assert main([*COMMAND, *GRID, "--out", str(out)]) == 0
    return out, json.loads(said[-1])


def test_twelve_points_are_four_programs_and_twelve_trials(grid):
    out, said = grid
    assert (said["programs"], said["points"], said["trained_now"]) == (4, 12, 24)
    assert [row["trial"] for row in said["rows"]] == list(range(12))
    journal = [json.loads(line) for line in (out / "journal.log").read_text().splitlines()]
    assert sum("trial_id" not in entry and "fixed_params" in json.dumps(entry) for entry in journal) == 12
    populations = {record.final["population"]["name"] for record in records.read(out).runs.values()}
    assert len(populations) == 4


def test_the_same_command_again_trains_nothing_and_asks_for_nothing(grid, capsys, monkeypatch):
    out, said = grid
    monkeypatch.setattr(population, "train_folder", None)
    journal = (out / "journal.log").read_bytes()
    again = swept([*GRID, "--out", str(out)], capsys)
    assert (again["rows"], again["trained_now"]) == (said["rows"], 0)
    assert (out / "journal.log").read_bytes() == journal


def test_the_table_has_every_seed_and_the_picture_and_best_settings_lie_beside_it(grid):
    out, said = grid
    rows = list(csv.DictReader((out / "sweep.csv").read_text().splitlines()))
    assert [float(row["seed_1"]) for row in rows] == [row["returns"][1] for row in said["rows"]]
    best = max(said["rows"], key=lambda row: row["return_mean"])
    assert said["best"] == {"inf": best["trial"]}
    config = run_config(store.read_json(out / "best.json"))
    assert config.networks.hidden == best["point"]["hidden"]
    assert config.learner_options["learning_rate"] == best["point"]["learning_rate"]
    assert config.seeds == (0, 1)
    assert (out / "sweep.svg").read_text().startswith("<?xml")


def test_a_member_equals_its_single_run_bit_for_bit_where_as_many_are_trained_side_by_side(grid, tmp_path):
    """Settings are data of the compiled program, as seeds are; how many runs it has decides how XLA computes them."""
    out, _ = grid
    whole = records.read(out).runs
    member = "probe-listen-dpmac-hidden-8-message_size-2-learning_rate-0.0007-free-seed-1"
    ordinary = dataclasses.replace(whole[member].config, seeds=tuple(range(6)))
    population.create(tmp_path / "run", ordinary)
    for _ in population.train_folder(tmp_path / "run"):
        pass
    alone = population.load(tmp_path / "run")
    swept = population.load(out / "runs" / member)
    for one, many in zip(*(map(np.asarray, leaves(loaded.teams)) for loaded in (swept, alone)), strict=True):
        np.testing.assert_array_equal(one[0], many[1])
    rows = [row for row in store.read_metrics(tmp_path / "run") if row.seed == 1]
    assert rows == store.read_metrics(out / "runs" / member)


def leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def test_runs_of_different_rates_differ(grid):
    out, _ = grid
    names = [f"probe-listen-dpmac-hidden-8-message_size-2-learning_rate-{rate}-free-seed-0" for rate in RATES]
    weights = [contents(out / "runs" / name / "checkpoints") for name in names]
    assert len({tuple(each.values()) for each in weights}) == 3


def test_killed_and_given_again_it_ends_with_the_same_table_and_trains_nothing_twice(grid, tmp_path, capsys):
    out = tmp_path / "out"
    line = [*COMMAND, *GRID, "--out", out, "--checkpoint-seconds", "0"]
    assert killed(line, lambda: any(out.glob("runs/[!.]*")))
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("runs/[!.]*")}
    found = swept([*map(str, line[len(COMMAND) :])], capsys)
    assert found["rows"] == grid[1]["rows"]
    assert found["trained_now"] <= 24 - len(kept)
    assert {name: (out / "runs" / name).stat().st_mtime_ns for name in kept} == kept


def test_half_a_line_of_the_journal_and_a_lock_that_a_kill_left_are_no_hindrance(grid, tmp_path, capsys):
    out = shutil.copytree(grid[0], tmp_path / "out")
    with open(out / "journal.log", "ab") as file:
        file.write(b'{"op_code": 4, "wor')
    (out / "journal.log.lock").symlink_to("journal.log")
    assert swept([*GRID, "--out", str(out)], capsys)["rows"] == grid[1]["rows"]


@pytest.mark.parametrize("place", [0, 3, -1])
@pytest.mark.parametrize("damage", [b"{", b"{}", b"[]", b"\xff"])
def test_a_damaged_line_of_the_journal_is_named(grid, tmp_path, place, damage):
    lines = (grid[0] / "journal.log").read_bytes().splitlines()
    lines[place] = damage
    (tmp_path / "journal.log").write_bytes(b"\n".join([*lines, b""]))
    with pytest.raises(BadInput, match=r"journal\.log is damaged"):
        sweep.open_study(tmp_path, sweep.Plan(BASE, {"hidden": (8, 12)}))


def test_the_page_names_all_traced_settings():
    page = (DOCS / "cluster.md").read_text().partition("traced settings of MADDPG")[2].partition("\n\n")[0]
    found = [set(re.findall(r"`(\w+)`", part)) for part in page.split(";")]
    assert found == [{*learners.find(name).traced_settings()} for name in ("maddpg", "mappo", "pathwise")]


def test_a_search_goes_on_as_if_it_had_not_been_stopped(tmp_path):
    """Asked in batches; the points of the second depend on what the first earned."""
    space = {"hidden": (8, 12), "learning_rate": sweep.Range(1e-4, 1e-2)}
    plan = sweep.Plan(BASE, space, "tpe", trials=14, batch=4)

    def searched(out, stop_after):
        out.mkdir(exist_ok=True)
        study, told = sweep.open_study(out, plan), 0
        while trials := sweep.waiting(study, plan):
            for trial in trials:
                if told == stop_after:
                    return study
                study.tell(trial.number, -abs(np.log10(trial.params["learning_rate"]) + 3))
                told += 1
        return study

    whole = searched(tmp_path / "whole", 99)
    searched(tmp_path / "parts", 5)
    parts = searched(tmp_path / "parts", 99)
    assert len(whole.trials) == 14
    assert [trial.params for trial in parts.trials] == [trial.params for trial in whole.trials]
    assert len({tuple(trial.params.items()) for trial in whole.trials}) == 14


def test_a_search_that_was_killed_while_it_asked_asks_for_the_rest_and_for_the_same_points(tmp_path, monkeypatch):
    plan = sweep.Plan(BASE, {"learning_rate": sweep.Range(1e-4, 1e-2)}, "tpe", trials=22, batch=8)
    ask, left = optuna.Study.ask, [99]

    def dying(study, *given):
        left[0] -= 1
        if left[0] < 0:
            ask(study)  # a point that has no settings yet
            raise KeyboardInterrupt
        return ask(study, *given)

    monkeypatch.setattr(optuna.Study, "ask", dying)

    def searched(out):
        study = sweep.open_study(out, plan)
        while trials := sweep.waiting(study, plan):
            for trial in trials:
                study.tell(trial.number, float(trial.number))  # the latest are the best
        return [trial.params for trial in study.trials if trial.params]

    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole, left[0] = searched(tmp_path / "whole"), 19
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "parts")
    left[0] = 99
    assert searched(tmp_path / "parts") == whole
    assert len(whole) == 22


def test_a_point_that_does_not_stay_finite_has_no_return_and_changes_no_other(tmp_path, capsys):
    found = {}
    for other in ("1e30", "2e-3"):
        out = tmp_path / other
        found[other] = swept(["hidden=8", f"learning_rate=7e-4,{other}", "--out", str(out)], capsys)
    good, bad = found["1e30"]["rows"]
    assert found["1e30"]["best"] == {"inf": good["trial"]}
    assert good["returns"] == found["2e-3"]["rows"][0]["returns"]
    assert (bad["finished"], bad["returns"]) == (2, ["nan", "nan"])
    for seed in (0, 1):
        names = [f"{name}/runs/probe-listen-dpmac-hidden-8-learning_rate-0.0007-free-seed-{seed}" for name in found]
        one, same = (contents(tmp_path / name / "checkpoints") for name in names)
        assert one == same
    journal = JournalStorage(JournalFileBackend(str(tmp_path / "1e30" / "journal.log")))
    trials = optuna.load_study(storage=journal, study_name="sweep").trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "PRUNED"]


def test_points_that_do_not_make_a_whole_grid_are_trained_exactly():
    points = [{"budget": "inf", "learning_rate": 1e-3}, {"budget": "1", "learning_rate": 1e-4}]
    found = sweep.populations(BASE, points)
    assert len(found) == 2
    members = [member for _, config in found for member in config.members]
    assert members == [
        Member((("learning_rate", rate),), budget, seed)
        for rate, budget in ((1e-3, Budget(delta=experiments.DELTA)), (1e-4, Budget((1.0,), experiments.DELTA)))
        for seed in (0, 1)
    ]


def test_annealing_is_a_setting():
    points = [{"budget": "3", "anneal_from": start, "anneal_share": 0.4} for start in (0.0, 10.0)]
    found = [config for _, config in sweep.populations(BASE, points)]
    assert [(config.anneal_from, config.anneal_share) for config in found] == [(0.0, 0.4), (10.0, 0.4)]
    assert sweep.read_space(["anneal_from=0,10"], "maddpg") == {"anneal_from": (0.0, 10.0)}


def test_populations_of_many_settings_have_names_that_files_can_have():
    """Two points with the same long beginning still are two populations."""
    fixed = {f"a_setting_with_a_long_name_{index}": index for index in range(20)}
    names = {sweep.population_of(BASE, {**fixed, "last": value}) for value in (1, 2)}
    assert len(names) == 2
    assert max(map(len, names)) < 150


def test_runs_of_many_settings_have_names_that_files_can_have():
    settings = {f"a_setting_with_a_long_name_{index}": 0.123456789 * index for index in range(20)}
    config = dataclasses.replace(BASE, settings=tuple({**settings, "last": value} for value in (1.0, 2.0)))
    names = list(experiments.run_names("probe-listen-dpmac-hidden-8", config).values())
    assert len(set(names)) == 4
    assert max(map(len, names)) < 200
    assert all(name.startswith("probe-listen-dpmac-hidden-8-a_setting") for name in names)
    assert all(name.endswith(("-free-seed-0", "-free-seed-1")) for name in names)


def test_the_grid_of_the_paper_makes_48_programs():
    space = sweep.read_space(
        ["method=dpmac,tarmac,i2c", "hidden=32,64,128,256", "message_size=4,8,16,32", "budget=inf,step-1"], "maddpg"
    )
    base = dataclasses.replace(BASE, task="ccn", seeds=(0, 1, 2))
    found = sweep.populations(base, sweep.Plan(base, space).grid)
    assert len(found) == 48
    assert {len(config.members) for _, config in found} == {6}
    assert {(config.method, config.channel.place) for _, config in found} == {
        ("dpmac", "sender"),
        ("tarmac", "receiver"),
        ("i2c", "receiver"),
    }


def test_missing_settings_are_covered_exactly():
    config = dataclasses.replace(BASE, settings=tuple({"discount": each} for each in (0.9, 0.95, 0.99)))
    missing = [member for member in config.members if member.settings != (("discount", 0.95),) or member.seed == 1]
    parts = schedule.products(config, missing)
    assert [member for part in parts for member in part.members] != []
    assert sorted(member for part in parts for member in part.members) == sorted(missing)


def test_settings_that_change_the_program_cannot_differ_within_a_population():
    with pytest.raises(BadInput, match=r"may differ in .*learning_rate.*, not batch"):
        population.check(dataclasses.replace(BASE, settings=({"batch": 4}, {"batch": 8})))
    with pytest.raises(BadInput, match="discount must lie in"):
        population.check(dataclasses.replace(BASE, settings=({"discount": 2.0},)))


def test_learners_that_differ_in_traced_settings_alone_share_a_program():
    one, other = (population.check(learning(BASE, learning_rate=rate)) for rate in RATES[:2])
    assert one == other
    assert hash(one) == hash(other)
    assert one != population.check(learning(BASE, batch=8))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["width=8"], "no setting 'width'; allowed are method, budget"),
        (["hidden=8,8"], "must differ"),
        (["hidden=8..4"], "LOW..HIGH"),
        (["method=a..b"], "one of numbers"),
        (["hidden=8..64"], "a grid has values, not a range"),
        (["hidden=x"], "whole number"),
        (["learning_rate=-1"], "above 0"),
        (["budget=never"], "epsilon must be a number"),
        (["method=shouting"], "unknown method"),
        (["hidden=8", "--search", "tpe"], "--trials N"),
        (["hidden=8", "--objective", "bound", "--seeds", "1"], "two seeds"),
        (["method=dpmac,silent", "budget=inf,1"], "method silent sends no messages"),
        (["hidden=8", "--batch", "4"], "--batch is for --search tpe"),
        (["hidden=8", "--compilers", "1", "--processes", "2"], "--compilers is for one process"),
    ],
)
def test_bad_input_says_what_is_allowed(arguments, says, tmp_path, capsys):
    assert main([*COMMAND, *arguments, "--out", str(tmp_path / "out")]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_sweep_of_valid_points_around_invalid_defaults_ends_with_its_table(tmp_path, capsys):
    """One episode an iteration goes with one update for each, and not with the default of a quarter."""
    out = tmp_path / "out"
    words = [
        "probe-listen",
        "--set",
        "horizon=2",
        "--scale",
        "smoke",
        "--steps",
        "4",
        "--episodes",
        "1",
        "--seeds",
        "1",
    ]
    grid = ["--grid", "updates_per_episode=1", "evaluations=1", "hidden=4", "batch=2", "budget=inf,1"]
    line = ["sweep", *words, "--json", *grid, "--out", str(out), "--search", "tpe", "--batch", "1", "--trials"]
    for trials in (1, 4):
        assert main([*line, str(trials)]) == 0
        found = json.loads(capsys.readouterr().out)
        names = {"best.json"} if len(found["best"]) == 1 else {"best-inf.json", "best-1.json"}
        assert {path.name for path in out.glob("best*.json")} == names
    assert len(found["best"]) == 2


def test_another_sweep_in_the_same_folder_is_refused(grid, tmp_path, capsys):
    out = shutil.copytree(grid[0], tmp_path / "out")
    assert main([*COMMAND, "hidden=8", "--out", str(out)]) == 2
    assert "a sweep of other settings" in capsys.readouterr().err
