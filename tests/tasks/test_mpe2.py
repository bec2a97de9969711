"""Physics, observations and rewards equal those of the package `mpe2`, from its own starts, nothing copied later."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpe2 import simple_reference_v3, simple_speaker_listener_v4, simple_spread_v3

from dpmac import tasks
from dpmac.tasks import ccn, cn, particles, speaker_listener
from dpmac.tasks.particles import Bodies, Points

STARTS = 64
TOLERANCE = 1e-4


class Episodes(NamedTuple):
    """Axes (episode, time, agent, …); states, observations and rewards after each step."""

    start: Any
    actions: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    observations: np.ndarray
    rewards: np.ndarray


def record(module, start_of, moves: int, chat: int) -> Episodes:
    """Play mpe2's environment with random moves from its own starts."""
    env = module.parallel_env(max_cycles=25)
    world = env.unwrapped.world
    rng = np.random.default_rng(0)
    found = []
    for seed in range(STARTS):
        env.reset(seed=seed)
        start, steps = start_of(world), []
        while env.agents:
            move = rng.integers(5, size=moves)
            chosen = dict(zip(env.agents, (move + 5 * rng.integers(chat, size=moves)).tolist(), strict=True))
            seen, reward, *_ = env.step(chosen)
            state = [(agent.state.p_pos.copy(), agent.state.p_vel.copy()) for agent in world.agents]
            steps.append((move, *zip(*state, strict=True), list(seen.values()), list(reward.values())))
        found.append((start, *(np.array(column) for column in zip(*steps, strict=True))))
    start, *columns = zip(*found, strict=True)
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves), jnp.float32), *start)
    return Episodes(stacked, *(np.stack(column) for column in columns))


def places(entities):
    return np.array([entity.state.p_pos for entity in entities]).T


def rest(entities):
    x, y = places(entities)
    return Bodies(x, y, np.zeros_like(x), np.zeros_like(y))


@pytest.fixture(scope="module")
def spread():
    return record(simple_spread_v3, lambda w: cn.CNState(rest(w.agents), Points(*places(w.landmarks))), 3, 1)


@pytest.fixture(scope="module")
def reference():
    def start(world):
        target = jnp.array([world.landmarks.index(agent.goal_b) for agent in world.agents[::-1]])
        return ccn.CCNState(rest(world.agents), Points(*places(world.landmarks)), target)

    found = record(simple_reference_v3, start, 2, 10)
    return found._replace(start=found.start._replace(target=found.start.target.astype(int)))


def errors(task, theirs: Episodes) -> dict[str, float]:
    """Largest difference of each quantity over all episodes, replayed from the starts alone."""

    def replay(state, actions):
        def step(state, action):
            state, rewards = task.step(state, action)
            body = state.bodies
            positions, velocities = jnp.stack([body.x, body.y], -1), jnp.stack([body.vx, body.vy], -1)
            return state, (positions, velocities, task.observe(state), rewards)

        return jax.lax.scan(step, state, actions)[1]

    ours = jax.jit(jax.vmap(replay))(theirs.start, theirs.actions)  # a new function: constants are read when traced
    size = task.observation_size  # mpe2 appends the chat channel, which is not used
    known = (theirs.positions, theirs.velocities, theirs.observations[..., :size], theirs.rewards)
    names = ("positions", "velocities", "observations", "rewards")
    return {name: float(np.abs(np.asarray(a) - b).max()) for name, a, b in zip(names, ours, known, strict=True)}


def test_cn_equals_mpe2_over_whole_episodes(spread):
    assert spread.actions.shape == (STARTS, 25, 3)
    assert max(errors(tasks.make("cn", convention="mpe2"), spread).values()) < TOLERANCE


def test_ccn_equals_mpe2_over_whole_episodes(reference):
    assert max(errors(tasks.make("ccn", convention="mpe2"), reference).values()) < TOLERANCE


def test_speaker_and_listener_equal_mpe2_over_whole_episodes():
    """Its agents differ in what they see and do, so they are played here."""
    env, task = (
        simple_speaker_listener_v4.parallel_env(max_cycles=25),
        tasks.make("speaker-listener", convention="mpe2"),
    )
    world, rng, step = env.unwrapped.world, np.random.default_rng(0), jax.jit(task.step)
    for seed in range(4):
        seen, _ = env.reset(seed=seed)
        goal = jnp.array(world.landmarks.index(world.agents[0].goal_b))
        listener, marks = rest(world.agents[1:]), Points(*places(world.landmarks))
        state = speaker_listener.SpeakerState(*jax.tree.map(jnp.float32, (listener, marks)), goal=goal)
        while env.agents:
            ours = np.asarray(task.observe(state))
            np.testing.assert_allclose(ours[0, -3:], seen["speaker_0"], atol=TOLERANCE)
            np.testing.assert_allclose(ours[1, :-3], seen["listener_0"][:-3], atol=TOLERANCE)  # less the chat
            assert not ours[0, :-3].any()
            assert not ours[1, -3:].any()
            move = int(rng.integers(5))
            seen, theirs, *_ = env.step({"speaker_0": 0, "listener_0": move})
            state, rewards = step(state, jnp.array([rng.integers(5), move]))
            np.testing.assert_allclose(rewards, list(theirs.values()), atol=TOLERANCE)


def test_the_other_convention_differs(spread):
    assert errors(tasks.make("cn", convention="openai"), spread)["positions"] > 0.01


@pytest.mark.parametrize(
    ("module", "constant"),
    [
        (particles, "DT"),
        (particles, "DAMPING"),
        (particles, "CONTACT_FORCE"),
        (particles, "CONTACT_MARGIN"),
        (particles, "GAIN"),
        (cn, "RADIUS"),
    ],
)
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_constant_changed_by_one_percent_is_noticed(spread, monkeypatch, module, constant, factor):
    monkeypatch.setattr(module, constant, factor * getattr(module, constant))
    assert max(errors(tasks.make("cn", convention="mpe2"), spread).values()) > TOLERANCE


def test_the_two_rewards_convert_on_one_trajectory(spread):
    """team_openai = 2 · sum_mpe2 − 75."""
    openai, mpe2 = cn.CN(), cn.CN(convention="mpe2")

    def both(state, actions):
        def step(state, action):
            state, rewards = mpe2.step(state, action)
            return state, (openai.rewards(state)[0], rewards.sum())

        return jax.lax.scan(step, state, actions)[1]

    team, summed = jax.jit(jax.vmap(both))(spread.start, spread.actions)
    np.testing.assert_allclose(team.sum(1), 2 * summed.sum(1) - 75, rtol=1e-5)
