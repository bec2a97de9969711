"""What each agent has spent, over messages and episodes, in a file that is never behind the truth.

A release is charged, and on disk, before its message goes out: a crash can waste budget but never forget a release.
Neighbours are two inputs of one agent over everything that was charged to it.

    ledger = Ledger(path, epsilon=(1.0, 1.0), delta=1e-4, create=True)
    ledger.charge({0: release, 1: release})    # raises BudgetSpent, and charges nobody, where one would overspend
    send(messages)

The next release may be chosen from those before. So an account that begins with symbols takes only such symbols, which
are composed exactly; one that begins with Gaussian noise takes everything, as the Gaussian shifts that dominate it.

The file is a chain of hashes (see `chain`). Its first line opens it with the limits, every further line is a charge.
"""

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dpmac.config import Release, check_delta, from_json, loads, require, whole
from dpmac.privacy import accounting, chain
from dpmac.privacy import loss as losses
from dpmac.privacy.chain import Place, Untrusted

FORMAT = 1
"""Version of the file's format."""
OPENING = b'{"ledger": '
"""How the file begins."""
MOST = 1 << 53
"""Most releases that one entry charges."""


class BudgetSpent(RuntimeError):
    """A release was refused because it would exceed an agent's budget; nothing was charged."""


class Book(NamedTuple):
    """What was read of a ledger's file, from its beginning to a place."""

    epsilon: tuple[float, ...]
    """Limit of each agent."""
    delta: float
    accounts: tuple[Counter[Release], ...]
    """For each agent, how often each kind of release was charged, in the order of their first charges."""
    place: Place = Place()


class Verified(NamedTuple):
    """What `verify` found in a file whose chain holds."""

    book: Book
    since: int | None
    """Entries that came after the given head; None if none was given."""
    torn: bool
    """Whether a crash has left a part of a charge at the end, which nobody was told of."""


_SEEN: dict[Path, Book] = {}
"""The high-water mark of this process: what it has read of each file. It never goes back."""


