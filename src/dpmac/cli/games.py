"""`dpmac games binary-sums | cgp | rounds`."""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dpmac import cli
from dpmac.config import BadInput, check_seed, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpmac.games.cgp import Game
    from dpmac.games.study import Study

COMMANDS = {
    "binary-sums": "guess a sum of bits that are told under randomised response",
    "cgp": "the collaborative game with privacy: conditions, potentials, equilibria",
    "rounds": "multiple-round sums: equilibrium, potential, regret",
}
Family = Literal["binary-sums", "quadratic", "counterexample"]


def run(argv: Sequence[str]) -> None:
    from dpmac.games import GameError

    try:
        cli.choose("dpmac games", COMMANDS, argv, lambda name: globals()[name.replace("-", "_")])
    except GameError as error:
        raise BadInput(str(error)) from None


def save(figure: "Figure", path: str) -> None:
    """Write a picture in the format that its name ends with."""
    allowed = figure.canvas.get_supported_filetypes()
    ending = path.rpartition(".")[2]
    require(ending in allowed, f"a picture's name must end with one of {', '.join(allowed)}, not {path!r}")
    figure.savefig(path, dpi=150)


@dataclass(frozen=True)
class BinarySums:
    """Error of guessing the sum of all bits: naive, corrected and Bayes receiver, in closed form and played."""

    agents: int = 5
    """N, at least 2."""
    epsilon: tuple[float, ...] = ()
    """ε of each agent, or one for all (1 unless --p is given); inf tells the bit as it is."""
    p: tuple[float, ...] = ()
    """Instead of ε: the probability of a coin in place of the bit, for each agent or for all."""
    prior: tuple[float, ...] = (0.5,)
    """P(b = 1), for each agent or for all: what the Bayes receiver believes, and what bits are drawn from."""
    bits: tuple[int, ...] = ()
    """Fixed bits, one for each agent, instead of drawn ones."""
    rounds: int = 1_000_000
    """Rounds to play."""
    seed: int = 0
    plot: str = ""
    """Write a picture of error against ε here (.png, .svg, .pdf)."""
    json: bool = False
    """Print JSON."""


def binary_sums(argv: Sequence[str]) -> None:
    import numpy as np

    from dpmac.games import binary_sums as sums

    example = "dpmac games binary-sums --agents 5 --epsilon 1 --plot sums.png"
    options = cli.parse(BinarySums, argv, "dpmac games binary-sums", example)
    check_seed(options.seed)
    require(not (options.epsilon and options.p), "give either --epsilon or --p, not both")
    require(
        not options.bits or len(options.bits) == options.agents, f"--bits needs {options.agents} bits, one an agent"
    )
    require(set(options.bits) <= {0, 1}, f"bits must be 0 or 1, not {options.bits}")
    given = options.p or sums.perturbation(options.epsilon or (1.0,))
    p = sums.probabilities("p", given, options.agents)
    prior = sums.probabilities("prior", options.prior, options.agents)
    q, rng = np.array(options.bits or prior, float), np.random.default_rng(options.seed)
    rows = []
    for name, receiver in sums.receivers(p, prior).items():
        exact, played = sums.moments(receiver, p, q), sums.simulate(receiver, p, q, options.rounds, rng)
        closed_form = {key: value.tolist() for key, value in exact._asdict().items()}
        simulated = {key: value.tolist() for key, value in played._asdict().items()}
        rows.append({"receiver": name, "closed_form": closed_form, "simulated": simulated})
    answer = {"agents": options.agents, "epsilon": sums.privacy(p).tolist(), "p": p.tolist(), "prior": prior.tolist()}
    answer |= {"bits": list(options.bits) or None, "rounds": options.rounds, "receivers": rows}
    if len(rows) < 3:
        answer["note"] = "no corrected receiver: where p = 1 a message says nothing and no unbiased guess exists"
    if options.plot:
        from dpmac.games import plots

        save(
            plots.error_against_epsilon(options.agents, prior, min(options.rounds, 200_000), options.seed), options.plot
        )
    cli.emit(answer, options.json, lambda: describe_sums(answer))


