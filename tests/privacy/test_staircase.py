"""The best private codes, and that nothing passes their bounds."""

import itertools
import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import OptimizeResult, linprog

from dpmac.config import BadInput
from dpmac.privacy import limits, staircase

PROBLEMS = 20


def problem(seed):
    """Utilities (secret, decision), a prior and a budget."""
    rng = np.random.default_rng(seed)
    secrets, decisions = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    return rng.normal(size=(secrets, decisions)), rng.dirichlet(np.full(secrets, 3.0)), float(rng.uniform(0.2, 3))


def worth(code, utility, prior):
    """What a code (…, secret, symbol) is worth to a receiver who decides as well as can be."""
    return np.max(np.swapaxes(code * prior[:, None], -1, -2) @ utility, axis=-1).sum(-1)


def random_codes(rng, count, secrets, symbols, epsilon):
    """ε-DP codes (code, secret, symbol) from random numbers: log-likelihoods within ε of each other."""
    shape = rng.choice([0.3, 1.0, 5.0], size=(count, 1, 1))
    steps = rng.beta(shape, shape, size=(count, secrets, symbols))
    likelihood = rng.dirichlet(np.ones(symbols), size=count)[:, None] * np.exp(epsilon * steps)
    return repaired(likelihood, epsilon)


def repaired(likelihood, epsilon):
    """Scale likelihoods (…, secret, symbol) so that one more symbol can make rows add up to 1 and keep its ratios."""
    sums, most = likelihood.sum(-1), math.exp(epsilon)
    scale = (most - 1) / (most * sums.max(-1) - sums.min(-1))
    scaled = likelihood * scale[..., None, None]
    codes = np.concatenate([scaled, 1 - scaled.sum(-1, keepdims=True)], axis=-1)
    assert (codes.max(-2) <= most * codes.min(-2) + 1e-12).all()
    return codes


def searched(utility, prior, epsilon, seed):
    """The best of many random codes, improved by linear programs over codes with the decision of each symbol fixed:
    the best code of so many symbols for given decisions, then the best decisions for the code, until nothing moves."""
    codes = random_codes(np.random.default_rng(seed), 2000, len(prior), 4, epsilon)
    values = worth(codes, utility, prior)
    best = values.max()
    for code in codes[np.argsort(values)[-3:]]:
        for _ in range(5):
            chosen = np.argmax((code * prior[:, None]).T @ utility, axis=1)
            code = climbed(utility[:, chosen] * prior[:, None], epsilon)
            best = max(best, worth(code, utility, prior))
    # every decision has a symbol of its own: no code of any size is better than this one for pure ε
    return max(best, worth(climbed(utility * prior[:, None], epsilon), utility, prior))


def climbed(gain, epsilon):
    """The code (secret, symbol) that maximises Σ gain·P over all ε-DP codes of so many symbols, by HiGHS."""
    secrets, symbols = gain.shape
    rows = []
    for y, (i, j) in itertools.product(range(symbols), itertools.permutations(range(secrets), 2)):
        row = np.zeros((secrets, symbols))
        row[i, y], row[j, y] = 1, -math.exp(epsilon)
        rows.append(row.ravel())
    sums = np.kron(np.eye(secrets), np.ones(symbols))
    found = linprog(-gain.ravel(), A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=sums, b_eq=np.ones(secrets))
    return found.x.reshape(secrets, symbols)


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_no_code_that_a_search_finds_passes_the_bound_and_the_best_one_reaches_it(seed):
    utility, prior, epsilon = problem(seed)
    given = staircase.program(epsilon, len(prior))
    found = staircase.solve(staircase.decision_values(given.directions, utility, prior), given)
    best = searched(utility, prior, epsilon, seed)
    assert best <= found.bound + 1e-7  # HiGHS keeps its rows to 1e-7
    assert best == pytest.approx(float(found.bound), abs=1e-5)
    assert found.bound == pytest.approx(float(found.value), abs=1e-9)


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_the_programs_code_is_private_and_earns_its_value_in_simulation(seed):
    utility, prior, epsilon = problem(seed)
    given = staircase.program(epsilon, len(prior))
    found = staircase.solve(staircase.decision_values(given.directions, utility, prior), given)
    code = staircase.mechanism(found.weights, given)
    np.testing.assert_allclose(code.sum(1), 1, rtol=1e-12)
    assert (code.max(0) <= math.exp(epsilon) * code.min(0) * (1 + 1e-9)).all()
    rng, count = np.random.default_rng(seed), 200_000
    secret = rng.choice(len(prior), size=count, p=prior)
    symbol = (rng.uniform(size=(count, 1)) > np.cumsum(code, 1)[secret][:, :-1]).sum(1)
    decision = np.argmax((code * prior[:, None]).T @ utility, axis=1)
    earned = utility[secret, decision[symbol]]
    assert earned.mean() == pytest.approx(float(found.value), abs=5 * earned.std() / math.sqrt(count))


