"""What the commands answer: studies of the three games as plain data, and the same in words."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpmac.games import assumptions, markov, require, rounds
from dpmac.games import binary_sums as sums
from dpmac.games.cgp import Game
from dpmac.games.statements import Finding, conclude, finding, in_words
from dpmac.games.study import ASSUMPTIONS, Study, binary_sums_theorem, pair

Answer = dict[str, Any]
SAME = 1e-9
"""Numbers of one formula written in two ways differ by less than this."""


def sums_answer(
    p: sums.Array, epsilon: ArrayLike, prior: sums.Array, bits: tuple[int, ...], count: int, seed: int
) -> Answer:
    """Every receiver of binary sums in closed form and played; p, its ε and prior (agent,), bits if they are fixed."""
    require(len(bits) in (0, len(p)), f"bits must be one for each of {len(p)} agents, not {len(bits)}")
    require(set(bits) <= {0, 1}, f"bits must be 0 or 1, not {bits}")
    q, rng = np.array(bits or prior, float), np.random.default_rng(seed)
    rows = [
        {
            "receiver": name,
            "closed_form": as_lists(sums.moments(receiver, p, q)),
            "simulated": as_lists(sums.simulate(receiver, p, q, count, rng)),
            "utility": as_lists(sums.utilities(receiver, p, q, count, rng)),
        }
        for name, receiver in sums.receivers(p, prior).items()
    ]
    answer = {"agents": len(p), "epsilon": sums.privacy(p).tolist(), "p": p.tolist(), "prior": prior.tolist()}
    answer |= {"bits": list(bits) or None, "rounds": count, "receivers": rows}
    return answer | {"statements": as_data(sums_findings(p, epsilon, q))}


def sums_findings(p: sums.Array, epsilon: ArrayLike, q: sums.Array) -> list[Finding]:
    """The statements of the paper's motivating example, for p made for ε and bits that are 1 with probability q."""
    with np.errstate(divide="ignore"):
        exact = np.allclose(np.log(1 - p / 2) - np.log(p / 2), epsilon, rtol=SAME, atol=SAME)
    gap = np.max(np.abs(sums.moments(sums.naive(p), p, q).bias - sums.others(p * (0.5 - q))))
    found = [
        finding(
            "theorem: randomized response privacy",
            "holds" if exact else "fails",
            "one bit's two values make a message more likely by a factor of (2 − p)/p at most, which is "
            f"{'exactly' if exact else 'not'} e^ε",
        ),
        finding(
            "err_i",
            "holds" if gap < SAME else "fails",
            f"p(N − 1)/2 − p·Σ_(j≠i) b_j differs from the closed form by {gap:.1g}",
        ),
    ]
    if np.any(p == 1):
        reason = "where p = 1 a message says nothing, and no unbiased guess exists"
        return [*found, finding("g_i^A", "does not apply", reason)]
    bias = float(np.max(np.abs(sums.moments(sums.corrected(p), p, q).bias)))
    reason = (
        f"its bias is {bias:.1g} with the own bit b_i added, which the printed formula lacks and its expectation has; "
        "by the paper's utility, minus the absolute bias, it is perfect at every ε > 0, but not by the error of a guess"
    )
    return [*found, finding("g_i^A", "holds" if bias < SAME else "fails", reason)]


def sums_words(answer: Answer) -> str:
    """A table with one line for each receiver and agent; agents that do not differ share one."""
    columns = ("bias", "variance", "mse")
    names = ("receiver", "agent", "epsilon", *columns, "mse played", "−|bias|", "−E|error|")
    lines = ["{:<10} {:>5} {:>9} {:>10} {:>10} {:>10} {:>15} {:>10} {:>10}".format(*names)]
    for row in answer["receivers"]:
        exact = list(zip(answer["epsilon"], *(row["closed_form"][column] for column in columns), strict=True))
        alike = len({tuple(f"{number:.9f}" for number in numbers) for numbers in exact}) == 1
        for i, (epsilon, *moments) in enumerate(exact[:1] if alike else exact):
            numbers = " ".join(f"{number if abs(number) > 1e-12 else 0:>10.5g}" for number in moments)
            utility = " ".join(f"{round(row['utility'][kind][i], 12) + 0.0:>10.3g}" for kind in ("bias", "error"))
            who, simulated = ("each" if alike else f"{i + 1}"), row["simulated"]
            played = f"{simulated['mse'][i]:.4g}±{simulated['mse_error'][i]:.1g}"
            lines.append(f"{row['receiver']:<10} {who:>5} {epsilon:>9.4g} {numbers} {played:>15} {utility}")
    said = (
        "−|bias|: the paper's utility, for given bits; −E|error|: what one round pays; both played; ±: standard error"
    )
    lines.append(said)
    return "\n".join([*lines, "", in_words(as_findings(answer))])


