"""The best private code of a secret for whoever decides upon it: linear programs, each with a certificate.

A secret has k values. A code answers value i with symbol y with probability P(y|i). Neighbours are any two values, so
the code is ε-DP when P(y|i) ≤ e^ε·P(y|j) for all y, i, j. A receiver who knows the code, the prior π and everything
else decides upon y. The best it can earn, V(z) = max over decisions of Σ_i z_i·π_i·u(i, decision) for the column
z = P(y|·), is convex and homogeneous: V(c·z) = c·V(z). The code is worth Σ_y V(P(y|·)).

Every column with ratios up to e^ε is a mixture of columns from {e^−ε, 1}^k times a weight, and V gains by the split
because it is convex. So the best code is a staircase (Kairouz, Oh and Viswanath 2014), a linear program:

    maximise Σ_z w_z·V(z)   subject to   Σ_z w_z·z_i = 1 for every i,   w ≥ 0.

A dual point a with a·z ≥ V(z) for every column shows that no code is worth more than Σ_i a_i. Such a point can be
checked without the solver: `solve` adds to it whatever it lacks, rounding included, so its `bound` always holds.

(ε, δ): densities satisfy ∫(P(y|i) − e^ε·P(y|j))₊ ≤ δ for all i ≠ j. The planes z_i = e^ε·z_j and z_i = 0 cut the
columns into cones. Inside a cone these conditions are linear, so V gains when a column is split into the cone's extreme
rays. A ray has z_i = e^(−ε·n_i) with whole n_i that leave no gap, or z_i = 0. The program over them is exact.
`docs/limits.md` has the proofs.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from dpmac.config import require

SMALLEST, LARGEST = 1e-6, 50.0
"""ε at which programs are solved: what is told at e^50 to 1 is told, and below 1e-6 columns are hard to tell apart."""
MOST_COLUMNS = 5000
PIVOTS = 500
"""Of the simplex method, at most; a program that needs more is left to another solver."""
TOLERANCE = 1e-10
FEASIBLE, ROUNDING = 1e-9, 1e-15
"""By how much weights may miss a row: as a share of what it counts, and of 1."""
LOOSE = 1e-7
"""A bound that is farther from the code's worth, as a share of the largest value, asks for another solver."""
BISECTIONS = 20


class Program(NamedTuple):
    """Which weights make a code: rows (row, column) times weights (column,) equal `right` (row,), weights ≥ 0."""

    directions: np.ndarray
    """Columns z (direction, secret). For several senders a secret is one value of each of them."""
    rows: np.ndarray
    """One row for each secret, then the others. Columns are the directions, then slacks, which are worth nothing."""
    right: np.ndarray
    basis: np.ndarray
    """Columns (row,) of a feasible start: randomised response."""
    limits: int = 0
    """How many of the last rows have a slack: what they count is at most `right`."""


class Solution(NamedTuple):
    """What solves a program for each problem (…,)."""

    value: np.ndarray
    """(…,): what the code of `weights` is worth."""
    bound: np.ndarray
    """(…,): no code is worth more."""
    weights: np.ndarray
    """(…, direction): P(y|i) = weight·z_i."""
    dual: np.ndarray
    """(…, row): dual @ rows ≥ values for every column, and bound = dual @ right."""


# Programs -------------------------------------------------------------------------------------------------------------


def program(epsilon: float, secrets: int, delta: float = 0.0) -> Program:
    """All (ε, δ)-DP codes of one secret with k values."""
    check(epsilon)
    require(0 <= delta < 1, f"delta must lie in [0, 1), not {delta}")
    require(secrets >= 2, f"a secret has at least 2 values, not {secrets}")
    low, singles = math.exp(-epsilon), np.arange(secrets)
    if delta == 0:
        directions = stairs(low, secrets)
        return Program(directions, directions.T, np.ones(secrets), singles)
    directions = rays(low, secrets)
    excess = excesses(directions, low)
    slacks = np.vstack([np.zeros((secrets, len(excess))), np.eye(len(excess))])
    rows = np.hstack([np.vstack([directions.T, excess]), slacks])
    right = np.append(np.ones(secrets), np.full(len(excess), delta))
    basis = np.append(singles, len(directions) + np.arange(len(excess)))
    return Program(directions, rows, right, basis, len(excess))


