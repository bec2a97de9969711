"""Private training as a run: what it refuses, what it says, and that resumed runs are bit-identical."""

import dataclasses
import json
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy
import tiny
from tiny import OPTIONS, begin, contents, learning, leaves, small
from tiny import train as trained

from dpmac.analysis import bench
from dpmac.cli import main
from dpmac.config import BadInput, Channel, RunConfig
from dpmac.figures import run_page
from dpmac.learner import base as learners
from dpmac.learner import private as gradients
from dpmac.results import store
from dpmac.runner import population, train
from dpmac.runner.noise import tables_of
from dpmac.runner.statement import statement
from dpmac.runner.train import Program


def private(learner: str, **given: Any) -> RunConfig:
    """Ten iterations of such a run."""
    return learning(tiny.private(learner, **given), steps=200, evaluations=5)


@pytest.mark.parametrize("learner", learners.BUILT_IN)
def test_a_resumed_private_run_is_bit_identical_and_reports_nothing_of_private_episodes(learner, tmp_path):
    config = private(learner)
    trained(tmp_path / "whole", config)
    begin(tmp_path / "part", config)
    list(population.train_folder(tmp_path / "part"))
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    names = {row.name for row in store.read_metrics(tmp_path / "whole")}
    assert names == {"return", "message_norm", "share_clipped", "signal_to_noise", "learned_deviation"}


def test_noise_of_the_operating_system_cannot_be_repeated_and_is_kept_only_while_the_run_goes_on(tmp_path):
    config = private("pathwise", train_noise="system")
    found = [trained(tmp_path / name, config) for name in ("first", "second")]
    assert any(not np.array_equal(a, b) for a, b in zip(*map(leaves, found), strict=True))
    begin(tmp_path / "part", config)
    keys = []
    for folder in (tmp_path / "part", tmp_path / "first"):
        (path,) = folder.glob("checkpoints/*.safetensors")
        keys.append([key for key in safetensors.numpy.load_file(path) if "secret" in key])
    assert [len(each) for each in keys] == [1, 0]


class Killed(BaseException):
    """What nothing catches, as a kill."""


def test_a_private_run_killed_before_its_first_checkpoint_begins_again_with_the_same_noise(tmp_path):
    population.create(tmp_path, private("pathwise", train_noise="system"))
    pieces = population.train_folder(tmp_path)
    first = [next(pieces).rows for _ in range(3)]
    with pytest.raises(Killed):
        pieces.throw(Killed())
    again = [piece.rows for piece in population.train_folder(tmp_path)]
    assert again[:3] == first
    assert len(again) == 5


def test_settings_of_members_are_refused_where_they_would_leak():
    config = dataclasses.replace(private("mappo"), settings=({"spread_rate": 0.0}, {"spread_rate": 0.01}))
    with pytest.raises(BadInput, match="spread_rate must be 0"):
        population.check(config)


def test_training_epsilon_is_traced_and_free_training_measures_norms():
    programs = {Program.of(private("pathwise", train_epsilon=epsilon)) for epsilon in (0.5, 1.0, 3.0)}
    assert len(programs) == 1
    free = Program.of(private("pathwise", train_epsilon=float("inf")))
    assert (free.measured, free.settings["train_noise"]) == (True, 0.0)
    assert free not in programs


@pytest.mark.parametrize(
    ("learner", "changes", "said"),
    [
        ("maddpg", {"standardise": True}, "standardise must be false"),
        ("maddpg", {"batch": 41}, "draws batch"),
        ("mappo", {"epochs": 2}, "epochs and minibatches must be 1"),
        ("mappo", {"minibatches": 2}, "epochs and minibatches must be 1"),
        ("mappo", {"spread_rate": 0.01}, "spread_rate must be 0"),
        ("pathwise", {"starts": 2}, "starts must be 1"),
    ],
)
def test_what_would_leak_is_refused_by_name(learner, changes, said):
    with pytest.raises(BadInput, match=said):
        Program.of(learning(private(learner), **changes))


def test_symbols_may_be_balanced_and_not_averaged_over():
    config = dataclasses.replace(private("pathwise"), channel=Channel("response", period=0))
    with pytest.raises(BadInput, match="expectation must be 0"):
        Program.of(learning(config, expectation=0.5, episodes=9))
    assert Program.of(learning(config, balance=0.1)).use.once


def test_the_percentiles_of_i2c_are_refused():
    config = dataclasses.replace(private("maddpg"), method="i2c", channel=Channel(place="receiver"))
    with pytest.raises(BadInput, match="cannot serve I2C"):
        Program.of(config)


def test_a_learner_that_does_not_say_how_it_uses_episodes_is_refused(monkeypatch):
    monkeypatch.setattr("dpmac.learner.pathwise.Pathwise.private_use", learners.Learner.private_use)
    with pytest.raises(BadInput, match="cannot train privately"):
        Program.of(private("pathwise"))


