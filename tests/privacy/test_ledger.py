"""What has been spent is never understated, whatever happens."""

import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmac import cli, privacy
from dpmac.config import BadInput, Channel, Release
from dpmac.privacy import BudgetSpent, Ledger, accounting, chain
from dpmac.privacy import ledger as ledgers
from dpmac.privacy import loss as losses
from dpmac.privacy.chain import Untrusted

EPISODE = Release(Channel(), privacy.calibrate(Channel(), 1.0, 1e-4, 25), 25)
SYMBOL = Release(Channel("response", period=0), 0.5, 25)
SMALL = Release(Channel(), 50.0, 25)
FAINT = Release(Channel(), 50.0)
WEAK = Release(Channel("response"), losses.response_flip(0.25, 3))
PAIR = Release(Channel("response", symbols=2), losses.response_flip(0.25, 2))
OLD = Path(__file__).with_name("ledger-0.1.json")
"""A ledger that version 0.1 wrote: limits 10 and inf, delta 1e-4, and the releases below."""
OLD_CHARGED = (
    {Release(Channel(), 15.92853087831827, 25): 3, SYMBOL: 2},
    {Release(Channel(clip_norm=1.0, copies=3), 7.5, 10, "message"): 40},
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.json"


@pytest.fixture
def new_process(monkeypatch):
    """A function after which nothing is known of any file, as in a process that begins."""
    return lambda: monkeypatch.setattr(ledgers, "_SEEN", {})


def test_a_budget_for_one_episode_pays_for_exactly_one(path):
    ledger = Ledger(path, [1.0], 1e-4, create=True)
    ledger.charge({0: EPISODE})
    assert ledger.spent(0) == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(BudgetSpent, match="agent 0 would spend"):
        ledger.charge({0: EPISODE})
    assert ledger.charged(0) == {EPISODE: 1}


def test_messages_add_up_to_their_episode(path):
    ledger = Ledger(path, [1.0], 1e-4, create=True)
    for _ in range(25):
        ledger.charge({0: replace(EPISODE, unit="message")})
    assert ledger.spent(0) == pytest.approx(privacy.epsilon(EPISODE, 1e-4), rel=1e-9)
    with pytest.raises(BudgetSpent):
        ledger.charge({0: replace(EPISODE, unit="message")})


def test_a_team_is_charged_together_or_not_at_all(path):
    ledger = Ledger(path, [10.0, 0.5], 1e-4, create=True)
    with pytest.raises(BudgetSpent, match="agent 1"):
        ledger.charge({0: EPISODE, 1: EPISODE})
    assert ledger.charged(0) == ledger.charged(1) == {}
    assert ledger.spent(0) == 0


def test_different_channels_compose_exactly_where_their_numbers_are_fixed():
    fixed = accounting.composed({EPISODE: 3, SYMBOL: 2, replace(SYMBOL, noise=0.6): 1})
    plds = pld.privacy_loss_distribution
    mu = math.sqrt(3) * EPISODE.channel.sensitivity * 5 / EPISODE.noise
    total = plds.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    for flip in (0.5, 0.5, 0.6):
        total = total.compose(plds.from_randomized_response(flip * 3 / 2, 3))
    assert losses.epsilon_of(fixed, 1e-5) == pytest.approx(total.get_epsilon_for_delta(1e-5), rel=1e-3)


def won(first, branches, epsilon):
    """δ(ε) of an adversary who sees a first part, and then takes the branch that tells most, exactly."""
    values, probabilities = first.values, first.probabilities
    if first.mu:
        scores = np.linspace(-9, 9, 2001)
        values, probabilities = first.mu**2 / 2 + first.mu * scores, np.exp(-(scores**2) / 2)
    rest = [[losses.delta_of(branch, epsilon - value) for value in values] for branch in branches]
    return probabilities @ np.max(rest, axis=0) / probabilities.sum()


@pytest.mark.parametrize(
    ("first", "opening", "most", "second", "gain"),
    [(WEAK, 6, 9, FAINT, 1.39), (WEAK, 1, 9, FAINT, 1.1), (FAINT, 540, 900, PAIR, 1.3)],
    ids=["symbols", "early", "gaussian"],
)
def test_who_chooses_the_next_kind_by_what_was_seen_wins_no_more_than_delta(path, first, opening, most, second, gain):
    """A limit for `most` of the first kind. After `opening` of them, the adversary takes the others, or as many of the
    second kind as it may: too many, if their number may be what it could be if it were fixed in advance."""
    composed, limit = accounting.composed, 2.0
    delta = losses.delta_of(composed({first: most}), limit) * (1 + 1e-9)
    fixed = [losses.delta_of(composed({first: opening, second: count}), limit) <= delta for count in range(1000)]

    def branches(count):
        return [composed({first: most - opening}), composed({second: count})]

    assert won(composed({first: opening}), branches(fixed.index(False) - 1), limit) > gain * delta
    ledger = Ledger(path, [limit], delta, create=True)
    ledger.charge({0: first}, times=opening)
    assert ledger.affordable(0, first) == most - opening
    try:
        allowed = ledger.affordable(0, second)
    except BadInput:
        allowed = 0
    assert won(composed({first: opening}), branches(allowed), limit) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(
    "account",
    [
        {EPISODE: 3, SMALL: 2, Release(Channel("correlated"), 4.0, 25): 1},
        {SYMBOL: 7, replace(SYMBOL, unit="message"): 2500},
        {Release(Channel("subset", symbols=8), 0.6, 5): 4},
        {Release(Channel("timed"), 0.6, 5): 4},
    ],
    ids=["gaussian", "response", "subset", "timed"],
)
def test_one_kind_is_counted_exactly(account):
    """Gaussian noise of any scale is one kind."""
    assert ledgers.spent_epsilon(account, 1e-5) == losses.epsilon_of(accounting.composed(account), 1e-5)


def test_what_follows_gaussian_noise_is_counted_as_shifts(path):
    ledger, symbols = Ledger(path, [4.0], 1e-4, create=True), {SYMBOL: 1, PAIR: 3}
    ledger.charge({0: FAINT}, times=100)
    for release, times in symbols.items():
        ledger.charge({0: release}, times=times)
    account = {FAINT: 100} | symbols
    squared = sum(pool.squared(amount) for pool, amount in accounting.pooled(account).items())
    assert ledger.spent(0) == losses.epsilon_of(losses.Loss(math.sqrt(squared)), 1e-4)
    assert ledger.spent(0) > losses.epsilon_of(accounting.composed(account), 1e-4)
    with pytest.raises(BudgetSpent, match=r"of 4; releases of several kinds are counted as Gaussian shifts"):
        ledger.charge({0: PAIR}, times=ledger.affordable(0, PAIR) + 1)


def test_nothing_else_follows_symbols_that_have_a_limit(path, new_process):
    ledger = Ledger(path, [9.0, math.inf], 1e-4, create=True)
    ledger.charge({0: WEAK, 1: WEAK})
    for release in (FAINT, PAIR):
        for use in (ledger.charge, lambda one: ledger.affordable(0, one[0])):
            with pytest.raises(BadInput, match="agent 0 began with one kind of symbols"):
                use({0: release, 1: release})
    ledger.charge({1: FAINT})
    new_process()
    again = Ledger(path, [9.0, math.inf], 1e-4)
    again.charge({0: WEAK})
    with pytest.raises(BadInput, match="began with one kind of symbols"):
        again.charge({0: FAINT})
    assert [again.charged(agent) for agent in (0, 1)] == [{WEAK: 2}, {WEAK: 1, FAINT: 1}]


def test_accounts_of_several_kinds_from_before_are_read_and_refuse_what_exceeds_the_new_count(
    path, new_process, monkeypatch, capsys
):
    mixed = [{FAINT: 100, PAIR: 30}, {PAIR: 1, FAINT: 1}]
    before = [losses.epsilon_of(accounting.composed(account), 1e-4) for account in mixed]
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_check_kinds", lambda *_: None)
        patch.setattr(ledgers, "_priced", lambda *_: 0.0)
        ledger = Ledger(path, before, 1e-4, create=True)
        for agent, account in enumerate(mixed):
            for release, times in account.items():
                ledger.charge({agent: release}, times=times)
    new_process()
    ledger = Ledger(path, before, 1e-4)
    assert [ledger.charged(agent) for agent in (0, 1)] == mixed
    assert all(ledger.spent(agent) > before[agent] for agent in (0, 1))
    with pytest.raises(BudgetSpent, match="releases of several kinds are counted as Gaussian shifts"):
        ledger.charge({0: FAINT})
    with pytest.raises(BadInput, match="agent 1 began with one kind of symbols"):
        ledger.charge({1: PAIR})
    assert [each["kinds"] for each in json.loads(command(capsys, "verify", path, "--json")[1])["agents"]] == [2, 2]
    out = command(capsys, "verify", path)[1]
    spent = f"{ledger.spent(0):.6g} of {before[0]:.6g} at delta 0.0001"
    assert f"agent 0 has spent epsilon {spent}, with 130 releases of 2 kinds, counted as Gaussian shifts\n" in out


@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=6))
@settings(max_examples=15, deadline=None)
def test_the_order_of_charges_does_not_matter(tmp_path_factory, order):
    costs = []
    for kinds in (order, sorted(order)):
        ledger = Ledger(tmp_path_factory.mktemp("ledger") / "file", [math.inf], 1e-5, create=True)
        for kind in kinds:
            ledger.charge({0: (EPISODE, SYMBOL)[kind]})
        costs.append(ledger.spent(0))
    assert costs[0] == pytest.approx(costs[1], rel=1e-12)