@pytest.mark.parametrize("delta", [0.0, 1e-4, 0.05])
@pytest.mark.parametrize("secrets", [2, 3, 4])
def test_guessing_recovers_the_best_accuracy(secrets, delta):
    for epsilon in (0.1, 1.0, 4.0):
        given = staircase.program(epsilon, secrets, delta)
        found = staircase.solve(staircase.decision_values(given.directions, np.eye(secrets)), given)
        assert found.bound == pytest.approx(limits.private_accuracy(epsilon, delta, secrets), abs=1e-9)
        assert found.value == pytest.approx(float(found.bound), abs=1e-9)


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_programs_with_delta_agree_with_a_program_over_whole_codes(seed):
    """With one symbol for each decision and slack variables for what exceeds ε, the best (ε, δ)-DP code is a linear
    program without any columns: HiGHS and the rays must agree."""
    utility, prior, epsilon = problem(seed)
    delta = 0.02
    given = staircase.program(epsilon, len(prior), delta)
    found = staircase.solve(staircase.decision_values(given.directions, utility, prior), given)
    best = directly(utility * prior[:, None], epsilon, delta)
    assert best <= found.bound + 1e-6
    assert best == pytest.approx(float(found.value), abs=1e-6)
    pure = staircase.program(epsilon, len(prior))
    dual = staircase.solve(staircase.decision_values(pure.directions, utility, prior), pure).dual
    extended = staircase.extend(dual, staircase.decision_values(given.directions, utility, prior), given)
    assert extended >= best - 1e-6


def directly(gain, epsilon, delta):
    """Max of Σ gain·P over (ε, δ)-DP codes with a symbol for each decision."""
    secrets, symbols = gain.shape
    pairs = list(itertools.permutations(range(secrets), 2))
    size, extra = secrets * symbols, len(pairs) * symbols
    above, below = [], []
    for p, (i, j) in enumerate(pairs):
        total = np.zeros(size + extra)
        for y in range(symbols):
            row = np.zeros(size + extra)
            row[i * symbols + y], row[j * symbols + y] = 1, -math.exp(epsilon)
            row[size + p * symbols + y] = -1
            above.append(row)
            total[size + p * symbols + y] = 1
        below.append(total)
    sums = np.hstack([np.kron(np.eye(secrets), np.ones(symbols)), np.zeros((secrets, extra))])
    right = [*np.zeros(len(above)), *np.full(len(below), delta)]
    worth = np.append(-gain.ravel(), np.zeros(extra))
    return -linprog(worth, A_ub=np.array(above + below), b_ub=right, A_eq=sums, b_eq=np.ones(secrets)).fun


