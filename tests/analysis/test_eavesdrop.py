"""The eavesdropper: no better than the cap on sound channels, and a planted fault is caught."""

import dataclasses
import json
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import CONFIG, learning, untrained

from dpmac import cli, privacy
from dpmac.agents.mechanisms.gaussian import Gaussian
from dpmac.agents.mechanisms.response import Response
from dpmac.analysis import eavesdrop, gap
from dpmac.config import BadInput, Budget, Channel, NetworkConfig, Release
from dpmac.experiments import BUDGETS
from dpmac.runner import population
from dpmac.runner.noise import scales_of
from dpmac.runner.population import Loaded

EPISODES = 2400
ONCE = Channel("response", period=0)


def loud(channel, *budgets, task="midway", fault=None, secrets=3, where=-3, **options):
    """An untrained team on a task with so many secrets whose senders say their secret as clearly as the channel lets
    them: for each value a number of its own, at full length, and nothing of their own draws."""
    config = dataclasses.replace(
        learning(CONFIG, steps=500),
        task=task,
        task_options=options,
        method_options={"deterministic": True},
        channel=channel,
        budgets=budgets,
        seeds=(0,),
        networks=NetworkConfig(hidden=8, message_hidden=8, message_size=secrets, aware=True),
    )
    program = population.check(config)
    team = program.team(jax.random.key(0))
    first = where % program.task.observation_size
    secret = slice(first, first + secrets)
    said: Any = team.members.protocol
    shared = jnp.zeros_like(said.shared.weight).at[:, secret, :secrets].set(40 * jnp.eye(secrets))
    bias = (
        jnp.zeros_like(said.shared.bias).at[:, :secrets].set(-20.0)
    )  # marks are 0.25 and 0.75, so that only one is aggregated
    mean = jnp.zeros_like(said.mean.weight).at[:, :secrets, :secrets].set(jnp.eye(secrets))
    parts = (shared, bias, mean, jnp.zeros_like(said.mean.bias))
    team = eqx.tree_at(
        lambda team: (
            team.members.protocol.shared.weight,
            team.members.protocol.shared.bias,
            team.members.protocol.mean.weight,
            team.members.protocol.mean.bias,
        ),
        team,
        parts,
    )
    if fault:
        team = dataclasses.replace(team, channel=fault(channel, team.channel.size))
    runs = population.runs_of(config)
    teams = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(runs)), team)
    return Loaded(config, program, runs, teams, scales_of(config, program, [run.budget for run in runs]), 0)


def aggregated(*given, **changes):
    """The entries of the first agent, one for each budget."""
    return [entries[0] for entries in eavesdrop.eavesdrop(loud(*given, **changes), EPISODES)]


# Guessing -------------------------------------------------------------------------------------------------------------


def test_classes_are_balanced_and_nothing_is_counted_that_was_learned_from():
    labels = np.random.default_rng(0).choice(3, 1000, p=[0.7, 0.2, 0.1])
    parts = eavesdrop.split(labels, 3)
    assert parts is not None
    for part in parts:
        np.testing.assert_array_equal(labels[part], np.repeat([[0], [1], [2]], part.shape[1], axis=1))
    places = np.concatenate([part.ravel() for part in parts])
    assert len(np.unique(places)) == len(places)
    assert eavesdrop.split(np.array([0] * 100 + [1] * 19), 2) is None


def test_a_common_secret_gives_no_advantage():
    rng = np.random.default_rng(0)
    answer = eavesdrop.guess(rng.normal(size=(3000, 1, 2)), rng.choice(2, 3000, p=[0.9, 0.1]))
    assert answer is not None
    assert answer.at_least(0.999) < 0.5 < answer.at_most(0.999)


def test_noise_is_averaged_out():
    rng = np.random.default_rng(1)
    secrets = rng.integers(0, 2, 4000)
    answer = eavesdrop.guess(rng.normal(0.45 * (2 * secrets - 1)[:, None, None], 1.0, (4000, 20, 1)), secrets)
    assert answer is not None
    assert answer.accuracy > 0.95


