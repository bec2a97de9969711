"""`dpmac evaluate`: returns of trained teams on starts that are the same for all, at their own budget or another."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.table import Table

from dpmac.cli import drawn, emit, parse
from dpmac.config import AccountantName, Unit

if TYPE_CHECKING:
    from dpmac.runner.population import Loaded


@dataclass(frozen=True)
class Evaluate:
    """Play greedy episodes with every team of a run. The starts are the same for all teams and all runs of a task.

    With --epsilon, teams are evaluated at other budgets than those of their training.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    episodes: int | None = None
    """Episodes for each team, 2 to 100000; by default 4096, or 256 for an environment on the host."""
    epsilon: tuple[str, ...] = ()
    """Budgets for all teams, instead of their own: 1, inf, or one for each agent as 1:0.1:inf."""
    delta: float | None = None
    """δ of these budgets; by default the run's."""
    unit: Unit | None = None
    """What these budgets cover: one message or an episode; by default as in the run."""
    accountant: AccountantName | None = None
    """Accountant that turns these budgets into noise; by default the run's."""
    all_secrets: bool = False
    """Average each start over all secrets and, if they are few, all releases, instead of one draw of both."""
    agents: int | None = None
    """Another number of agents, for teams that share their parameters and tasks that have such an option."""
    json: bool = False
    """Print the result as JSON."""


def run(argv: Sequence[str]) -> None:
    options = parse(Evaluate, argv, "dpmac evaluate", "dpmac evaluate runs/ccn --epsilon 1 inf")
    from dpmac.analysis import evaluate
    from dpmac.cli import progress
    from dpmac.runner import population

    evaluate.check_episodes(options.episodes)
    progress.use_cache()
    loaded = evaluate.resized(population.load(options.folder), options.agents)
    changes = {name: getattr(options, name) for name in ("delta", "unit", "accountant")}
    rows = evaluate.rows_of(loaded, options.episodes, options.epsilon, changes, options.all_secrets)
    emit(rows, options.json, lambda: table(options.folder, loaded, rows))


def table(folder: Path, loaded: "Loaded", rows: list[dict[str, Any]]) -> str:
    """The teams for people, and the middle of each budget's seeds."""
    from dpmac.results import stats

    config = loaded.config
    grid = Table(title=f"{folder}: {config.method} on {config.task} after {loaded.step:,} steps", title_justify="left")
    for name in ("trained at ε", "evaluated at ε", "seed", "return", "95 % interval"):
        grid.add_column(name, justify="right")
    kinds = dict.fromkeys((row["trained_epsilon"], row["epsilon"]) for row in rows)
    for kind in kinds:
        seeds = [row for row in rows if (row["trained_epsilon"], row["epsilon"]) == kind]
        for row in seeds:
            low, high = row["return_ci95"]
            grid.add_row(*kind, str(row["seed"]), f"{row['return_mean']:.2f}", f"{low:.2f} to {high:.2f}")
        middle = stats.iqm([row["return_mean"] for row in seeds])
        grid.add_row(*kind, "IQM", f"{middle:.2f}", "", end_section=True)
    unit, episodes = rows[0]["reward_unit"], rows[0]["episodes"]
    return drawn(grid) + f"return: sum of an episode's rewards ({unit}), {episodes} episodes on common starts"