def describe_sums(answer: dict[str, Any]) -> str:
    """A table with one line for each receiver and agent; agents that do not differ share one."""
    columns = ("bias", "variance", "mse")
    lines = [
        f"{'receiver':<10} {'agent':>5} {'epsilon':>9} {'bias':>10} {'variance':>10} {'mse':>10} {'mse played':>11}"
    ]
    for row in answer["receivers"]:
        exact = [tuple(row["closed_form"][column][i] for column in columns) for i in range(answer["agents"])]
        alike = len({tuple(f"{number:.9f}" for number in numbers) for numbers in exact}) == 1
        for i in range(1 if alike else answer["agents"]):
            numbers = " ".join(f"{number if abs(number) > 1e-12 else 0:>10.5g}" for number in exact[i])
            who, epsilon = ("each" if alike else f"{i + 1}"), answer["epsilon"][i]
            played = row["simulated"]["mse"][i]
            lines.append(f"{row['receiver']:<10} {who:>5} {epsilon:>9.4g} {numbers} {played:>11.5g}")
    return "\n".join([*lines, *([answer["note"]] if "note" in answer else [])])


@dataclass(frozen=True)
class Cgp:
    """A collaborative game with privacy: the paper's conditions, potentials, equilibria and best-response dynamics."""

    family: Family = "binary-sums"
    """binary-sums: V^M = −½(p₁ + p₂)². quadratic: the same with a coupling. counterexample: to the paper's theorem."""
    game: str = ""
    """Your own as package.module:Name: a dpmac.games.cgp.Game, or a function without arguments that returns one."""
    B: tuple[float, ...] = ()
    """Weights of the benefit, one a player, above 0; the game's own by default."""
    C: tuple[float, ...] = ()
    """Weights of the privacy loss, one a player; the game's own by default."""
    clipped: bool = False
    """Clip the benefit of binary sums at 0, as the paper's definition demands."""
    coupling: float | None = None
    """Of the quadratic family: 1 is binary sums, 0.5 by default."""
    grid: int = 160
    """Cells along each axis, a multiple of 8, for conditions and for equilibria without a closed form."""
    tolerance: float | None = None
    """Regret up to which a point is an approximate equilibrium; by default a millionth of the utilities' range."""
    start: tuple[float, ...] = (0.0, 0.0)
    """Where best-response dynamics start."""
    plot: str = ""
    """Write a picture of best responses, equilibria and the potential here (.png, .svg, .pdf)."""
    json: bool = False
    """Print JSON."""


def cgp(argv: Sequence[str]) -> None:
    from dpmac.games.study import study

    example = "dpmac games cgp --family binary-sums --clipped --B 1 1 --C 0.4 0.3 --plot game.png"
    options = cli.parse(Cgp, argv, "dpmac games cgp", example)
    game = chosen(options)
    studied = study(game, options.grid, options.tolerance, two("--start", options.start) or (0.0, 0.0))
    answer = {"game": options.game or options.family, "B": game.B, "C": game.C, **as_data(game, studied)}
    if options.plot:
        from dpmac.games import plots

        save(plots.square(game, studied), options.plot)
    cli.emit(answer, options.json, lambda: describe_game(answer))


def chosen(options: Cgp) -> "Game":
    """The game that the options name, with their weights where they give any."""
    from dpmac.games import families

    family = "" if options.game else options.family
    require(not options.clipped or family == "binary-sums", "--clipped goes with --family binary-sums")
    require(options.coupling is None or family == "quadratic", "--coupling goes with --family quadratic")
    changes: dict[str, Any] = {name: given for name in "BC" if (given := two(f"--{name}", getattr(options, name)))}
    if options.game:
        return replace(load(options.game), **changes, **({"closed_form": None} if changes else {}))
    if options.coupling is not None:
        changes["coupling"] = options.coupling
    if options.clipped:
        changes["clipped"] = True
    makers = {"binary-sums": families.binary_sums, "quadratic": families.quadratic}
    return makers.get(family, families.counterexample)(**changes)


def two(name: str, numbers: tuple[float, ...]) -> tuple[float, float] | None:
    """One number a player, or None where none is given."""
    require(len(numbers) in (0, 2), f"{name} needs two numbers, one a player, not {len(numbers)}")
    return (numbers[0], numbers[1]) if numbers else None


