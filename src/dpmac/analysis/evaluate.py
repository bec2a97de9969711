"""Returns of trained teams on starts that are the same for all, at their own budget or another."""

import dataclasses
import math
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpmac import tasks
from dpmac.agents.team import pick
from dpmac.analysis import expected
from dpmac.config import AccountantName, Budget, RunConfig, Unit, require, whole
from dpmac.results import stats
from dpmac.results.summary import summary
from dpmac.runner import noise, population, train
from dpmac.runner.population import Loaded


def evaluate(
    folder: str | PathLike[str],
    episodes: int | None = None,
    epsilon: Sequence[str | float] | str | float = (),
    delta: float | None = None,
    unit: Unit | None = None,
    accountant: AccountantName | None = None,
    all_secrets: bool = False,
    agents: int | None = None,
) -> list[dict[str, Any]]:
    """Play greedy episodes with every team of a run, and return one dict for each team, as `dpmac evaluate --json`
    prints it.

    The starts are the same for all teams and all runs of a task. By default each plays 4096 episodes, or 256 in an
    environment on the host. With `epsilon`, one budget or several of them (1, "inf", or "1:0.1:inf" with one for each
    agent), all teams are evaluated at these instead of their own; `delta`, `unit` and `accountant` describe them and
    are the run's by default. With `all_secrets` a return is the mean over all secrets and releases of each start (see
    `dpmac.analysis.expected`), instead of one draw of both. With `agents`, teams that share their parameters play with
    this many agents, in a task that has such an option.
    """
    given = [epsilon] if isinstance(epsilon, str | float | int) else epsilon
    changes = {"delta": delta, "unit": unit, "accountant": accountant}
    loaded = resized(population.load(Path(folder)), agents)
    return rows_of(loaded, episodes, [str(each) for each in given], changes, all_secrets)


def resized(loaded: Loaded, agents: int | None) -> Loaded:
    """The same teams with another number of agents, who all are as one of theirs; None: as they are."""
    if agents is None:
        return loaded
    require(
        loaded.config.networks.share_parameters,
        "only teams that share their parameters can play with another number of agents (--share-parameters)",
    )
    config = dataclasses.replace(loaded.config, task_options={**loaded.config.task_options, "agents": agents})
    program = population.check(config)
    leaves, like = jax.tree.leaves(loaded.teams), jax.eval_shape(program.team, jax.random.key(0))
    shapes = [leaf.shape for leaf in jax.tree.leaves(like)]
    fits = all(leaf.shape[2:] == shape[1:] for leaf, shape in zip(leaves, shapes, strict=True))
    require(fits, f"the networks of {config.method} depend on the number of agents")
    parts = [jnp.broadcast_to(leaf[:, :1], (len(leaf), *shape)) for leaf, shape in zip(leaves, shapes, strict=True)]
    scale = noise.scales_of(config, program, [run.budget for run in loaded.runs])
    teams = jax.tree.unflatten(jax.tree.structure(like), parts)
    return loaded._replace(config=config, program=program, teams=teams, scale=scale)


def rows_of(
    loaded: Loaded, episodes: int | None, epsilon: Sequence[str], changes: dict[str, Any], all_secrets: bool = False
) -> list[dict[str, Any]]:
    """`evaluate` for a population that is loaded."""
    check_episodes(episodes)
    task = loaded.program.task
    require(not all_secrets or expected.applies(task), f"{task.name} has no secrets that can be set one after another")
    budgets = budgets_of(loaded.config, epsilon, changes)
    if budgets:
        population.check(dataclasses.replace(loaded.config, budgets=tuple(budgets)))
    count = episodes or most_of(loaded)
    indices = range(len(loaded.runs))
    return [score(loaded, index, budget, count, all_secrets) for budget in budgets or [None] for index in indices]


def check_episodes(episodes: int | None) -> None:
    fits = episodes is None or whole(episodes, 2, 10**5)
    require(fits, f"episodes must be a whole number from 2 to 100,000, not {episodes}")


def most_of(loaded: Loaded) -> int:
    """Episodes that finished teams are scored on unless somebody says otherwise."""
    return 256 if tasks.abilities(loaded.program.task).at_once else train.STARTS


def closing(folder: Path) -> dict[str, Any]:
    """What a finished command says of a run: returns by budget on common starts, with an interval, and what the privacy
    claim is worth. A short run is scored on no more episodes than it was trained on, but at least on those of a point
    of its curve.

    The interval is Student's over seeds, or where there is only one over its starts.
    """
    loaded = population.load(folder)
    training = loaded.program.training
    trained = loaded.program.iterations * training.episodes
    episodes = min(most_of(loaded), max(training.evaluation_episodes, trained, 2))
    return summary(folder, loaded.program.task.reward_unit, loaded.step, rows_of(loaded, episodes, (), {}))


def budgets_of(config: RunConfig, epsilon: Sequence[str], changes: dict[str, Any]) -> list[Budget]:
    """Budgets to evaluate every team at, like the run's private one but for the changes that are not None; none for
    each team's own."""
    given = {name: value for name, value in changes.items() if value is not None}
    require(bool(epsilon) or not given, f"--{next(iter(given), '')} describes --epsilon, which is not given")
    like = next((budget for budget in config.budgets if budget.private), config.budgets[0])
    return [dataclasses.replace(like, epsilon=Budget.parse(text).epsilon, **given) for text in epsilon]


def score(loaded: Loaded, index: int, other: Budget | None, episodes: int, all_secrets: bool = False) -> dict[str, Any]:
    """What one team earns, at its own budget or at another one."""
    run = loaded.runs[index]
    budget = other or run.budget
    scale = noise.scale_of(loaded.config, loaded.program, budget)
    if all_secrets:
        team, key = pick(loaded.teams, index), jax.random.key(train.EVALUATION_SEED)
        returns = np.asarray(expected.expected(loaded.program, team, scale, key, episodes), float)
    else:
        team, one = pick(loaded.teams, slice(index, index + 1)), pick(scale, None)
        returns = np.asarray(population.scores(loaded.program, team, one, episodes)[0], float)
    margin = 1.96 * returns.std(ddof=1) / math.sqrt(episodes)
    return {
        "return_mean": float(returns.mean()),
        "return_ci95": [float(returns.mean() - margin), float(returns.mean() + margin)],
        "return_iqm": stats.iqm(returns),
        "reward_unit": loaded.program.task.reward_unit,
        "episodes": episodes,
        "epsilon": budget.label if other else run.label,
        "trained_epsilon": run.label,
        "seed": run.seed,
        "step": loaded.step,
        "noise": scale.value.tolist(),
    }
