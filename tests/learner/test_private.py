"""What leaves private training: clipped sums of one episode each, with noise, over a constant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpmac.learner.private import Private

ROWS = jax.random.normal(jax.random.key(0), (10, 5)) * jnp.array([0.01, 10, 1e20, 1, 0, 1, 1, 1, 1, 1])[:, None]
ROWS = ROWS.at[3, 0].set(jnp.nan).at[5, 1].set(jnp.inf)


def gradient(networks, place):
    """One row as the gradient of two networks, as long as somebody likes, or not a number at all."""
    return {"team": ROWS[place, :2], "critics": ROWS[place, 2:]}


@jax.jit
def released(taken, multiplier=0.0, seed=0):
    private = Private(0.5, multiplier, jax.random.key(seed), 4)
    found, report = private.release(gradient, None, taken, 8)
    assert report == {}
    return jnp.concatenate([found["team"], found["critics"]])


EVERYTHING = jnp.ones(10, bool)


def test_an_episode_moves_the_sum_by_at_most_the_clip_whatever_it_holds():
    """The joint norm of all networks counts; what is no number counts as nothing."""
    whole = 8 * released(EVERYTHING)
    moved = [float(jnp.linalg.norm(whole - 8 * released(EVERYTHING.at[place].set(False)))) for place in range(10)]
    assert max(moved) <= 0.5 * (1 + 1e-5)
    assert moved[1] == pytest.approx(0.5, rel=1e-4)
    assert moved[0] == pytest.approx(float(jnp.linalg.norm(ROWS[0])), rel=1e-3)
    assert jnp.isfinite(whole).all()


def test_what_is_not_taken_adds_nothing_and_the_divisor_stays():
    one = released(jnp.arange(10) == 6)
    assert np.allclose(8 * one, ROWS[6] * min(1, 0.5 / float(jnp.linalg.norm(ROWS[6]))), rtol=1e-5)
    assert not released(jnp.zeros(10, bool)).any()


def test_noise_has_the_deviation_of_multiplier_times_clip():
    nothing = jnp.zeros(10, bool)
    draws = jax.vmap(lambda seed: 8 * released(nothing, 3.0, seed))(jnp.arange(4000))
    assert float(jnp.std(draws)) == pytest.approx(1.5, rel=0.02)
    assert np.abs(np.corrcoef(np.asarray(draws).T) - np.eye(5)).max() < 0.06


def test_episodes_are_drawn_each_by_itself_however_many_there_are():
    keys = jax.random.split(jax.random.key(1), 3000)
    taken = np.asarray(jax.vmap(lambda key: Private(1.0, 1.0, key, 4).drawn(40, 0.1))(keys))
    counts = taken.sum(1)
    assert taken.mean() == pytest.approx(0.1, rel=0.03)
    assert counts.var() == pytest.approx(40 * 0.1 * 0.9, rel=0.1)  # 0 for batches of a fixed size
    assert np.abs(np.corrcoef(taken.T.astype(float)) - np.eye(40)).max() < 0.1


def test_noise_and_draws_come_from_keys_of_their_own():
    private = Private(1.0, 1.0, jax.random.key(0), 4)
    keys = [
        private.draw_key,
        private.noise_key,
        *(getattr(private.keyed(jax.random.key(1)), k) for k in ("draw_key", "noise_key")),
    ]
    assert len({tuple(np.asarray(jax.random.key_data(key))) for key in keys}) == 4


def test_norms_are_reported_only_where_nothing_is_claimed():
    private = Private(0.5, 0.0, jax.random.key(0), 4, measured=True)
    _, report = private.release(gradient, None, EVERYTHING.at[2].set(False), 8)
    assert set(report) == {"gradient_norm", "share_gradients_clipped"}
    assert float(report["share_gradients_clipped"]) == pytest.approx(7 / 9, abs=0.12)