def load(name: str) -> "Game":
    """A user's game from package.module:Name, looked for in the working directory too."""
    from dpmac.games.cgp import Game

    module, _, attribute = name.partition(":")
    require(bool(module and attribute), f"a game of your own is named package.module:Name, not {name!r}")
    if "" not in sys.path:
        sys.path.append("")  # an installed command does not look in the working directory
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"cannot load the game {name!r}: {error}") from None
    game = found() if callable(found) else found
    if not isinstance(game, Game):
        raise BadInput(f"{name!r} must be a dpmac.games.cgp.Game, or return one, not {type(game).__name__}")
    return game


def as_data(game: "Game", studied: "Study") -> dict[str, Any]:
    """A study as plain data."""
    found, cycle = studied.equilibria, studied.cycle
    if found.exact is not None:
        points = [
            {**s._asdict(), "trivial": s.trivial, "utility": [game.utility(n, *s.start) for n in (0, 1)]}
            for s in found.exact
        ]
        equilibria = {"kind": "exact", "found": points}
    else:
        points = [{**a._asdict(), "utility": [game.utility(n, *a.point) for n in (0, 1)]} for a in found.approximate]
        equilibria = {"kind": "approximate", "grid": found.grid, "tolerance": found.tolerance, "found": points}
    return {
        "conditions": [condition._asdict() for condition in studied.conditions],
        "theorem": studied.theorem,
        "guarantee": studied.guarantee,
        "potential": {"exact": studied.exact_potential, "weights": studied.weights, "worst_cycle": cycle._asdict()},
        "equilibria": equilibria,
        "dynamics": {
            order: {"outcome": walk.outcome, "period": walk.period, "rounds": len(walk.path) - 1, "end": walk.path[-1]}
            for order, walk in studied.walks.items()
        },
    }


def describe_game(answer: dict[str, Any]) -> str:
    failing = [c for c in answer["conditions"] if c["verdict"] != "holds"]
    holding = f"{len(answer['conditions']) - len(failing)} of the paper's {len(answer['conditions'])} conditions hold"
    lines = [f"{answer['game']}, B = {answer['B']}, C = {answer['C']}", ""]
    lines += [f"{holding}; these do not:" if failing else holding]
    lines += [f"  {c['verdict']:<9}  {c['of']}: {c['name']}  {c['where']}".rstrip() for c in failing]
    exact, weights = answer["potential"]["exact"], answer["potential"]["weights"]
    potential = "exact" if exact else f"weighted, weights {weights[0]:g} and {weights[1]:g}" if weights else "none"
    lines += ["", f"theorem:    {answer['theorem']}", f"potential:  {potential}"]
    lines += [f"guarantee:  {answer['guarantee']}", ""]
    found = answer["equilibria"]
    if found["kind"] == "exact":
        lines.append("all pure equilibria, in closed form:")
        for segment in found["found"]:
            start, end = pair(segment["start"]), pair(segment["end"])
            where = start if start == end else f"every point from {start} to {end}"
            lines.append(f"  {where}{'  (trivial: nobody says anything)' if segment['trivial'] else ''}")
    else:
        lines.append(
            f"approximate equilibria (searched from a grid of {found['grid']} cells; none is proven; "
            f"no deviation found gains more than {found['tolerance']:.2g}):"
        )
        for group in found["found"]:
            box = (
                ""
                if group["low"] == group["high"]
                else f", one of those from {pair(group['low'])} to {pair(group['high'])}"
            )
            lines.append(f"  {pair(group['point'])}  regret {group['regret']:.2g}{box}")
        lines += [] if found["found"] else ["  none found"]
    lines.append("")
    for order, walk in answer["dynamics"].items():
        what = f"a cycle of {walk['period']} rounds" if walk["outcome"] == "cycle" else walk["outcome"]
        lines.append(f"{order} best responses: {what}, at {pair(walk['end'])} after {walk['rounds']} rounds")
    return "\n".join(lines)


def pair(point: tuple[float, float]) -> str:
    return f"({point[0]:.6g}, {point[1]:.6g})"


