"""`dpmac games binary-sums | cgp | rounds`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dpmac import cli, plugins
from dpmac.config import BadInput, check_seed, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpmac.games.cgp import Game

COMMANDS = {
    "binary-sums": "guess a sum of bits that are told under randomised response",
    "cgp": "the collaborative game with privacy: the paper's statements, potentials, equilibria",
    "rounds": "multiple-round sums: the paper's statements, equilibrium, potential, regret",
}
Family = Literal["binary-sums", "guesses", "quadratic", "counterexample"]
Utility = Literal["error", "bias"]


@dataclass(frozen=True)
class BinarySums:
    """Error of the guessed sum of all bits, for the naive, the corrected and the Bayes receiver: in closed form and
    simulated."""

    agents: int = 5
    """N, at least 2."""
    epsilon: tuple[float, ...] = ()
    """ε of each agent, or one for all (1 unless --p is given); inf sends the bit unchanged."""
    p: tuple[float, ...] = ()
    """Instead of ε: the probability that a coin replaces the bit, for each agent or for all."""
    prior: tuple[float, ...] = (0.5,)
    """P(b = 1), for each agent or for all: the prior of the Bayes receiver, and the distribution of the bits."""
    bits: tuple[int, ...] = ()
    """Fixed bits, one for each agent, instead of random ones."""
    rounds: int = 1_000_000
    """Rounds to simulate."""
    seed: int = 0
    """Seed of the simulation."""
    plot: str = ""
    """Write a picture of error against ε here (.png, .svg, .pdf)."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class Cgp:
    """A collaborative game with privacy: the paper's statements, potentials, equilibria and best-response dynamics."""

    family: Family | None = None
    """binary-sums (the default): V^M = −½(p₁ + p₂)². guesses: V^M from the guesses of two agents. quadratic:
    binary-sums with a coupling. counterexample: to the proof of the paper's theorem, and with --C 10 10 to the
    theorem."""
    game: str = ""
    """Your own as package.module:Name: a dpmac.games.cgp.Game, or a function without arguments that returns one."""
    B: tuple[float, ...] = ()
    """Weights of the benefit, one for each player, above 0; the game's own by default."""
    C: tuple[float, ...] = ()
    """Weights of the privacy loss, one for each player; the game's own by default."""
    clipped: bool = False
    """Clip the benefit of binary sums at 0, as the paper's definition demands."""
    coupling: float | None = None
    """Of the quadratic family: 1 is binary sums, 0.5 by default."""
    utility: Utility | None = None
    """Of the family guesses: minus the expected absolute error (the default), or minus the absolute bias."""
    grid: int = 160
    """Cells along each axis, a multiple of 8, for conditions and for equilibria without a closed form."""
    tolerance: float | None = None
    """Regret up to which a point is an approximate equilibrium, for games without a closed form; by default a
    millionth of the utilities' range."""
    start: tuple[float, ...] = (0.0, 0.0)
    """Where best-response dynamics start."""
    plot: str = ""
    """Write a picture of best responses, equilibria and the potential here (.png, .svg, .pdf)."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class Rounds:
    """Multiple-round sums: the paper's statements, the equilibrium, and the strategies that never or always share."""

    agents: int = 3
    """N, at least 2."""
    savings: tuple[float, ...] = (1.0,)
    """x₀ of each agent, or one for all."""
    alpha: float = 0.3
    """α: reward of savings of 1 in a round."""
    beta: float = 0.4
    """β: reward of full privacy in a round."""
    horizon: int = 5
    """T, the number of rounds."""
    discount: float = 1.0
    """g, in [0, 1]."""
    deviations: int = 1000
    """Random unilateral deviations that either potential is tested with."""
    seed: int = 0
    """Seed of the simulation."""
    plot: str = ""
    """Write a picture of values and of the equilibrium over α and β here (.png, .svg, .pdf)."""
    json: bool = False
    """Print JSON."""


def run(argv: Sequence[str]) -> None:
    from dpmac.games import GameError

    try:
        cli.choose("dpmac games", COMMANDS, argv, lambda name: globals()[name.replace("-", "_")])
    except GameError as error:
        raise BadInput(str(error)) from None