def test_unprotected_messages_exhaust_any_limit(path):
    ledger = Ledger(path, [100.0, math.inf], 1e-4, create=True)
    free = Release(Channel(), 0.0, 25)
    with pytest.raises(BudgetSpent, match="inf"):
        ledger.charge({0: free})
    ledger.charge({1: free})
    assert ledger.spent(1) == math.inf


def test_affordable_says_how_many_more_fit(path):
    cheap = Release(Channel(), 200.0, 25)
    ledger = Ledger(path, [1.0, math.inf], 1e-4, create=True)
    count = ledger.affordable(0, cheap)
    assert count > 50
    ledger.charge({0: cheap}, times=count)
    assert ledger.affordable(0, cheap) == 0
    with pytest.raises(BudgetSpent):
        ledger.charge({0: cheap})
    assert ledger.affordable(1, cheap, most=1000) == 1000


def test_affords_says_whether_so_many_more_fit(path):
    cheap = Release(Channel(), 200.0, 25)
    ledger = Ledger(path, [1.0, math.inf], 1e-4, create=True)
    ledger.charge({0: cheap}, times=7)
    count = ledger.affordable(0, cheap)
    assert [ledger.affords(0, cheap, times) for times in (0, 1, count, count + 1)] == [True, True, True, False]
    assert ledger.affords(1, cheap, 10 * count)
    with pytest.raises(BadInput, match="times must be"):
        ledger.affords(0, cheap, -1)


