"""Multiple-round sums: N agents with savings give some away in each of T rounds, each gift under a privacy level.

Agent i gives b_i ∈ [0, x_i] with p_i ∈ [0, 1], gets r_i = Σ_j (1 − p_j)b_j + αx_i + βp_i, and keeps x_i − b_i. Arrays
of one round have shape (agent,), those of an episode (round, agent).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpmac.games import require

Array = NDArray[np.float64]
When = Literal["never", "first", "last"]
Potential = Callable[["Rounds", Array, Array, Array], Array]
Policy = Callable[[int, float, Array], tuple[float, float]]
"""π_i(t, x_i, messages of the last round (agent,)) = (b, p); the first round's messages are 0."""
LARGEST = 1e100
"""Of savings, α and β: the values of an episode are then finite."""


@dataclass(frozen=True)
class Rounds:
    """The numbers of the game."""

    alpha: float = 0.3
    """α: what savings of 1 earn in a round."""
    beta: float = 0.4
    """β: what full privacy is worth in a round."""
    horizon: int = 5
    """T, the rounds."""
    discount: float = 1.0
    """g."""

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            given = getattr(self, name)
            require(0 <= given <= LARGEST, f"{name} must be at least 0 and at most {LARGEST:g}, not {given}")
        require(1 <= self.horizon <= 10_000, f"horizon must be at least 1 round and at most 10,000, not {self.horizon}")
        require(0 <= self.discount <= 1, f"discount must lie in [0, 1], not {self.discount}")

    @property
    def discounts(self) -> Array:
        """g^t (round,)."""
        return np.power(self.discount, np.arange(self.horizon), dtype=float)

    def rewards(self, x: Array, b: Array, p: Array) -> Array:
        """r_i (…, agent)."""
        return ((1 - p) * b).sum(axis=-1, keepdims=True) + self.alpha * x + self.beta * p

    def own(self, x: Array, b: Array, p: Array) -> Array:
        """The part of r_i that agent i's own savings and actions make (…, agent)."""
        return (1 - p) * b + self.alpha * x + self.beta * p


class Episode(NamedTuple):
    """Savings before each round, gifts and privacy levels, each (round, agent)."""

    x: Array
    b: Array
    p: Array


def episode(game: Rounds, savings: ArrayLike, b: ArrayLike, p: ArrayLike) -> Episode:
    """The episode that given actions (round, agent) make of initial savings (agent,); refuses what the rules forbid."""
    x0, b, p = np.asarray(savings, float), np.asarray(b, float), np.asarray(p, float)
    require(x0.ndim == 1 and x0.size >= 2, f"multiple-round sums need at least 2 agents, not {x0.size}")
    fine = np.all((x0 >= 0) & (x0 <= LARGEST))
    require(fine, f"savings must be at least 0 and at most {LARGEST:g}, not {x0.tolist()}")
    shape = (game.horizon, x0.size)
    require(b.shape == p.shape == shape, f"b and p must have the shape (round, agent) = {shape}")
    require(np.all((p >= 0) & (p <= 1)), "every p must lie in [0, 1]")
    x = x0 - np.concatenate([np.zeros((1, x0.size)), np.cumsum(b, axis=0)[:-1]])
    # Gifts may come from a task in single precision, hence the slack.
    require(np.all((b >= 0) & (b <= x + 1e-6 * (1 + x0))), "every gift must satisfy 0 ≤ b ≤ x")
    return Episode(x, b, p)


def play(game: Rounds, savings: ArrayLike, policies: Sequence[Policy]) -> Episode:
    """Let policies act; after each round everybody hears what came across, m = (1 − p)b of each."""
    x = np.array(savings, float)
    require(len(policies) == len(x), f"{len(x)} savings need as many policies, not {len(policies)}")
    messages, gifts, levels = np.zeros(len(x)), [], []
    for t in range(game.horizon):
        b, p = np.array([policy(t, float(x[i]), messages) for i, policy in enumerate(policies)]).T
        gifts.append(b)
        levels.append(p)
        messages, x = (1 - p) * b, x - b
    return episode(game, savings, gifts, levels)


def values(game: Rounds, played: Episode) -> Array:
    """V_i = Σ_t g^t·r_{i,t} (agent,)."""
    return game.discounts @ game.rewards(*played)


def corrected_potential(game: Rounds, x: Array, b: Array, p: Array) -> Array:
    """J = Σ_j [(1 − p_j)b_j + αx_j + βp_j] (…,): r_k − J = −Σ_{j≠k}(αx_j + βp_j) is out of agent k's hands."""
    return game.own(x, b, p).sum(axis=-1)


def printed_potential(game: Rounds, x: Array, b: Array, p: Array) -> Array:
    """J as the paper prints it, βp_i inside the sum over j; i is read as agent 1, as a potential is common to all."""
    return ((1 - p) * b + game.alpha * x + game.beta * p[..., :1]).sum(axis=-1)


def potential_gap(game: Rounds, potential: Potential, before: Episode, after: Episode, deviator: int) -> float:
    """|ΔV_i − ΔJ| when agent i alone changes its policy: 0 for a potential."""
    gain = values(game, after)[deviator] - values(game, before)[deviator]
    change = game.discounts @ (potential(game, *after) - potential(game, *before))
    return abs(float(gain - change))


