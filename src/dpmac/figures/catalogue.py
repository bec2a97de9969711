"""What figures, claims and tables ask of saved results: the runs of a cell, and numbers over their seeds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpmac.experiments import (
    BUDGETS,
    FIGURES,
    METHODS,
    PAPER_BUDGETS,
    PROFILES,
    TASKS,
    VARIANTS,
    Cell,
    Figure,
    cells_of,
    name_of,
)
from dpmac.results import stats
from dpmac.results.records import Record, Results

INFORMATION = ("observation", "with_messages")


class Scale(NamedTuple):
    """Returns of the reference policies of a task."""

    random: float
    scripted: float

    @property
    def range(self) -> float:
        """What separates a policy that knows nothing from one that knows everything; effects are shares of it."""
        return self.scripted - self.random


def runs(results: Results, cell: Cell) -> list[Record]:
    """The finished runs of a cell, by seed; none if it was not trained."""
    prefix = cell.run(0).removesuffix("0")
    found = [record for name, record in results.runs.items() if name.startswith(prefix)]
    return sorted(found, key=lambda record: record.seed)


def variant_of(record: Record) -> str:
    """What a run's name says of how it differs from the plain ones of its task and method; nothing for those."""
    config = record.config
    named = record.name.removeprefix(f"{config.task}-{config.method}").removesuffix(f"-seed-{record.seed}")
    return named.removesuffix(f"-{name_of(config.budgets[0])}").removeprefix("-")


def scale_of(results: Results, task: str, variant: str = "") -> Scale | None:
    """Reference returns of a task, which every one of its runs carries."""
    for record in results.runs.values():
        if record.config.task == task and variant_of(record) == variant:
            returns = record.reference["returns"]
            return Scale(float(returns["random"][0]), float(returns["scripted"][0]))
    return None


def tasks_of(results: Results, variant: str | None = None) -> list[str]:
    """Tasks that have runs, on demand those of one variant, in the paper's order."""
    there = {record.config.task for record in results.runs.values() if variant is None or variant_of(record) == variant}
    return [task for task in ("cn", "ccn", "pp") if task in there]


def profiles_of(results: Results) -> list[str]:
    """Profiles that have runs."""
    there = {variant_of(record) for record in results.runs.values()}
    return [profile for profile in PROFILES if profile in there]


def reproduced(results: Results) -> list[Record]:
    """The runs of the reproduction, without those of frontiers, which have recipes of their own."""
    return [record for record in results.runs.values() if variant_of(record) in VARIANTS]


def missing(results: Results, variant: str = "") -> list[Cell]:
    """Cells behind the paper's figures of which no run is finished; none of the plain ones where all runs are of
    profiles."""
    if not tasks_of(results, variant) and profiles_of(results):
        return []
    wanted = dict.fromkeys(cell for name in FIGURES for cell in cells_of(name, tuple(TASKS), variant))
    return [cell for cell in wanted if not runs(results, cell)]


def final_returns(results: Results, cell: Cell, at: str = "") -> np.ndarray:
    """Final returns (seed,) on the common starts, at the cell's own noise or at that of another budget."""
    found = runs(results, cell)
    if not at:
        return np.array([record.final_return for record in found])
    return np.array([record.final["return_at"][at] for record in found if at in record.final["return_at"]], float)


def last_tenths(results: Results, cell: Cell) -> np.ndarray:
    """Final returns (seed,) as means of the last tenth of the learning curve."""
    return np.array([record.last_tenth for record in runs(results, cell)])


def curves(results: Results, cell: Cell, metric: str = "return") -> tuple[np.ndarray, np.ndarray]:
    """Steps (evaluation,) and a metric (seed, evaluation) over training."""
    found = [record for record in runs(results, cell) if metric in record.metrics]
    if not found:
        return np.zeros(0), np.zeros((0, 0))
    return found[0].steps, np.stack([record.metrics[metric] for record in found])