def test_a_bound_holds_whatever_the_solver_returns():
    """A dual that is nonsense is repaired; the bound stays above what is possible."""
    utility, prior, epsilon = problem(3)
    given = staircase.program(epsilon, len(prior))
    values = staircase.decision_values(given.directions, utility, prior)
    best = float(staircase.solve(values, given).value)
    for seed in range(50):
        dual, bound = staircase.certify(np.random.default_rng(seed).normal(size=len(prior)), values, given)
        assert bound >= best
        assert (dual @ given.rows >= values).all()


def test_a_solver_that_stops_early_leaves_a_bound_that_holds(monkeypatch):
    utility, prior, epsilon = problem(5)
    given = staircase.program(epsilon, len(prior))
    values = staircase.decision_values(given.directions, utility, prior)
    best = staircase.solve(values, given)
    monkeypatch.setattr(staircase, "PIVOTS", 0)
    early = staircase.solve(values, given)
    assert early.value == pytest.approx(float(best.value), abs=1e-8)  # by another solver
    assert early.bound >= best.bound - 1e-12
    monkeypatch.setattr(staircase, "linprog", lambda *_, **__: OptimizeResult(x=None))
    start = staircase.solve(values, given)
    assert start.value <= best.value + 1e-12
    assert start.bound >= best.bound - 1e-12


SMALL = [
    (3, 20.0, 0.05),
    (3, 10.0, 1e-6),
    (4, 3.0, 1e-9),
    (4, 5.0, 0.01),
    (4, 5.0, 1e-4),
    (4, 10.0, 1e-4),
    (4, 1e-6, 1e-4),
]
"""Secrets, ε and δ whose programs have columns with entries of very different size."""


@pytest.mark.parametrize(("secrets", "epsilon", "delta"), SMALL)
def test_programs_with_small_entries_have_the_value_of_another_solver(secrets, epsilon, delta):
    given = staircase.program(epsilon, secrets, delta)
    utility = np.random.default_rng(0).normal(size=(40, secrets, 5))
    values = staircase.decision_values(given.directions, utility)
    found = staircase.solve(values, given)
    assert (found.value <= found.bound + 1e-7).all()
    assert (found.bound <= found.value + 1e-7).all()
    np.testing.assert_allclose(found.weights @ given.directions, 1, atol=1e-9)
    for each in range(4):
        worth = np.append(-values[each], np.zeros(given.limits))
        best = -linprog(worth, A_eq=given.rows, b_eq=given.right, method="highs-ipm").fun
        assert found.value[each] == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(
    ("secrets", "epsilon", "delta"),
    [*SMALL, (2, 1.0, 0.0), (3, 0.3, 0.0), (4, 2.0, 0.0), (4, 50.0, 0.0), (3, 1e-6, 0.0)],
)
def test_a_code_keeps_its_budget_in_exact_arithmetic(secrets, epsilon, delta):
    """Its floating-point numbers as fractions, against e^ε from 60 digits, rounded down."""
    most = Fraction(Decimal(epsilon).exp(Context(prec=60))) * (1 - Fraction(1, 10**55))
    given = staircase.program(epsilon, secrets, delta)
    utility = np.random.default_rng(1).normal(size=(20, secrets, 5))
    found = staircase.solve(staircase.decision_values(given.directions, utility), given)
    for weights, value, each in zip(found.weights, found.value, utility, strict=True):
        code = staircase.mechanism(weights, given)
        np.testing.assert_allclose(code.sum(1), 1, rtol=1e-12)
        assert worth(code, each, np.full(secrets, 1 / secrets)) == pytest.approx(float(value), abs=1e-6)
        exact = [[Fraction(p) for p in row] for row in code.tolist()]
        for one, other in itertools.permutations(exact, 2):
            over = sum(max(p - most * q, Fraction(0)) for p, q in zip(one, other, strict=True))
            assert over <= Fraction(delta)


def test_weights_of_a_larger_budget_are_refused():
    wide, given = staircase.program(1.0, 3, 0.2), staircase.program(1.0, 3, 0.01)
    weights = staircase.solve(staircase.decision_values(wide.directions, np.eye(3)), wide).weights
    with pytest.raises(BadInput, match="within the budget"):
        staircase.mechanism(weights, given)


