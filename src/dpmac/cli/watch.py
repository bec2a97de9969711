"""`dpmac watch`: a film of an episode with its messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from dpmac.cli import emit, parse


@dataclass(frozen=True)
class Watch:
    """Make a film of a greedy episode of a trained team. Arrows are received messages: wide for long vectors,
    faint for an old message that is still held. The cells below show the last message of each agent. A team with noise
    is also shown without it, from the same start."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    out: Path
    """File of the film: .gif, .webp or .png."""
    epsilon: str | None = None
    """Budget of the team; by default the first one with noise."""
    seed: int | None = None
    """Seed of the team; by default the first one."""
    episode: int = 0
    """Number of the start."""
    size: int = 360
    """Side length of a picture in pixels, 16 to 2048."""
    fps: float = 5
    """Steps per second, 0.1 to 100."""
    json: bool = False
    """Print the result as JSON."""


def run(argv: Sequence[str]) -> None:
    options = parse(Watch, argv, "dpmac watch", "dpmac watch runs/ccn --out ccn.gif")
    from dpmac.analysis import film
    from dpmac.cli import progress

    progress.use_cache()
    saved = film.save(
        options.folder, options.out, options.epsilon, options.seed, options.episode, options.size, options.fps
    )
    emit({"film": str(saved)}, options.json, lambda: str(saved))
