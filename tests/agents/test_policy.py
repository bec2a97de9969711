"""What actors' outputs mean: densities integrate to one, and a continuous push is one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import tasks
from dpmac.agents.policy import Choice, Squashed
from dpmac.config import BadInput, NetworkConfig, RunConfig, Training
from dpmac.learner.rollout import returns, rollout
from dpmac.runner import population, train
from dpmac.runner.noise import scales_of, tables_of

OUTPUTS = jnp.array([0.3, 0.5])  # the mean of a number before squashing, and the logarithm of its deviation plus 1


def test_the_density_of_a_squashed_gaussian_integrates_to_one_and_fits_its_samples():
    policy = Squashed(1)
    points = jnp.linspace(-1, 1, 200_001)[1:-1]
    density = jnp.exp(jax.vmap(lambda a: policy.log_probability(OUTPUTS, a))(points[:, None]))
    assert jnp.trapezoid(density, points) == pytest.approx(1.0, abs=1e-3)
    drawn = policy.sample(OUTPUTS, policy.noise(jax.random.key(0), (100_000,)))[:, 0]
    assert (np.abs(drawn) <= 1).all()
    for below in (-0.5, 0.0, 0.5):
        share = jnp.trapezoid(jnp.where(points < below, density, 0.0), points)
        assert jnp.mean(drawn < below) == pytest.approx(float(share), abs=0.01)
    assert policy.best(OUTPUTS) == pytest.approx(np.tanh(0.3))
    assert np.isfinite(policy.log_probability(OUTPUTS, jnp.ones(1)))


def test_exploration_is_uniform():
    for policy, wanted in ((Squashed(1), np.linspace(-1, 1, 5)[1:-1]), (Choice(4), [0.5, 1.5, 2.5])):
        drawn = policy.anything(policy.noise(jax.random.key(0), (40_000,)))
        np.testing.assert_allclose([np.mean(drawn < value) for value in wanted], [0.25, 0.5, 0.75], atol=0.01)


@pytest.mark.parametrize("count", [128, 129, 300])
def test_every_action_is_stored_as_it_was_taken(count):
    actions = jnp.arange(count)
    np.testing.assert_array_equal(Choice(count).stored(actions), actions)
    np.testing.assert_array_equal(Choice(count).stored(jax.nn.one_hot(actions, count)), actions)


def test_a_continuous_push_along_an_axis_is_the_discrete_one():
    discrete, continuous = tasks.make("cn"), tasks.make("cn", continuous="true")
    assert continuous.actions == 2
    state = discrete.reset(jax.random.key(0))
    for action, push in enumerate([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]):
        one = discrete.step(state, jnp.full(3, action))
        same = continuous.step(state, jnp.array([push] * 3, jnp.float32))
        jax.tree.map(np.testing.assert_array_equal, one, same)
    found, same = (tasks.reference_returns(task, jax.random.key(0), 50) for task in (continuous, discrete))
    assert found["scripted"] == pytest.approx(same["scripted"])
    assert found["scripted"][0] > found["random"][0]


def test_messages_and_replay_take_continuous_actions():
    program = train.Program.of(
        RunConfig("cn", task_options={"continuous": True, "horizon": 4}, networks=NetworkConfig(8, 8, 4))
    )
    team = program.team(jax.random.key(0))
    trace = jax.jit(lambda key: rollout(program.task, team, team.free, key, 3))(jax.random.key(1))
    assert trace.episode.actions.shape == (3, 4, 3, 2)
    assert trace.episode.actions.dtype == jnp.float32
    draws = jax.vmap(team.noise_draws)(jax.random.wrap_key_data(trace.episode.draws))
    turned = [jnp.moveaxis(x, 0, 2) for x in (trace.episode.observations[:, :-1], trace.episode.actions)]
    again = jax.jit(lambda *given: team.unroll(*given))(*turned, draws, team.free)
    np.testing.assert_allclose(jnp.moveaxis(again, 2, 0), trace.logits, atol=1e-5)


def test_values_of_single_actions_do_not_exist_where_they_are_continuous():
    with pytest.raises(BadInput, match="continuous"):
        train.Program.of(RunConfig("cn", "i2c", task_options={"continuous": True}))


SETTINGS = {
    "maddpg": {"batch": 32, "learning_rate": 2e-3, "tau": 0.02, "explore_steps": 20_000},
    "mappo": {"learning_rate": 3e-3},
    "pathwise": {"learning_rate": 1e-2},
}


@pytest.mark.large
@pytest.mark.parametrize("learner", SETTINGS)
def test_every_learner_learns_to_push(learner):
    """Two agents and two landmarks: all earn more than half of what the script earns above random pushes."""
    episodes, iterations = (4, 3000) if learner == "maddpg" else (32, 400)
    training = Training(steps=10 * episodes * iterations, episodes=episodes)
    config = RunConfig(
        "cn",
        "silent",
        task_options={"continuous": True, "horizon": 10, "agents": 2, "landmarks": 2},
        learner=learner,
        learner_options=SETTINGS[learner],
        networks=NetworkConfig(32, 16, 4),
        training=training,
    )
    program, runs = population.check(config), population.runs_of(config)
    scale, tables = scales_of(config, program, config.budgets), tables_of(config, program, config.budgets, 0.0)
    states, settings = population.start(program, population.keys_of(runs)), population.settings_of(program, runs)
    states, _ = population.advance(program, states, tables, scale, settings, jnp.asarray(iterations))
    states, scale = (jax.tree.map(lambda leaf: leaf[0], tree) for tree in (states, scale))
    earned = float(jnp.mean(returns(train.evaluate(program, program.learner.team(states.learner), scale, 1024))))
    known = tasks.reference_returns(program.task, jax.random.key(0), 1000)
    assert earned > (known["random"][0] + known["scripted"][0]) / 2
