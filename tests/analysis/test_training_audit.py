"""An audit of private training stays below true claims, and catches faults that were planted."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from dpmac.analysis import audit_training
from dpmac.analysis.audit_training import Watched, audit
from dpmac.config import BadInput, Budget, Channel, NetworkConfig, PrivateTraining, RunConfig, Training
from dpmac.learner import mappo
from dpmac.runner.train import Program

MAPPO = RunConfig(
    "probe-listen",
    learner="mappo",
    learner_options={"epochs": 1, "spread_rate": 0.0},
    budgets=(Budget((3.0,)),),
    networks=NetworkConfig(hidden=4, message_hidden=4, message_size=2),
    training=Training(steps=800, episodes=16),
    private=PrivateTraining(1.0, train_noise="seed"),
)
MADDPG = dataclasses.replace(
    MAPPO,
    learner="maddpg",
    learner_options={"standardise": False, "batch": 16, "buffer": 128, "updates_per_episode": 1 / 32},
    training=Training(steps=3200, episodes=32),
)
PATHWISE = dataclasses.replace(
    MAPPO, learner="pathwise", learner_options={"expectation": 0.0}, channel=Channel("response", period=0)
)


def verdicts(config: RunConfig, watched: type[Watched] = Watched, **given: Any) -> list[str]:
    return [answer["verdict"] for answer in audit(config, **({"updates": 600, "canaries": 1} | given), watched=watched)]


class WithReplacement(Watched):
    """Draws a batch of a fixed size, with replacement, from the 32 episodes that are stored at first."""

    def drawn(self, slots: int, rate: float) -> Array:
        places = jax.random.randint(self.draw_key, (round(rate * slots),), 0, 32)
        return jnp.zeros(slots, bool).at[places].set(True)


class LeavingOut(Watched):
    """Adds up no more than four of the episodes that were drawn."""

    def clipped_sum(self, gradient: Any, networks: Any, taken: Array) -> Any:
        return super().clipped_sum(gradient, networks, taken & (jnp.cumsum(taken) <= 4))


@pytest.mark.parametrize(
    "config",
    [MAPPO, *(pytest.param(config, marks=pytest.mark.large) for config in (MADDPG, PATHWISE))],
    ids=lambda config: config.learner,
)
def test_a_true_claim_is_not_refuted(config):
    assert set(verdicts(config, canaries=32 if config is MADDPG else 1)) == {"consistent"}


def test_a_check_that_could_find_nothing_is_left_out():
    """Pathwise plays episodes inside of their gradients, so that nothing else sees their rewards."""
    assert [answer["method"] for answer in audit(PATHWISE, 20, 1)] == ["one run, canary sources"]


@pytest.mark.parametrize(
    ("clip", "noise"), [(1.0, 0.0), (10.0, 0.1)], ids=["noise forgotten", "clipped in each of ten steps"]
)
def test_a_planted_fault_is_caught(clip, noise, monkeypatch):
    """The sum of ten clipped gradients is as long as ten clips, and the noise is that of one."""
    true: Any = Program.settings.fget
    planted = property(
        lambda self: {k: v * {"train_clip": clip, "train_noise": noise}.get(k, 1) for k, v in true(self).items()}
    )
    monkeypatch.setattr(Program, "settings", planted)
    found = audit(dataclasses.replace(MAPPO, private=PrivateTraining(3.0, train_noise="seed")), 600, 1)[0]
    assert found["verdict"] == "refuted"
    assert noise or found["lower_bound"] > 3.5


@pytest.mark.large
@pytest.mark.parametrize("watched", [WithReplacement, LeavingOut])
def test_what_enters_an_update_must_look_like_poisson_sampling(watched):
    assert verdicts(MADDPG, watched, canaries=32)[2] == "refuted"


def test_numbers_that_vary_as_those_of_independent_draws_do_pass():
    stored, draws = np.full(200, 100), np.random.default_rng(0)
    assert audit_training.poisson_like(draws.binomial(100, 0.2, 200), stored, 0.2) > 0.01
    assert audit_training.poisson_like(np.full(200, 20), stored, 0.2) < 1e-6


def test_statistics_of_the_batch_are_caught(monkeypatch):
    """Advantages that are standardised over all episodes tell of an absent one."""
    plain = mappo.Mappo.iterate_privately

    def leaky(self: Any, state: Any, play: Any, noise: Any, clock: Any, key: Array, private: Any) -> Any:
        deviation = jnp.std(play(state.team, noise, key).episode.rewards)
        return plain(self.given({"value_scale": deviation}), state, play, noise, clock, key, private)

    monkeypatch.setattr(mappo.Mappo, "iterate_privately", leaky)
    jax.clear_caches()
    assert verdicts(MAPPO, updates=20)[1] == "refuted"
    jax.clear_caches()


@pytest.mark.parametrize(
    ("config", "given", "said"),
    [
        (dataclasses.replace(MAPPO, private=PrivateTraining()), {}, "was not trained privately"),
        (dataclasses.replace(MAPPO, private=PrivateTraining(float("inf"))), {}, "no noise was asked for"),
        (MAPPO, {"updates": 0}, "updates must be"),
        (MAPPO, {"canaries": 17}, "canaries must be a whole number from 1 to 16"),
        (MAPPO, {"updates": 1, "canaries": 8}, "needs 20 canaries"),
        (MAPPO, {"confidence": 1.0}, "confidence must lie"),
    ],
)
def test_what_cannot_be_audited_is_refused(config, given, said):
    with pytest.raises(BadInput, match=said):
        audit(config, **given)