def binary_sums(argv: Sequence[str]) -> None:
    example = "dpmac games binary-sums --agents 5 --epsilon 1 --plot sums.png"
    options = cli.parse(BinarySums, argv, "dpmac games binary-sums", example)
    from dpmac.games import answers
    from dpmac.games import binary_sums as sums

    check_seed(options.seed)
    require(not (options.epsilon and options.p), "give either --epsilon or --p, not both")
    epsilon = sums.privacy(options.p) if options.p else options.epsilon or (1.0,)
    p = sums.probabilities("p", options.p or sums.perturbation(epsilon), options.agents)
    prior = sums.probabilities("prior", options.prior, options.agents)
    answer = answers.sums_answer(p, epsilon, prior, options.bits, options.rounds, options.seed)
    played = min(options.rounds, 200_000)
    draw(options.plot, lambda of: of.error_against_epsilon(options.agents, prior, played, options.seed))
    cli.emit(answer, options.json, lambda: answers.sums_words(answer))


def cgp(argv: Sequence[str]) -> None:
    example = "dpmac games cgp --family counterexample --C 10 10"
    options = cli.parse(Cgp, argv, "dpmac games cgp", example)
    from dpmac.games import answers
    from dpmac.games.study import study

    name, game = chosen(options)
    studied = study(game, options.grid, options.tolerance, two("--start", options.start) or (0.0, 0.0))
    answer = answers.game_answer(name, game, studied)
    draw(options.plot, lambda of: of.square(game, studied))
    cli.emit(answer, options.json, lambda: answers.game_words(answer))


def rounds(argv: Sequence[str]) -> None:
    example = "dpmac games rounds --agents 3 --savings 1 0.3 2 --horizon 5 --discount 0.9"
    options = cli.parse(Rounds, argv, "dpmac games rounds", example)
    from dpmac.games import answers
    from dpmac.games import rounds as sums

    check_seed(options.seed)
    n = options.agents
    require(n >= 2, f"multiple-round sums need at least 2 agents, not {n}")
    require(len(options.savings) in (1, n), f"--savings must be one number or one for each of {n} agents")
    savings = options.savings * n if len(options.savings) == 1 else options.savings
    game = sums.Rounds(options.alpha, options.beta, options.horizon, options.discount)
    answer = answers.rounds_answer(game, savings, options.deviations, options.seed)
    draw(options.plot, lambda of: of.when_and_where(game, sum(savings) / len(savings)))
    cli.emit(answer, options.json, lambda: answers.rounds_words(answer))


def chosen(options: Cgp) -> "tuple[str, Game]":
    """The name of the game that the options choose, and the game, with their weights where they give any."""
    from dpmac.games import families

    require(not (options.game and options.family), "give either --family or --game, not both")
    family = "" if options.game else options.family or "binary-sums"
    require(not options.clipped or family == "binary-sums", "--clipped goes with --family binary-sums")
    require(options.coupling is None or family == "quadratic", "--coupling goes with --family quadratic")
    require(options.utility is None or family == "guesses", "--utility goes with --family guesses")
    weights: dict[str, Any] = {name: given for name in "BC" if (given := two(f"--{name}", getattr(options, name)))}
    if options.game:
        return options.game, replace(load(options.game), **weights, **({"closed_form": None} if weights else {}))
    given = {"clipped": options.clipped or None, "coupling": options.coupling, "utility": options.utility}
    own = {name: value for name, value in given.items() if value is not None}
    return family, families.FAMILIES[family](**weights, **own)


def load(name: str) -> "Game":
    """A user's game from package.module:Name, looked for in the working directory too."""
    from dpmac.games.cgp import Game

    require(all(name.partition(":")), f"a game of your own is named package.module:Name, not {name!r}")
    found = plugins.load("game", name, {}, lambda _: True, "a game")
    try:
        game = found() if callable(found) else found
    except Exception as error:  # a user's function may raise anything
        raise BadInput(f"{name!r} raised {type(error).__name__}: {error}") from error
    if not isinstance(game, Game):
        raise BadInput(f"{name!r} must be a dpmac.games.cgp.Game, or return one, not {type(game).__name__}")
    return game


def two(name: str, numbers: tuple[float, ...]) -> tuple[float, float] | None:
    """One number a player, or None where none is given."""
    require(len(numbers) in (0, 2), f"{name} needs two numbers, one for each player, not {len(numbers)}")
    return (numbers[0], numbers[1]) if numbers else None


def draw(path: str, picture: "Callable[[Any], Figure]") -> None:
    """Write the picture that `dpmac.figures.games` makes, where a path is given."""
    if path:
        from dpmac.figures import games, privacy

        privacy.check_format(path)
        privacy.save(picture(games), path)