def stairs(low: float, secrets: int) -> np.ndarray:
    """Columns (column, secret) of `low` and 1: those with a single 1 come first, all 1 last."""
    check_size(2**secrets - 1)
    patterns = sorted(itertools.product((1, 0), repeat=secrets), key=sum)[1:]  # stable: singles are the unit vectors
    return np.where(np.array(patterns) == 1, 1.0, low)


def rays(low: float, secrets: int) -> np.ndarray:
    """Extreme rays (ray, secret) of the cones that z_i = e^ε·z_j and z_i = 0 cut; those of `stairs` come first."""
    check_size((secrets + 1) ** secrets)
    powers = np.append(low ** np.arange(secrets), 0.0)
    found = []
    for levels in itertools.product(range(secrets + 1), repeat=secrets):
        used = [level for level in levels if level < secrets]
        gapless = set(used) == set(range(len(set(used))))
        if gapless and (len(set(used)) > 1 or len(used) == 1) and not {*levels} <= {0, 1}:
            found.append(powers[list(levels)])
    return np.vstack([stairs(low, secrets), *found])


def excesses(directions: np.ndarray, low: float) -> np.ndarray:
    """(z_i − e^ε·z_j)₊ for all i ≠ j: (pair, direction)."""
    pairs = itertools.permutations(range(directions.shape[1]), 2)
    over = np.array([directions[:, i] - directions[:, j] / low for i, j in pairs])
    return np.where(over > 1e-12, over, 0.0)


def joint(one: Program, senders: int) -> Program:
    """What several senders can say together, each by codes of `one`: a relaxation that adaptive talk cannot leave.

    The likelihood of a transcript is a product of one factor from each sender, whoever answers whom. Its columns are
    then products of columns, and its rows say that the likelihoods of all transcripts add up to 1 for any values of all
    secrets. Not every solution is a protocol, but every protocol is a solution.
    """
    require(senders >= 1, f"at least one sender, not {senders}")
    check_size(len(one.directions) ** senders)
    directions = kron([one.directions] * senders)
    secrets = one.directions.shape[1]
    places = np.indices((secrets,) * senders).reshape(senders, -1)  # the first columns are those of the response
    basis = np.asarray(np.ravel_multi_index(tuple(places), (len(one.directions),) * senders))
    if not one.limits:
        return Program(directions, directions.T, np.ones(directions.shape[1]), basis)
    excess = one.rows[secrets:, : len(one.directions)].T
    mean = one.directions.mean(1, keepdims=True)
    each = [kron([excess if i == sender else mean for i in range(senders)]) for sender in range(senders)]
    limits = np.hstack(each).T
    slacks = np.vstack([np.zeros((directions.shape[1], len(limits))), np.eye(len(limits))])
    return Program(
        directions,
        np.hstack([np.vstack([directions.T, limits]), slacks]),
        np.append(np.ones(directions.shape[1]), np.full(len(limits), one.right[-1])),
        np.append(basis, len(directions) + np.arange(len(limits))),
        len(limits),
    )


def kron(parts: Sequence[np.ndarray]) -> np.ndarray:
    found = parts[0]
    for part in parts[1:]:
        found = np.kron(found, part)
    return found


def check(epsilon: float) -> None:
    require(SMALLEST <= epsilon <= LARGEST, f"epsilon must lie in [{SMALLEST:g}, {LARGEST:g}], not {epsilon}")


def check_size(columns: int) -> None:
    require(columns <= MOST_COLUMNS, f"a program may have {MOST_COLUMNS} columns, not {columns}; take fewer secrets")


# Values ---------------------------------------------------------------------------------------------------------------


def decision_values(directions: np.ndarray, utility: np.ndarray, prior: ArrayLike | None = None) -> np.ndarray:
    """V (…, direction) of a receiver who picks the best of finitely many decisions with utility (…, secret, decision).

    Any convex value of the posterior that has finitely many linear pieces can be written so.
    """
    return np.max((directions * prior_of(directions, prior)) @ utility, axis=-1)


