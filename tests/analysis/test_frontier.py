"""The frontier: the grid as data, trained by the scheduler, and what is made of it."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import learning

from dpmac import experiments, frontiers, tasks
from dpmac.agents.mechanisms import noise_scale
from dpmac.analysis import frontier
from dpmac.analysis.evaluate import evaluate
from dpmac.cli import main, parse
from dpmac.cli.frontier import Frontier, wanted_of
from dpmac.config import dumps
from dpmac.figures import frontier as picture
from dpmac.figures.plots import canvas
from dpmac.learner import base as learners
from dpmac.results import records
from dpmac.runner import population, schedule, train
from dpmac.tasks import references

LINES = ("response-once", "silent")
COMMAND = ["frontier", "midway", "--scale", "smoke", "--epsilon", "1", "0.5", "--lines", *LINES]
WANTED = frontiers.populations("midway", "smoke", (1.0, 0.5), lines=LINES, learner="pathwise")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small frontier, and what the command said."""
    out = tmp_path_factory.mktemp("frontier") / "out"
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("builtins.print", lambda *text, **_: said.append(" ".join(map(str, text))))
        assert main([*COMMAND, "--out", str(out), "--export", str(out.parent / "all.json.gz"), "--json"]) == 0
    return out, json.loads(said[-1])


def test_teams_are_scored_over_all_secrets_as_evaluation_does(finished):
    folder = next((finished[0] / "runs").glob("*response-once*"))
    final = json.loads((folder / "final.json").read_text())
    (row,) = evaluate(folder, episodes=finished[1]["final_episodes"], all_secrets=True)
    assert row["return_mean"] == pytest.approx(final["expected"]["return_mean"], rel=1e-6)
    assert row["return_mean"] != pytest.approx(final["return_mean"], rel=1e-3)
    assert all(row["train_seconds"] > 0 for row in finished[1]["rows"])


def test_a_team_that_shares_its_parameters_plays_with_any_number_of_agents(finished):
    """As many as it was trained with earn what it earns; more of them walk, so that more is lost."""
    folder = next((finished[0] / "runs").glob("*response-once*"))
    own, same, more = (evaluate(folder, episodes=8, agents=agents)[0]["return_mean"] for agents in (None, 3, 6))
    assert own == pytest.approx(same, rel=1e-6)
    assert more < own


# The grid -------------------------------------------------------------------------------------------------------------


def test_every_line_is_trained_by_the_same_recipe_and_shares_a_program_over_budgets_and_seeds():
    wanted = frontiers.populations("ccn", "paper")
    assert len(wanted) == len(frontiers.lines_for(streams=False))
    for config in wanted.values():
        assert config.networks.aware
        assert (config.anneal_from, config.anneal_share) == (10, 0.6)
        assert config.training.steps >= 1_000_000
        assert config.seeds == (0, 1, 2, 3, 4)
        population.check(config)
    shared = {(config.networks, config.training, dumps(config.learner_options)) for config in wanted.values()}
    assert len(shared) == 1


def test_lines_of_a_stream_protect_a_whole_episode_or_one_increment_and_say_which():
    wanted = frontiers.populations("drift", "smoke", (3.0,), lines=frontiers.lines_for(streams=True), decay=0.98)
    narrow = {name for name, config in wanted.items() if config.budgets[0].neighbours == "increment"}
    assert narrow == {f"drift-dpmac-{name}-increment" for name in ("gaussian", "sums", "correlated")}
    for name, config in wanted.items():
        assert config.channel.increments == (name in narrow)
    population.check(wanted["drift-dpmac-correlated-increment"])
    row = {"label": "one", "covers": "increment", "exact_epsilon": 3.0, "episode_epsilon": 99.63}
    assert picture.increment_rows({"rows": [row, {"label": "of version 0.1"}]}) == [("one", "3", "99.63")]


def test_the_papers_channel_free_messages_and_silence_stand_beside_the_others():
    wanted = frontiers.populations("ccn", "paper")
    every = wanted["ccn-dpmac-gaussian-every"]
    assert [budget.label for budget in every.budgets] == ["1", "3", "10", "inf"]
    assert (
        every.channel
        == experiments.configuration([experiments.Cell("ccn", "dpmac")], experiments.SCALES["paper"]).channel
    )
    assert wanted["ccn-silent-silent"].budgets == (experiments.BUDGETS["free"],)
    for config in wanted.values():
        assert all(b.unit == "episode" and b.accountant == "exact" and b.delta == 1e-4 for b in config.budgets)


