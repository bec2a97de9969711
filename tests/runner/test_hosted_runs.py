"""Environments from outside train, resume, are evaluated, filmed and deployed as tasks of our own are."""

import json
import shlex
from dataclasses import replace

import pytest
from PIL import Image
from tiny import CONFIG, begin, contents, learning, train

import dpmac
from dpmac import cli
from dpmac.config import Budget
from dpmac.runner import population
from dpmac.tasks import environments
from dpmac.tasks.hosted import Hosted

REFERENCE = replace(
    CONFIG,
    task="pettingzoo:mpe2.simple_reference_v3",
    task_options={"max_cycles": "5"},
    budgets=(Budget((1.0,)), Budget()),
    seeds=(0,),
)
PURSUIT = shlex.split(
    "train pettingzoo:pettingzoo.sisl.pursuit_v5 --set n_pursuers=2 n_evaders=2 x_size=8 y_size=8 horizon=5 "
    "--epsilon 3 --steps 100 --hidden 8 --message-hidden 8 --message-size 4 --batch 4 --evaluations 5 "
    "--evaluation-episodes 2 --explore-steps 100"
)


def test_resumed_run_is_bit_identical(tmp_path):
    train(tmp_path / "whole", REFERENCE)
    begin(tmp_path / "part", REFERENCE)
    for _ in population.train_folder(tmp_path / "part"):
        pass
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    told = json.loads((tmp_path / "whole/privacy.json").read_text())
    assert told["length"].startswith("padded")
    assert told["claims"]["1"][0]["valid"]


@pytest.mark.large  # docs/extend.md does the same in every run of the tests
def test_an_environment_that_is_not_mpe_goes_all_the_way(tmp_path, capfd):
    folder = tmp_path / "run"
    assert cli.main([*PURSUIT, "--out", str(folder)]) == 0
    told = capfd.readouterr()
    assert "note: pettingzoo.sisl.pursuit_v5 is stepped by Python on the host, which is far slower" in told.err
    assert "steps/s" in told.err
    assert cli.main(["resume", str(folder), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["step"] == 100
    assert cli.main(["evaluate", str(folder), "--episodes", "3", "--json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert row["episodes"] == 3
    assert "pursuit" in row["reward_unit"]
    assert cli.main(["watch", str(folder), "--out", str(tmp_path / "film.gif"), "--size", "64"]) == 0
    with Image.open(tmp_path / "film.gif") as pictures:
        assert getattr(pictures, "n_frames", 1) == 5
        assert len(pictures.convert("RGB").getcolors() or ()) > 10


def test_a_trained_team_acts_in_the_environment_by_hand(tmp_path):
    begin(tmp_path / "run", REFERENCE)
    team = dpmac.load(tmp_path / "run", epsilon=1, limit=1.001, new_ledger=True)
    task = team.program.task
    assert isinstance(task, Hosted)
    env = environments.build(task.source, dict(task.settings))
    observations, _ = env.reset(seed=1)
    carry = team.start()
    while env.agents:
        actions, carry = team.act(task.layout.gather(observations), carry)
        observations, *_ = env.step(task.layout.assign(actions, env.agents))
    assert team.spent(0) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(("world", "best"), [pytest.param("World", 4.0, marks=pytest.mark.large), ("Steered", 4.0)])
def test_a_team_learns_to_tell_with_discrete_and_continuous_actions(world, best, tmp_path):
    """The hearer must know the sender's symbol; without messages it earns at most 4/3. Of three seeds, one may stay."""
    config = replace(
        REFERENCE,
        task=f"pettingzoo:worlds:{world}",
        task_options={},
        budgets=(Budget(),),
        seeds=(0, 1, 2),
        networks=replace(CONFIG.networks, hidden=16),
    )
    config = learning(config, steps=6_000, batch=32, learning_rate=3e-3, explore_steps=4_000, evaluation_episodes=64)
    population.create(tmp_path / "run", config)
    *_, last = population.train_folder(tmp_path / "run")
    assert max(row.value for row in last.rows if row.name == "return") > 0.85 * best


def test_a_failing_environment_ends_with_one_clear_line(tmp_path, capfd):
    given = [*PURSUIT, "--out", str(tmp_path / "run"), "--quiet"]
    given[1], given[3:8] = "pettingzoo:worlds:Failing", ["horizon=5"]
    assert cli.main(given) == 1
    error = capfd.readouterr().err
    assert "Traceback" not in error
    assert "the wheel came off" in error.strip().splitlines()[-1]


def test_bad_options_leave_no_folder(tmp_path, capsys):
    given = [*PURSUIT, "--out", str(tmp_path / "run")]
    given[1], given[3:8] = "pettingzoo:worlds:Named", ["horizon=5"]
    assert cli.main(given) == 2
    assert "Dict" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