def prior_of(directions: np.ndarray, prior: ArrayLike | None = None) -> np.ndarray:
    """The prior (secret,), uniform if none is given."""
    k = directions.shape[1]
    found = np.full(k, 1 / k) if prior is None else np.asarray(prior, float)
    proper = found.shape == (k,) and bool((found >= 0).all()) and abs(found.sum() - 1) < 1e-9
    require(proper, f"the prior must be {k} probabilities that add up to 1, not {prior}")
    return found


def posteriors(directions: np.ndarray, prior: Sequence[float] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What a receiver believes (direction, secret) upon each column, and the probability (direction,) of the column
    under a weight of 1."""
    joint_mass = directions * prior_of(directions, prior)
    mass = joint_mass.sum(1)
    return joint_mass / mass[:, None], mass


# Solutions ------------------------------------------------------------------------------------------------------------


def solve(values: np.ndarray, given: Program) -> Solution:
    """The best code for each problem with these values (…, direction), and a bound that needs no trust in the solver.

    >>> guessing = program(1.0, 3)
    >>> found = solve(decision_values(guessing.directions, np.eye(3)), guessing)
    >>> round(float(found.value), 3), round(float(found.bound), 3)
    (0.576, 0.576)
    """
    flat = np.asarray(values, float).reshape(-1, len(given.directions))
    require(bool(np.isfinite(flat).all()), "values must be finite numbers")
    padded = np.hstack([flat, np.zeros((len(flat), given.rows.shape[1] - flat.shape[1]))])
    weights, prices = solved(padded, given, simplex(padded, given))
    dual, bound = certify(prices, flat, given)
    tight = np.abs(bound - np.sum(weights * padded, axis=1)) <= LOOSE * np.abs(padded).max(1)
    for failed in np.flatnonzero(~(tight & holds(weights, given))):
        weights[failed], prices[failed] = other_solver(padded[failed], given)
        dual[failed], bound[failed] = certify(prices[failed], flat[failed], given)
    weights, shape = weights[:, : flat.shape[1]], values.shape[:-1]
    worth = np.sum(weights * flat, axis=1)
    return Solution(worth.reshape(shape), bound.reshape(shape), weights.reshape(values.shape), dual.reshape(*shape, -1))


def solved(values: np.ndarray, given: Program, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (problem, column) and prices (problem, row) of these bases; nonsense for a singular one."""
    matrix = given.rows.T[basis]  # (problem, basic column, row)
    matrix[np.linalg.slogdet(matrix)[0] == 0] = np.eye(len(given.right))
    inverse = np.linalg.inv(matrix)
    weights = np.zeros_like(values)
    np.put_along_axis(weights, basis, np.maximum(given.right @ inverse, 0), axis=1)
    return weights, (inverse @ np.take_along_axis(values, basis, 1)[..., None])[..., 0]


def holds(weights: np.ndarray, given: Program) -> np.ndarray:
    """Whether weights (…, column) of 0 or more keep all rows."""
    missed = np.abs(weights @ given.rows.T - given.right)
    return np.all(missed <= FEASIBLE * given.right + ROUNDING, axis=-1)


def other_solver(values: np.ndarray, given: Program) -> tuple[np.ndarray, np.ndarray]:
    """Weights (column,) and prices (row,) from HiGHS, or else those of the start."""
    close = {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
    shares = given.rows / given.right[:, None]  # those of a small δ count as much as others
    for method in ("highs-ipm", "highs-ds"):
        found = linprog(-values, A_eq=shares, b_eq=np.ones(len(shares)), method=method, options=close)
        if found.x is not None and holds(weights := np.maximum(found.x, 0), given):
            return weights, -found.eqlin.marginals / given.right
    weights, prices = solved(values[None], given, given.basis[None])
    return weights[0], prices[0]


def simplex(values: np.ndarray, given: Program) -> np.ndarray:
    """Columns (problem, row) of an optimal basis for values (problem, column): the simplex method for problems that
    differ only in what columns are worth, all side by side."""
    inverse = np.linalg.inv(given.rows[:, given.basis])
    start = inverse @ np.hstack([given.rows, given.right[:, None]])
    basis = np.tile(given.basis, (len(values), 1))
    table = np.tile(start, (len(values), 1, 1))
    gain = np.hstack([values, np.zeros((len(values), 1))]) - values[:, given.basis] @ start
    scale = np.maximum(np.abs(values).max(1), 1e-300)
    active = np.arange(len(values))
    for _ in range(PIVOTS):
        entering = np.argmax(gain[active, :-1], axis=1)
        open_ = gain[active, entering] > TOLERANCE * scale[active]
        active, entering = active[open_], entering[open_]
        if not len(active):
            break
        rows = np.arange(len(active))
        part = table[active]
        column = part[rows, :, entering]
        usable = column > TOLERANCE
        ratios = np.where(usable, part[:, :, -1] / np.where(usable, column, 1), np.inf)
        slack = np.where(usable, (part[:, :, -1] + ROUNDING) / np.where(usable, column, 1), np.inf)
        near = ratios <= slack.min(1, keepdims=True)
        leaving = np.argmax(np.where(near, column, 0), axis=1)  # a small pivot would magnify what was rounded
        pivot = part[rows, leaving] / column[rows, leaving][:, None]
        part -= column[:, :, None] * pivot[:, None, :]
        part[rows, leaving] = pivot
        table[active] = part
        gain[active] -= gain[active, entering][:, None] * pivot
        basis[active, leaving] = entering
    return basis


def certify(dual: np.ndarray, values: np.ndarray, given: Program) -> tuple[np.ndarray, np.ndarray]:
    """A feasible dual (…, row) near this one, for values (…, direction), and the bound (…,) that it proves.

    Prices of limits are made non-negative. What a column is still worth above its price is added to the price of every
    secret, together with a bound on the rounding of this very check.
    """
    k, count = given.directions.shape[1], len(given.directions)
    rows, dual = given.rows[:, :count], dual.copy()
    if given.limits:
        dual[..., -given.limits :] = np.maximum(dual[..., -given.limits :], 0)
    unit = (len(rows) + 4) * np.finfo(float).eps
    rounding = unit * (np.abs(dual) @ np.abs(rows) + np.abs(values))
    lacking = np.maximum(values - dual @ rows + rounding, 0) / given.directions.max(1)
    dual[..., :k] += lacking.max(-1, keepdims=True) * (1 + unit)
    return dual, dual @ given.right + unit * (np.abs(dual) @ np.abs(given.right))


def extend(dual: np.ndarray, values: np.ndarray, wide: Program) -> np.ndarray:
    """A bound (…,) on the codes of a wider program, one with limits, from a dual (…, secret) of the narrow one.

    All limits get the one least price that makes the dual feasible for values (…, direction) of the wide program's
    directions. It may be above the wide program's optimum, and costs no solver.
    """
    k, count = wide.directions.shape[1], len(wide.directions)
    spent = wide.rows[k:, :count].sum(0)
    lacking = values - dual @ wide.rows[:k, :count]
    price = np.max(np.where(spent > 0, lacking, 0) / np.where(spent > 0, spent, 1), axis=-1, keepdims=True)
    prices = np.repeat(np.maximum(price, 0), wide.limits, axis=-1)
    return certify(np.concatenate([dual, prices], axis=-1), values, wide)[1]


def cut(found: Solution, certain: np.ndarray, lost: float) -> np.ndarray:
    """A bound (…,) with δ from what solves a program without, where it is worth `certain` (…, secret) to know a secret.

    Cut each column z down to z′_i = min(z_i, e^ε·min_j z_j), whose ratios are e^ε at most. For each secret all columns
    together lose Σ_j (z_i − e^ε·z_j)₊ at most, which is (k − 1)·δ for every sender: `lost`. Values add up less than
    columns do, so V(z) ≤ a·z′ + V(z − z′) for the dual a, and the last is at most Σ_i (z_i − z′_i)·certain_i.
    """
    return found.bound + lost * np.maximum(certain - found.dual, 0).sum(-1)


def mechanism(weights: np.ndarray, given: Program) -> np.ndarray:
    """P(y|i) (secret, symbol) of a sender's code: one symbol for each column of positive weight (direction,).

    It keeps the program's budget whatever was rounded, since all secrets take a share of their mean: ratios that are
    `off` by rounding fall below e^ε again, and what exceeds e^ε shrinks by as much as rounding left it above δ.
    """
    used, low, k = weights > 0, given.directions[0].min(), given.directions.shape[1]
    sums, spent = np.split(given.rows[:, : len(weights)][:, used] @ weights[used], [k])
    missed = np.append(np.abs(sums - 1), spent - given.right[k:])
    within = bool((missed <= FEASIBLE * given.right + ROUNDING).all())
    require(within, "weights must make a code: rows that add up to 1, within the budget")
    off = sums.max() / sums.min() - 1 + 32 * np.finfo(float).eps
    share = min(1.0, k * off / (1 - low))
    share = max([share, *(1 - given.right[k:] / np.maximum(spent * (1 + 4 * share), given.right[k:]))])
    found = (weights[used, None] * given.directions[used]).T / sums[:, None]
    return (1 - share) * found + share * found.mean(0)


# Scenes ---------------------------------------------------------------------------------------------------------------


def fixed(values: np.ndarray, given: Program) -> Solution:
    """One code for all scenes, which the receiver decodes with the scene in view: values (scene, direction)."""
    return solve(values.mean(0), given)


def public(values: np.ndarray, given: Program) -> Solution:
    """A code for each scene (scene, direction): neighbours share their scene, which everybody may know."""
    return solve(values, given)


def shared(values: np.ndarray, epsilon: float) -> Solution:
    """A code for each scene where neighbours may change the scene as well: values (scene, direction) of `program`'s.

    P(y|s, i) ≤ e^ε·P(y|s′, j) for all scenes and secrets says that q(y) = max over s, i of P(y|s, i) satisfies
    e^−ε·q ≤ P(·|s, i) ≤ q. So all scenes share the measure q of some mass M, and scene s distributes columns z of
    {e^−ε, 1}^k over it: its weights add up to M. Conversely weights that add up to M in every scene lie side by side on
    an interval of length M, and its points are the symbols. So the best is the maximum over M of the mean over scenes
    of their programs with the row Σ w = M, which is concave in M. Above the M of randomised response nothing is gained.
    The bound combines duals from both sides of the best M, so that M itself has no price.

    `value` and `bound` are those of all scenes together, (). `weights` are (scene, direction) with one more direction,
    e^−ε throughout, which fills up mass.
    """
    secrets = round(math.log2(values.shape[1] + 1))
    low, plain = math.exp(-epsilon), program(epsilon, secrets)
    directions = np.vstack([plain.directions, np.full(secrets, low)])
    worth = np.hstack([values, low * values[:, -1:]])
    rows = np.vstack([directions.T, np.ones(len(directions))])
    response = secrets / (1 + (secrets - 1) * low)

    def at(mass: float) -> Solution:
        filler = len(directions) - (2 if mass <= response else 1)  # all 1, or all e^−ε
        basis = np.append(np.arange(secrets), filler)
        return solve(worth, Program(directions, rows, np.append(np.ones(secrets), mass), basis))

    ends = [1 + 1e-6 * (response - 1), min(1.001 * response, (response + 1 / low) / 2)]
    sides = [at(end) for end in ends]
    for _ in range(BISECTIONS):
        middle = sum(ends) / 2
        found = at(middle)
        side = int(found.dual[:, -1].mean() <= 0)
        ends[side], sides[side] = middle, found
    rise, fall = (side.dual[:, -1].mean() for side in sides)
    share = fall / (fall - rise) if rise > 0 > fall else 1.0
    mixed = share * sides[0].dual + (1 - share) * sides[1].dual
    dual, bounds = certify(mixed, worth, Program(directions, rows, np.append(np.ones(secrets), 0.0), plain.basis))
    price = dual[:, -1].mean()  # of M, which lies between 1 and e^ε
    best = max(sides, key=lambda side: side.value.mean())
    return Solution(best.value.mean(), bounds.mean() + max(price, price / low), best.weights, dual)