def test_it_goes_on_where_it_stopped(path):
    Ledger(path, [5.0], 1e-4, create=True).charge({0: EPISODE})
    again = Ledger(path, [5.0], 1e-4)
    again.charge({0: EPISODE})
    assert again.charged(0) == {EPISODE: 2}


def test_a_sender_that_never_draws_a_transition_tells_nothing(path):
    ledger = Ledger(path, [0.1], 1e-4, create=True)
    ledger.charge({0: Release(Channel(sample_rate=0.01), 0.0, 5)})
    assert ledger.spent(0) == 0


def test_a_vanishing_noise_costs_everything(path):
    ledger = Ledger(path, [100.0], 1e-4, create=True)
    with pytest.raises(BudgetSpent, match="inf"):
        ledger.charge({0: replace(EPISODE, noise=1e-200)})


@pytest.mark.parametrize(
    ("kinds", "most"),
    [
        ([Release(Channel(), 60.0, 25)], 300),
        ([Release(Channel("response"), 0.64, 1)], 300),
        (
            [
                Release(Channel(), 300.0, 25),
                Release(Channel("response"), 0.64, 1),
                Release(Channel("response"), 0.6, 1),
            ],
            90,
        ),
    ],
    ids=["gaussian", "response", "mixed"],
)
def test_looking_ahead_refuses_exactly_where_the_cost_of_each_charge_would(path, kinds, most):
    """The limit is crossed at some charge in the middle; one by one, the exact cost says which."""
    account, costs = Counter(), []
    for number in range(most):
        account[kinds[number % len(kinds)]] += 1
        costs.append(ledgers.spent_epsilon(account, 1e-4))
    allowed = 2 * most // 3
    ledger = Ledger(path, [(costs[allowed - 1] + costs[allowed]) / 2], 1e-4, create=True)
    for number in range(allowed):
        ledger.charge({0: kinds[number % len(kinds)]})
    with pytest.raises(BudgetSpent):
        ledger.charge({0: kinds[allowed % len(kinds)]})
    assert ledger.charged(0).total() == allowed
    assert ledger.spent(0) == pytest.approx(costs[allowed - 1], rel=1e-9)


# The file -------------------------------------------------------------------------------------------------------------


def test_a_ledger_is_begun_only_when_asked_and_only_once(path):
    with pytest.raises(BadInput, match=r"does not exist; a new ledger is begun with create=True"):
        Ledger(path, [1.0], 1e-4)
    assert list(path.parent.iterdir()) == []
    Ledger(path, [1.0], 1e-4, create=True).charge({0: EPISODE})
    with pytest.raises(BadInput, match="exists already"):
        Ledger(path, [1.0], 1e-4, create=True)
    assert list(path.parent.iterdir()) == [path]
    assert Ledger(path, [1.0], 1e-4).charged(0) == {EPISODE: 1}


def test_each_line_is_json_that_names_the_hash_of_the_line_before(path):
    ledger = Ledger(path, [1.0, math.inf], 1e-4, create=True)
    ledger.charge({0: EPISODE})
    ledger.charge({1: SYMBOL}, times=2)
    first, second, third = map(json.loads, path.read_text().splitlines())
    assert (first["ledger"], first["epsilon"], first["delta"]) == (1, [1.0, "inf"], 1e-4)
    assert third["charge"][0]["agent"] == 1
    assert third["charge"][0]["times"] == 2
    assert first["previous"] == "0" * 64
    assert [second["previous"], third["previous"], ledger.head()] == [each["hash"] for each in (first, second, third)]
    assert len({first["nonce"], second["nonce"], third["nonce"]}) == 3


def test_every_charge_is_synced_before_it_returns_and_the_folder_when_a_file_is_begun(path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), real(file)))
    ledger = Ledger(path, [5.0], 1e-4, create=True)
    assert synced == [f"{path}.new", str(path.parent)]
    contents = []
    monkeypatch.setattr(os, "fsync", lambda file: (contents.append(path.read_text()), real(file)))
    ledger.charge({0: EPISODE})
    assert contents == [path.read_text()]


def test_a_crash_before_the_rename_begins_nothing(path, monkeypatch):
    def crash(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        with pytest.raises(OSError, match="disk full"):
            Ledger(path, [5.0], 1e-4, create=True)
    assert not path.exists()
    Ledger(path, [5.0], 1e-4, create=True)
    assert list(path.parent.iterdir()) == [path]


def test_a_line_that_a_crash_cut_anywhere_counts_only_if_it_is_complete(path, new_process):
    ledger = Ledger(path, [1e9], 1e-4, create=True)
    ledger.charge({0: EPISODE})
    begun = len(path.read_bytes())
    ledger.charge({0: SYMBOL})
    right = path.read_bytes()
    for place in range(begun, len(right)):
        for zeros in (b"", bytes(50)):
            path.write_bytes(right[:place] + zeros)
            complete = place == len(right) - 1
            if complete and zeros:
                continue
            new_process()
            found = ledgers.verify(path)
            assert found.torn == (not complete and (place > begun or bool(zeros)))
            assert found.book.accounts[0] == Counter({EPISODE: 1, SYMBOL: 1} if complete else {EPISODE: 1})
            again = Ledger(path, [1e9], 1e-4)
            assert again.charged(0) == found.book.accounts[0]
            again.charge({0: EPISODE})
            new_process()
            assert not ledgers.verify(path).torn
            assert Ledger(path, [1e9], 1e-4).charged(0) == found.book.accounts[0] + Counter({EPISODE: 1})


def test_on_a_full_disk_nothing_is_charged_and_nothing_may_leave(path):
    ledger = Ledger(path, [5.0], 1e-4, create=True)
    ledger.charge({0: EPISODE})
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))  # a part of the line still fits
    try:
        with pytest.raises(OSError, match="File too large"):
            ledger.charge({0: EPISODE})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    ledger.charge({0: EPISODE})
    assert ledger.charged(0) == {EPISODE: 2}