@pytest.mark.parametrize("delta", [1e-4, 0.02])
def test_a_bound_with_delta_follows_from_the_program_without(delta):
    """One sender against a program over whole codes; two with secrets of their own are worth the sum of both."""
    for seed in range(PROBLEMS):
        utility, prior, epsilon = problem(seed)
        given, secrets = staircase.program(epsilon, len(prior)), len(prior)
        found = staircase.solve(staircase.decision_values(given.directions, utility, prior), given)
        certain = staircase.decision_values(np.eye(secrets), utility, prior)
        bound = staircase.cut(found, certain, (secrets - 1) * delta)
        best = directly(utility * prior[:, None], epsilon, delta)
        assert best - 1e-6 <= bound <= best + 2 * secrets * delta * np.ptp(utility)
    one = staircase.program(1.0, 3)
    both = staircase.joint(one, 2)
    pairs = np.array([[(i == a) + (j == b) for a in range(3) for b in range(3)] for i in range(3) for j in range(3)])
    found = staircase.solve(staircase.decision_values(both.directions, pairs.astype(float)), both)
    bound = staircase.cut(found, np.full(9, 2 / 9), 2 * 2 * delta)
    assert 2 * limits.private_accuracy(1.0, delta, 3) <= bound <= 2 * limits.private_accuracy(1.0, 0.0, 3) + 8 * delta


def scenes(seed, count=40, secrets=3):
    """Values (scene, direction) of random decisions in several scenes, and ε."""
    rng = np.random.default_rng(seed)
    epsilon = float(rng.uniform(0.3, 3))
    given = staircase.program(epsilon, secrets)
    return staircase.decision_values(given.directions, rng.normal(size=(count, secrets, 4))), given, epsilon