class Ledger:
    """The accounts of a team in one file, which several processes may share."""

    def __init__(
        self, path: str | os.PathLike[str], epsilon: Sequence[float], delta: float, create: bool = False
    ) -> None:
        """Open a file that was begun with the same limits; with `create`, begin one where there is none."""
        self.epsilon, self.delta = _limits(epsilon, delta)
        self.path = chain.real_path(path)
        self._cleared: list[Counter[Release]] = [Counter() for _ in self.epsilon]
        self._share = [1.0] * len(self.epsilon)
        seen = self.path in _SEEN
        if create:
            gone = seen and not os.path.lexists(self.path)
            require(not gone, f"{self.path} was a ledger before in this process, which does not create it again")
            chain.begin(self.path, _opening(self.epsilon, self.delta, [Counter() for _ in self.epsilon]))
        elif not seen and _is_old(self.path):
            _convert(self.path, self.epsilon, self.delta)
        with self._opened() as (_, book):
            for agent, account in enumerate(book.accounts):
                self._within(agent, account)  # what takes long is done now, not by the first charge

    def charge(self, releases: Mapping[int, Release], times: int = 1) -> None:
        """Charge each named agent with so many releases, together or not at all; they are on disk on return."""
        require(whole(times, 1, MOST), f"times must be a whole number from 1 to 2^53, not {times!r}")
        require(isinstance(releases, Mapping), f"releases must be a mapping by agent, not {releases!r}")
        for agent, release in releases.items():
            self._check(agent, release)
        with self._opened() as (descriptor, book):
            for agent, release in releases.items():
                wanted = book.accounts[agent] + Counter({release: times})
                self._check_kinds(agent, wanted)
                self._afford(agent, wanted)
            charges = [{"agent": agent, "times": times, "release": kind} for agent, kind in releases.items()]
            chain.append(descriptor, book.place, {"charge": charges})
            self._read(descriptor)
            if not chain.names(self.path, descriptor):
                raise Untrusted(f"{self.path} was removed or replaced during a charge; nothing may be released")

    def spent(self, agent: int) -> float:
        """ε at the ledger's δ of everything charged to an agent so far, as `spent_epsilon` counts it."""
        return self._cost(self.charged(agent))

    def charged(self, agent: int) -> Counter[Release]:
        """How often each kind of release was charged to an agent."""
        self._check(agent)
        with self._opened() as (_, book):
            return book.accounts[agent].copy()

    def affordable(self, agent: int, release: Release, most: int = 1 << 20) -> int:
        """How many more of a release fit into an agent's budget, at most `most`."""
        self._check(agent, release)
        require(whole(most, 0, MOST), f"most must be a whole number from 0 to 2^53, not {most!r}")
        account = self.charged(agent)
        self._check_kinds(agent, account + Counter({release: 1}))

        def fits(times: int) -> bool:
            return self._cost(account + Counter({release: times})) <= self.epsilon[agent]

        low, high = 0, 1
        while high < most and fits(high):
            low, high = high, 2 * high
        high = min(high, most + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def affords(self, agent: int, release: Release, times: int) -> bool:
        """Whether so many more of a release fit into an agent's budget; mostly known without computing a cost."""
        self._check(agent, release)
        require(whole(times, 0, MOST), f"times must be a whole number from 0 to 2^53, not {times!r}")
        wanted = self.charged(agent) + Counter({release: times})
        self._check_kinds(agent, wanted)
        return self._within(agent, wanted)

    def head(self) -> str:
        """The hash of the last entry. Kept elsewhere, it is what `verify` can hold the file to."""
        with self._opened() as (_, book):
            return book.place.head.decode()

    def _check(self, agent: int, *releases: Release) -> None:
        most = len(self.epsilon) - 1
        require(whole(agent, 0, most), f"agent must lie in 0..{most}, not {agent!r}")
        for release in releases:
            require(isinstance(release, Release), f"a ledger charges for a Release, not for {release!r}")
            require(
                release.neighbours == "inputs",
                "a ledger charges for all inputs, not for single transitions or increments",
            )

    def _check_kinds(self, agent: int, wanted: Counter[Release]) -> None:
        """Symbols may use up their limit exactly, so after them anything else would be a choice that it leaves no room
        for (`docs/privacy-proofs.md`)."""
        first, *others = accounting.pooled(wanted) or [losses.Shift()]
        require(
            not others or isinstance(first, losses.Shift) or math.isinf(self.epsilon[agent]),
            f"the account of agent {agent} began with one kind of symbols, which are counted exactly only if no other "
            "kind follows: charge other kinds to another ledger (epsilon and delta of both add up)",
        )

    def _cost(self, account: Counter[Release]) -> float:
        return _priced(frozenset(account.items()), self.delta)

    def _afford(self, agent: int, wanted: Counter[Release]) -> None:
        """Refuse an account that costs more than the limit."""
        if not self._within(agent, wanted):
            total, limit = self._cost(wanted), self.epsilon[agent]
            several = len(accounting.pooled(wanted)) > 1
            how = "; releases of several kinds are counted as Gaussian shifts" if several else ""
            raise BudgetSpent(f"agent {agent} would spend epsilon {total:.6g} of {limit:.6g}{how}")

    def _within(self, agent: int, wanted: Counter[Release]) -> bool:
        """Whether an account costs no more than the limit.

        Fewer releases never cost more: once an account further ahead is known to be within the limit, everything up to
        it is. So the cost, which takes a while to compute for a million symbols, is computed a few dozen times in all.
        How far ahead is looked begins with twice the account, and is halved whenever that is too much.
        """
        limit = self.epsilon[agent]
        if math.isinf(limit) or wanted <= self._cleared[agent]:
            return True
        ahead = Counter({kind: times + int(times * self._share[agent]) for kind, times in wanted.items()})
        if self._cost(ahead) > limit:
            if self._cost(wanted) > limit:
                return False
            ahead = wanted
            self._share[agent] /= 2
        self._cleared[agent] = ahead
        return True

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, Book]]:
        """The file under its lock, and all that stands in it."""
        with chain.held(self.path) as descriptor:
            yield descriptor, self._read(descriptor)

    def _read(self, descriptor: int) -> Book:
        """Read what was appended since this process last looked, which raises its high-water mark."""
        with open(descriptor, "rb", closefd=False) as file:
            seen = _SEEN.get(self.path)
            if seen is not None:
                chain.check_seen(file, seen.place, self.path)
            book = _advance(file, seen or _begun(file, self.path), self.path)
            unended = file.seek(0, os.SEEK_END) < book.place.end
        same = (book.epsilon, book.delta) == (self.epsilon, self.delta)
        require(same, f"{self.path} was begun with other limits: epsilon {book.epsilon}, delta {book.delta}")
        if unended:  # a crash came just before the end of a line
            chain.write(descriptor, b"\n", book.place.end - 1)
        _SEEN[self.path] = book
        return book