def random_plan(game: Rounds, saving: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Gifts and privacy levels (round,) of one agent, drawn at random within the rules, whatever others do."""
    shares = rng.dirichlet(np.ones(game.horizon + 1))[:-1]
    return saving * shares, rng.random(game.horizon)


def largest_gap(
    game: Rounds, potential: Potential, savings: ArrayLike, deviations: int, rng: np.random.Generator
) -> float:
    """The largest `potential_gap` over random unilateral deviations between plans that do not react to messages.

    That policies do not react is the condition of the paper's theorem in its appendix.
    """
    x0, worst = np.asarray(savings, float), 0.0
    for _ in range(deviations):
        b, p = (np.array(part).T for part in zip(*(random_plan(game, x, rng) for x in x0), strict=True))
        deviator = int(rng.integers(len(x0)))
        b2, p2 = b.copy(), p.copy()
        b2[:, deviator], p2[:, deviator] = random_plan(game, x0[deviator], rng)
        before, after = episode(game, x0, b, p), episode(game, x0, b2, p2)
        worst = max(worst, potential_gap(game, potential, before, after, deviator))
    return worst


def reaction_gap(game: Rounds, savings: ArrayLike) -> float:
    """The largest `potential_gap` of the corrected J where the others react: they give once they have heard of a gift.

    One agent deviates from never giving to giving everything at once. The gap is 0 where nobody can react: in one
    round, or where the deviator has nothing. Agents with equal savings are alike.
    """
    x0 = np.asarray(savings, float)
    return max(reaction_gap_of(game, x0, int(i)) for i in np.unique(x0, return_index=True)[1])


def reaction_gap_of(game: Rounds, x0: Array, deviator: int) -> float:
    """The same for one deviator."""

    def keep(t: int, x: float, messages: Array) -> tuple[float, float]:
        return 0.0, 1.0

    def give(t: int, x: float, messages: Array) -> tuple[float, float]:
        return (x, 0.0) if t == 0 else (0.0, 1.0)

    def echo(t: int, x: float, messages: Array) -> tuple[float, float]:
        return (x, 0.0) if messages[deviator] > 0 else (0.0, 1.0)

    before, after = (play(game, x0, [own if i == deviator else echo for i in range(len(x0))]) for own in (keep, give))
    return potential_gap(game, corrected_potential, before, after, deviator)


def when_to_give(game: Rounds, saving: float) -> When:
    """The equilibrium: never where x₀ ≤ β; otherwise everything at once, in the last round if αgx ≥ (1 − g)(x − β)."""
    if saving <= game.beta:
        return "never"
    wait = game.alpha * game.discount * saving >= (1 - game.discount) * (saving - game.beta)
    return "last" if wait else "first"


def equilibrium(game: Rounds, savings: ArrayLike) -> Episode:
    """Everybody's equilibrium play: p = 0 in the round of the gift, p = 1 in all others."""
    x0 = np.asarray(savings, float)
    b, p = np.zeros((game.horizon, x0.size)), np.ones((game.horizon, x0.size))
    for i, x in enumerate(x0):
        when = when_to_give(game, float(x))
        if when != "never":
            t = 0 if when == "first" else game.horizon - 1
            b[t, i], p[t, i] = x, 0.0
    return episode(game, x0, b, p)


def own_values(game: Rounds, played: Episode) -> Array:
    """What each agent's own actions bring it (agent,); the rest of V_i is others' gifts."""
    return game.discounts @ game.own(*played)


def regret(game: Rounds, played: Episode) -> Array:
    """What each agent (agent,) would gain by playing its equilibrium strategy while all others do what they did.

    While others do not react, that strategy is a best response to anything, so this is the regret of the episode.
    """
    return own_values(game, equilibrium(game, played.x[0])) - own_values(game, played)


def dynamic_program(game: Rounds, saving: float, parts: int = 20) -> float:
    """The best own value from x₀ by backward induction, gifts in parts of x₀ and p in steps of a quarter."""
    x = saving * np.arange(parts + 1) / parts
    value = np.zeros(parts + 1)
    p = np.linspace(0.0, 1.0, 5)
    for _ in range(game.horizon):
        gift = np.max((1 - p) * x[:, None] + game.beta * p, axis=1)  # the best p for a gift of every size
        value = np.array(
            [np.max(gift[: k + 1] + game.discount * value[k::-1]) + game.alpha * x[k] for k in range(parts + 1)]
        )
    return float(value[-1])


def never_share(game: Rounds, savings: ArrayLike) -> Episode:
    """Full privacy throughout; nothing is given."""
    x0 = np.asarray(savings, float)
    return episode(game, x0, np.zeros((game.horizon, x0.size)), np.ones((game.horizon, x0.size)))


def always_share(game: Rounds, savings: ArrayLike, evenly: bool = False) -> Episode:
    """No privacy in any round; everything is given in the first, or evenly over all of them."""
    x0 = np.asarray(savings, float)
    shares = np.full(game.horizon, 1 / game.horizon) if evenly else np.eye(game.horizon)[0]
    return episode(game, x0, shares[:, None] * x0, np.zeros((game.horizon, x0.size)))