@pytest.mark.parametrize("seed", range(5))
def test_knowing_the_scene_helps_and_sharing_a_measure_costs(seed):
    values, given, epsilon = scenes(seed)
    fixed, shared, public = (
        staircase.fixed(values, given),
        staircase.shared(values, epsilon),
        staircase.public(values, given),
    )
    assert fixed.value <= shared.value + 1e-9
    assert shared.value <= shared.bound + 1e-12
    assert shared.bound <= public.bound.mean() + 1e-9
    assert shared.value == pytest.approx(float(shared.bound), abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_the_shared_measure_is_a_code_for_all_scenes_and_the_best(seed):
    """Laid side by side on one interval, the scenes' columns keep every ratio within e^ε, across scenes too; and HiGHS,
    given all scenes and the mass at once, finds the same."""
    values, given, epsilon = scenes(seed, count=6)
    found = staircase.shared(values, epsilon)
    low = math.exp(-epsilon)
    directions = np.vstack([given.directions, np.full(3, low)])
    np.testing.assert_allclose(found.weights @ directions, 1, atol=1e-9)
    mass = found.weights.sum(1)
    np.testing.assert_allclose(mass, mass[0], rtol=1e-9)
    points = (np.arange(2000) + 0.5) / 2000 * mass[0]
    column = (points[None, :, None] > np.cumsum(found.weights, 1)[:, None, :-1]).sum(-1)
    density = directions[column]  # (scene, point, secret)
    assert (density.max((0, 2)) <= math.exp(epsilon) * density.min((0, 2)) * (1 + 1e-9)).all()
    count, width = len(values), len(directions)
    worth = np.append(-np.hstack([values, low * values[:, -1:]]).ravel() / count, 0)
    rows = np.hstack([np.kron(np.eye(count), directions.T), np.zeros((3 * count, 1))])
    masses = np.hstack([np.kron(np.eye(count), np.ones((1, width))), -np.ones((count, 1))])
    right = np.append(np.ones(3 * count), np.zeros(count))
    best = -linprog(worth, A_eq=np.vstack([rows, masses]), b_eq=right).fun
    assert best <= found.bound + 1e-7
    assert best == pytest.approx(float(found.value), abs=1e-5)


def test_scenes_that_agree_need_no_knowledge():
    values, given, epsilon = scenes(0, count=1)
    repeated = np.repeat(values, 5, axis=0)
    one = staircase.fixed(repeated, given)
    assert staircase.shared(repeated, epsilon).bound == pytest.approx(float(one.bound), abs=1e-5)


@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_senders_who_answer_each_other_stay_within_the_joint_program(delta):
    """The second sender chooses its code by what the first one said; a receiver guesses a function of both secrets."""
    rng = np.random.default_rng(0)
    one, plain = staircase.program(1.0, 2, delta), staircase.program(1.0, 2)
    both = staircase.joint(one, 2)
    for _ in range(10):
        utility = rng.normal(size=(4, 5))
        found = staircase.solve(staircase.decision_values(both.directions, utility), both)
        first = plain.directions[:2] / plain.directions[0].sum()  # (symbol, secret)
        adaptive = 0.0
        for column in first:
            answers = [np.kron(column, z) for z in plain.directions[:2] / plain.directions[0].sum()]
            silent = np.kron(column, np.ones(2))
            adaptive += max(
                staircase.decision_values(np.array(answers), utility).sum(),
                staircase.decision_values(silent[None], utility).sum(),
            )
        assert adaptive <= found.bound + 1e-12
        assert found.value == pytest.approx(float(found.bound), abs=1e-8)


@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_two_senders_of_separate_secrets_are_worth_the_sum(delta):
    one = staircase.program(1.5, 3, delta)
    both = staircase.joint(one, 2)
    guess = staircase.solve(staircase.decision_values(one.directions, np.eye(3)), one)
    pairs = np.array([[(i == a) + (j == b) for a in range(3) for b in range(3)] for i in range(3) for j in range(3)])
    found = staircase.solve(staircase.decision_values(both.directions, pairs.astype(float)), both)
    assert found.bound == pytest.approx(2 * float(guess.bound), abs=1e-9)


def test_beliefs_follow_from_the_prior_and_the_column():
    belief, mass = staircase.posteriors(np.array([[1.0, 0.5], [0.25, 1.0]]), [0.4, 0.6])
    np.testing.assert_allclose(mass, [0.7, 0.7])
    np.testing.assert_allclose(belief, [[4 / 7, 3 / 7], [1 / 7, 6 / 7]])


@pytest.mark.parametrize(("secrets", "count"), [(2, 5), (3, 22)])
def test_rays_are_counted(secrets, count):
    """Two secrets: (1, e^−ε) both ways, (1, 0) both ways, and (1, 1). Three: 6 with two steps, 6 with three, 6 with two
    steps and a zero, 3 with one value alone, and all equal."""
    found = staircase.rays(math.exp(-1), secrets)
    assert len(np.unique(found.round(12), axis=0)) == len(found) == count


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: staircase.program(0, 3), "epsilon must lie"),
        (lambda: staircase.program(math.inf, 3), "epsilon must lie"),
        (lambda: staircase.program(1e-9, 3), "epsilon must lie"),
        (lambda: staircase.mechanism(np.ones(3), staircase.program(1.0, 2)), "add up to 1"),
        (lambda: staircase.program(1, 3, 1.0), "delta must lie"),
        (lambda: staircase.program(1, 1), "at least 2 values"),
        (lambda: staircase.program(1, 20), "columns"),
        (lambda: staircase.joint(staircase.program(1, 3), 0), "at least one sender"),
        (lambda: staircase.decision_values(np.ones((1, 2)), np.eye(2), [0.5, 0.6]), "add up to 1"),
        (lambda: staircase.solve(np.full(3, np.nan), staircase.program(1, 2)), "finite"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(BadInput, match=message):
        call()
