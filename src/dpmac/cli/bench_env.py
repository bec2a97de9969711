"""`dpmac bench env`: environment steps per second, beside other people's environments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpmac import cli
from dpmac.config import require


@dataclass(frozen=True)
class Options:
    """Measure environment steps per second under random actions, without compile time.

    On cn also measure JaxMARL, VMAS and mpe2, if the extra `bench` is installed, and give the ratio to each. mpe2 has
    no parallel episodes and plays them one after the other.
    """

    task: str = "cn"
    """A task by name, or as package.module:Name."""
    set: tuple[str, ...] = ()
    """Options of the task, as KEY=VALUE."""
    episodes: tuple[int, ...] = (1, 16, 256, 4096)
    """Numbers of parallel episodes."""
    peers: tuple[str, ...] = ()
    """Some of jaxmarl, jaxmarl-step_env, vmas, mpe2, or the word none; by default all that are installed."""
    rounds: int = 5
    """Repetitions for each environment; medians are reported."""
    seconds: float = 0.5
    """Approximate seconds for each repetition."""
    json: bool = False
    """Print JSON."""


def run_env(argv: Sequence[str]) -> None:
    options = cli.parse(Options, argv, "dpmac bench env", "dpmac bench env --episodes 1 256 --json")
    require(options.rounds >= 1, f"rounds must be at least 1, not {options.rounds}")
    require(options.seconds > 0, f"seconds must be above 0, not {options.seconds}")
    require(min(options.episodes, default=0) >= 1, "episodes must be whole numbers from 1")
    from dpmac import plugins, tasks
    from dpmac.analysis import bench_env

    task = tasks.make(options.task, **plugins.settings(options.set))
    peers = bench_env.peers_of(options.peers, plain=options.task == "cn" and not options.set)
    each = [bench_env.compare(task, count, peers, options.rounds, options.seconds) for count in options.episodes]
    rows = [row for found in each for row in found]
    cli.emit(rows, options.json, lambda: table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = [f"{'episodes':>8}  {'':<8} {'steps/s':>12}  {'dpmac is':>9}  {'to compile':>10}"]
    for row in rows:
        ratio = "" if row["name"] == "dpmac" else f"{row['ratio']:.1f} ×"
        speed, spent = f"{row['steps_per_second']:,.0f}", f"{row['compile_seconds']:.1f} s"
        lines.append(f"{row['episodes']:>8}  {row['name']:<8} {speed:>12}  {ratio:>9}  {spent:>10}")
    return "\n".join(lines)
