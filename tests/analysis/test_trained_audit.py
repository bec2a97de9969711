"""Audits of trained teams: sound ones stand, and each planted fault is found on real rollouts."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import CONFIG, untrained

from dpmac import cli, privacy
from dpmac.agents.mechanisms.code import Code
from dpmac.agents.mechanisms.gaussian import Gaussian
from dpmac.agents.mechanisms.response import Response
from dpmac.agents.mechanisms.subset import Subset
from dpmac.analysis import audit
from dpmac.config import BadInput, Budget, Channel, Release
from dpmac.privacy import Entropy, Measurement
from dpmac.runner import noise as scales
from dpmac.runner import population

EPISODES = 30


def parts(channel, epsilon=(3.0, 1.0, 2.0), **changes):
    """An untrained team of three whose messages are long, with its levels and its noise."""
    budget = Budget(epsilon)
    config = dataclasses.replace(CONFIG, task="probe-neighbour", channel=channel, budgets=(budget,), **changes)
    program = population.check(config)
    team = program.team(jax.random.key(0))
    if config.method == "dpmac":
        team = jax.tree.map(lambda leaf: 2 * leaf, team)
    noise = scales.noise_scales(budget, channel, 3, program.task.horizon)
    return program, team, scales.scale_of(config, program, budget), noise


def failed(program, team, scale, noise):
    found = audit.white_box(program, team, scale, noise, EPISODES, seed=3)
    return {check.name for check in privacy.failures(found, 0.999)}


SOUND = {
    "every step": (Channel(), {}),
    "every third step": (Channel(period=3), {}),
    "a copy for each": (Channel(copies=2), {}),
    "a copy for some": (Channel(copies=2, recipient_rate=0.5), {}),
    "past transitions": (Channel(sample_rate=1.0), {}),
    "code": (Channel("code"), {}),
    "response": (Channel("response"), {}),
    "subset": (Channel("subset", symbols=8), {}),
    "tarmac": (Channel(), {"method": "tarmac"}),
}


LESS_COMMON = ("every third step", "a copy for some", "past transitions", "tarmac")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.large) if name in LESS_COMMON else name for name in SOUND]
)
def test_sound_teams_pass_all_checks_of_real_rollouts(name):
    channel, changes = SOUND[name]
    assert failed(*parts(channel, **changes)) == set()


DEPLOYED = ("every step", "a copy for some", "code", "response", "subset")


def deployed_checks(name):
    channel, changes = SOUND[name]
    found = audit.white_box(*parts(channel, **changes), EPISODES, seed=3, path="deployed")
    assert len(found) > 5
    return {check.name for check in privacy.failures(found, 0.999)}


@pytest.mark.parametrize("name", DEPLOYED)
def test_what_deployed_agents_release_passes_the_same_checks(name):
    assert deployed_checks(name) == set()


class Rewound(Measurement):
    """A measurement that draws the same noise in every episode."""

    def begin(self):
        self._entropy = Entropy(np.random.default_rng(5).bytes)
        super().begin()


class Half(Measurement):
    """A measurement whose noise is half of what is charged."""

    def begin(self):
        super().begin()
        self._noise = [noise // 2 for noise in self._noise]


@pytest.mark.parametrize(
    ("fault", "finds"), [(Rewound, "noise independent between episodes"), (Half, "noise variance at every step")]
)
def test_a_planted_fault_of_the_measurement_is_found_on_the_deployed_path_alone(fault, finds, monkeypatch):
    monkeypatch.setattr(audit, "Measurement", fault)
    assert finds in deployed_checks("every step")
    channel, changes = SOUND["every step"]
    assert failed(*parts(channel, **changes)) == set()


class BareIfNotANumber(Measurement):
    """A measurement that lets a message out without noise where it holds something that is no number."""

    def _let_out(self, step, message):
        if not np.isfinite(message).all():
            self._noise[-1] = 0 * self._noise[-1]
        return super()._let_out(step, message)


class NoNoiseOnTies(Gaussian):
    """Adds no noise to a message whose numbers are all the same."""

    def release(self, message, draws, scale):
        return super().release(message, jnp.where(jnp.ptp(message) == 0, 0 * draws, draws), scale)


def rare(channel, path, fault=None):
    _, team, scale, noise = parts(channel)
    team = dataclasses.replace(team, channel=fault(channel, team.channel.size)) if fault else team
    found = audit.rare_inputs(team, scale, noise, EPISODES, 3, path)
    return {check.name for check in privacy.failures(found, 0.999)}


@pytest.mark.parametrize("name", ["gaussian", "response"])
def test_rare_messages_are_noised_like_all_others(name):
    for path in audit.PATHS:
        assert rare(Channel(name), path) == set()


def test_what_happens_to_rare_messages_alone_is_found(monkeypatch):
    assert "rare inputs: noise of every message" in rare(Channel(), "simulated", NoNoiseOnTies)
    monkeypatch.setattr(audit, "Measurement", BareIfNotANumber)
    assert "rare inputs: noise of every message" in rare(Channel(), "deployed")
    assert deployed_checks("every step") == set()
    assert audit.rare_inputs(parts(Channel(place="receiver"))[1], *parts(Channel())[2:], 9, 3, "simulated") == []


def test_deployed_senders_that_sample_are_audited_by_transcripts_alone():
    channel, changes = SOUND["past transitions"]
    assert audit.white_box(*parts(channel, **changes), EPISODES, seed=3, path="deployed") == []
    bound, _ = bound_of(channel, (3.0,), episodes=300, path="deployed")
    assert 0 <= bound.epsilon < 3.0


def test_a_release_without_a_charge_is_an_error(monkeypatch):
    class Free(Measurement):
        def _tells(self, step):
            return False

    monkeypatch.setattr(audit, "Measurement", Free)
    with pytest.raises(AssertionError, match="without a charge"):
        audit.deployed(Release(Channel(), 1.0, 5), np.zeros((2, 5, 4)), 1)


def test_noise_at_the_receivers_is_simulated_only():
    assert (
        audit.paths_of("both", Channel(place="receiver")) == audit.paths_of("both", Channel(rounds=2)) == ("simulated",)
    )
    assert audit.paths_of("both", Channel()) == ("simulated", "deployed")
    with pytest.raises(BadInput, match="path must be"):
        audit.paths_of("other", Channel())


@pytest.mark.parametrize("channel", [Channel(period=2), Channel("response", period=0), Channel(copies=2)], ids=str)
@pytest.mark.parametrize("free", [False, True])
def test_a_channel_by_itself_is_audited_on_both_paths(channel, free):
    release = Release(channel, privacy.calibrate(channel, 3.0, 1e-4, 5), 5)
    for path in audit.PATHS:
        bound = audit.audit_channel(release, 4, 1e-4, 3000, 1 - 1e-5, 0, free, path)  # noise is not that of a seed
        assert 0.2 < bound.epsilon < 3.0


class Unclipped(Gaussian):
    def release(self, message, draws, scale):
        return message + scale.value * draws


class HalfNoise(Gaussian):
    def release(self, message, draws, scale):
        return super().release(message, draws / 2, scale)


class SquaredSigma(Gaussian):
    def release(self, message, draws, scale):
        return super().release(message, draws * scale.value, scale)


class SameNoiseAlways(Gaussian):
    def draw(self, key, shape):
        return jnp.broadcast_to(super().draw(key, shape)[:1], (*shape, self.size))


class SameNoiseForAll(Gaussian):
    def draw(self, key, shape):
        return jnp.broadcast_to(super().draw(key, shape)[:, :1], (*shape, self.size))


class SilentFirst(Gaussian):
    def draw(self, key, shape):
        return super().draw(key, shape).at[0].set(0.0)


class OneKey(Gaussian):
    def draw(self, key, shape):
        return super().draw(jax.random.key(0), shape)


class UniformNoise(Gaussian):
    def draw(self, key, shape):
        return jax.random.uniform(key, (*shape, self.size), minval=-math.sqrt(3), maxval=math.sqrt(3))


class SameCopies(Gaussian):
    def draw(self, key, shape):
        return jnp.broadcast_to(super().draw(key, shape)[:, :, :1], (*shape, self.size))


class WidePoints(Code):
    def release(self, message, draws, scale):
        return 1.2 * super().release(message, 0 * draws, scale) + scale.value * draws


class RareFlips(Response):
    def release(self, message, draws, scale):
        return super().release(message, draws.at[0, 0].set(draws[0, 0] | jnp.uint32(1 << 31)), scale)


class Whisper(Response):
    def release(self, message, draws, scale):
        return super().release(message, draws, scale) * (1 - 1e-3 * jax.nn.sigmoid(message[0]))


class RarelyLeftOut(Subset):
    def release(self, message, draws, scale):
        return super().release(message, draws.at[0, 0].set(draws[0, 0] | jnp.uint32(1 << 31)), scale)


class FirstOthers(Subset):
    def release(self, message, draws, scale):
        words = jnp.arange(2 * self.size, dtype=jnp.uint32).reshape(-1, 2)
        return super().release(message, draws.at[1:].set(words), scale)


class OneTooFew(Subset):
    def release(self, message, draws, scale):
        released = super().release(message, draws, scale)
        return released.at[jnp.argmax(released)].set(0)


FAULTS = [
    (Unclipped, Channel(), "message within clip_norm"),
    (HalfNoise, Channel(), "noise variance at every step"),
    (SquaredSigma, Channel(), "noise variance of every agent"),
    (SameNoiseAlways, Channel(), "noise independent over time"),
    (SameNoiseForAll, Channel(), "noise independent between agents"),
    (SilentFirst, Channel(), "noise variance at every step"),
    (OneKey, Channel(), "noise independent between episodes"),
    (UniformNoise, Channel(), "noise is Gaussian"),
    (SameCopies, Channel(copies=2), "copies as declared"),
    (WidePoints, Channel("code"), "message within clip_norm"),
    (RareFlips, Channel("response"), "flip rate of every agent"),
    (Whisper, Channel("response"), "alphabet of exactly k symbols"),
    (RarelyLeftOut, Channel("subset", symbols=8), "true symbol left out by every agent"),
    (FirstOthers, Channel("subset", symbols=8), "other symbols chosen alike"),
    (OneTooFew, Channel("subset", symbols=8), "exactly d of k symbols"),
]


@pytest.mark.parametrize(("fault", "channel", "finds"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS])
def test_planted_fault_is_found_on_real_rollouts(fault, channel, finds):
    program, team, scale, noise = parts(channel)
    broken = dataclasses.replace(team, channel=fault(channel, team.channel.size))
    assert finds in failed(program, broken, scale, noise)


def test_noise_at_the_receiver_is_found_to_be_none():
    program, team, scale, _ = parts(Channel(place="receiver"))
    noise = scales.noise_scales(Budget((3.0, 1.0, 2.0)), Channel(), 3, program.task.horizon)
    assert "noise variance at every step" in failed(program, team, scale, noise)


# Canaries -------------------------------------------------------------------------------------------------------------


def bound_of(channel, epsilon, team=None, episodes=1500, path="simulated"):
    program, sound, scale, noise = parts(channel, epsilon)
    team = dataclasses.replace(sound, channel=team(channel, sound.channel.size)) if team else sound
    pair = audit.canaries(program, team, scale, 0, 0)
    release = Release(channel, noise[0], program.task.horizon)
    return audit.lower_bound(team, scale, 0, pair, release, 1e-4, episodes, 0.999, 0, path), pair


def test_canaries_use_the_whole_ball_and_differ_in_one_agent_alone():
    bound, pair = bound_of(Channel(), (3.0,))
    apart = np.linalg.norm(pair.direction, axis=-1)
    assert apart.min() > 1.6 * Channel().clip_norm
    assert apart.max() <= 2 * Channel().clip_norm * (1 + 1e-5)
    first, second = np.asarray(pair.worlds)
    np.testing.assert_array_equal(first[:, 1:], second[:, 1:])
    assert np.all(first[:, 0] != second[:, 0])
    assert 1.0 < bound.epsilon < 3.0


@pytest.mark.parametrize("channel", [Channel("response", period=0), Channel("subset", symbols=8, period=0)])
def test_transcripts_of_symbols_stay_below_the_claim(channel):
    bound, _ = bound_of(channel, (3.0,))
    assert 1.0 < bound.epsilon < 3.0


@pytest.mark.large
@pytest.mark.parametrize("fault", [Unclipped, HalfNoise, SilentFirst])
def test_planted_fault_refutes_the_claim(fault):
    """Noise that repeats costs these canaries nothing, which never change; the checks above find it."""
    bound, _ = bound_of(Channel(), (1.0,), fault, episodes=15_000)
    assert bound.epsilon > 1.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("audit") / "run"
    budgets = (Budget((1.0, math.inf), accountant="paper"), Budget((2.0,), unit="message"), Budget())
    untrained(found, dataclasses.replace(CONFIG, budgets=budgets, seeds=(0,), task_options={"horizon": 25}))
    return found


def test_command_gives_an_entry_for_each_private_agent(folder, capsys, monkeypatch):
    spent, failures = [], privacy.failures
    monkeypatch.setattr(privacy, "failures", lambda found, each: spent.append(1 - each) or failures(found, each))
    line = ["privacy", "audit", str(folder), "--episodes", "1000", "--json"]
    assert cli.main([*line, "--path", "simulated"]) == 1
    entries = json.loads(capsys.readouterr().out)
    labels = ["1:inf episode paper 0.0001", "2 message exact 0.0001", "2 message exact 0.0001"]
    assert [entry["budget"] for entry in entries] == labels
    assert [(entry["seed"], entry["agent"]) for entry in entries] == [(0, 0), (0, 0), (0, 1)]
    paper, *exact = entries
    assert paper["claimed_epsilon"] == 1
    assert paper["verdict"] == "refuted"
    assert 1 < paper["lower_bound"] < paper["exact_epsilon"] == pytest.approx(6.29, abs=0.01)
    for entry in exact:
        assert entry["verdict"] == "consistent"
        assert entry["lower_bound"] < entry["exact_epsilon"] <= 2
        assert entry["unit"] == "message"
    for entry in entries:
        assert entry["confidence"] == pytest.approx(1 - 0.005 / 3)
        assert entry["episodes"] == 1000
        assert entry["checks"] > 5
        assert entry["failed_checks"] == []
    assert spent == pytest.approx([0.005 / 3] * 2)  # the other half; the third team claims nothing


def test_command_audits_the_path_of_deployed_agents(folder, capsys):
    line = ["privacy", "audit", str(folder), "--episodes", "300", "--deployed-episodes", "400", "--json"]
    assert cli.main(line) == 1
    entries = json.loads(capsys.readouterr().out)
    assert [entry["path"] for entry in entries] == ["simulated", "deployed"] * 3
    for entry in entries[1::2]:
        assert entry["episodes"] == 400
        assert entry["confidence"] == pytest.approx(1 - 0.005 / 6)
        assert 0 < entry["lower_bound"] < entry["exact_epsilon"]
        assert entry["checks"] > 5
        assert entry["failed_checks"] == []
    assert entries[1]["verdict"] == "refuted"
    assert entries[3]["verdict"] == entries[5]["verdict"] == "consistent"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--epsilon", "3"], "--epsilon describes a channel"),
        (["--clip-norm", "3"], "--clip-norm describes a channel"),
        (["--episodes", "3"], "episodes must be a whole number from 50"),
        (["--confidence", "0"], "confidence"),
    ],
)
def test_bad_input_gets_one_clear_line(folder, arguments, says, capsys):
    assert cli.main(["privacy", "audit", str(folder), *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1


def test_an_unknown_path_is_refused_with_those_that_there_are(folder, capsys):
    assert cli.main(["privacy", "audit", str(folder), "--path", "other"]) == 2
    error = capsys.readouterr().err
    assert all(path in error for path in ("deployed", "simulated", "both"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"method": "silent", "budgets": (Budget(),)}, "sends nothing to audit"),
        ({"budgets": (Budget(),)}, "no claim to audit"),
    ],
)
def test_what_has_no_claim_is_refused(change, says, tmp_path, capsys):
    untrained(tmp_path / "run", dataclasses.replace(CONFIG, seeds=(0,), **change))
    assert cli.main(["privacy", "audit", str(tmp_path / "run")]) == 2
    assert says in capsys.readouterr().err