def test_a_charge_that_cannot_be_synced_raises(path, monkeypatch):
    ledger = Ledger(path, [5.0], 1e-4, create=True)

    def broken(_):
        raise OSError("input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match="input/output"):
            ledger.charge({0: EPISODE})
    assert ledger.charged(0) == {}


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"epsilon": [1], "delta": 1e-4, "accounts": [[{"times": 1}]]}', '{"seal": 1}', "\0"],
)
def test_a_damaged_file_is_refused_rather_than_begun_anew(path, content):
    path.write_text(content)
    with pytest.raises(BadInput, match="nothing may be released"):
        Ledger(path, [1.0], 1e-4)
    with pytest.raises(BadInput, match="exists already"):
        Ledger(path, [1.0], 1e-4, create=True)
    assert path.read_text() == content


def test_every_single_bit_that_falls_over_is_noticed(path, new_process):
    """But for those of the end of the last line, whose loss is what a crash leaves, the file is refused."""
    Ledger(path, [10.0], 1e-4, create=True).charge({0: EPISODE}, times=3)
    right, chance = path.read_bytes(), random.Random(0)
    for place in [*range(12), *chance.sample(range(len(right)), 150), *range(len(right) - 80, len(right))]:
        data = bytearray(right)
        data[place] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        new_process()
        with pytest.raises(BadInput, match="nothing may be released"):
            Ledger(path, [10.0], 1e-4)


def chained(*entries):
    """A file whose hashes are right, whatever it says."""
    place = chain.Place()
    data = b""
    for entry in entries:
        line = chain._line(entry, place.head)
        place, data = chain.Place(place.entries + 1, place.end + len(line), line), data + line
    return data


BEGUN = {"ledger": 1, "epsilon": [1.0], "delta": 1e-4, "accounts": [[]]}
ITEM = {"agent": 0, "times": 1, "release": EPISODE}


@pytest.mark.parametrize(
    "entries",
    [
        [{"ledger": 2}],
        [{**BEGUN, "ledger": 2}],
        [{**BEGUN, "epsilon": 1.0}],
        [{**BEGUN, "epsilon": ["much"]}],
        [{**BEGUN, "epsilon": [-1.0]}],
        [{**BEGUN, "delta": "small"}],
        [{**BEGUN, "accounts": []}],
        [{**BEGUN, "accounts": [[1]]}],
        [{**BEGUN, "accounts": [[{"times": 0, "release": EPISODE}]]}],
        [BEGUN, BEGUN],
        [BEGUN, {"charge": 1}],
        [BEGUN, {"charge": {"0": 1}}],
        [BEGUN, {"charge": [{**ITEM, "agent": 1}]}],
        [BEGUN, {"charge": [{**ITEM, "agent": "0"}]}],
        [BEGUN, {"charge": [{**ITEM, "agent": True}]}],
        [BEGUN, {"charge": [{**ITEM, "times": -1}]}],
        [BEGUN, {"charge": [{**ITEM, "times": 1.5}]}],
        [BEGUN, {"charge": [{**ITEM, "release": None}]}],
        [BEGUN, {"charge": [{**ITEM, "release": {"noise": 1.0}}]}],
        [BEGUN, {"charge": [{"agent": 0, "times": 1}]}],
    ],
    ids=repr,
)
def test_a_foreign_file_is_refused_with_its_name(path, entries):
    path.write_bytes(chained(*entries))
    with pytest.raises(Untrusted, match=r"ledger\.json is no ledger that can be trusted"):
        Ledger(path, [1.0], 1e-4)


def test_what_is_nested_too_deeply_is_refused(path):
    deep = b'{"charge": ' + b"[" * 200_000 + b"]" * 200_000
    begun = chained(BEGUN)
    path.write_bytes(begun + chain._closed(deep, b"0" * 32, begun[chain.HASH]))
    with pytest.raises(Untrusted, match="no ledger that can be trusted"):
        Ledger(path, [1.0], 1e-4)


def test_a_chain_without_its_first_line_is_refused(path):
    whole = chained(BEGUN, {"charge": [ITEM]})
    for data, message in [
        (whole[:50], "ends before its first entry"),
        (whole[whole.index(b"\n") + 1 :], "no ledger with a chain"),
        (chained(BEGUN)[:-80] + whole[whole.index(b"\n") + 1 :], "line 1 breaks the chain"),
    ]:
        path.write_bytes(data)
        with pytest.raises(BadInput, match=message):
            Ledger(path, [1.0], 1e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [([2.0], 1e-4), ([1.0], 1e-5), ([1.0, 1.0], 1e-4)])
def test_limits_cannot_be_moved(path, epsilon, delta):
    Ledger(path, [1.0], 1e-4, create=True)
    with pytest.raises(BadInput, match="other limits"):
        Ledger(path, epsilon, delta)
    assert ledgers.limits(path) == (1.0,)


def test_what_is_no_file_is_refused(path, tmp_path):
    path.mkdir()
    with pytest.raises(BadInput, match="is not a file"):
        Ledger(path, [1.0], 1e-4)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="is not a file"):
        Ledger(tmp_path / "pipe", [1.0], 1e-4)
    with pytest.raises(BadInput, match="is not a folder"):
        Ledger(tmp_path / "nowhere" / "ledger.json", [1.0], 1e-4, create=True)
    with pytest.raises(BadInput, match="cannot be opened: File name too long"):
        Ledger(tmp_path / ("x" * 300), [1.0], 1e-4)


