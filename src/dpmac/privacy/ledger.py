"""What each agent has spent, over messages and episodes, in a file that is never behind the truth.

A release is charged, and on disk, before its message goes out: a crash can waste budget but never forget a release.
Neighbours are two inputs of one agent over everything that was charged to it.

    ledger = Ledger(path, epsilon=(1.0, 1.0), delta=1e-4)
    ledger.charge({0: release, 1: release})    # raises BudgetSpent, and charges nobody, where one would overspend
    send(messages)
"""

import fcntl
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpmac.config import BadInput, Release, from_json, require, to_json
from dpmac.privacy import accounting
from dpmac.privacy import loss as losses

Spent = list[Counter[Release]]
"""For each agent, how often each kind of release was charged."""


def seal(data: Any) -> str:
    """A digest of a ledger's data: a bit that fell over on a disk must not make a number of releases smaller."""
    return hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=16).hexdigest()


class BudgetSpent(RuntimeError):
    """A release was refused because it would exceed an agent's budget; nothing was charged."""


class Ledger:
    """The accounts of a team in one JSON file, which several processes may share."""

    def __init__(self, path: str | os.PathLike[str], epsilon: Sequence[float], delta: float) -> None:
        """Open the file, or begin it. An existing one must have been begun with the same limits."""
        require(len(epsilon) > 0, "a ledger needs the limit of at least one agent")
        require(all(limit > 0 for limit in epsilon), f"every epsilon must be above 0 (inf: no limit), not {epsilon}")
        accounting.check_delta(delta)
        self.path, self.epsilon, self.delta = Path(path), tuple(map(float, epsilon)), delta
        with self._locked():
            if self.path.exists():
                self._read()
            else:
                self._write([Counter() for _ in self.epsilon])

    def charge(self, releases: Mapping[int, Release], times: int = 1) -> None:
        """Charge each named agent with so many releases, together or not at all; they are on disk on return."""
        require(isinstance(times, int) and times >= 1, f"times must be a whole number from 1, not {times}")
        with self._locked():
            accounts = self._read()
            for agent, release in releases.items():
                self._check_agent(agent)
                require(release.neighbours == "inputs", "a ledger charges for inputs, not for single transitions")
                accounts[agent][release] += times
                total = self._cost(accounts[agent])
                if total > self.epsilon[agent]:
                    raise BudgetSpent(f"agent {agent} would spend epsilon {total:.6g} of {self.epsilon[agent]:.6g}")
            self._write(accounts)

    def spent(self, agent: int) -> float:
        """ε at the ledger's δ of everything charged to an agent so far, composed exactly."""
        return self._cost(self.charged(agent))

    def charged(self, agent: int) -> Counter[Release]:
        """How often each kind of release was charged to an agent."""
        self._check_agent(agent)
        with self._locked():
            return self._read()[agent]

    def affordable(self, agent: int, release: Release, most: int = 1 << 20) -> int:
        """How many more of a release fit into an agent's budget, at most `most`."""
        account = self.charged(agent)

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

    def _check_agent(self, agent: int) -> None:
        require(0 <= agent < len(self.epsilon), f"agent must lie in 0..{len(self.epsilon) - 1}, not {agent}")

    def _cost(self, account: Counter[Release]) -> float:
        """Uses of like channels are added up first, so that composing stays exact and quick over many episodes."""
        pools: Counter[losses.Pool] = Counter()
        if any(accounting.unprotected(release) for release in account):
            return math.inf
        for release, times in account.items():
            pool, amount = accounting.mechanism_of(release).pool(release)
            pools[pool] += times * amount  # type: ignore[assignment]
        parts = [pool.loss(amount) for pool, amount in pools.items()]
        return losses.epsilon_of(losses.compose(parts), self.delta)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock beside the file; the operating system releases it should the process die."""
        with open(self.path.with_name(self.path.name + ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> Spent:
        try:
            data = json.loads(self.path.read_text())
            if data.pop("seal") != seal(data):
                raise ValueError("what it says and its seal differ")
            limits = tuple(map(float, data["epsilon"])), float(data["delta"])
            accounts = [
                Counter({from_json(Release, item["release"]): int(item["times"]) for item in account})
                for account in data["accounts"]
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{self.path} is no ledger that can be trusted ({error}); nothing may be released") from None
        same = limits == (self.epsilon, self.delta) and len(accounts) == len(self.epsilon)
        require(same, f"{self.path} was begun with other limits: epsilon {limits[0]}, delta {limits[1]}")
        return accounts

    def _write(self, accounts: Spent) -> None:
        """Write aside, sync, rename, sync the folder."""
        listed = [[{"release": kind, "times": times} for kind, times in account.items()] for account in accounts]
        data = to_json({"epsilon": self.epsilon, "delta": self.delta, "accounts": listed})
        aside = self.path.with_name(self.path.name + ".new")
        with open(aside, "w") as file:
            json.dump({**data, "seal": seal(data)}, file, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
