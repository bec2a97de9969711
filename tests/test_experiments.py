"""The paper's experiments as data."""

from dataclasses import replace

import jax
import pytest

from dpmac import experiments, privacy, tasks
from dpmac.agents import protocol
from dpmac.config import BadInput, Member, NetworkConfig, RunConfig, to_json
from dpmac.experiments import ABLATIONS, BUDGETS, FIGURES, METHODS, NAMES, SCALES, VARIANTS, Cell
from dpmac.learner.base import Rollout
from dpmac.learner.maddpg import Maddpg
from dpmac.runner.train import Program

PAPER = SCALES["paper"]


def all_names(populations):
    return [name for key, config in populations.items() for name in experiments.run_names(key, config).values()]


def test_the_nine_figures_need_270_runs_in_twelve_populations_each_run_once():
    populations = experiments.populations(experiments.targets(["all"]), PAPER, PAPER.tasks)
    names = all_names(populations)
    assert len(FIGURES) == 9
    assert len(populations) == 12
    assert len(names) == len(set(names)) == 270


def test_figures_share_runs_whatever_the_order():
    one = experiments.populations(["nonprivate", "step-dpmac"], PAPER, PAPER.tasks)
    other = experiments.populations(["step-dpmac", "nonprivate"], PAPER, PAPER.tasks)
    assert sorted(all_names(one)) == sorted(all_names(other))
    assert Cell("ccn", "dpmac", "free").run(0) in all_names(one)


def test_every_series_of_a_figure_and_every_ablation_can_be_trained():
    for cell in [
        *(cell for name in FIGURES for cell in experiments.cells_of(name, PAPER.tasks)),
        *sum(ABLATIONS.values(), ()),
    ]:
        config = experiments.configuration([cell], PAPER)
        assert config.budgets == (BUDGETS[cell.budget],)
        assert cell.variant in VARIANTS
        tasks.make(config.task, **config.task_options)


def test_noise_stands_where_the_paper_puts_it():
    for method, (_, place) in METHODS.items():
        assert protocol.find(method).private_at == place


@pytest.mark.parametrize(
    ("budget", "sigma"),
    [
        ("step-0.01", 64.25),
        ("step-0.1", 6.441),
        ("step-1", 0.6596),
        ("episode-0.01", 321.3),
        ("episode-0.1", 32.20),
        ("episode-1", 3.298),
    ],
)
def test_sigma_is_that_of_the_paper_at_the_released_settings(budget, sigma):
    channel = experiments.configuration([Cell("ccn", "dpmac", budget)], PAPER).channel
    assert privacy.noise_scales(BUDGETS[budget], channel, 2, 25) == pytest.approx((sigma, sigma), rel=1e-3)


def test_settings_are_those_of_the_paper():
    configs = experiments.populations(experiments.targets(["all"]), PAPER, PAPER.tasks)
    for config in configs.values():
        program = Program.of(config)
        learner = program.learner
        assert isinstance(learner, Maddpg)
        assert (program.steps, learner.buffer, learner.learning_rate, learner.discount) == (10**6, 10**4, 7e-4, 0.99)
        assert learner.batch_size(program.rollout) == (256 if config.task == "pp" else 128)
        assert learner.updates(program.rollout) == 1
        assert (config.networks.hidden, config.networks.message_hidden, config.networks.message_size) == (128, 32, 8)
        assert config.seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("episodes", [4, 16])
def test_runs_are_rounded_up_to_whole_iterations(episodes):
    for scale in SCALES.values():
        changed = replace(scale, training=replace(scale.training, episodes=episodes))
        for config in experiments.populations(experiments.targets([], True), changed, ("cn", "ccn", "pp")).values():
            task = tasks.make(config.task)
            share = task.horizon * episodes
            wanted = scale.steps.get(config.task, scale.training.steps)
            assert 0 <= config.training.iterations(task.horizon) * share - wanted < share


def test_often_is_one_update_an_episode_at_any_number_of_episodes():
    for episodes in (4, 16):
        scale = replace(PAPER, training=replace(PAPER.training, episodes=episodes))
        program = Program.of(experiments.configuration([Cell("ccn", "dpmac", "free", "paper")], scale))
        assert program.learner.updates(program.rollout) == episodes


def slice_of(profile, figures):
    names = experiments.targets(figures)
    return experiments.populations(names, PAPER, PAPER.tasks, profile=profile)


def test_runs_of_a_profile_have_names_of_their_own():
    plain, often = (slice_of(profile, ["all"]) for profile in ("default", "paper"))
    assert len(all_names(often)) == 270
    assert not set(all_names(plain)) & set(all_names(often))
    assert {Program.of(config).learner.updates(Rollout(tasks.make("ccn"), 4)) for config in often.values()} == {4}