def game_answer(name: str, game: Game, studied: Study) -> Answer:
    """A collaborative game, studied; binary sums go by their own theorem as well."""
    found, cycle = studied.equilibria, studied.cycle
    if found.exact is not None:
        points = [
            {**s._asdict(), "trivial": s.trivial, "utility": [game.utility(n, *s.start) for n in (0, 1)]}
            for s in found.exact
        ]
        equilibria = {"kind": "exact", "found": points}
    else:
        points = [
            {**a._asdict(), "trivial": a.trivial, "utility": [game.utility(n, *a.point) for n in (0, 1)]}
            for a in found.approximate
        ]
        equilibria = {"kind": "approximate", "grid": found.grid, "tolerance": found.tolerance, "found": points}
    own = [binary_sums_theorem(game, studied)] if name == "binary-sums" else []
    return {
        "game": name,
        "B": game.B,
        "C": game.C,
        "statements": as_data([*studied.findings, *own]),
        "conditions": [condition._asdict() for condition in (*studied.conditions, *studied.assumptions)],
        "guarantee": studied.guarantee,
        "potential": {"exact": studied.exact_potential, "weights": studied.weights, "worst_cycle": cycle._asdict()},
        "equilibria": equilibria,
        "dynamics": {
            order: {
                "outcome": walk.outcome,
                "said": walk.said,
                "period": walk.period,
                "rounds": len(walk.path) - 1,
                "end": walk.path[-1],
            }
            for order, walk in studied.walks.items()
        },
    }


def game_words(answer: Answer) -> str:
    lines = [f"{answer['game']}, B = {answer['B']}, C = {answer['C']}", "", in_words(as_findings(answer)), ""]
    lines += [f"guarantee: {answer['guarantee']}", "", *equilibria_words(answer["equilibria"]), ""]
    for order, walk in answer["dynamics"].items():
        lines.append(f"{order} best responses: {walk['said']}, at {pair(walk['end'])} after {walk['rounds']} rounds")
    return "\n".join(lines)


def equilibria_words(found: Answer) -> list[str]:
    silent = "  (trivial: nobody says anything)"
    if found["kind"] == "exact":
        lines = ["all pure equilibria, in closed form:"]
        for segment in found["found"]:
            start, end = pair(segment["start"]), pair(segment["end"])
            where = start if start == end else f"every point from {start} to {end}"
            lines.append(f"  {where}{silent if segment['trivial'] else ''}")
        return lines
    lines = [
        f"approximate equilibria (searched from a grid of {found['grid']} cells; none is proven; "
        f"no deviation found gains more than {found['tolerance']:.2g}):"
    ]
    for group in found["found"]:
        alone = group["low"] == group["high"]
        box = "" if alone else f", one of those from {pair(group['low'])} to {pair(group['high'])}"
        trivial = silent if group["trivial"] else ""
        lines.append(f"  {pair(group['point'])}  regret {group['regret']:.2g}{box}{trivial}")
    return lines if found["found"] else [*lines, "  none found"]


def rounds_answer(game: rounds.Rounds, savings: ArrayLike, deviations: int, seed: int) -> Answer:
    """Multiple-round sums from initial savings (agent,): equilibrium, other strategies, potentials, assumptions."""
    require(deviations >= 1, f"deviations must be at least 1, not {deviations}")
    x0 = np.asarray(savings, float)
    played = rounds.equilibrium(game, x0)
    best = float(rounds.values(game, played).mean())
    strategies = {
        "equilibrium": played,
        "never share": rounds.never_share(game, x0),
        "always share, at once": rounds.always_share(game, x0),
        "always share, evenly": rounds.always_share(game, x0, evenly=True),
    }
    potentials = {"corrected": rounds.corrected_potential, "printed": rounds.printed_potential}
    gaps = {
        name: rounds.largest_gap(game, J, x0, deviations, np.random.default_rng(seed)) for name, J in potentials.items()
    }
    gaps["corrected_reacting"] = rounds.reaction_gap(game, x0)
    return {
        "agents": [
            {
                "saving": float(x),
                "gives": rounds.when_to_give(game, float(x)),
                "own_value": float(value),
                "dynamic_program": rounds.dynamic_program(game, float(x)),
            }
            for x, value in zip(x0, rounds.own_values(game, played), strict=True)
        ],
        "strategies": {
            name: {
                "mean_value": float(value := rounds.values(game, episode).mean()),
                "share_of_equilibrium": float(value / best) if best > 0 else None,
                "regret": rounds.regret(game, episode).tolist(),
            }
            for name, episode in strategies.items()
        },
        "largest_potential_gap": gaps,
        "statements": as_data(rounds_findings(game, x0, gaps)),
        "guarantee": "each strategy is best whatever others do, while they do not react to messages; it stays an "
        "equilibrium among policies that react, because the others' strategies do not; no guarantee that it is the "
        "only one, nor that J is a potential, once policies react",
    }


