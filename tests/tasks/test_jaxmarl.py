"""Environments of JaxMARL as tasks: they earn what JaxMARL's own loop earns, and what they forbid is not done."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import tasks
from dpmac.config import BadInput, RunConfig
from dpmac.learner.rollout import rollout
from dpmac.runner.statement import statement
from dpmac.runner.train import Program

SPREAD, REFERENCE = "jaxmarl:MPE_simple_spread_v3", "jaxmarl:MPE_simple_reference_v3"
SPEAKER = "jaxmarl:MPE_simple_speaker_listener_v4"
SMAX = ("jaxmarl:HeuristicEnemySMAX", {"scenario": "3m"})
KITCHEN = ("jaxmarl:overcooked", {"layout": "cramped_room", "max_steps": "150", "shaping": "1"})
EPISODES = 8


def own_loop(task, key):
    """The return of one episode by the environment's own functions, with the task's keys: rewards count until the
    environment says that all are done."""
    env, act_key = task.env, key
    key, reset_key = jax.random.split(key)
    _, inside = env.reset(reset_key)

    def step(carry, time):
        inside, key, done = carry
        key, step_key = jax.random.split(key)
        _, after, rewards, dones, infos = env.step_env(step_key, inside, at_random(task, inside, act_key, time))
        earned = jnp.mean(jnp.stack([rewards[name] for name in env.agents]).astype(jnp.float32))
        if task.shaping:
            earned += task.shaping * jnp.mean(jnp.stack(list(infos["shaped_reward"].values())))
        return (after, key, done | dones["__all__"]), jnp.where(done, 0.0, earned)

    return jnp.sum(jax.lax.scan(step, (inside, key, jnp.zeros((), bool)), jnp.arange(task.horizon))[1])


def at_random(task, inside, key, time):
    """Actions by agent, of those that are allowed."""
    env = task.env
    keys = jax.random.split(jax.random.fold_in(key, 7 + time), len(env.agents))
    if task.sizes.masked:
        masks = env.get_avail_actions(inside)
        return {
            name: jax.random.categorical(k, jnp.where(masks[name] > 0, 0.0, -jnp.inf))
            for name, k in zip(env.agents, keys, strict=True)
        }
    return {name: env.action_space(name).sample(k) for name, k in zip(env.agents, keys, strict=True)}


def adapted(task, key):
    """The return of the same episode as the rest of the package plays it."""

    def step(state, time):
        chosen = at_random(task, state.inside, key, time)
        state, rewards = tasks.advance(task, state, jnp.stack([chosen[name] for name in task.env.agents]))
        return state, jnp.mean(rewards)

    return jnp.sum(jax.lax.scan(step, task.reset(key), jnp.arange(task.horizon))[1])


@pytest.mark.parametrize(("name", "options"), [(SPREAD, {}), (REFERENCE, {}), (SPEAKER, {}), KITCHEN, SMAX], ids=str)
def test_returns_are_those_of_jaxmarls_own_loop(name, options):
    task = tasks.make(name, **options)
    keys = jax.random.split(jax.random.key(0), EPISODES)
    found = jax.jit(jax.vmap(partial(adapted, task)))(keys)
    wanted = jax.jit(jax.vmap(partial(own_loop, task)))(keys)
    assert np.abs(wanted).max() > 0
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("episodes", [40, pytest.param(3400, marks=pytest.mark.large)])
def test_no_action_is_taken_that_smax_forbids(episodes):
    """Agent-steps: 12,000, and a million."""
    program = Program.of(RunConfig(SMAX[0], task_options=dict(SMAX[1]), learner="mappo"))
    team = program.team(jax.random.key(0))
    episode = jax.jit(lambda key: rollout(program.task, team, team.free, key, episodes, 0.3).episode)(jax.random.key(1))
    actions, available = np.asarray(episode.actions), np.asarray(episode.available)[:, :-1]
    assert np.take_along_axis(available, actions[..., None].astype(int), axis=-1).all()
    assert 0.1 < available.mean() < 0.9
    over = np.asarray(episode.over)
    assert over[:, -1].mean() > 0.5, "battles end"
    assert not np.asarray(episode.rewards)[over[:, :-1]].any()
    assert episode.world.shape[:3] == (episodes, 101, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(("horizon", "ended"), [(3, 0), (5, 3), (2, 0)])
def test_a_cut_at_the_horizon_is_no_end(horizon, ended):
    task = tasks.make("jaxmarl:overcooked", layout="cramped_room", max_steps=3, horizon=horizon)

    def step(state, _):
        state, _ = tasks.advance(task, state, jnp.zeros(2, int))
        return state, task.over(state)  # type: ignore[attr-defined]

    over = jax.jit(lambda state: jax.lax.scan(step, state, length=horizon)[1])(task.reset(jax.random.key(0)))
    assert over.tolist() == [False] * (horizon - ended) + [True] * ended
    assert tasks.abilities(task).cut_at == 3


def test_agents_of_different_sizes_are_padded_and_what_they_lack_is_forbidden():
    task = tasks.make(SPEAKER)
    assert (task.agents, task.actions, task.observation_size) == (2, 5, 11)
    state = task.reset(jax.random.key(0))
    assert tasks.allowed(task, state).tolist() == [[True] * 3 + [False] * 2, [True] * 5]  # type: ignore[union-attr]
    assert not task.observe(state)[0, 3:].any()
    assert tasks.abilities(tasks.make(SPREAD)).available is None


def test_words_of_an_environment_can_be_closed():
    """Actions of MPE's reference are five moves for each of ten words; the first five all say the first word."""
    task = tasks.make(REFERENCE, first_actions="5")
    assert task.actions == 5
    assert tasks.abilities(task).available is None
    for action in range(5):
        state, _ = task.step(task.reset(jax.random.key(0)), jnp.full(2, action))
        np.testing.assert_array_equal(state.inside.c, jnp.eye(10)[:1].repeat(2, axis=0))