def test_budgets_that_pay_for_other_numbers_of_symbols_are_populations_of_one_line():
    wanted = frontiers.populations(
        "ccn", "smoke", (1.0, 3.0, 1.5), lines=["response-once", "response-every"], symbols={1.0: 2, 1.5: 2, 3.0: 3}
    )
    assert {name: config.channel.symbols for name, config in wanted.items()} == {
        "ccn-dpmac-response-once-2-symbols": 2,
        "ccn-dpmac-response-once": 3,
        "ccn-dpmac-response-every": 3,
    }
    assert [each.label for each in wanted["ccn-dpmac-response-once-2-symbols"].budgets] == ["1", "1.5"]
    assert {frontiers.line_of(name, config) for name, config in wanted.items()} == {"response-once", "response-every"}


def test_a_word_an_episode_has_as_many_symbols_as_budgets_pay_for_and_its_own_schedule():
    (config,) = frontiers.populations("alarm", "smoke", (3.0,), lines=["response-timed"], symbols={3.0: 2}).values()
    assert (config.channel.mechanism, config.channel.symbols) == ("timed", 2)
    line = frontiers.LINES["response-timed"]
    assert (line.schedule, frontiers.LINES["response-fourth"].schedule) == ("when it wants", "1 in 4")


@pytest.mark.parametrize("name", ["steps", "episodes"])
def test_a_frontier_may_have_other_steps_and_episodes_and_is_else_the_same(name):
    usual = frontiers.populations("ccn", "quick", learner="pathwise")
    other = frontiers.populations("ccn", "quick", learner="pathwise", **{name: 7200})  # type: ignore[arg-type]
    assert {getattr(config.training, name) for config in other.values()} == {7200}
    again = {key: learning(config, **{name: getattr(usual[key].training, name)}) for key, config in other.items()}
    assert again == usual


def test_settings_of_the_learner_replace_those_of_the_recipe():
    asked = parse(Frontier, ["ccn", "--set-learner", "jitter=1", "starts=2"], "", "")
    recipe = frontiers.RECIPES["pathwise"].learner_options["quick"]
    for config in wanted_of(asked).values():
        assert config.learner_options == {**recipe, "jitter": 1.0, "starts": 2}


def test_a_task_from_elsewhere_has_names_of_files_without_a_colon():
    task = "jaxmarl:MPE_simple_reference_v3"
    ((population, config),) = frontiers.populations(task, "smoke", lines=["silent"]).items()
    (run, _) = experiments.run_names(population, config).values()
    assert run == "jaxmarl.MPE_simple_reference_v3-silent-silent-free-seed-0"
    assert frontiers.line_of(population, config) == "silent"


def test_no_two_runs_share_a_name():
    wanted = frontiers.populations("ccn", "paper", (0.25, 1.0))
    names = [run for name, config in wanted.items() for run in experiments.run_names(name, config).values()]
    assert len(set(names)) == len(names) == 5 * (5 * 2 + 1 + 1)
    assert "ccn-dpmac-code-once-exact-episode-0.25-seed-3" in names


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--epsilon", "0"], "finite number above 0"),
        (["--epsilon", "inf"], "finite number above 0"),
        (["--epsilon", "1", "1"], "differ"),
        (["--lines", "loud"], "response-once"),
        (["--seeds", "-1"], "seeds"),
        (["--steps", "-1"], "whole number from 0"),
        (["--episodes", "-1"], "episodes must be a whole number from 0"),
        (["--time-limit", "0"], "above 0"),
        (["--export", "all.csv"], "json.gz"),
        (["--set", "agents=1"], "from 2"),
        (["--set-learner", "speed=1"], "learner pathwise has no option 'speed'"),
    ],
)
def test_bad_input_says_what_is_allowed(arguments, says, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["frontier", "midway", "--scale", "smoke", "--out", str(out), *arguments]) == 2
    assert says in capsys.readouterr().err
    assert not out.exists()


# What comes out -------------------------------------------------------------------------------------------------------