untyped: Any = Ledger
verify: Any = ledgers.verify


def ready(path) -> Any:
    return Ledger(path, [1.0], 1e-4, create=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: untyped(path, [], 1e-4, create=True), "at least one agent"),
        (lambda path: untyped(path, 1.0, 1e-4, create=True), "at least one agent"),
        (lambda path: untyped(path, "12", 1e-4, create=True), "must be numbers"),
        (lambda path: untyped(path, [True], 1e-4, create=True), "must be numbers"),
        (lambda path: untyped(path, [None], 1e-4, create=True), "must be numbers"),
        (lambda path: untyped(path, [0.0], 1e-4, create=True), "above 0"),
        (lambda path: untyped(path, [math.nan], 1e-4, create=True), "above 0"),
        (lambda path: untyped(path, [1.0], 0.0, create=True), "delta"),
        (lambda path: untyped(path, [1.0], "small", create=True), "must be numbers"),
        (lambda path: untyped(None, [1.0], 1e-4), "path must name a file"),
        (lambda path: ready(path).charge({1: EPISODE}), "agent must lie"),
        (lambda path: ready(path).charge({"0": EPISODE}), "agent must lie"),
        (lambda path: ready(path).charge({False: EPISODE}), "agent must lie"),
        (lambda path: ready(path).charge({0: 1.0}), "a ledger charges for a Release"),
        (lambda path: ready(path).charge([EPISODE]), "releases must be a mapping"),
        (lambda path: ready(path).charge({0: EPISODE}, times=0), "times"),
        (lambda path: ready(path).charge({0: EPISODE}, times=True), "times"),
        (lambda path: ready(path).charge({0: EPISODE}, times=1.0), "times"),
        (lambda path: ready(path).charge({0: EPISODE}, times=1 << 60), "times"),
        (lambda path: ready(path).charge({0: replace(EPISODE, neighbours="transition")}), "inputs"),
        (lambda path: ready(path).spent(-1), "agent must lie"),
        (lambda path: ready(path).affordable(0, None), "a ledger charges for a Release"),
        (lambda path: ready(path).affordable(0, EPISODE, most=-1), "most must be"),
        (lambda path: verify(path, "abc"), "64 digits"),
        (lambda path: verify(path, 5), "64 digits"),
        (lambda path: verify(path), "does not exist"),
    ],
)
def test_nonsense_is_refused_with_a_message(path, call, message):
    with pytest.raises(BadInput, match=message):
        call(path)
    assert not path.exists() or Ledger(path, [1.0], 1e-4).charged(0) == {}


# Ways to spend a budget twice -----------------------------------------------------------------------------------------


def test_a_symbolic_link_is_no_second_book(path, tmp_path):
    Ledger(path, [1.0], 1e-4, create=True).charge({0: EPISODE})
    link = tmp_path / "link.json"
    link.symlink_to(path)
    with pytest.raises(BadInput, match="symbolic link"):
        Ledger(link, [1.0], 1e-4)
    with pytest.raises(BadInput, match="symbolic link"):
        ledgers.verify(link)
    link.unlink()
    link.symlink_to(tmp_path / "nothing.json")
    with pytest.raises(BadInput, match="exists already"):
        Ledger(link, [1.0], 1e-4, create=True)


def test_a_file_that_becomes_a_symbolic_link_is_refused_from_then_on(path, tmp_path):
    ledger = Ledger(path, [5.0], 1e-4, create=True)
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    for use in (lambda: ledger.charge({0: EPISODE}), lambda: ledger.spent(0), ledger.head):
        with pytest.raises(BadInput, match="symbolic link"):
            use()


def test_a_folder_behind_a_link_is_opened_at_its_real_path(path, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "alias").symlink_to(home)
    ledger = Ledger(tmp_path / "alias" / "ledger.json", [1.0], 1e-4, create=True)
    assert ledger.path == home / "ledger.json"
    ledger.charge({0: EPISODE})
    with pytest.raises(BudgetSpent):
        Ledger(home / "ledger.json", [1.0], 1e-4).charge({0: EPISODE})


def test_a_hard_link_is_no_second_book(path, tmp_path):
    ledger = Ledger(path, [5.0], 1e-4, create=True)
    ledger.charge({0: EPISODE})
    os.link(path, tmp_path / "second.json")
    for use in (
        lambda: ledger.charge({0: EPISODE}),
        lambda: Ledger(tmp_path / "second.json", [5.0], 1e-4),
        lambda: ledgers.verify(path),
    ):
        with pytest.raises(BadInput, match="2 hard links"):
            use()
    (tmp_path / "second.json").unlink()
    ledger.charge({0: EPISODE})
    assert ledger.charged(0) == {EPISODE: 2}