def weighed(task, key, weights):
    """Rewards (time,) of the team and observations of an episode, by actions (time, agent) or weights on them."""

    def step(state, now):
        state, rewards = tasks.advance(task, state, now)
        return state, (jnp.mean(rewards), task.observe(state))

    return jax.lax.scan(step, task.reset(key), weights)[1]


@pytest.mark.parametrize(
    ("name", "options"), [(SPREAD, {}), (REFERENCE, {}), (REFERENCE, {"first_actions": 5})], ids=str
)
def test_the_gradient_of_particles_is_that_of_jaxmarls_own_steps(name, options):
    """Weights on one action each play what the action plays, and differences of the return are its slope, also where an
    agent stands still. No two agents touch here: what a collision costs is a jump, which no gradient sees."""
    task, key = tasks.make(name, **options), jax.random.key(3)
    assert tasks.abilities(task).differentiable
    actions = jax.random.randint(jax.random.key(1), (8, task.agents), 0, task.actions).at[0].set(0)
    weights = jax.nn.one_hot(actions, task.actions)
    played, relaxed = jax.jit(partial(weighed, task, key))(actions), jax.jit(partial(weighed, task, key))(weights)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), played, relaxed)

    def earned(weights):
        return jnp.sum(weighed(task, key, weights)[0])

    way = jax.random.normal(jax.random.key(2), weights.shape)
    slope = float(jnp.sum(jax.jit(jax.grad(earned))(weights) * way))
    ahead, behind = jax.jit(jax.vmap(earned))(jnp.stack([weights + 1e-2 * way, weights - 1e-2 * way]))
    assert slope == pytest.approx(float(ahead - behind) / 2e-2, rel=1e-2)


def test_what_is_not_shown_to_have_a_gradient_declares_none():
    for name, options in ((SPEAKER, {}), SMAX, (SPREAD, {"action_type": "Continuous"})):
        assert not tasks.abilities(tasks.make(name, **options)).differentiable