def test_a_row_for_each_line_and_budget_with_its_exact_epsilon(finished):
    out, said = finished
    assert said["finished"] == said["runs"] == said["trained_now"] == 6
    rows = {(row["line"], row["epsilon"]): row for row in said["rows"]}
    assert set(rows) == {("response-once", 1.0), ("response-once", 0.5), ("silent", 0.0)}
    results = records.read(out)
    for (_, epsilon), row in rows.items():
        assert row["exact_epsilon"] == pytest.approx(epsilon, rel=1e-3)
        assert row["exact_epsilon"] <= epsilon
        assert row["valid"]
        assert len(row["returns"]) == 2
        assert row["return_low"] <= row["return_iqm"] <= row["return_high"]
        assert row["above_silence"]["value"] == pytest.approx(
            np.mean(row["returns"]) - np.mean(rows["silent", 0.0]["returns"])
        )
    kept = [record for record in results.runs.values() if "response-once-pathwise-exact-episode-0.5" in record.name]
    assert said["scored"] == "all secrets"
    earned = [record.final["expected"]["return_mean"] for record in kept]
    assert sorted(rows["response-once", 0.5]["returns"]) == sorted(earned)
    stated = kept[0].claims[0]["exact_epsilon_episode"]
    assert rows["response-once", 0.5]["exact_epsilon"] == pytest.approx(stated)


def test_eavesdroppers_and_gaps_are_kept_with_every_team_that_speaks(finished):
    out, said = finished
    for row in said["rows"]:
        if row["line"] == "silent":
            assert row["eavesdropper"] is row["gap"] is None
        else:
            assert row["eavesdropper"]["verdict"] == "within"
            assert row["eavesdropper"]["chance"] == pytest.approx(1 / 3)
            assert {"bits", "right", "right_after", "return_on", "return_off"} <= row["gap"].keys()
    record = records.read_run(out / "runs" / "midway-dpmac-response-once-pathwise-exact-episode-1-seed-1")
    assert [entry["agent"] for entry in record.final["eavesdropper"]] == [0, 1, 2]
    family = wanted_of(parse(Frontier, ["midway", "--scale", "smoke", "--epsilon", "1", "0.5"], "", ""))
    spent = sum(1 - entry["confidence"] for entry in record.final["eavesdropper"])
    assert spent * len(frontier.speakers(family)) == pytest.approx(0.005)  # audits have the other half


def test_the_limit_starts_where_teams_are_scored():
    config = frontiers.populations("midway", "smoke", lines=["silent"], task_options={"horizon": 1})
    program = population.check(config["midway-silent-silent"])
    task, key = program.task, jax.random.key(train.EVALUATION_SEED)
    assert references.is_informed(task)
    trace = train.rollout(task, program.team(key), noise_scale(program.channel, (0.0,) * 3), key, 5, greedy=True)
    starts = jax.tree.map(lambda leaf: leaf[:, 0], trace.states)
    unknowing = jax.vmap(lambda start: task.step(start, task.informed(start, jnp.full((3, 3), 1 / 3)))[1][0])(starts)
    told = references.informed_returns(task, 0.0, key, 5)  # too late for an episode of one step
    np.testing.assert_allclose(told, unknowing, rtol=1e-5)


def test_a_task_without_secrets_to_tell_has_no_limits():
    assert frontier.limits_of(tasks.make("cn"), WANTED, 10, None) is None


def test_limits_are_drawn_densely_and_stand_at_every_budget(finished):
    limits = finished[1]["limits"]["lines"]
    assert list(limits) == [name for name in picture.LIMITS if name not in ("every", "word")]  # these are of a moment
    for line in limits.values():
        epsilons = [point["epsilon"] for point in line["points"]]
        assert {0.5, 1.0} <= set(epsilons)
        assert len(epsilons) >= len(frontier.CURVE)
        assert max(np.diff(np.log(epsilons))) < 0.15
    bound, best = ([point["return_mean"] for point in limits[name]["points"]] for name in ("bound", "shared"))
    assert bound == sorted(bound)
    assert all(high >= low for high, low in zip(bound, best, strict=True))


def test_limits_are_worked_out_once(finished, monkeypatch):
    monkeypatch.setattr(frontier.limit, "curves", None)
    results, before = records.read(finished[0]), json.loads((finished[0] / "frontier.json").read_text())
    assert frontier.summary(results, WANTED, "smoke", before)["limits"] == before["limits"]


def test_a_task_that_can_be_differentiated_is_trained_by_its_gradient(finished):
    assert finished[1]["recipe"]["learner"] == "pathwise"
    assert learners.default_for(tasks.make("binary-sums")) == "maddpg"


def test_a_row_of_one_draw_is_said_to_be_one(finished):
    results = records.read(finished[0])
    for record in results.runs.values():
        record.final.pop("expected")
    found = frontier.summary(results, WANTED, "smoke", finished[1])
    assert found["scored"] == "one draw"
    assert "one draw" in picture.table(found)
    assert sorted(found["rows"][0]["returns"]) != sorted(finished[1]["rows"][0]["returns"])


