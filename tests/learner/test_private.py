"""What leaves private training: clipped sums of one episode each, with noise, over a constant."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpmac.config import BadInput
from dpmac.learner import private as gradients
from dpmac.learner.private import Private
from dpmac.privacy import alias

ROWS = jax.random.normal(jax.random.key(0), (10, 5)) * jnp.array([0.01, 10, 1e20, 1, 0, 1, 1, 1, 1, 1])[:, None]
ROWS = ROWS.at[3, 0].set(jnp.nan).at[5, 1].set(jnp.inf)


def gradient(networks, place):
    """One row as the gradient of two networks, as long as somebody likes, or not a number at all."""
    return {"team": ROWS[place, :2], "critics": ROWS[place, 2:]}


@jax.jit
def released(taken, multiplier=0.0, seed=0):
    private = Private(0.5, multiplier, jax.random.key(seed), 4, 5)
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


@pytest.mark.parametrize(("slots", "microbatch"), [(10, 1), (10, 4), (10, 10), (40, 16), (500, 8)])
def test_whatever_is_taken_enters_once_and_nothing_else(slots, microbatch):
    """Gradients of length C along a parameter for each place, so that the sum names the places that entered."""

    def entered(taken):
        total, norms, counted = Private(0.5, 1.0, jax.random.key(0), microbatch, slots).clipped_sum(
            lambda _, place: jax.nn.one_hot(place, slots), None, taken
        )
        return total, jnp.sum(jnp.where(counted, norms, 0.0))

    rng = np.random.default_rng(0)
    among = np.array([rng.permutation(slots) < count for count in rng.integers(0, slots, 100, endpoint=True)])
    totals, norms = jax.jit(jax.vmap(entered))(among)
    step = float(Private(0.5, 1.0, jax.random.key(0), microbatch, slots).step(slots))
    assert np.array_equal(totals, among * int(0.5 / step))
    assert np.array_equal(norms, among.sum(1))


def test_noise_has_the_deviation_of_multiplier_times_clip():
    nothing = jnp.zeros(10, bool)
    draws = jax.vmap(lambda seed: 8 * released(nothing, 3.0, seed))(jnp.arange(4000))
    assert float(jnp.std(draws)) == pytest.approx(1.5, rel=0.02)
    assert np.abs(np.corrcoef(np.asarray(draws).T) - np.eye(5)).max() < 0.06


def steps_of_one_draw(steps):
    """All steps that a single float32 draw can come to, with so many steps in a deviation."""
    low = np.nextafter(np.float32(-1), np.float32(0))
    unit = ((np.arange(2**23, dtype=np.uint32) | 0x3F800000).view(np.float32) - 1) * (1 - low) + low
    values = np.float32(2**0.5) * jax.lax.erf_inv(jnp.maximum(low, unit))
    return np.unique(np.round(np.asarray(values * steps)).astype(np.int64))


def test_noise_takes_steps_of_the_grid_that_no_single_draw_can():
    """In the tails a float32 draw takes one step in a hundred, so that a released number would betray what is under
    it."""
    private = Private(0.5, 3.0, jax.random.key(2), 4, 2**20)
    noise = np.asarray(private.noise(2**20, 8), np.int64)
    possible = steps_of_one_draw(2**20)
    single = np.round(np.asarray(jax.random.normal(jax.random.key(3), (1000,)) * 2**20)).astype(np.int64)
    assert np.isin(single, possible).all()
    tail = noise[(np.abs(noise) > 3 * 2**20) & (np.abs(noise) < 4 * 2**20)]
    assert len(tail) > 2000
    assert np.isin(tail, possible).mean() < 0.05
    assert noise.std() == pytest.approx(2**20, rel=0.003)
    assert np.bincount(noise & 7, minlength=8) == pytest.approx(2**17, rel=0.02)


@pytest.mark.parametrize("variance", [alias.FINE, alias.COARSE])
def test_a_table_is_looked_up_as_its_integers_say(variance):
    """Random words, and those on both sides of every number that a column compares with."""
    table, draws = alias.table(variance), np.random.default_rng(0)
    words = draws.integers(0, 2**32, (3, 20_000), dtype=np.uint64)
    columns = words[0, 10_000:] >> 17
    for word in range(3):  # the same share, or off by one in one word
        words[word, 10_000:] = table.share[word][columns]
    words[0, 10_000:] |= columns << 17 | draws.integers(0, 2, 10_000, dtype=np.uint64) << 16
    words[draws.integers(1, 3, 10_000), np.arange(10_000, 20_000)] += draws.integers(0, 3, 10_000, dtype=np.uint64) - 1
    words = words.astype(np.uint32)
    found = np.asarray(gradients.looked_up(table, jnp.asarray(words)))
    for (first, second, third), size in zip(words.T.tolist(), found.tolist(), strict=True):
        column, share = first >> 17, (first & 0xFFFF) << 64 | second << 32 | third
        least, middle, last = (int(table.share[word][column]) for word in range(3))
        own = share < (least << 64 | middle << 32 | last)
        wanted = column if own else int(table.other[column])
        assert size == (-wanted if first >> 16 & 1 else wanted)


@pytest.mark.parametrize("count", [200_000, pytest.param(20_000_000, marks=pytest.mark.large)])
def test_drawn_noise_is_the_discrete_gaussian(count):
    """As a whole, by its lowest bits, and by what its two parts give; a deviation off by a twentieth is seen."""
    draws = np.asarray(gradients.discrete_gaussian(jax.random.key(5), count), np.int64)
    deviation = float(Fraction(alias.FINE + alias.STRIDE**2 * alias.COARSE)) ** 0.5
    edges = stats.norm.ppf(np.arange(1, 100) / 100) * deviation

    def p_value(values):
        observed = np.bincount(np.searchsorted(edges, values), minlength=100)
        return stats.chi2.sf(((observed - count / 100) ** 2 / (count / 100)).sum(), 99)

    assert p_value(draws) > 1e-5
    assert p_value(draws * 1.05) < 1e-5
    for modulus in (2, 64, alias.STRIDE):
        observed = np.bincount(draws % modulus, minlength=modulus)
        assert stats.chi2.sf(((observed - count / modulus) ** 2 / (count / modulus)).sum(), modulus - 1) > 1e-5
    fine = np.asarray(gradients.looked_up(alias.table(alias.FINE), jax.random.bits(jax.random.key(6), (3, count))))
    assert stats.kstest((fine + np.random.default_rng(0).random(count) - 0.5) / alias.FINE**0.5, "norm").pvalue > 1e-5


@pytest.mark.parametrize(("places", "fineness"), [(8, 20), (2**13, 18), (2**16, 15)])
def test_noise_on_a_coarser_grid_is_a_rounded_release_of_the_finer_one(places, fineness):
    private = Private(0.5, 3.0, jax.random.key(7), 4, 1000)
    assert int(private.fineness(places)) == fineness
    assert float(private.step(places)) == 1.5 * 2.0**-fineness
    noise = np.asarray(private.noise(1000, places), np.int64)
    fine = np.asarray(gradients.discrete_gaussian(private.noise_key, 1000), np.int64)
    sums, ratio = np.random.default_rng(0).integers(-1000, 1000, 1000), 2 ** (20 - fineness)
    assert np.array_equal(sums + noise, np.floor((sums * ratio + fine) / ratio + 0.5 * (ratio > 1)))


def test_a_learner_that_releases_more_numbers_than_it_declares_is_refused():
    private = Private(0.5, 1.0, jax.random.key(0), 4, 4)
    with pytest.raises(BadInput, match="releases 5 numbers, and declares 4"):
        private.release(gradient, None, EVERYTHING, 8)


@pytest.mark.parametrize("multiplier", [0.0, 0.3, 30.0])
def test_sums_of_the_longest_gradients_fit_beside_their_noise(multiplier):
    """All alike, along one parameter: the sum is exact, and not one step longer than the clip allows."""
    count = 2**12
    private = Private(0.5, multiplier, jax.random.key(0), 512, 2)
    (total,), norms, _ = private.clipped_sum(lambda _, place: [jnp.array([1e9, 0.0])], None, jnp.ones(count, bool))
    step = float(private.step(count))
    assert total.dtype == jnp.int32
    assert 0.999 * count * 0.5 / step < int(total[0]) <= count * 0.5 / step * (1 + 1e-6)
    assert abs(int(total[0])) + 20 * multiplier * 0.5 / step < 2**31
    assert np.allclose(norms, 1e9)


def test_an_episode_is_never_drawn_more_often_than_the_rate(monkeypatch):
    rate = 1e-6
    edge = int(rate * 2**32)
    monkeypatch.setattr(jax.random, "bits", lambda key, shape: jnp.array([0, edge - 1, edge, 2**32 - 1], jnp.uint32))
    assert Private(1.0, 1.0, jax.random.key(0), 4, 1).drawn(4, rate).tolist() == [True, True, False, False]
    assert edge / 2**32 <= rate
    assert Private(1.0, 1.0, jax.random.key(0), 4, 1).drawn(4, 1.0).all()


def test_episodes_are_drawn_each_by_itself_however_many_there_are():
    keys = jax.random.split(jax.random.key(1), 3000)
    taken = np.asarray(jax.vmap(lambda key: Private(1.0, 1.0, key, 4, 1).drawn(40, 0.1))(keys))
    counts = taken.sum(1)
    assert taken.mean() == pytest.approx(0.1, rel=0.03)
    assert counts.var() == pytest.approx(40 * 0.1 * 0.9, rel=0.1)  # 0 for batches of a fixed size
    assert np.abs(np.corrcoef(taken.T.astype(float)) - np.eye(40)).max() < 0.1


def test_noise_and_draws_come_from_keys_of_their_own():
    private = Private(1.0, 1.0, jax.random.key(0), 4, 1)
    keys = [
        private.draw_key,
        private.noise_key,
        *(getattr(private.keyed(jax.random.key(1)), k) for k in ("draw_key", "noise_key")),
    ]
    assert len({tuple(np.asarray(jax.random.key_data(key))) for key in keys}) == 4


def test_norms_are_reported_only_where_nothing_is_claimed():
    private = Private(0.5, 0.0, jax.random.key(0), 4, 5, measured=True)
    _, report = private.release(gradient, None, EVERYTHING.at[2].set(False), 8)
    assert set(report) == {"gradient_norm", "share_gradients_clipped"}
    assert float(report["share_gradients_clipped"]) == pytest.approx(7 / 9, abs=0.12)
