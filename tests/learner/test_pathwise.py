"""What is pathwise's own: codes that use every symbol, in private training too."""

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from dpmac.agents.team import TaskShape, make_team
from dpmac.config import Channel, NetworkConfig
from dpmac.learner.base import Clock
from dpmac.learner.pathwise import SHARE, Pathwise, crowding
from dpmac.learner.private import Private
from dpmac.runner import train
from dpmac.runner.noise import tables_of

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


class Recorded(Private):
    """Keeps what is released, with the first episode or without it, or releases a constant."""

    def but(self, absent: Any, constant: Any) -> "Recorded":
        self.absent, self.constant = absent, constant
        return self

    def release(self, gradient: Any, networks: Any, taken: jax.Array, size: int) -> Any:
        found, report = super().release(gradient, networks, taken.at[0].set(~self.absent), size)
        self.released = jax.tree.map(lambda x: jnp.where(self.constant, 0.1, x), found)
        return self.released, report


CONFIG = dataclasses.replace(tiny.private("pathwise"), channel=Channel("response", period=0))
USAGE = jnp.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
CLIP = 0.1


@partial(jax.jit, static_argnames="balance")
def updated(batch, usage, absent, constant, balance=0.1):
    """What a private update on a batch of episodes releases, of a team that has used its symbols so, and its state."""
    program = train.Program.of(tiny.learning(CONFIG, balance=balance))
    state = train.init(program, jax.random.key(0)).learner
    state = state._replace(usage=jnp.broadcast_to(usage, state.usage.shape) if balance else state.usage)
    private = Recorded(CLIP, 0.0, jax.random.key(1), 4, program.use.numbers).but(absent, constant)
    noise = jax.tree.map(lambda x: x[0], tables_of(CONFIG, program, CONFIG.budgets, 1.0))
    clock, key = Clock(jnp.zeros(()), 100), jax.random.key(batch)
    state, _ = program.learner.iterate_privately(state, program.rollout, noise, clock, key, private)
    return private.released, state


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_an_episode_moves_gradient_and_usage_together_by_at_most_the_clip():
    whole, part = (flat(updated(0, USAGE, absent, False)[0]) for absent in (False, True))
    moved = CONFIG.training.episodes * (whole - part)
    assert np.linalg.norm(moved) == pytest.approx(CLIP, rel=1e-4)
    assert moved[-USAGE.size :].any()


def test_parameters_that_agents_share_are_released_once_and_stay_shared():
    """Two copies would be noised and clipped as if they were two networks."""
    released, state = updated(0, USAGE, False, False)
    assert CONFIG.networks.share_parameters
    assert {len(leaf) for leaf in jax.tree.leaves(released[0])} == {1}
    team = jax.tree.map(lambda leaf: np.asarray(leaf[0]), state.teams)
    assert all(np.array_equal(leaf[0], leaf[1]) for leaf in jax.tree.leaves(team))


def test_private_balance_knows_of_a_batch_what_was_released():
    """The same release has the same effect, whatever the episodes were; the next update feels it."""
    first, second = (updated(batch, USAGE, False, True)[1] for batch in (1, 2))
    assert np.array_equal(flat(first), flat(second))
    assert np.allclose(first.usage, 1 / 3 + 0.1 / SHARE)
    gradients = [flat(updated(0, usage, False, False)[0][0]) for usage in (USAGE, USAGE[::-1])]
    assert not np.allclose(*gradients, atol=1e-6)


def test_without_a_balance_only_the_gradient_is_released():
    released, state = jax.eval_shape(partial(updated, balance=0.0), 0, USAGE, False, False)
    assert released[1].size == state.usage.size == 0


def test_private_balance_pulls_as_the_entropy_of_the_batch_does_where_usage_is_that_of_the_batch():
    learner, raw = Pathwise(balance=0.1), jax.random.normal(jax.random.key(0), (5, 2, 2, 3))
    usage = learner.used(SYMBOLS, raw)
    single = jax.grad(
        lambda raw: jnp.mean(jax.vmap(lambda one: crowding(learner.used(SYMBOLS, one[None]), usage))(raw))
    )
    assert np.allclose(single(raw), -jax.grad(lambda raw: learner.spread(SYMBOLS, raw))(raw), atol=1e-6)