def test_a_code_that_is_not_linear_is_found():
    messages = np.random.default_rng(1).normal(size=(4000, 2, 1))
    answer = eavesdrop.guess(messages, (messages.prod((1, 2)) > 0).astype(int))
    assert answer is not None
    assert answer.accuracy > 0.9
    assert answer.guesser == "network"


def test_intervals_cover():
    answer = eavesdrop.Guess(60, 100, 2, "")
    assert (answer.at_least(0.975), answer.at_most(0.975)) == pytest.approx((0.4972, 0.6967), abs=1e-3)
    assert eavesdrop.Guess(0, 10, 2, "").at_least(0.9) == 0
    assert eavesdrop.Guess(10, 10, 2, "").at_most(0.9) == 1


def test_places_are_guessed_by_quadrant_and_numbers_as_they_are():
    places = jnp.array([[[0.5, 0.5], [-0.5, 0.5]], [[0.5, -0.5], [-0.5, -0.5]]])
    np.testing.assert_array_equal(eavesdrop.classes_of(places), [[3, 2], [1, 0]])
    np.testing.assert_array_equal(eavesdrop.classes_of(jnp.array([[4, 7]])), [[4, 7]])


# Senders that say all they know ---------------------------------------------------------------------------------------


def test_free_messages_give_everything_away():
    (free,) = aggregated(Channel(), Budget())
    assert free["accuracy"] >= 0.95
    assert free["cap"] == 1
    assert free["verdict"] == "within"


def test_the_papers_noise_lets_out_more_than_its_claim():
    """At the paper's σ for ε = 1 of the step scale the true ε of an episode is 56."""
    (paper,) = aggregated(Channel(), BUDGETS["step-1"])
    assert paper["cap_of_claim"] == pytest.approx(0.576, abs=1e-3)
    assert paper["surely"] > paper["cap_of_claim"]
    assert paper["exact_epsilon"] == pytest.approx(56.1, abs=0.1)
    assert paper["verdict"] == "within"


def test_a_held_symbol_lets_out_exactly_what_its_budget_allows():
    found = aggregated(ONCE, Budget((1.0,)), Budget((3.0,)))
    for entry, cap in zip(found, (0.576, 0.909), strict=True):
        assert entry["cap"] == pytest.approx(cap, abs=1e-3)
        assert entry["low"] - 0.01 < cap < entry["high"] + 0.01
        assert entry["verdict"] == "within"


def test_many_noisy_messages_stay_below_their_cap():
    one, ten = aggregated(Channel(), Budget((1.0,)), Budget((10.0,)))
    assert one["accuracy"] < one["cap"] == pytest.approx(0.411, abs=1e-3)
    assert 0.6 < ten["accuracy"] < ten["cap"] == pytest.approx(0.811, abs=1e-3)


class NeverFlips(Response):
    def release(self, message, draws, scale):
        return super().release(message, *self.noiseless(draws, scale))


def test_symbols_that_are_never_flipped_violate_the_cap():
    found = aggregated(ONCE, Budget((1.0,)), Budget((3.0,)), fault=NeverFlips)
    assert [entry["verdict"] for entry in found] == ["violated", "violated"]
    assert all(entry["accuracy"] == 1 for entry in found)


class OneNoise(Gaussian):
    """The same noise for all agents."""

    def draw(self, key, shape):
        return jnp.broadcast_to(super().draw(key, shape)[:, :1], (*shape, self.size))


def test_noise_that_senders_share_is_found_by_whoever_hears_all_of_them():
    (entries,) = eavesdrop.eavesdrop(loud(Channel(), Budget((1.0,)), fault=OneNoise), EPISODES)
    verdicts = {(entry["agent"], entry["hears"]): entry["verdict"] for entry in entries}
    assert verdicts[0, "sender"] == "within"
    assert verdicts[0, "all"] == "violated"


