"""Randomised response on the moment: what an episode can hold, what it costs, and how it is charged."""

import itertools
import math

import dp_accounting as dp
import mpmath as mp
import numpy as np
import pytest

from dpmac import privacy
from dpmac.analysis import audit
from dpmac.config import BadInput, Channel, Release
from dpmac.privacy import Entropy, Ledger, Measurement, accounting, mechanisms

SLOTS, SYMBOLS = 3, 3
CHANNEL = Channel("timed", symbols=SYMBOLS)
HOST = mechanisms.of(CHANNEL)
OUTCOMES = HOST.outcomes(SLOTS)  # type: ignore[attr-defined]


def played(choices, word, noise):
    """The symbols of an episode, whose outcome is drawn as this word says, or always the sender's without noise."""
    words = np.array([[0, 0], [0, word]], np.uint32)
    out, said = np.zeros(SYMBOLS, np.float32), []
    for choice, draws in zip(choices, HOST.slots(np, words, SLOTS), strict=True):  # type: ignore[attr-defined]
        out = HOST.keeps(np, out, HOST.release(9 * np.eye(SYMBOLS)[choice], draws, noise))
        said.append(int(out.argmax()))
    return tuple(said)


def test_every_moment_and_word_is_drawn_once_and_silence_too():
    drawn = [played((1, 1, 1), word, 1.0) for word in range(OUTCOMES)]
    words = [(0,) * slot + (word,) * (SLOTS - slot) for slot in range(SLOTS) for word in range(1, SYMBOLS)]
    assert sorted(drawn) == sorted([(0, 0, 0), *words])


def test_no_two_episodes_of_inputs_are_told_apart_by_more_than_epsilon():
    """All inputs of three slots against each other, by the exact law of what leaves."""
    noise = privacy.calibrate(CHANNEL, 2.0, 1e-4, SLOTS)
    random = {played((0, 0, 0), word, 1.0) for word in range(OUTCOMES)}
    laws = []
    for choices in itertools.product(range(SYMBOLS), repeat=SLOTS):
        own = played(choices, 0, 0.0)
        assert own in random  # whatever a sender wants to say later, one word leaves
        laws.append({said: noise / OUTCOMES + (1 - noise) * (said == own) for said in random})
    largest = max(math.log(one[said] / other[said]) for one in laws for other in laws for said in random)
    assert largest == pytest.approx(2.0, abs=1e-9)
    assert largest <= 2.0 + 1e-12


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3, 1.0, 40.0])
@pytest.mark.parametrize(("symbols", "slots"), [(2, 1), (3, 25), (256, 256)])
def test_epsilon_of_an_episode_is_that_of_the_coin_that_is_drawn(epsilon, symbols, slots):
    """The coin is 1 with this noise, as a fraction of whole numbers, whose ε sixty digits tell."""
    channel = Channel("timed", symbols=symbols)
    noise = privacy.calibrate(channel, epsilon, 1e-4, slots)
    found = privacy.pure_epsilon(Release(channel, noise, slots))
    with mp.workdps(60):
        exact = mp.log1p((1 - mp.mpf(noise)) * (slots * (symbols - 1) + 1) / mp.mpf(noise))
        assert exact <= found <= epsilon
        assert exact >= epsilon * (1 - 1e-7)


@pytest.mark.parametrize("unit", ["message", "episode"])
def test_an_episode_costs_the_same_however_many_slots_it_has(unit):
    for horizon in (1, 7, 200):
        release = Release(CHANNEL, privacy.calibrate(CHANNEL, 3.0, 1e-4, horizon, unit), horizon, unit)
        assert privacy.pure_epsilon(release) == pytest.approx(3.0)
        accountant = dp.pld.PLDAccountant(accounting.relation(release))
        accountant.compose(dp.ComposedDpEvent([accounting.event(release)] * 2))
        both = privacy.ledger.spent_epsilon({release: 2}, 1e-4)
        assert accountant.get_epsilon(1e-4) == pytest.approx(both, abs=1e-3)


def test_an_episode_is_charged_once_and_repeats_its_word(tmp_path):
    ledger = Ledger(tmp_path / "ledger.json", epsilon=[7.0], delta=1e-4, create=True)
    release = Release(CHANNEL, privacy.calibrate(CHANNEL, 3.0, 1e-4, SLOTS), SLOTS)
    measurement = Measurement(ledger, 0, release, SYMBOLS, entropy=Entropy(lambda count: b"\xff" * count))
    assert measurement.charges == 1
    for episode in (1, 2):
        measurement.begin()
        left = [measurement.release(step, 9 * np.eye(SYMBOLS)[[0, 2, 1][step]]) for step in range(SLOTS)]
        assert [int(one.copies[0].argmax()) for one in left if one] == [0, 2, 2]
        assert ledger.spent(0) == pytest.approx(3.0 * episode, abs=0.01)
    measurement.begin()
    with pytest.raises(privacy.BudgetSpent):
        measurement.release(0, np.zeros(SYMBOLS))


def test_the_shipped_channel_lets_out_what_it_claims_and_no_more():
    release = Release(CHANNEL, privacy.calibrate(CHANNEL, 2.0, 1e-4, SLOTS), SLOTS)
    bound = audit.audit_channel(release, SYMBOLS, 1e-4, 4000, 0.99)
    assert 1.6 < bound.epsilon < 2.0


def test_a_second_word_is_found_by_the_checks():
    before = np.zeros((40, SLOTS, 2, SYMBOLS))
    before[..., 0] = 1
    left = before[:, :, :, None].copy()
    left[3, 0, 1, 0] = [0, 1, 0]  # one word, and silence after it
    (check,) = [check for check in HOST.white_box(before, left, np.full(2, 0.5)) if check.name == "one word an episode"]
    assert check.p_value == 0


def test_what_a_word_an_episode_cannot_do_is_refused():
    few = Channel("timed", copies=4, recipient_rate=0.25)  # one recipient, but slots are drawn for four
    for channel in (Channel("timed", copies=2), few, Channel("timed", rounds=2), Channel("timed", sample_rate=0.5)):
        with pytest.raises(BadInput):
            mechanisms.of(channel)
    with pytest.raises(BadInput, match="at most 1"):
        privacy.epsilon(Release(CHANNEL, 1.1), 1e-4)
