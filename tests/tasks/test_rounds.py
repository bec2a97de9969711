"""Multiple-round sums as a task: the same game, the same equilibrium, regret of any episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import tasks
from dpmac.config import BadInput
from dpmac.games import rounds as game_of
from dpmac.tasks import references
from dpmac.tasks.rounds import Rounds


def game(task: Rounds) -> game_of.Rounds:
    return game_of.Rounds(task.alpha, task.beta, task.horizon, discount=1.0)


def play(task: Rounds, seed: int, scripted: bool):
    """Savings (round + 1, agent), actions and rewards (round, agent) of one episode."""
    state, key = task.reset(jax.random.key(seed)), jax.random.key(seed + 1000)
    savings, chosen, paid = [state.savings], [], []
    for t in range(task.horizon):
        guess = jax.random.randint(jax.random.fold_in(key, t), (task.agents,), 0, task.actions)
        actions = task.scripted(state) if scripted else guess
        state, rewards = task.step(state, actions)
        savings.append(state.savings)
        chosen.append(actions)
        paid.append(rewards)
    return jnp.stack(savings), jnp.stack(chosen), jnp.stack(paid)


def episode(task: Rounds, savings, actions) -> game_of.Episode:
    b, p = task.decode(savings[:-1], actions)
    return game_of.episode(game(task), np.asarray(savings[0], float), np.asarray(b, float), np.asarray(p, float))


@pytest.mark.parametrize("task", [Rounds(), Rounds(agents=4, gifts=4, levels=2, horizon=3, alpha=0.0, poorest=0.0)])
def test_rewards_and_savings_are_the_games(task):
    for seed in range(5):
        savings, actions, rewards = play(task, seed, scripted=False)
        played = episode(task, savings, actions)
        np.testing.assert_allclose(savings[:-1], played.x, atol=1e-6)
        np.testing.assert_allclose(rewards, game(task).rewards(*played), atol=1e-5)


def test_the_script_plays_the_equilibrium_and_random_play_regrets():
    task = Rounds()
    regrets = []
    for seed in range(20):
        savings, actions, _ = play(task, seed, scripted=True)
        played = episode(task, savings, actions)
        expected = game_of.equilibrium(game(task), np.asarray(savings[0], float))
        np.testing.assert_allclose(played.b, expected.b, atol=1e-6)
        np.testing.assert_array_equal(played.p, expected.p)
        np.testing.assert_allclose(game_of.regret(game(task), played), 0, atol=1e-6)
        savings, actions, _ = play(task, seed, scripted=False)
        regrets.append(game_of.regret(game(task), episode(task, savings, actions)))
    assert np.min(regrets) > -1e-6
    assert np.mean(regrets) > 0.5


@pytest.mark.parametrize("task", [Rounds(), Rounds(beta=0.0), Rounds(beta=3.0), Rounds(poorest=1.0, richest=1.0)])
def test_equilibrium_return_is_what_the_script_earns(task):
    mean, error = tasks.reference_returns(task, jax.random.key(0), 4000)["scripted"]
    assert abs(mean - task.equilibrium_return) <= 4 * error + 1e-5


def test_by_default_never_and_always_sharing_are_at_least_30_percent_worse():
    task = Rounds()
    starts = np.random.default_rng(0).uniform(task.poorest, task.richest, (4000, task.agents))
    best = np.mean([game_of.values(game(task), game_of.equilibrium(game(task), x)).mean() for x in starts])
    assert best == pytest.approx(task.equilibrium_return, rel=0.01)
    for other, known in (
        (game_of.never_share, 3.20),
        (game_of.always_share, 2.64),
        (lambda played, x: game_of.always_share(played, x, evenly=True), 3.12),
    ):
        mean = np.mean([game_of.values(game(task), other(game(task), x)).mean() for x in starts])
        assert mean == pytest.approx(known, rel=0.01)
        assert mean <= 0.7 * best


def test_an_agent_sees_its_own_savings_alone_and_the_last_round():
    task = Rounds(horizon=2)
    state = task.reset(jax.random.key(0))
    np.testing.assert_allclose(task.observe(state)[:, 0], state.savings)
    assert task.observe(state)[:, 1:].tolist() == [[1.0, 0.0]] * 3
    later, _ = task.step(state, jnp.zeros(3, int))
    assert task.observe(later)[:, 1:].tolist() == [[0.5, 1.0]] * 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"agents": 1}, "from 2"),
        ({"beta": -1.0}, "beta must be"),
        ({"alpha": "nan"}, "alpha must be"),
        ({"poorest": 2.0}, "poorest ≤ richest"),
        ({"richest": "inf"}, "poorest ≤ richest"),
        ({"gifts": 1}, "from 2"),
        ({"levels": 1}, "from 2"),
    ],
)
def test_bad_options_say_what_is_allowed(options, says):
    with pytest.raises(BadInput, match=says):
        tasks.make("rounds", **options)


def test_play_compiles_to_the_same_episode():
    task = Rounds()
    _, rewards = references.play(task, "scripted", jax.random.key(3))
    state = task.reset(jax.random.split(jax.random.key(3))[0])
    for t in range(task.horizon):
        state, expected = task.step(state, task.scripted(state))
        np.testing.assert_allclose(rewards[t], expected, atol=1e-6)
