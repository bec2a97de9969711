"""The closed-form values of the probes are what play gives."""

import jax
import jax.numpy as jnp
import pytest

from dpmac import tasks
from dpmac.tasks import probes, references


@pytest.mark.parametrize(
    "task",
    [
        probes.ProbeValue(pay=0.5),
        probes.ProbeMemory(agents=3),
        probes.ProbeListen(symbols=3),
        probes.ProbeListen(fresh=True),
        probes.ProbeNeighbour(agents=4),
        probes.ProbePartner(symbols=3),
    ],
)
def test_the_script_attains_the_optimum_in_every_episode(task):
    assert jnp.allclose(references.returns(task, "scripted", jax.random.key(0), 50), task.optimal_return)


@pytest.mark.parametrize("task", [probes.ProbeListen(symbols=3), probes.ProbeNeighbour()])
def test_guessing_earns_the_silent_return(task):
    mean, error = tasks.reference_returns(task, jax.random.key(0), 4000)["random"]
    assert abs(mean - task.silent_return) < 4 * error


def test_a_pair_is_right_only_together():
    task = probes.ProbePartner(agents=4)
    state = task.step(task.reset(jax.random.key(0)), jnp.zeros(4, int))[0]
    right = task.scripted(state)
    for wrong in range(4):
        assert task.step(state, right.at[wrong].add(1))[1].tolist() == [0.5] * 4
    assert task.step(state, right)[1].tolist() == [1.0] * 4


def test_value_probe_pays_its_discounted_sum():
    task = probes.ProbeValue(pay=2.0, horizon=4)
    _, rewards = references.play(task, "random", jax.random.key(0))
    assert sum(float(rewards[t, 0]) * 0.9 ** (t - 1) for t in range(1, 4)) == pytest.approx(task.value(1, 0.9))


def test_fresh_symbols_need_the_message_of_the_step_before():
    """Naming the present symbol instead of the previous one is no better than guessing."""
    task = probes.ProbeListen(fresh=True, horizon=400)
    states, _ = references.play(task, "scripted", jax.random.key(0))
    hits = jnp.mean(states.symbols[1:-1, 0] == states.previous[1:-1, 0])
    assert 0.4 < hits < 0.6


def test_memory_probe_shows_its_symbol_once():
    task = probes.ProbeMemory()
    state = task.reset(jax.random.key(0))
    assert task.observe(state)[:, :2].sum() == task.agents
    state, _ = task.step(state, jnp.zeros(2, int))
    assert task.observe(state).sum() == 0


def test_listener_is_shown_nothing():
    state = probes.ProbeListen().reset(jax.random.key(0))
    assert probes.ProbeListen().observe(state)[1, :2].sum() == 0
    assert probes.ProbeListen().secrets(state)["symbol"][1] == -1