def test_whoever_hears_all_senders_has_the_cap_of_all_of_them():
    release = Release(Channel(), 1.0, 1)
    once, twice = (privacy.joint_accuracy([release] * senders, 2) for senders in (1, 2))
    assert once == pytest.approx(privacy.transcript_accuracy(release, 2), abs=1e-9)
    assert twice == pytest.approx(0.5 * (1 + math.erf(0.5)), abs=1e-6)  # a shift of √2 standard deviations
    assert privacy.joint_accuracy([release, Release(Channel(), 0.0, 1)], 2) == 1
    symbol = Release(Channel("response", symbols=2), 0.25, 1)
    assert privacy.joint_accuracy([symbol], 2) == pytest.approx(0.75)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_one_of_eight_secrets_stays_below_its_cap(epsilon):
    """A subset gives a guess away less often than randomised response does, which reaches the cap."""
    probe = {"task": "probe-listen", "secrets": 8, "where": 0, "symbols": 8}
    right = {}
    for name in ("subset", "response"):
        spec = Channel(name, symbols=8, period=0)
        entry = eavesdrop.eavesdrop(loud(spec, Budget((epsilon,)), **probe), 8000)[0][0]
        noise = privacy.calibrate(spec, epsilon, 1e-4)
        assert entry["verdict"] == "within"
        assert entry["chance"] == 1 / 8
        assert entry["low"] - 0.02 < privacy.eavesdropper_accuracy(spec, noise, 1) < entry["high"] + 0.02
        right[name] = entry["accuracy"], entry["cap"]
    assert right["subset"][1] <= right["response"][1] + 1e-9


def test_what_may_follow_from_messages_has_no_cap():
    loaded = loud(ONCE, Budget((1.0,)), task="ccn")
    late = eavesdrop.eavesdrop(loaded, EPISODES, step=5)[0][0]
    assert late["cap"] is None
    assert late["verdict"] == "no cap"
    assert late["confidence"] == pytest.approx(1 - 0.01 / 4)  # two agents, heard alone and all at once
    with pytest.raises(BadInput, match="step must lie"):
        eavesdrop.eavesdrop(loaded, EPISODES, step=25)


def test_verdicts_on_several_secrets_share_the_confidence(monkeypatch):
    loaded = loud(ONCE, Budget((1.0,)), task="ccn")
    known = type(loaded.program.task).secrets
    twice = lambda task, state: {name: known(task, state)["target"] for name in ("target", "again")}  # noqa: E731
    monkeypatch.setattr(type(loaded.program.task), "secrets", twice)
    (entries,) = eavesdrop.eavesdrop(loaded, EPISODES, hears=("sender",))
    assert {entry["secret"] for entry in entries} == {"target", "again"}
    assert sum(1 - entry["confidence"] for entry in entries) == pytest.approx(0.01)


# The cap --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", [ONCE, Channel("response"), Channel(), Channel("code", period=0)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0])
def test_the_cap_lies_between_the_best_known_attack_and_that_of_any_transcript(channel, epsilon):
    noise = privacy.calibrate(channel, epsilon, 1e-4, 25)
    cap = privacy.transcript_accuracy(Release(channel, noise, 25), 3)
    assert privacy.eavesdropper_accuracy(channel, noise, 25) <= cap + 1e-6
    assert cap <= privacy.private_accuracy(epsilon, 1e-4, 3) + 1e-9


def test_two_secrets_have_the_exact_cap():
    release = Release(Channel(), 1.0, 1)  # a shift of one standard deviation
    exact = (1 + privacy.delta(release, 0.0)) / 2
    assert privacy.transcript_accuracy(release, 2) == pytest.approx(exact, abs=1e-6)
    assert exact == pytest.approx(0.5 * (1 + math.erf(0.5 / math.sqrt(2))), abs=1e-6)


# Where symbols lose ---------------------------------------------------------------------------------------------------


def test_symbols_that_are_the_secret_are_right_until_they_are_flipped():
    (found,) = gap.gaps(loud(ONCE, Budget((1.0,))), EPISODES)
    assert found is not None
    assert found["right"] == 1
    assert found["bits"] == pytest.approx(math.log2(3), abs=0.01)
    assert found["right_after"] == pytest.approx(0.576, abs=0.03)
    assert found["right_in_view"] == 1
    assert found["return_on"] != found["return_off"]


def test_other_channels_have_no_symbols_to_look_at():
    assert gap.gaps(loud(Channel(), Budget((1.0,)))) == [None]


