"""Senders that are held to their step's increment: one changed increment moves no message but by what is charged."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import privacy, tasks
from dpmac.agents.mechanisms import noise_scale
from dpmac.agents.team import TaskShape, make_team
from dpmac.analysis import audit
from dpmac.analysis.audit import Script, said
from dpmac.config import BadInput, Channel, NetworkConfig, Release, RunConfig
from dpmac.runner.train import Program
from dpmac.tasks import abilities

TASK = tasks.make("drift", horizon="5")
SMALL = NetworkConfig(8, 6, 4)
CHANNEL = Channel("correlated", stream_decay=TASK.decay, increments=True)  # type: ignore[attr-defined]


def team_of(channel=CHANNEL, task=TASK, method="dpmac", **options):
    shape = TaskShape(
        task.agents, task.observation_size, task.actions, task.horizon, increments=abilities(task).increments
    )
    return make_team(jax.random.key(0), shape, method, options, channel, SMALL)


def test_a_message_is_made_from_the_increment_alone():
    team, rng = team_of(), np.random.default_rng(0)
    seen, hidden, draws = (jnp.asarray(rng.standard_normal((2, size)), jnp.float32) for size in (3, 8, 4))
    message = team.compose(seen, jnp.array([0, 1]), hidden, draws)
    other = team.compose(seen.at[:, :2].set(jnp.nan), jnp.array([2, 3]), 7 * hidden, draws)
    np.testing.assert_array_equal(message, other)
    assert np.abs(team.compose(seen.at[:, 2].add(1.0), jnp.array([0, 1]), hidden, draws) - message).max() > 0


@pytest.mark.parametrize("step", [0, 3])
def test_streams_that_differ_in_one_increment_are_as_far_apart_as_is_charged_and_no_farther(step):
    """Everything else that the agent sees differs too, from that step on, as it does in a stream. Its increment is so
    large that all of it is clipped."""
    team, scale = team_of(deterministic=True), noise_scale(CHANNEL, (1.0, 1.0))
    world = jax.random.normal(jax.random.key(1), (6, 2, 3))
    worlds = [world.at[step:, 0, :2].set(value).at[step, 0, 2].set(value) for value in (1e3, -1e3)]
    first, second = (np.asarray(said(Script(one), team, scale, jax.random.key(2)).before[:, 0, 0]) for one in worlds)
    host, release = privacy.mechanisms.of(CHANNEL), Release(CHANNEL, 1.0, 5 - step, "episode", "increment")
    most = CHANNEL.sensitivity * host.squares(release) ** 0.5  # type: ignore[attr-defined]
    assert 0.3 * most < np.linalg.norm(first - second) <= most
    np.testing.assert_array_equal(first[:step], second[:step])


@pytest.mark.parametrize(("held", "refuted"), [(True, False), (False, True)])
def test_an_audit_finds_senders_that_see_more_than_their_increment(held, refuted):
    """Two streams that differ in their first increment, and so in everything but increments afterwards."""
    config = RunConfig("drift", learner="pathwise", task_options={"horizon": 5}, channel=CHANNEL, networks=SMALL)
    noise = privacy.calibrate(CHANNEL, 2.0, 1e-4, 5, "episode", "increment")
    scale = noise_scale(CHANNEL, (noise, noise))
    team = team_of(dataclasses.replace(CHANNEL, increments=held))
    pair = audit.canaries(Program.of(config), team, scale, 0, 0, "increment")
    np.testing.assert_array_equal(*(world[1:, 0, 2] for world in pair.worlds))
    release = Release(CHANNEL, noise, 5, "episode", "increment")
    bound = audit.lower_bound(team, scale, 0, pair, release, 1e-4, 2000, 0.99, 0)
    assert bound.epsilon > 0.5
    assert (bound.epsilon > 2.0) == refuted


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"task": tasks.make("place")}, "does not declare"),
        ({"channel": Channel(increments=True), "method": "tarmac"}, "remembers"),
        ({"channel": Channel(increments=True), "past": True}, "remembers"),
    ],
)
def test_what_would_let_an_increment_into_many_messages_is_refused(given, says):
    with pytest.raises(BadInput, match=says):
        team_of(**given)
