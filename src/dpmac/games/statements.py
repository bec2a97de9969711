"""The paper's statements about games, by the labels of its source, and verdicts about them.

A statement has the title that the paper prints and the label that its source gives it, so that a reader finds it in
either. A finding is a verdict about one statement in one game, with the reason in a sentence.
"""

import textwrap
from collections.abc import Sequence
from typing import Literal, NamedTuple

Verdict = Literal["holds", "fails", "undecided", "does not apply"]

STATEMENTS = {
    "theorem: randomized response privacy": "Proposition (randomised response)",
    "err_i": "Motivating Example, bias of the naive guess",
    "g_i^A": "Motivating Example, the transformed guess is unbiased",
    "def: privacy loss function": "Definition (Privacy loss function)",
    "def: benefit function": "Definition (Benefit function)",
    "def: value function in CGP": "Definition (Value function)",
    "def: potential game": "Definition (Potential game)",
    "theorem: NE in CGP": "Theorem (CGP's NE guarantee)",
    "proof of theorem: NE in CGP": "Proof of Theorem (CGP's NE guarantee): its condition makes an exact potential",
    "theorem: single round binary sums": "Theorem (NE guarantee in single round binary sums)",
    "asmp: 1": "Assumption 1 (convex sets)",
    "asmp: 2": "Assumption 2 (smooth rewards)",
    "asmp: 3": "Assumption 3 (smooth transition, regular constraints)",
    "asmp: 4": "Assumption 4 (proper rewards, bounded level sets)",
    "theorem: mpg NE": "Theorem (Macua et al.: when a game is a Markov potential game)",
    "theorem: NE Guarantee in Multiple Round Sums": "Theorem (NE guarantee in multiple round sums)",
    "theorem: NE Guarantee in Multiple Round Sums in appendix": "The same theorem, as the appendix states it",
}
"""Label in the paper's source → kind and title. The two parts of the Motivating Example go by their symbols, and the
proof by its theorem: they have no label of their own."""


class Finding(NamedTuple):
    """A verdict about one statement of the paper in one game."""

    label: str
    """A key of `STATEMENTS`."""
    title: str
    verdict: Verdict
    reason: str


class Condition(NamedTuple):
    """One demand of a statement on the game, and whether a numerical check bears it out."""

    of: str
    """The label of the statement that asks for it."""
    name: str
    verdict: Literal["holds", "fails", "undecided"]
    where: str = ""
    """The worst place, unless it holds."""


def finding(label: str, verdict: Verdict, reason: str) -> Finding:
    """A finding with the title that belongs to the label."""
    return Finding(label, STATEMENTS[label], verdict, reason)


def conclude(label: str, conditions: Sequence[Condition]) -> Finding:
    """The finding about a definition or an assumption: it holds unless one of its conditions does not."""
    own = [condition for condition in conditions if condition.of == label]
    broken = [condition for condition in own if condition.verdict != "holds"]
    if not broken:
        return finding(label, "holds", f"no violation found; conditions checked: {len(own)}")
    verdict = "fails" if any(condition.verdict == "fails" for condition in broken) else "undecided"
    named = {kind: [f"{c.name}, {c.where}" for c in broken if c.verdict == kind] for kind in ("fails", "undecided")}
    said = [f"{kind}: {'; '.join(names)}" for kind, names in named.items() if names]
    return finding(label, verdict, "; ".join(said))


def in_words(findings: Sequence[Finding], width: int = 110) -> str:
    """One line for each verdict and statement, its reason indented below."""
    lines = ["statements of the paper:"]
    for found in findings:
        lines.append(f"  {found.verdict:<14}  {found.title}  [{found.label}]")
        lines += textwrap.wrap(found.reason, width, initial_indent=" " * 18, subsequent_indent=" " * 18)
    return "\n".join(lines)