@pytest.mark.large
def test_a_frontier_may_be_of_a_task_in_which_not_everybody_has_a_secret(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = "frontier probe-listen --scale smoke --epsilon 1 --seeds 1 --lines response-once --json"
    assert cli.main(line.split()) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert 0.5 <= row["gap"]["right"] <= 1


def test_only_agents_that_have_a_secret_are_looked_at(folder, monkeypatch):
    """In this task agent 1 knows nothing, and answers."""
    loaded = population.load(folder)
    (found,) = gap.gaps(loaded, EPISODES)
    assert found is not None
    assert 0.5 <= found["right"] <= 1
    assert 0 <= found["bits"] <= 1
    nobody = {"secrets": np.full((8, 2), -1), "symbols": np.zeros((8, 2), int)}
    monkeypatch.setattr(gap, "played", lambda *_: nobody)
    assert gap.gaps(loaded, 8) == [None]


def test_information_of_a_noisy_code():
    secrets, symbols = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1])
    bits, right = gap.information(secrets, symbols)
    assert right == 0.75
    assert bits == pytest.approx(0.3113, abs=1e-4)


# The command ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("eavesdrop") / "run"
    untrained(found, dataclasses.replace(CONFIG, channel=ONCE, budgets=(Budget((1.0,)),), seeds=(0,)))
    return found


def test_command_gives_an_entry_for_each_sender_with_a_secret(folder, capsys):
    line = ["privacy", "eavesdrop", str(folder), "--episodes", "400", "--deployed-episodes", "300", "--json"]
    assert cli.main(line) == 0
    entries = json.loads(capsys.readouterr().out)
    found = [(entry["agent"], entry["path"], entry["hears"]) for entry in entries]
    assert found == [
        (0, path, hears) for path in ("simulated", "deployed") for hears in ("sender", "all")
    ]  # 1 is blind
    for entry in entries:
        assert entry["verdict"] == "within"
        assert entry["chance"] == 0.5
        assert entry["low"] <= entry["accuracy"] <= entry["high"]
    for alone, everybody in (entries[:2], entries[2:]):
        assert alone["cap"] == pytest.approx((1 + (math.e - 1) / (math.e + 2)) / 2, abs=1e-3)  # two values
        assert alone["cap"] < everybody["cap"] <= everybody["cap_of_claim"]
        assert (alone["claimed_epsilon"], everybody["claimed_epsilon"]) == (1, 2)


def test_a_violation_is_a_failure(folder, capsys, monkeypatch):
    monkeypatch.setattr(privacy.limits, "transcript_accuracy", lambda release, secrets: 0.1)
    assert cli.main(["privacy", "eavesdrop", str(folder), "--episodes", "400", "--path", "simulated"]) == 1
    assert "violated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--episodes", "5"], "from 80"),
        (["--deployed-episodes", "0"], "from 80 to 10^6, not 0"),
        (["--confidence", "1"], "confidence"),
        (["--step", "9"], "step"),
    ],
)
def test_bad_input_gets_one_clear_line(folder, arguments, says, capsys):
    assert cli.main(["privacy", "eavesdrop", str(folder), *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1


def test_silence_cannot_be_overheard():
    config = dataclasses.replace(CONFIG, method="silent", budgets=(Budget(),))
    silent: Any = Loaded(config, population.check(config), [], None, None, 0)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="sends nothing"):
        eavesdrop.eavesdrop(silent)


@pytest.mark.parametrize("channel", [ONCE, Channel()], ids=["response", "gaussian"])
def test_what_deployed_agents_release_can_be_overheard_as_far_as_the_cap(channel):
    """The eavesdropper hears the same through the measurement, within what is possible."""
    (entries,) = eavesdrop.eavesdrop(loud(channel, Budget((3.0,))), EPISODES, path="both", deployed_episodes=1500)
    by_path = {path: [entry for entry in entries if entry["path"] == path] for path in ("simulated", "deployed")}
    assert {entry["verdict"] for entry in by_path["deployed"]} == {"within"}
    simulated, deployed = (np.mean([entry["accuracy"] for entry in by_path[path]]) for path in by_path)
    assert deployed == pytest.approx(simulated, abs=0.1)
    assert deployed > by_path["deployed"][0]["chance"] + 0.05
