"""Binary sums as a task: what it pays, and the best return under randomised response against enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac import tasks
from dpmac.config import BadInput
from dpmac.tasks import references
from dpmac.tasks.binary_sums import BinarySums


def best_by_enumeration(agents: int, prior: float, p: float) -> float:
    """For every set of messages from the others, the guess of least expected absolute error over all their bits."""
    total = 0.0
    others = agents - 1
    for messages in itertools.product((0, 1), repeat=others):
        joint = {
            bits: np.prod(
                [
                    (prior if b else 1 - prior) * (1 - p / 2 if b == x else p / 2)
                    for b, x in zip(bits, messages, strict=True)
                ]
            )
            for bits in itertools.product((0, 1), repeat=others)
        }
        total += min(sum(w * abs(guess - sum(bits)) for bits, w in joint.items()) for guess in range(agents))
    return -float(total)


@pytest.mark.parametrize("agents", [2, 3, 5])
@pytest.mark.parametrize("prior", [0.0, 0.3, 0.5, 1.0])
def test_best_return_equals_enumeration(agents, prior):
    for p in (0.0, 0.2, 0.7, 1.0):
        assert BinarySums(agents, prior).best_return(p) == pytest.approx(
            best_by_enumeration(agents, prior, p), abs=1e-12
        )


def test_best_return_falls_with_privacy_from_free_to_silent():
    task = BinarySums(agents=4)
    returns = [task.best_return(p) for p in np.linspace(0, 1, 11)]
    assert returns[0] == task.optimal_return == 0
    assert returns[-1] == task.silent_return < 0
    assert all(np.diff(returns) <= 1e-12)


def test_the_script_attains_the_optimum():
    assert jnp.all(references.returns(BinarySums(), "scripted", jax.random.key(0), 50) == 0)


def test_guessing_without_messages_attains_the_silent_return():
    """The own bit plus one, for three agents and fair bits."""
    task = BinarySums()
    state = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), 4000))
    _, rewards = jax.vmap(task.step)(state._replace(time=jnp.ones(4000, int)), state.bits + 1)
    sample = np.asarray(rewards).mean(axis=1)
    assert abs(sample.mean() - task.silent_return) < 4 * sample.std() / np.sqrt(4000)


def test_each_agent_is_paid_for_its_own_guess_and_not_in_the_first_step():
    task = BinarySums()
    state = task.reset(jax.random.key(0))._replace(bits=jnp.array([1, 0, 1]))
    state, first = task.step(state, jnp.array([0, 1, 2]))
    _, second = task.step(state, jnp.array([0, 1, 2]))
    assert first.tolist() == [0, 0, 0]
    assert second.tolist() == [-2, -1, 0]


def test_an_agent_sees_its_own_bit_alone():
    task = BinarySums()
    state = task.reset(jax.random.key(0))._replace(bits=jnp.array([1, 0, 1]))
    assert task.observe(state).tolist() == [[0, 1, 1], [1, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize(
    ("options", "says"), [({"agents": 1}, "from 2"), ({"prior": 1.5}, "prior"), ({"horizon": 1}, "2")]
)
def test_bad_options_say_what_is_allowed(options, says):
    with pytest.raises(BadInput, match=says):
        tasks.make("binary-sums", **options)
