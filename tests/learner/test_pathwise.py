"""What is pathwise's own: codes that use every symbol."""

import math

import jax
import jax.numpy as jnp
import pytest

from dpmac.agents.team import TaskShape, make_team
from dpmac.config import Channel, NetworkConfig
from dpmac.learner.pathwise import Pathwise

SHAPE = TaskShape(agents=2, observation=4, actions=3, horizon=5)
SYMBOLS = make_team(jax.random.key(0), SHAPE, "dpmac", {}, Channel("response", period=0), NetworkConfig(8, 8, 4))
VECTORS = make_team(jax.random.key(0), SHAPE, "dpmac", {}, Channel(), NetworkConfig(8, 8, 4))


def scores(*used: tuple[int, ...]) -> jax.Array:
    """Scores (episode, time, agent, symbol) of senders that are sure of these symbols (agent,) in each episode."""
    return 50.0 * jax.nn.one_hot(jnp.asarray(used), 3)[:, None]


def test_the_spread_of_a_code_is_the_entropy_of_its_symbols():
    learner = Pathwise(balance=0.1)
    full, pooled = scores((0, 0), (1, 1), (2, 2)), scores((0, 0), (1, 1), (1, 1))
    assert float(learner.spread(SYMBOLS, full)) == pytest.approx(math.log(3))
    assert float(learner.spread(SYMBOLS, pooled)) == pytest.approx(math.log(3) - math.log(2) * 2 / 3, abs=1e-5)


def test_an_agent_has_no_part_in_the_spread_of_another():
    learner = Pathwise(balance=0.1)
    one_pooled = scores((0, 0), (1, 1), (2, 1))
    both = [
        float(learner.spread(SYMBOLS, scores(*used))) for used in (((0, 0), (1, 1), (2, 2)), ((0, 0), (1, 1), (1, 1)))
    ]
    assert float(learner.spread(SYMBOLS, one_pooled)) == pytest.approx(sum(both) / 2)


def test_messages_without_symbols_have_no_spread():
    raw = jnp.ones((3, 5, 2, 4))
    assert float(Pathwise(balance=0.1).spread(VECTORS, raw)) == 0.0
    assert float(Pathwise(balance=0.0).spread(SYMBOLS, scores((0, 0)))) == 0.0