def test_the_release_profile_is_the_release_of_the_paper():
    """Its configuration files and scripts: two layers, layer norms, recurrent critics, σ̃ by a tanh, messages scaled to
    C, one past observation, noise of its own for each replay, landmarks on 0.8·[-1, 1]², and on PP γ = 0.95, 64 hidden
    numbers of the protocol and the nearest predator first."""
    found = slice_of("release", ["nonprivate", "step-0.1", "step-1.0", "episode-1.0"])
    assert {config.budgets for name, config in found.items() if "silent" not in name} == {
        tuple(BUDGETS[name] for name in ("free", "step-0.1", "step-1", "episode-1"))
    }
    assert len(found) == 12
    for config in found.values():
        program = Program.of(config)
        learner, networks = program.learner, config.networks
        assert isinstance(learner, Maddpg)
        assert (networks.layers, networks.layer_norm, learner.critic_layers, learner.critic_norm) == (2, True, 2, True)
        assert learner.recurrent_critic is (config.method != "i2c")
        assert not learner.replay_noise
        assert learner.updates(program.rollout) == program.training.episodes
        assert (learner.discount, networks.message_hidden) == ((0.95, 64) if config.task == "pp" else (0.99, 32))
        options = {"cn": {"landmark_range": 0.8}, "pp": {"others": "nearest"}}
        assert config.task_options == options.get(config.task, {})
        team = jax.eval_shape(program.team, jax.random.key(0))
        if config.method == "dpmac":
            sender = team.members.protocol
            assert (sender.bounded, sender.rescales) == (True, True)
            assert sender.past == program.task.observation_size
            assert sender.aggregated_size == 8
        if config.method == "i2c":
            assert team.members.protocol.percentile == {"cn": 60, "ccn": 80, "pp": 40}[config.task]


def test_what_is_asked_for_by_itself_comes_before_the_profile():
    defaults = to_json(Maddpg())
    asked = RunConfig(
        "pp",
        task_options={"horizon": 3},
        learner_options=defaults | {"discount": 0.5},
        networks=NetworkConfig(layers=1),
    )
    found = experiments.profiled(asked, "release", defaults)
    assert found.learner_options["discount"] == 0.5
    assert found.learner_options["recurrent_critic"] is True
    assert (found.networks.layers, found.networks.layer_norm, found.networks.message_hidden) == (1, True, 64)
    assert found.task_options == {"horizon": 3, "others": "nearest"}
    assert experiments.profiled(asked, "default", defaults) == asked


@pytest.mark.parametrize(("method", "size"), [("tarmac", 8), ("i2c", 8)])
def test_receivers_with_equally_wide_noise(method, size):
    def width(variant):
        program = Program.of(experiments.configuration([Cell("cn", method, "step-1", variant)], PAPER))
        return jax.eval_shape(program.team, jax.random.key(0)).hearing.size

    assert width("equal") == size
    assert width("") == {"tarmac": 4, "i2c": 32}[method]


def test_a_fraction_of_an_update_is_bad_input():
    scale = replace(PAPER, learner_options={"updates_per_episode": 0.3})
    with pytest.raises(BadInput, match="whole number"):
        Program.of(experiments.configuration([Cell("ccn", "dpmac")], scale))


def test_a_budget_has_one_name():
    assert len(NAMES) == len(BUDGETS)


def test_a_run_keeps_its_name_in_whatever_part_of_a_population_it_is_trained():
    cells = experiments.cells("ccn", "dpmac", ("free", "step-1"), "deterministic")
    whole = experiments.run_names(cells[0].population, experiments.configuration(cells, PAPER))
    part = experiments.run_names(cells[0].population, experiments.configuration(cells[1:], PAPER))
    assert part.items() <= whole.items()
    assert whole[Member((), BUDGETS["step-1"], 3)] == "ccn-dpmac-deterministic-step-1-seed-3"


def test_an_unknown_figure_is_bad_input_that_says_what_is_allowed():
    with pytest.raises(BadInput, match="episode-dpmac"):
        experiments.targets(["figure-7"])


def test_ablations_are_asked_for_by_name_or_all_together():
    assert experiments.targets(["exact"]) == ["exact"]
    assert experiments.targets(["all"]) == [*FIGURES]
    assert experiments.targets(["all"], with_ablations=True) == [*FIGURES, *ABLATIONS]


@pytest.mark.parametrize("module", ["reproduce", "frontier", "sweep"])
def test_seeds_begin_with_the_first_that_is_asked_for(module):
    from dpmac.cli import frontier, parse, reproduce, sweep

    shared = ["--scale", "smoke", "--seeds", "2", "--first-seed", "5", "--out", "somewhere"]
    found = {
        "reproduce": lambda: reproduce.wanted_of(parse(reproduce.Reproduce, ["nonprivate", *shared], "", "")),
        "frontier": lambda: frontier.wanted_of(parse(frontier.Frontier, ["ccn", *shared], "", "")),
        "sweep": lambda: {"": sweep.plan_of(parse(sweep.Sweep, ["ccn", *shared, "--grid", "hidden=8"], "", "")).base},
    }[module]()
    assert {config.seeds for config in found.values()} == {(5, 6)}