@dataclass(frozen=True)
class RoundsOptions:
    """Multiple-round sums: who gives when in equilibrium, never and always sharing beside it, the potential tested."""

    agents: int = 3
    """N, at least 2."""
    savings: tuple[float, ...] = (1.0,)
    """x₀ of each agent, or one for all."""
    alpha: float = 0.3
    """α: what savings of 1 earn in a round."""
    beta: float = 0.4
    """β: what full privacy is worth in a round."""
    horizon: int = 5
    """T, the rounds."""
    discount: float = 1.0
    """g, in [0, 1]."""
    deviations: int = 1000
    """Random unilateral deviations that either potential is tested with."""
    seed: int = 0
    plot: str = ""
    """Write a picture of values and of the equilibrium over α and β here (.png, .svg, .pdf)."""
    json: bool = False
    """Print JSON."""


def rounds(argv: Sequence[str]) -> None:
    import numpy as np

    from dpmac.games import rounds as game_of

    example = "dpmac games rounds --agents 3 --savings 1 0.3 2 --horizon 5 --discount 0.9"
    options = cli.parse(RoundsOptions, argv, "dpmac games rounds", example)
    check_seed(options.seed)
    n = options.agents
    require(len(options.savings) in (1, n), f"--savings must be one number or one for each of {n} agents")
    require(options.deviations >= 1, f"--deviations must be at least 1, not {options.deviations}")
    game = game_of.Rounds(options.alpha, options.beta, options.horizon, options.discount)
    savings = np.broadcast_to(np.array(options.savings), (n,))
    played = game_of.equilibrium(game, savings)
    best = float(game_of.values(game, played).mean())
    strategies = {
        "equilibrium": played,
        "never share": game_of.never_share(game, savings),
        "always share, at once": game_of.always_share(game, savings),
        "always share, evenly": game_of.always_share(game, savings, evenly=True),
    }
    potentials = {"mended": game_of.mended_potential, "printed": game_of.printed_potential}
    answer = {
        "agents": [
            {
                "saving": float(x),
                "gives": game_of.when_to_give(game, float(x)),
                "own_value": float(value),
                "dynamic_program": game_of.dynamic_program(game, float(x)),
            }
            for x, value in zip(savings, game_of.own_values(game, played), strict=True)
        ],
        "strategies": {
            name: {
                "mean_value": float(value := game_of.values(game, episode).mean()),
                "share_of_equilibrium": float(value / best) if best > 0 else None,
                "regret": game_of.regret(game, episode).tolist(),
            }
            for name, episode in strategies.items()
        },
        "largest_potential_gap": {
            name: game_of.largest_gap(game, J, savings, options.deviations, np.random.default_rng(options.seed))
            for name, J in potentials.items()
        },
        "guarantee": "each strategy is best whatever others do, while their policies do not react to messages; "
        "no guarantee that it is the only equilibrium, nor that J is a potential, once policies react",
    }
    if options.plot:
        from dpmac.games import plots

        save(plots.when_and_where(game, float(savings.mean())), options.plot)
    cli.emit(answer, options.json, lambda: describe_rounds(answer))


def describe_rounds(answer: dict[str, Any]) -> str:
    gives = {"never": "never gives", "first": "gives all in the first round", "last": "gives all in the last round"}
    lines = ["equilibrium:"]
    for i, agent in enumerate(answer["agents"]):
        who, value, program = f"agent {i + 1}, saving {agent['saving']:g}", agent["own_value"], agent["dynamic_program"]
        lines.append(f"  {who}: {gives[agent['gives']]}; own value {value:.6g}, {program:.6g} by dynamic programming")
    lines += ["", f"{'strategy of all':<24} {'mean value':>11} {'of equilibrium':>15} {'largest regret':>15}"]
    for name, row in answer["strategies"].items():
        share = "" if row["share_of_equilibrium"] is None else f"{row['share_of_equilibrium']:.1%}"
        lines.append(f"{name:<24} {row['mean_value']:>11.5g} {share:>15} {max(row['regret']):>15.5g}")
    lines += ["", "largest |change of V_i − change of J| over random unilateral deviations:"]
    lines += [f"  {name} potential: {gap:.3g}" for name, gap in answer["largest_potential_gap"].items()]
    return "\n".join([*lines, "", f"guarantee: {answer['guarantee']}"])
