"""A frontier as a table and as a picture, from frontier.json alone."""

from collections.abc import Sequence
from typing import Any

HEAD = ("channel and schedule", "exact ε", "return, IQM", "95 % interval", "above silence", "limit", "seeds")


def number(value: Any, form: str = ".2f") -> str:
    """A number for people; infinity is written as JSON has it."""
    return "-" if value is None else format(float(value), form)


def interval(low: Any, high: Any, form: str = ".2f") -> str:
    return f"[{number(low, form)}, {number(high, form)}]"


def cells(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """The rows of the table as text."""
    return [cells_of(row) for row in found["rows"]]


def cells_of(row: dict[str, Any]) -> tuple[str, ...]:
    gain = row["above_silence"]
    return (
        row["label"],
        number(row["exact_epsilon"], ".4g"),
        number(row["return_iqm"]),
        interval(row["return_low"], row["return_high"]),
        "-" if gain is None else f"{number(gain['value'], '+.2f')} {interval(gain['low'], gain['high'], '+.2f')}",
        number(row["limit"]),
        str(len(row["returns"])),
    )


def table(found: dict[str, Any]) -> str:
    """The rows in aligned columns."""
    grid: Sequence[tuple[str, ...]] = [HEAD, *cells(found)]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in grid
    ]
    return "\n".join([*lines, "", f"return: {found['reward_unit']}"])


def markdown(found: dict[str, Any]) -> str:
    """The same as a table of a page."""
    rows = [HEAD, tuple("---" if k == 0 else "---:" for k in range(len(HEAD))), *cells(found)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
