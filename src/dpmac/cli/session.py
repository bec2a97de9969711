"""A scheduler's work as one session: what a person sees of it, and what is noted."""

import sys
import time
from pathlib import Path
from typing import NamedTuple

from dpmac.cli.progress import Interrupt, clock
from dpmac.runner import schedule


class Worked(NamedTuple):
    """What a session has done."""

    runs: int
    """Trained to their end."""
    interrupted: bool
    """By Ctrl-C, which ends after the piece in hand with everything saved."""


def work_through(
    out: Path, jobs: list[schedule.Job], options: schedule.Options, command: str, quiet: bool, verbose: bool = False
) -> Worked:
    """Do a scheduler's jobs, in a session of work that is noted in slices.json."""
    session, trained, shown = schedule.Slice(out, command), 0, 0.0
    statuses = schedule.work(out, jobs, options)
    with Interrupt() as interrupt:
        try:
            for status in statuses:
                piece = status.piece
                last = piece.step == piece.steps and piece.group == piece.groups - 1
                trained += len(status.job.names) if last else 0
                session.write(trained, every=5.0)
                if not quiet and (last or verbose or time.monotonic() - shown > 10):
                    shown = time.monotonic()
                    print(standing(status), file=sys.stderr, flush=True)
                if interrupt.asked:
                    break
        finally:
            statuses.close()  # type: ignore[attr-defined]
            if jobs:
                session.write(trained)
    return Worked(trained, interrupt.asked)


def standing(status: schedule.Status) -> str:
    """Where a scheduler's work stands, in a line."""
    returns = [row.value for row in status.piece.rows if row.name == "return"]
    return (
        f"{status.share:6.1%}  {clock(status.seconds)} gone, {clock(status.left)} left   "
        f"{status.index + 1}/{status.jobs} {status.job.folder.name}: {status.piece.step:,} steps, "
        f"returns {min(returns):.1f} to {max(returns):.1f}"
    )