def rounds_findings(game: rounds.Rounds, x0: sums.Array, gaps: dict[str, float]) -> list[Finding]:
    """Assumptions 1 to 4 and the three theorems on multiple-round sums; gaps of the potentials by name."""
    bounded = assumptions.check(markov.bounded_rounds(game, x0))
    printed = assumptions.check(markov.printed_rounds(game, len(x0)))
    found = [within(conclude(label, bounded), "with 0 ≤ b ≤ x ≤ x₀") for label in ASSUMPTIONS]
    letter = [conclude(label, printed) for label in ASSUMPTIONS]
    found += [within(f, "as printed, with x ∈ ℝ and no bound on b") for f in letter if f.verdict != "holds"]
    rounding = 1e-12 * game.horizon * ((1 + game.alpha) * float(x0.sum()) + game.beta * len(x0))
    wrong, react = game.beta > 0, gaps["corrected_reacting"] > rounding
    split = "r_k is the corrected J plus a term without agent k's savings and actions, while the others do not react"
    verdict = "holds" if gaps["corrected"] <= rounding else "fails"
    found.append(finding("theorem: mpg NE", verdict, f"{split}: gap {gaps['corrected']:.1g}"))
    said = (
        "an equilibrium exists, but the printed J is no potential: a deviation changes V_i and J by amounts that "
        f"differ by up to {gaps['printed']:.3g}; corrected, by {gaps['corrected']:.1g}"
        if wrong
        else "an equilibrium exists, and at these numbers the printed J is a potential while nobody reacts to messages"
    )
    without = (
        "; without the appendix's condition, that nobody reacts to messages, the corrected J is no potential either: "
        f"{gaps['corrected_reacting']:.3g} where the others echo a gift"
    )
    label = "theorem: NE Guarantee in Multiple Round Sums"
    condition = "that nobody reacts to messages is a condition of this version"
    return [
        *found,
        finding(label, "fails" if wrong or react else "holds", said + (without if react else "")),
        finding(f"{label} in appendix", "fails" if wrong else "holds", f"{said}; {condition}"),
    ]


def rounds_words(answer: Answer) -> str:
    gives = {"never": "never gives", "first": "gives all in the first round", "last": "gives all in the last round"}
    lines = [in_words(as_findings(answer)), "", "equilibrium:"]
    for i, agent in enumerate(answer["agents"]):
        who, value, program = f"agent {i + 1}, saving {agent['saving']:g}", agent["own_value"], agent["dynamic_program"]
        lines.append(f"  {who}: {gives[agent['gives']]}; own value {value:.6g}, {program:.6g} by dynamic programming")
    lines += ["", f"{'strategy of all':<24} {'mean value':>11} {'of equilibrium':>15} {'largest regret':>15}"]
    for name, row in answer["strategies"].items():
        share = "" if row["share_of_equilibrium"] is None else f"{row['share_of_equilibrium']:.1%}"
        lines.append(f"{name:<24} {row['mean_value']:>11.5g} {share:>15} {max(row['regret']):>15.5g}")
    lines += ["", "largest |change of V_i − change of J| over unilateral deviations:"]
    names = {"corrected": "corrected J", "printed": "printed J", "corrected_reacting": "corrected J, others react"}
    lines += [f"  {names[key]}: {gap:.3g}" for key, gap in answer["largest_potential_gap"].items()]
    return "\n".join([*lines, "", f"guarantee: {answer['guarantee']}"])


def within(found: Finding, setting: str) -> Finding:
    """A finding about one of several settings of a game."""
    return found._replace(reason=f"{setting}: {found.reason}")


def as_lists(arrays: Any) -> dict[str, list[float]]:
    """A named tuple of arrays as plain data."""
    return {key: value.tolist() for key, value in arrays._asdict().items()}


def as_data(findings: list[Finding]) -> list[dict[str, str]]:
    return [found._asdict() for found in findings]


def as_findings(answer: Answer) -> list[Finding]:
    return [Finding(**found) for found in answer["statements"]]