def test_continuous_actions_fill_the_range_of_the_environment():
    task = tasks.make(SPREAD, action_type="Continuous")
    assert tasks.abilities(task).continuous
    given = task.assigned(jnp.array([[-1.0] * 5, [0.0] * 5, [1.0] * 5]))  # type: ignore[attr-defined]
    assert [float(row[0]) for row in given.values()] == [0.0, 0.5, 1.0]
    state, _ = task.step(task.reset(jax.random.key(0)), jnp.array([[-1.0, 1.0, -1.0, -1.0, -1.0]] * 3))
    assert np.abs(np.asarray(state.inside.p_vel)[:3]).max() > 0


def test_a_declared_secret_is_what_an_eavesdropper_is_after_and_the_statement_names_it():
    task = tasks.make(REFERENCE, secret="goal:8-10")
    states = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), 64))
    goals = jax.vmap(task.secrets)(states)["goal"]
    assert goals.shape == (64, 2)
    np.testing.assert_array_equal(goals, jnp.argmax(states.observations[:, :, 8:11], axis=-1))
    assert set(np.unique(goals)) == {0, 1, 2}
    config = RunConfig(REFERENCE, task_options={"secret": "goal:8-10"}, learner="mappo")
    said = statement(config, Program.of(config))
    assert "8 to 10" in said["observers"]["goal"]
    assert "padded" in said["length"]


def test_states_can_be_drawn():
    for name, options in ((SPREAD, {}), SMAX):
        task = tasks.make(name, **options)
        scene = task.scene(jax.device_get(task.reset(jax.random.key(0))))
        assert len(scene.agents) == task.agents
        assert len(scene.others) == 3


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("MPE_simple_v3", {}, "has a single agent.*dpmac trains teams"),
        ("CartPole-v1", {}, "no environment 'CartPole-v1'; allowed are MPE_simple_v3"),
        ("hanabi", {}, "give the option horizon=STEPS"),
        ("storm", {"horizon": "5"}, "does not follow its interface"),
        ("HeuristicEnemySMAX", {"scenario": "4m"}, "scenario must be one of 3m"),
        ("MPE_simple_spread_v3", {"speed": "3"}, "no option 'speed'; allowed are .*num_agents"),
        ("SMAX", {"scenario": "3m", "world": "flat"}, "cannot be made with"),
        ("MPE_simple_spread_v3", {"shaping": "1"}, "no shaped_reward"),
        ("MPE_simple_spread_v3", {"secret": "goal"}, "NAME:FIRST-LAST"),
        ("MPE_simple_spread_v3", {"secret": "goal:8-40"}, "observations have 18 numbers"),
        ("MPE_simple_spread_v3", {"rewards": "mine"}, "team, own"),
        ("MPE_simple_spread_v3", {"first_actions": "-1"}, "first_actions must be a whole number from 0"),
        ("HeuristicEnemySMAX", {"scenario": "3m", "first_actions": "4"}, "says itself what is allowed"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(name, options, says):
    with pytest.raises(BadInput, match=says):
        tasks.make(f"jaxmarl:{name}", **options)


@pytest.mark.large
def test_the_recipe_of_overcooked_is_seen_by_one_agent_and_stands_where_it_is_declared():
    options = {"layout": "test_time_simple", "agent_view_size": "2", "horizon": "5", "secret": "recipe:436-437"}
    task = tasks.make("jaxmarl:overcooked_v2", **options)
    states = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), 8))
    recipes = np.asarray(states.inside.recipe)  # type: ignore[attr-defined]
    secret = np.asarray(jax.vmap(task.secrets)(states)["recipe"])
    np.testing.assert_array_equal(secret[:, 0], recipes == recipes.max())
    assert 0 < secret[:, 0].sum() < 8
    assert not np.ptp(np.asarray(states.observations)[:, 1], axis=0).any()  # nothing that the cook sees tells it
    assert "may show it" in task.observers["recipe"]
    drawn = task.scene(jax.tree.map(lambda leaf: leaf[0], states)).agents
    assert [(body.x, body.y) for body in drawn] == [(2, -2), (5, -2)]
    with pytest.raises(BadInput, match="layout must be one of"):
        tasks.make("jaxmarl:overcooked_v2", layout="no_kitchen")