def spent_epsilon(account: Mapping[Release, int], delta: float) -> float:
    """ε at δ of so many releases of each kind, of which each may have been chosen from what was released before."""
    return losses.epsilon_of(accounting.composed(account, adaptive=True), delta)


@lru_cache(maxsize=64)
def _priced(kinds: frozenset[tuple[Release, int]], delta: float) -> float:
    return spent_epsilon(dict(kinds), delta)


def verify(path: str | os.PathLike[str], head: str | None = None) -> Verified:
    """Check a file's whole chain, and that it contains a head that was noted earlier; the file is only read.

    A chain that is broken or lacks the head raises `Untrusted`; what is no ledger at all is `BadInput`.
    """
    known = head is None or (isinstance(head, str) and re.fullmatch("[0-9a-f]{64}", head) is not None)
    require(known, f"a head is 64 digits from 0 to f, not {head!r}")
    path = chain.real_path(path)
    with chain.opened(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
        book = _advance(file, _begun(file, path), path)
        torn = file.seek(0, os.SEEK_END) > book.place.end
        if head is None:
            return Verified(book, None, torn)
        hashes = (line[chain.HASH].decode() for _, line in chain.lines(file, Place(), path))
        for number, found in enumerate(islice(hashes, book.place.entries), 1):
            if found == head:
                return Verified(book, book.place.entries - number, torn)
    raise Untrusted(f"{path} holds no entry with the hash {head}: it was rewritten, or entries were removed")


def limits(path: str | os.PathLike[str]) -> tuple[float, ...]:
    """ε of each agent that a ledger was begun with."""
    path = chain.real_path(path)
    if _is_old(path):
        return _old(path.read_bytes(), path).epsilon
    with chain.opened(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
        return _begun(file, path).epsilon


# Entries --------------------------------------------------------------------------------------------------------------


@contextmanager
def _trusting(path: Path) -> Iterator[None]:
    """What cannot be understood cannot be trusted."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Untrusted(f"{path} is no ledger that can be trusted ({error}); nothing may be released") from None


def _limits(epsilon: Any, delta: Any) -> tuple[tuple[float, ...], float]:
    """Limits as numbers: ε of each agent above 0 (inf: none), δ strictly between 0 and 1."""
    given = list(epsilon) if isinstance(epsilon, Iterable) else []
    require(len(given) > 0, "a ledger needs the limit of at least one agent, as a list")
    numbers = all(isinstance(item, Real) and not isinstance(item, bool) for item in (*given, delta))
    require(numbers, f"epsilon and delta must be numbers, not {epsilon!r} and {delta!r}")
    require(all(limit > 0 for limit in given), f"every epsilon must be above 0 (inf: no limit), not {epsilon}")
    check_delta(delta)
    return tuple(map(float, given)), float(delta)


def _opening(epsilon: Sequence[float], delta: float, accounts: Sequence[Counter[Release]]) -> dict[str, Any]:
    """The first entry; its accounts are what a ledger of version 0.1 brought along."""
    listed = [[{"times": times, "release": kind} for kind, times in account.items()] for account in accounts]
    return {"ledger": FORMAT, "epsilon": list(epsilon), "delta": delta, "accounts": listed}


def _begun(file: BinaryIO, path: Path) -> Book:
    """The book after its first entry."""
    begins = file.read(len(OPENING)) == OPENING
    require(begins, f"{path} is no ledger with a chain of hashes; nothing may be released")
    for content, line in chain.lines(file, Place(), path):
        with _trusting(path):
            data = loads(content)
            require(data["ledger"] == FORMAT, f"its format is {data['ledger']!r}, not {FORMAT}")
            return _understood(data)._replace(place=Place(1, len(line), line))
    raise Untrusted(f"{path} ends before its first entry does; nothing may be released")


def _understood(data: Any) -> Book:
    """Limits and accounts of an opening, or of a whole ledger of version 0.1."""
    epsilon, delta = _limits([from_json(float, item) for item in data["epsilon"]], data["delta"])
    accounts = tuple(Counter[Release]() for _ in epsilon)
    for account, items in zip(accounts, data["accounts"], strict=True):
        for item in items:
            account[from_json(Release, item["release"])] += _times(item)
    return Book(epsilon, delta, accounts)


def _times(item: Any) -> int:
    require(whole(item["times"], 1, MOST), f"times must be a whole number from 1 to 2^53, not {item['times']!r}")
    return item["times"]


@lru_cache(maxsize=1024)
def _charges(content: bytes) -> tuple[tuple[int, Release, int], ...]:
    """Agents, releases and times of a charge."""
    items = json.loads(content)["charge"]
    return tuple((item["agent"], from_json(Release, item["release"]), _times(item)) for item in items)


def _advance(file: BinaryIO, book: Book, path: Path) -> Book:
    """The book with everything that stands behind its place; like lines are counted first, and understood once."""
    counts: Counter[bytes] = Counter()
    entries, end, last = book.place
    for content, line in chain.lines(file, book.place, path):
        counts[content] += 1
        entries, end, last = entries + 1, end + len(line), line
    accounts = tuple(account.copy() for account in book.accounts)
    with _trusting(path):
        for content, often in counts.items():
            for agent, release, times in _charges(content):
                require(whole(agent, 0, len(accounts) - 1), f"it has no agent {agent!r}")
                accounts[agent][release] += often * times
    return book._replace(accounts=accounts, place=Place(entries, end, last))


# Version 0.1: one JSON object with a digest as its seal, replaced as a whole under a lock file beside it --------------


def _is_old(path: Path) -> bool:
    """Whether a file looks like a ledger of version 0.1, sound or not."""
    with chain.opened(path, links=2) as descriptor, open(descriptor, "rb", closefd=False) as file:
        begins = file.read(len(OPENING))
        return begins != OPENING and b'"seal"' in file.read()


def _old(data: bytes, path: Path) -> Book:
    """Limits and accounts of a ledger of version 0.1."""
    with _trusting(path):
        found = loads(data)
        seal = found.pop("seal")
        digest = hashlib.blake2b(json.dumps(found, sort_keys=True).encode(), digest_size=16).hexdigest()
        require(seal == digest, "what it says and its seal differ")
        return _understood(found)


def _convert(path: Path, epsilon: tuple[float, ...], delta: float) -> None:
    """Turn a ledger of version 0.1 into a chain that opens with its accounts, and keep the old file as NAME.0.1.

    The old file gets its second name before the chain takes the first one. A crash between the two leaves one file
    with both names. A ledger of version 0.1 beside another file with the second name is a backup that was put back.
    """
    kept = path.with_name(path.name + ".0.1")
    with (
        chain.held(path.with_name(path.name + ".lock"), os.O_CREAT),
        chain.held(path, links=2) as descriptor,
        open(descriptor, "rb", closefd=False) as file,
    ):
        data = file.read()
        if data.startswith(OPENING):  # another process was first
            return
        old = _old(data, path)
        same = (old.epsilon, old.delta) == (epsilon, delta)
        require(same, f"{path} was begun with other limits: epsilon {old.epsilon}, delta {old.delta}")
        if not os.path.lexists(kept):
            chain.check_links(path, descriptor)
            os.link(path, kept)
        require(chain.names(kept, descriptor), f"{kept} exists: an old ledger was put back in place of {path}")
        chain.begin(path, _opening(epsilon, delta, old.accounts), replace=True)
