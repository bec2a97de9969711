"""`dpmac privacy ledger verify`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from dpmac import cli
from dpmac.config import require


@dataclass(frozen=True)
class Options:
    """Check a ledger's hash chain from its first entry to its last, and show what each agent has spent.

    With --head, the chain must also contain an entry with this hash: the head at an earlier time. The exit code is 1 if
    the chain is broken.
    """

    action: tyro.conf.Positional[Literal["verify"]]
    """verify."""
    path: tyro.conf.Positional[Path]
    """File of a ledger."""
    head: str | None = None
    """An earlier head of this ledger, 64 digits from 0 to f."""
    json: bool = False
    """Print JSON."""


def ledger(argv: Sequence[str]) -> None:
    from dpmac.privacy import accounting, chain
    from dpmac.privacy import ledger as ledgers

    example = "dpmac privacy ledger verify runs/ccn/ledger.json"
    options = cli.parse(Options, argv, "dpmac privacy ledger", example)
    require(options.path.exists(), f"{options.path} does not exist")
    try:
        found = ledgers.verify(options.path, options.head)
    except chain.Untrusted as error:
        if options.json:
            cli.emit({"valid": False, "reason": str(error)}, True, str)
        else:
            print(f"dpmac: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    book = found.book
    spent = [
        {
            "agent": agent,
            "limit": limit,
            "spent": ledgers.spent_epsilon(account, book.delta),
            "releases": account.total(),
            "kinds": len(accounting.pooled(account)),
        }
        for agent, (limit, account) in enumerate(zip(book.epsilon, book.accounts, strict=True))
    ]
    answer = {
        "valid": True,
        "entries": book.place.entries,
        "since": found.since,
        "torn": found.torn,
        "delta": book.delta,
        "agents": spent,
        "head": book.place.head.decode(),
    }
    cli.emit(answer, options.json, lambda: describe(answer))


def describe(answer: dict[str, Any]) -> str:
    """The answer in lines."""
    lines = [f"the chain holds: {answer['entries']} entries, the opening and {answer['entries'] - 1} charges"]
    if answer["since"] is not None:
        lines.append(f"it contains the given head, and {answer['since']} entries came since")
    if answer["torn"]:
        lines.append("a crash left a part of a charge at the end, which was never acknowledged and does not count")
    for each in answer["agents"]:
        spent = f"epsilon {each['spent']:.6g} of {each['limit']:.6g} at delta {answer['delta']:g}"
        several = f" of {each['kinds']} kinds, counted as Gaussian shifts" if each["kinds"] > 1 else ""
        lines.append(f"agent {each['agent']} has spent {spent}, with {each['releases']} releases{several}")
    return "\n".join([*lines, f"head {answer['head']}"])