def final_metric(results: Results, cell: Cell, metric: str) -> np.ndarray:
    """A metric (seed,) as the mean of the last tenth of training."""
    _, values = curves(results, cell, metric)
    return values[:, -max(1, values.shape[1] // 10) :].mean(1) if values.size else np.zeros(0)


def worth(results: Results, task: str, variant: str = "") -> stats.Estimate | None:
    """What messages are worth on a task: what the best method with free ones has more than MADDPG; nothing where runs
    are missing."""
    silent = final_returns(results, Cell(task, "silent", "free", variant))
    talking = [final_returns(results, Cell(task, method, "free", variant)) for method in ("dpmac", "tarmac", "i2c")]
    there = [returns for returns in talking if len(returns)]
    if not len(silent) or not there:
        return None
    return stats.difference(max(there, key=np.mean), silent)


def kept(results: Results, cell: Cell) -> np.ndarray:
    """log₂ of the claimed ε over the exact one (seed,), the smallest of all agents; below 0 the claim is not true."""
    return np.array(
        [
            min(np.log2(float(entry["epsilon"]) / float(entry["exact_epsilon"])) for entry in record.claims)
            for record in runs(results, cell)
        ]
    )


def told(results: Results, cell: Cell) -> np.ndarray:
    """What messages add to the share of another's observation that a receiver can explain (seed,)."""
    found = [record.final.get("information") for record in runs(results, cell)]
    return np.array([item["with_messages"] - item["observation"] for item in found if item], float)


def noise_of(results: Results, cell: Cell) -> float | None:
    """σ of a cell, or nothing if it was not trained."""
    found = runs(results, cell)
    return found[0].noise if found else None


def available(results: Results, variant: str = "") -> dict[str, Figure]:
    """Figures of the paper of which something was trained; of a profile those that have two curves on some task, for
    one curve compares nothing."""
    there, least = tasks_of(results), 2 if variant else 1

    def curves_on(task: str, figure: Figure) -> int:
        return sum(bool(runs(results, Cell(task, *series, variant))) for series in figure.series)

    return {name: figure for name, figure in FIGURES.items() if any(curves_on(task, figure) >= least for task in there)}


def normalised(results: Results, tasks: Sequence[str], method: str, budget: str) -> list[np.ndarray]:
    """Normalised final returns (seed,) of each task; an empty list unless all tasks have runs."""
    found = []
    for task in tasks:
        scores = final_returns(results, Cell(task, method, budget))
        if not len(scores):
            return []
        found.append(stats.normalised(scores, runs(results, Cell(task, method, budget))[0].reference))
    return found


def label(method: str, budget: str) -> str:
    """How a series is written: `DPMAC, step ε = 0.1`."""
    name = METHODS[method][0]
    return name if method == "silent" else f"{name}, {budget_label(budget)}"


def budget_label(budget: str) -> str:
    """`free`, `step ε = 0.1` by the paper's formula, or `message ε = 1` by exact accounting."""
    if budget == "free":
        return "free"
    kind, epsilon = budget.rsplit("-", 1)
    return f"{kind.removeprefix('exact-')} ε = {epsilon}" + (" (exact)" if kind.startswith("exact") else "")


def privacy_rows(results: Results) -> list[dict[str, float | str]]:
    """Each σ of the paper's budgets on each horizon: what is claimed, and what is true per message and per episode."""
    rows = []
    for task in tasks_of(results):
        for budget in (*PAPER_BUDGETS, *(name for name in BUDGETS if name.startswith("exact"))):
            found = runs(results, Cell(task, "dpmac", budget))
            if budget == "free" or not found:
                continue
            entry = found[0].claims[0]
            rows.append(
                {
                    "task": task,
                    "budget": budget_label(budget),
                    "accountant": entry["accountant"],
                    "unit": entry["unit"],
                    "claimed": float(entry["epsilon"]),
                    "sigma": float(entry["noise"]),
                    "message": float(entry["exact_epsilon_message"]),
                    "episode": float(entry["exact_epsilon_episode"]),
                    "valid": "true" if entry["valid"] else "not true",
                }
            )
    return rows


def information_rows(results: Results) -> list[tuple[str, str, str, float, float]]:
    """(task, method, budget) and the shares of another's observation that are known without and with its messages."""
    rows = []
    for task in tasks_of(results):
        for method in METHODS:
            for budget in PAPER_BUDGETS:
                found = [record.final.get("information") for record in runs(results, Cell(task, method, budget))]
                known = [item for item in found if item]
                if known:
                    alone, told = (float(np.mean([item[key] for item in known])) for key in INFORMATION)
                    rows.append((task, method, budget, alone, told))
    return rows


def order(results: Results, other: Results) -> dict[str, dict[str, Any]]:
    """On each task, how many pairs that other results separate stand in the same order in these, and which do not."""
    mine, theirs = algorithms(results), algorithms(other)
    answer = {}
    for task in dict.fromkeys(task for task, _ in mine if any(task == known for known, _ in theirs)):
        shared = [name for known, name in mine if known == task and (task, name) in theirs]
        pairs = stats.separated({name: [run.final_return for run in theirs[task, name]] for name in shared})
        mean = {name: float(np.mean([run.final_return for run in mine[task, name]])) for name in shared}
        otherwise = [list(pair) for pair in pairs if mean[pair[0]] <= mean[pair[1]]]
        answer[task] = {"pairs": len(pairs), "same": len(pairs) - len(otherwise), "otherwise": otherwise}
    return answer


def algorithms(results: Results) -> dict[tuple[str, str], list[Record]]:
    """All runs by task and algorithm, such as `dpmac-step-1`."""
    found: dict[tuple[str, str], list[Record]] = {}
    for name, record in results.runs.items():
        algorithm = name.removeprefix(f"{record.config.task}-").rsplit("-seed-", 1)[0]
        found.setdefault((record.config.task, algorithm), []).append(record)
    return found