def test_finished_runs_are_not_trained_again_not_even_from_an_exported_file(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(population, "train_folder", None)
    assert schedule.plan(finished[0], WANTED) == []
    shutil.copy(finished[0].parent / "all.json.gz", tmp_path)
    assert main([*COMMAND, "--out", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["trained_now"] == 0
    again, before = ({(r["line"], r["epsilon"]): r for r in one["rows"]} for one in (said, finished[1]))
    assert again == before


def test_the_command_prints_a_table(finished, capsys):
    assert main([*COMMAND, "--out", str(finished[0])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("randomised response, once") for line in lines) == 4  # returns, and where they are lost
    assert any(line.startswith("silence") for line in lines)


# Pictures and pages ---------------------------------------------------------------------------------------------------


def test_the_picture_has_every_line_and_level(finished):
    out = finished[0]
    text = (out / "frontier.svg").read_text()
    named = ("fixed code", "code that uses the scene", "if the scene were public", "bound: no mechanism")
    for words in ("randomised response, once", "silence", "scripted", "random", "guessing", *named):
        assert words in text
    assert (out / "frontier.png").stat().st_size > 10_000
    (first, second) = picture.panel(json.loads((out / "frontier.json").read_text())).hover
    assert first["log"]
    assert [series["label"] for series in first["series"]] == ["randomised response, once"]
    assert len(second["series"][0]["x"]) == 2


@pytest.mark.parametrize(
    ("levels", "names"),
    [
        (
            {"silence": -14.4, "scripted": -5.8, "free messages": -6.1},
            {"silence": -14.4, "scripted, free messages": -5.8},
        ),
        ({"silence": -14.4, "free messages": -14.3}, {"silence": -14.4, "free messages": -14.3}),
        ({"random": -19.5, "silence": -19.2}, {"silence, random": -19.2}),
    ],
)
def test_names_of_levels_do_not_overlap(levels, names):
    with canvas(4.8, 4.2) as drawing:
        axes = drawing.subplots()
        axes.set_ylim(-20, 0)
        picture.draw_levels(axes, levels)
        drawing.draw_without_rendering()
        texts: list[Any] = [text for text in axes.texts if text.get_text()]
        boxes = [text.get_window_extent() for text in texts]
        assert {text.get_text(): text.xy[1] for text in texts} == names
        assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])
        assert len(axes.lines) == len(levels)


def test_a_page_gets_its_tables_between_the_marks(finished, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- frontier midway: begin -->\nstale\n<!-- frontier midway: end -->\nafter\n")
    for _ in range(2):
        assert main([*COMMAND, "--out", str(finished[0]), "--page", str(page), "--json"]) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("<!-- frontier midway: end -->\nafter\n")
    assert "stale" not in text
    assert len(re.findall(r"^\| randomised response, once \|", text, re.M)) == 4
    assert (tmp_path / "pictures" / "frontier-midway.svg").exists()
    capsys.readouterr()
    page.write_text("no marks")
    assert main([*COMMAND, "--out", str(finished[0]), "--page", str(page)]) == 2
    assert "<!-- frontier midway: begin -->" in capsys.readouterr().err
    assert page.read_text() == "no marks"


@pytest.mark.parametrize("task", ["ccn", "midway", "traffic-junction", "jaxmarl:MPE_simple_reference_v3"])
def test_our_own_page_has_a_place_for_each_task(task, finished, tmp_path):
    page = tmp_path / "page.md"
    shutil.copy(Path(__file__).parents[2] / "docs" / "frontier.md", page)
    found = json.loads((finished[0] / "frontier.json").read_text()) | {"task": task, "reward_unit": "rewards of MPE"}
    picture.fill_page(page, found, "picture.svg")
    assert "| randomised response, once |" in page.read_text()
    assert "Rewards of MPE." in page.read_text()


def test_the_report_shows_frontiers_of_its_folder_and_of_those_in_it(finished, tmp_path, capsys):
    for folder in (finished[0], finished[0].parent):
        assert len(picture.read(folder)) == 1
    assert main(["report", str(finished[0]), "--out", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "Beyond the paper" in text
    assert "randomised response, once" in text


@pytest.mark.large
@pytest.mark.parametrize("task", ["ccn", "midway", "pp"])
def test_a_whole_frontier_with_audits(task, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["frontier", task, "--scale", "smoke", "--out", str(out), "--audit", "1000", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["finished"] == said["runs"] == 2 * (5 * 3 + 1 + 1)
    for row in said["rows"]:
        if 0 < float(row["epsilon"]) < math.inf:
            assert row["audit"]["refuted"] == row["audit"]["failed_checks"] == 0
            assert row["eavesdropper"]["verdict"] == "within"