def test_no_file_can_be_removed_so_that_two_charge_at_once(path, monkeypatch):
    """One process is stopped within its charge; all files but the ledger are removed; another one still waits."""
    first, second = Ledger(path, [1.0], 1e-4, create=True), Ledger(path, [1.0], 1e-4)
    inside, go_on, real, outcomes = threading.Event(), threading.Event(), os.fsync, []

    def slow(file):
        if threading.current_thread().name == "first":
            inside.set()
            go_on.wait(10)
        real(file)

    def charge(ledger):
        try:
            ledger.charge({0: EPISODE})
            outcomes.append("charged")
        except BudgetSpent:
            outcomes.append("refused")

    monkeypatch.setattr(os, "fsync", slow)
    threads = [
        threading.Thread(target=charge, args=(one,), name=n) for one, n in ((first, "first"), (second, "second"))
    ]
    threads[0].start()
    assert inside.wait(10)
    for other in set(path.parent.iterdir()) - {path}:
        other.unlink()
    threads[1].start()
    threads[1].join(0.3)
    assert outcomes == []
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes) == ["charged", "refused"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_charge_into_a_file_that_is_removed_meanwhile_is_not_acknowledged(path, monkeypatch, replaced):
    ledger = Ledger(path, [5.0], 1e-4, create=True)
    real = os.fsync

    def remove(file):
        backup = path.read_bytes()
        path.unlink()
        if replaced:
            path.write_bytes(backup)
        real(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", remove)
        with pytest.raises(Untrusted, match="removed or replaced during a charge"):
            ledger.charge({0: EPISODE})


def test_a_file_that_is_replaced_while_its_lock_is_waited_for_is_opened_again(path, monkeypatch):
    ledger = Ledger(path, [5.0], 1e-4, create=True)
    real, waits = chain.locked, []

    def replaced(descriptor, often):
        waits.append(descriptor)
        if len(waits) <= often:
            shutil.copy(path, path.with_name("copy"))
            os.replace(path.with_name("copy"), path)
        return real(descriptor)

    monkeypatch.setattr(chain, "locked", lambda descriptor: replaced(descriptor, 2))
    ledger.charge({0: EPISODE})
    assert len(waits) == 3
    assert ledgers.verify(path).book.accounts[0] == {EPISODE: 1}
    monkeypatch.setattr(chain, "locked", lambda descriptor: replaced(descriptor, math.inf))
    with pytest.raises(BadInput, match="over and over"):
        ledger.charge({0: EPISODE})


def test_a_restored_backup_is_refused_for_ever(path, tmp_path):
    """Also when it has grown as long as the file was, by the same charges."""
    ledger = Ledger(path, [1e9], 1e-4, create=True)
    ledger.charge({0: SMALL})
    shutil.copy(path, tmp_path / "backup")
    ledger.charge({0: SMALL})
    shutil.copy(path, tmp_path / "right")
    os.replace(tmp_path / "backup", path)
    for use in (lambda: ledger.charge({0: SMALL}), lambda: ledger.spent(0), lambda: Ledger(path, [1e9], 1e-4)):
        with pytest.raises(Untrusted, match="the 3 entries that this process has seen"):
            use()
    assert spawn(path, tmp_path / "sent", 5).wait(60) == 0
    with pytest.raises(Untrusted, match="a backup was restored, or entries were removed"):
        ledger.charge({0: SMALL})
    os.replace(tmp_path / "right", path)
    ledger.charge({0: SMALL})
    assert ledger.charged(0) == {SMALL: 3}


def test_a_deleted_file_is_begun_anew_by_nobody_who_was_not_asked(path):
    ledger = Ledger(path, [1.0], 1e-4, create=True)
    ledger.charge({0: EPISODE})
    path.unlink()
    code = f"from dpmac.privacy import Ledger; Ledger({str(path)!r}, [1.0], 1e-4)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "BadInput" in other.stderr
    assert "does not exist; a new ledger is begun with create=True" in other.stderr
    with pytest.raises(BadInput, match="does not exist"):
        ledger.charge({0: EPISODE})
    with pytest.raises(BadInput, match="does not create it again"):
        Ledger(path, [1.0], 1e-4, create=True)
    assert not path.exists()
    assert subprocess.run([sys.executable, "-c", code.replace("1e-4)", "1e-4, create=True)")]).returncode == 0
    with pytest.raises(Untrusted, match="2 entries that this process has seen"):
        ledger.charge({0: EPISODE})


def test_an_edit_is_noticed_and_nothing_public_makes_it_sound(path, new_process):
    ledger = Ledger(path, [10.0], 1e-4, create=True)
    ledger.charge({0: EPISODE}, times=3)
    ledger.charge({0: EPISODE})
    path.write_bytes(path.read_bytes().replace(b'"times": 3', b'"times": 1'))
    with pytest.raises(Untrusted, match="line 2 breaks the chain"):
        ledgers.verify(path)
    new_process()
    with pytest.raises(Untrusted, match="line 2 breaks the chain"):
        Ledger(path, [10.0], 1e-4)
    public = {name for module in (ledgers, chain) for name in vars(module) if not name.startswith("_")}
    assert not public & {"seal", "sign", "line", "closed", "rehash", "repair"}


def test_an_owner_who_forges_the_whole_chain_is_caught_by_a_running_process_and_by_an_anchored_head(path, new_process):
    ledger = Ledger(path, [1.0], 1e-4, create=True)
    ledger.charge({0: EPISODE})
    head = ledger.head()
    path.write_bytes(chained(BEGUN, {"charge": []}))
    with pytest.raises(Untrusted, match="2 entries that this process has seen"):
        ledger.charge({0: EPISODE})
    with pytest.raises(Untrusted, match="no entry with the hash"):
        ledgers.verify(path, head)
    new_process()
    assert Ledger(path, [1.0], 1e-4).charged(0) == {}  # which nobody can know who has kept no head


# Anchored heads, and the command --------------------------------------------------------------------------------------


def command(capsys, *words):
    code = cli.main(["privacy", "ledger", *map(str, words)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_command_says_what_was_spent_and_how_many_entries_came_since_a_head(path, capsys):
    ledger = Ledger(path, [2.0, math.inf], 1e-4, create=True)
    opened = ledger.head()
    ledger.charge({0: EPISODE, 1: SYMBOL}, times=2)
    ledger.charge({1: SYMBOL})
    code, out, _ = command(capsys, "verify", path, "--head", opened, "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["valid"], told["entries"], told["since"], told["torn"]) == (True, 3, 2, False)
    assert told["head"] == ledger.head()
    assert [each["limit"] for each in told["agents"]] == [2.0, "inf"]
    assert [each["spent"] for each in told["agents"]] == [ledger.spent(0), ledger.spent(1)]
    assert [each["releases"] for each in told["agents"]] == [2, 3]
    code, out, _ = command(capsys, "verify", path, "--head", ledger.head())
    assert code == 0
    assert "3 entries, the opening and 2 charges" in out
    assert "0 entries came since" in out
    assert f"agent 0 has spent epsilon {ledger.spent(0):.6g} of 2 at delta 0.0001, with 2 releases" in out
    assert out.endswith(f"head {ledger.head()}\n")
    with open(path, "ab") as file:
        file.write(b'{"charge": [')
    code, out, _ = command(capsys, "verify", path)
    assert code == 0
    assert "a crash left a part of a charge" in out
    assert "came since" not in out


def test_the_command_fails_for_a_broken_chain_and_for_a_head_that_is_not_in_it(path, capsys):
    ledger = Ledger(path, [2.0], 1e-4, create=True)
    opening = path.read_bytes()
    ledger.charge({0: EPISODE})
    right, head = path.read_bytes(), ledger.head()
    path.write_bytes(opening)  # cut at the end of a line: sound by itself
    assert command(capsys, "verify", path)[0] == 0
    code, out, err = command(capsys, "verify", path, "--head", head)
    assert (code, out) == (1, "")
    assert err.startswith("dpmac: ")
    assert f"holds no entry with the hash {head}" in err
    path.write_bytes(right.replace(b'"times": 1', b'"times": 0'))
    code, out, _ = command(capsys, "verify", path, "--json")
    assert code == 1
    told = json.loads(out)
    assert told["valid"] is False
    assert "line 2 breaks the chain" in told["reason"]


def test_the_command_says_what_it_takes(path, capsys):
    assert command(capsys, "verify", path)[0] == 2
    Ledger(path, [2.0], 1e-4, create=True)
    code, _, err = command(capsys, "verify", path, "--head", "12")
    assert code == 2
    assert "64 digits" in err
    shutil.copy(OLD, path.with_name("old.json"))
    code, _, err = command(capsys, "verify", path.with_name("old.json"))
    assert code == 2
    assert "no ledger with a chain of hashes" in err


# Version 0.1 ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def old(path):
    shutil.copy(OLD, path)
    return path


def test_a_ledger_of_version_0_1_is_honoured_and_becomes_a_chain(old):
    assert ledgers.limits(old) == (10.0, math.inf)
    assert old.read_bytes() == OLD.read_bytes()
    ledger = Ledger(old, [10.0, math.inf], 1e-4)
    assert [ledger.charged(agent) for agent in (0, 1)] == [*OLD_CHARGED]
    assert old.with_name("ledger.json.0.1").read_bytes() == OLD.read_bytes()
    ledger.charge({0: EPISODE})
    assert ledgers.verify(old).book.accounts[0] == Counter(OLD_CHARGED[0]) + Counter({EPISODE: 1})
    assert ledgers.verify(old).book.place.entries == 2
    assert ledgers.limits(old) == (10.0, math.inf)


def test_a_damaged_ledger_of_version_0_1_is_refused_and_stays(old):
    old.write_bytes(OLD.read_bytes().replace(b'"times": 3', b'"times": 1'))
    before = old.read_bytes()
    with pytest.raises(Untrusted, match="its seal differ"):
        Ledger(old, [10.0, math.inf], 1e-4)
    assert old.read_bytes() == before
    shutil.copy(OLD, old)
    with pytest.raises(BadInput, match="other limits"):
        Ledger(old, [20.0, math.inf], 1e-4)
    assert old.read_bytes() == OLD.read_bytes()
    assert not old.with_name("ledger.json.0.1").exists()


def test_a_crash_during_the_conversion_leaves_the_old_ledger(old, monkeypatch):
    def crash(*_):
        raise OSError("killed")

    for point in ("link", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, point, crash)
            with pytest.raises(OSError, match="killed"):
                Ledger(old, [10.0, math.inf], 1e-4)
        assert old.read_bytes() == OLD.read_bytes()
    assert Ledger(old, [10.0, math.inf], 1e-4).charged(0) == OLD_CHARGED[0]


def test_the_old_ledger_put_back_is_refused(old, new_process):
    ledger = Ledger(old, [10.0, math.inf], 1e-4)
    ledger.charge({0: EPISODE})
    shutil.copy(OLD, old)
    with pytest.raises(Untrusted, match="backup was restored"):
        ledger.charge({0: EPISODE})
    with pytest.raises(Untrusted, match="backup was restored"):
        Ledger(old, [10.0, math.inf], 1e-4)
    new_process()
    with pytest.raises(BadInput, match="an old ledger was put back"):
        Ledger(old, [10.0, math.inf], 1e-4)
    os.link(old, old.with_name("second"))
    old.with_name("ledger.json.0.1").unlink()
    with pytest.raises(BadInput, match="2 hard links"):
        Ledger(old, [10.0, math.inf], 1e-4)


def test_two_processes_convert_a_ledger_once(old, monkeypatch):
    """The second one found the old file, and finds a chain once it has the lock."""
    monkeypatch.setattr(ledgers, "_is_old", lambda path: True)
    Ledger(old, [10.0, math.inf], 1e-4)
    before = old.read_bytes()
    monkeypatch.setattr(ledgers, "_SEEN", {})
    assert Ledger(old, [10.0, math.inf], 1e-4).charged(0) == OLD_CHARGED[0]
    assert old.read_bytes() == before


# Many entries ---------------------------------------------------------------------------------------------------------


def grown(path, release, count, limit=1e9):
    """A ledger with so many charges of one release, as other processes would have written them."""
    ledger = Ledger(path, [limit], 1e-4, create=True)
    ledger.charge({0: release})
    last = path.read_bytes().splitlines(keepends=True)[-1]
    content, previous = last[: -chain.CLOSING], last[chain.HASH]
    with open(path, "ab") as file:
        for number in range(count - 1):
            line = chain._closed(content, b"%032d" % number, previous)
            previous = line[chain.HASH]
            file.write(line)
    return ledger


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.large)])
@pytest.mark.parametrize("release", [EPISODE, SYMBOL], ids=["gaussian", "response"])
def test_a_charge_stays_quick_after_many(path, release, count, monkeypatch, record_property):
    """Opening reads the file and computes the cost of what lies ahead; from the first one on, a charge waits for the
    disk alone."""
    ledger, real, synced = grown(path, release, count), os.fsync, [0.0]

    def timed(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    monkeypatch.setattr(os, "fsync", lambda file: synced.append(timed(lambda: real(file))))
    opened = timed(lambda: Ledger(path, ledger.epsilon, ledger.delta))
    ledger = Ledger(path, ledger.epsilon, ledger.delta)
    first = timed(lambda: ledger.charge({0: release})) - synced[-1]
    times = []
    for _ in range(200):
        took = timed(lambda: ledger.charge({0: release}))
        times.append((took - synced[-1], synced[-1]))
    assert ledger.charged(0) == {release: count + 201}
    own, disk = np.median(times, axis=0)
    assert own < 0.005
    assert first < 0.1
    said = f"after {count} charges ({path.stat().st_size >> 20} MiB), opening took {opened:.1f} s, the first charge"
    record_property("counted", f"{said} {1e3 * first:.2f} ms, another {1e3 * own:.2f}, and {1e3 * disk:.2f} to sync")
    path.unlink()  # half a gigabyte


def test_costs_are_computed_a_few_times_up_to_the_limit(path, monkeypatch):
    limit, computed, real = ledgers.spent_epsilon({SYMBOL: 3000}, 1e-4) * (1 + 1e-9), [], ledgers.spent_epsilon
    monkeypatch.setattr(ledgers, "spent_epsilon", lambda account, delta: (computed.append(1), real(account, delta))[1])
    ledgers._priced.cache_clear()
    monkeypatch.setattr(os, "fsync", lambda file: None)
    ledger = Ledger(path, [limit], 1e-4, create=True)
    for _ in range(3000):
        ledger.charge({0: SYMBOL})
    for _ in range(10):
        with pytest.raises(BudgetSpent):
            ledger.charge({0: SYMBOL})
    assert len(computed) < 60


def test_many_episodes_stay_quick(path):
    ledger = Ledger(path, [math.inf], 1e-4, create=True)
    ledger.charge({0: SYMBOL}, times=100_000)
    ledger.charge({0: EPISODE}, times=10_000)
    start = time.process_time()
    assert ledger.spent(0) > 0
    assert time.process_time() - start < 5


# Other processes, and sudden death ------------------------------------------------------------------------------------

CHILD = """
import sys
from dpmac.config import Channel, Release
from dpmac.privacy import BudgetSpent, Ledger
path, sent, count, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
ledger = Ledger(path, [limit], 1e-4)
release = Release(Channel(), 50.0, 25)
with open(sent, "a", buffering=1) as file:
    for _ in range(count):
        try:
            ledger.charge({0: release})
        except BudgetSpent:
            continue
        file.write("x")
        file.flush()
"""


def spawn(path, sent, count, limit=1e9):
    return subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(sent), str(count), repr(limit)])


@pytest.mark.parametrize("allowed", [400, 257])
def test_two_processes_never_forget_each_others_charges_and_never_overspend(allowed, path, tmp_path):
    """Of 200 charges that each of them tries, exactly those go through that the limit allows."""
    limit = ledgers.spent_epsilon({SMALL: allowed}, 1e-4) * (1 + 1e-9)
    ledger, sent = Ledger(path, [limit], 1e-4, create=True), [tmp_path / f"sent{index}" for index in range(2)]
    children = [spawn(path, file, 200, limit) for file in sent]
    assert [child.wait(120) for child in children] == [0, 0]
    assert sum(file.stat().st_size for file in sent) == allowed
    assert ledger.charged(0) == {SMALL: allowed}
    assert ledgers.verify(path).book.place.entries == 1 + allowed


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.large)])
def test_a_killed_sender_has_charged_all_that_it_sent_and_nothing_twice(kills, path, tmp_path, record_property):
    """What is on disk never falls behind what was sent, and each kill wastes one charge at most."""
    rng, sent, seen = np.random.default_rng(0), tmp_path / "sent", 0
    charged: Counter[Release] = Counter()
    ledger = Ledger(path, [1e9], 1e-4, create=True)
    for number in range(kills):
        child = spawn(path, sent, 1_000_000)
        while not sent.exists() or sent.stat().st_size <= seen:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        child.wait()
        seen = sent.stat().st_size
        charged = ledger.charged(0)
        assert seen <= charged.total() <= seen + number + 1
    assert ledgers.verify(path).book.accounts[0] == charged
    record_property("counted", f"sender killed {kills} times: {seen} messages sent, {charged.total()} charged")