@pytest.mark.parametrize("learner", learners.BUILT_IN)
def test_private_and_plain_updates_are_timed_on_the_same_batches(learner):
    plain, own = (Program.of(bench.config_of("ccn", learner, "dpmac", 1, private, 4)) for private in (False, True))
    batches = {program.learner.batch_size(program.rollout) for program in (plain, own)}
    assert batches == {own.microbatch}
    assert own.use.rate == 1
    assert plain.microbatch == 0
    assert own.settings["train_noise"] > 0


def test_an_episode_of_the_replay_lives_as_long_as_is_counted():
    """Forty episodes in all, four an iteration; a ring of eight forgets each after two iterations."""
    program = Program.of(learning(private("maddpg"), buffer=8, updates_per_episode=0.5))
    assert program.use[:2] == (0.5, 4)
    assert Program.of(private("maddpg")).use[:2] == (0.1, 10)


@pytest.mark.parametrize("learner", learners.BUILT_IN)
@pytest.mark.parametrize("shared", [False, True])
def test_an_update_releases_as_many_numbers_as_are_counted(learner, shared, monkeypatch):
    """All that is learned, and with a balance how often symbols are used; refused where they are more."""
    config = dataclasses.replace(private(learner), channel=Channel("response", period=0))
    networks = dataclasses.replace(config.networks, share_parameters=shared)
    config = dataclasses.replace(config, networks=networks)
    config = learning(config, balance=0.1) if learner == "pathwise" else config
    program, released = Program.of(config), []
    plain = gradients.Private.release

    def watched(self: Any, gradient: Any, networks: Any, taken: Any, size: int) -> Any:
        found = plain(self, gradient, networks, taken, size)
        released.append(gradients.size_of(found[0]))
        return found

    monkeypatch.setattr(gradients.Private, "release", watched)
    table = jax.tree.map(lambda x: x[0], tables_of(config, program, list(config.budgets), 1.0))

    def once(key: jax.Array) -> Any:
        return train.iterate(program, train.init(program, key), table, program.settings)

    jax.eval_shape(once, jax.random.key(0))
    assert released == [program.use.numbers]


@pytest.mark.parametrize("learner", ["maddpg", "pathwise"])
def test_the_statement_tells_of_training_and_of_both_together(learner):
    config = private(learner, train_noise="system")
    said = statement(config, Program.of(config))
    (joint,) = said["training"]["joint"].values()
    claim = said["claims"]["3"][0]
    assert said["training"]["valid"]
    assert joint["epsilon"] > claim["exact_epsilon"] > said["training"]["exact_epsilon"]
    assert joint["delta"] == pytest.approx(1.1e-4)
    assert "training" not in said["covers"]
    assert statement(small(learner), Program.of(small(learner))).get("training") is None


def test_an_environment_on_the_host_is_refused():
    """It may carry one episode into the next, and evaluations play in it, too."""
    with pytest.raises(BadInput, match=r"cannot use pettingzoo:mpe2\.simple_v3"):
        Program.of(dataclasses.replace(private("mappo"), task="pettingzoo:mpe2.simple_v3"))


def test_a_run_of_many_says_what_it_costs_alone():
    config = dataclasses.replace(private("pathwise"), seeds=(0, 1))
    (both,), (one,) = (
        [statement(each, Program.of(each))["training"]] for each in (config, config.alone(config.members[0]))
    )
    assert both["exact_epsilon_of_all_runs"] > both["exact_epsilon"] == one["exact_epsilon_of_all_runs"]
    assert "each of the 2 runs is a release of its own" in both["warnings"][-1]


@pytest.mark.parametrize(
    ("name", "value"), [("noise_multiplier", 0.1), ("valid", True), ("epsilon", 0.5), ("released", "everything")]
)
def test_an_altered_statement_is_refused(name, value, tmp_path):
    population.create(tmp_path / "run", private("pathwise"))
    path = tmp_path / "run" / "privacy.json"
    data = json.loads(path.read_text())
    assert data["training"][name] != value
    data["training"][name] = value
    path.write_text(json.dumps(data))
    with pytest.raises(BadInput, match="does not say what follows"):
        next(population.train_folder(tmp_path / "run"))


def test_the_page_of_a_run_tells_of_its_private_training(tmp_path):
    population.create(tmp_path / "run", private("pathwise"))
    page = run_page.privacy_of(tmp_path / "run")
    assert "NOT TRUE" in page  # its noise can be repeated
    assert "with messages at ε = 3" in page
    assert "3.731" in page


def test_options_of_private_training_need_its_epsilon(tmp_path, capsys):
    assert main(["train", *OPTIONS, "--train-clip", "2", "--out", str(tmp_path / "run")]) == 2
    assert "--train-clip needs --train-epsilon" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
