"""The paper's Assumptions 1 to 4 (labels `asmp: 1` to `asmp: 4`), tested numerically on a Markov game.

They are what Macua et al. (2018) ask for before their theorem on Markov potential games applies:

1. the set Z of states and the set W of policy parameters are nonempty and convex;
2. every reward is twice continuously differentiable on Z × W;
3. the transition f and the constraints g are continuously differentiable, and g is regular (Mangasarian-Fromovitz);
4. rewards are proper, and for some scalar B the set of all (x, a) with r_k ≥ B is nonempty and bounded for every k.

Each is tested at points and along chords drawn at random. That can refute an assumption. That it finds nothing is
evidence, no proof.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.optimize import linprog

from dpmac.games.definitions import CELLS, stays_rough
from dpmac.games.markov import NEAR, Array, MarkovGame, Region
from dpmac.games.statements import Condition

POINTS = 64
"""Points that are drawn from a set."""
CHORDS = 48
"""Chords that smoothness is tested along."""
ACTIVE = 1e-7
"""A constraint above −ACTIVE is active."""
FAR = (1e3, 1e6)
"""Distances at which a level set that should be bounded is looked for."""


def check(game: MarkovGame, seed: int = 0) -> list[Condition]:
    """All conditions of the four assumptions, in order; the seed draws points and chords."""
    rng = np.random.default_rng(seed)
    convexity = convex_sets(game, rng)
    if any(condition.name.endswith("nonempty") and condition.verdict == "fails" for condition in convexity):
        empty = [(f"asmp: {i}", "can be tested") for i in (2, 3, 4)]
        return [*convexity, *(Condition(of, name, "undecided", "as a set is empty") for of, name in empty)]
    return [*convexity, *smooth_rewards(game, rng), *regular_constraints(game, rng), *bounded_level_sets(game, rng)]


def convex_sets(game: MarkovGame, rng: np.random.Generator) -> list[Condition]:
    """Assumption 1: Z and W are nonempty, and no segment between two members leaves them."""
    of, conditions = "asmp: 1", []
    for name, region in (("Z", game.states), ("W", game.parameters)):
        members = region.points(POINTS, rng)
        if not members:
            conditions.append(Condition(of, f"{name} is nonempty", "fails", "no member was found"))
            continue
        chords = (segment(u, v, rng.random(1), region)[0] for u, v in pairs(members, 4 * POINTS, rng))
        left = next((point for point in chords if not region.contains(point)), None)
        conditions += [
            Condition(of, f"{name} is nonempty", "holds"),
            Condition(of, f"{name} is convex", "holds")
            if left is None
            else Condition(of, f"{name} is convex", "fails", f"at {place(left)}, which lies between two members"),
        ]
    return conditions


def smooth_rewards(game: MarkovGame, rng: np.random.Generator) -> list[Condition]:
    """Assumption 2: the second derivative of every reward is continuous along chords of Z × W."""
    return [smooth("asmp: 2", "every r_k is twice continuously differentiable", game, game.rewards, 2, rng)]


def regular_constraints(game: MarkovGame, rng: np.random.Generator) -> list[Condition]:
    """Assumption 3: f and g are continuously differentiable along chords, and g is regular where it binds."""
    return [
        smooth("asmp: 3", "f is continuously differentiable", game, game.transition, 1, rng),
        smooth("asmp: 3", "g is continuously differentiable", game, game.constraints, 1, rng),
        mangasarian_fromovitz(game, rng),
    ]


def mangasarian_fromovitz(game: MarkovGame, rng: np.random.Generator) -> Condition:
    """Whether, at every allowed point, one direction lowers all active constraints: a linear program for each."""
    of, name, size = "asmp: 3", "g meets Mangasarian-Fromovitz", game.states.low.size

    def g(z: Array) -> Array:
        return game.constraints(z[:size], z[size:])

    for x, w in zip(game.states.points(POINTS, rng), game.parameters.points(POINTS, rng), strict=False):
        z = np.concatenate([x, game.policy(x, w)])
        values = g(z)
        active = (values >= -ACTIVE) & (values <= ACTIVE)
        if np.any(values > ACTIVE) or not np.any(active):
            continue
        step = 1e-6 * (1 + np.abs(z))
        slopes = [(g(z + shift) - g(z - shift))[active] / (2 * step[i]) for i, shift in enumerate(np.diag(step))]
        if descent(np.array(slopes).T) <= 1e-6:
            return Condition(of, name, "fails", f"at (x, a) = {place(z)}: no direction lowers all active constraints")
    return Condition(of, name, "holds")


def descent(gradients: Array) -> float:
    """The largest t for which some direction |d| ≤ 1 lowers all constraints by t: gradients (constraint, n)."""
    count, size = gradients.shape
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    rows = np.hstack([gradients / np.maximum(norms, 1e-12), np.ones((count, 1))])
    goal = np.append(np.zeros(size), -1.0)
    solved = linprog(goal, A_ub=rows, b_ub=np.zeros(count), bounds=[(-1, 1)] * size + [(None, 1)])
    return float(-solved.fun)


def bounded_level_sets(game: MarkovGame, rng: np.random.Generator) -> list[Condition]:
    """Assumption 4, with the largest B that all agents reach near by: who reaches it far away as well?"""
    of, proper, bounded = "asmp: 4", "every r_k is proper", "the sets r_k ≥ B are bounded"
    drawn = zip(game.states.points(8 * POINTS, rng), game.parameters.points(8 * POINTS, rng), strict=False)
    near = [(x, w) for x, w in drawn if allowed(game, x, w)]
    if not near:
        return [Condition(of, bounded, "undecided", "as no point was found that the constraints allow")]
    rewards = np.array([game.rewards(x, game.policy(x, w)) for x, w in near])
    finite = np.all(np.isfinite(rewards), axis=1)
    if not np.all(finite):
        x, w = near[int(np.argmin(finite))]
        return [Condition(of, proper, "fails", f"at (x, w) = {place(np.append(x, w))}")]
    level = float(rewards.max(axis=0).min())
    for agent, best in enumerate(rewards.argmax(axis=0)):
        for x, w in far_from(game, near[best][0], near[best][1], rng):
            reward = float(game.rewards(x, game.policy(x, w))[agent])
            if reward >= level:
                where = f"for B = {level:.4g}: agent {agent + 1} gets {reward:.4g} at (x, w) = {place(np.append(x, w))}"
                return [Condition(of, proper, "holds"), Condition(of, bounded, "fails", where)]
    return [Condition(of, proper, "holds"), Condition(of, bounded, "holds")]


def far_from(game: MarkovGame, x: Array, w: Array, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """What is allowed once some of the coordinates without a bound are sent far away; nothing if all have bounds."""
    z = np.append(x, w)
    low, high = np.append(game.states.low, game.parameters.low), np.append(game.states.high, game.parameters.high)
    free = np.isinf(low) | np.isinf(high)
    if not np.any(free):
        return
    for distance in FAR:
        for _ in range(POINTS):
            moved = free & (rng.random(z.size) < 0.5)
            far = np.clip(z + moved * distance * rng.choice([-1.0, 1.0], z.size), low, high)
            x2, w2 = far[: x.size], far[x.size :]
            moved_to = np.append(x2, game.policy(x2, w2))
            if np.max(np.abs(moved_to - np.append(x, game.policy(x, w)))) > NEAR and allowed(game, x2, w2):
                yield x2, w2


def smooth(
    of: str,
    name: str,
    game: MarkovGame,
    function: Callable[[Array, Array], Array],
    times: int,
    rng: np.random.Generator,
) -> Condition:
    """Whether a function of (x, a), of any size, is so many times continuously differentiable along chords of Z × W."""
    states, parameters = game.states.points(POINTS, rng), game.parameters.points(POINTS, rng)
    varied = {"states": False, "parameters": False}
    for (x, x2), (w, w2) in zip(pairs(states, CHORDS, rng), pairs(parameters, CHORDS, rng), strict=True):
        chord = partial(along, game, x, x2, w, w2)
        xs, ws = chord(np.linspace(0.0, 1.0, CELLS + 1))
        if not (all(map(game.states.contains, xs)) and all(map(game.parameters.contains, ws))):
            continue  # a set that is not convex
        varied["states"] |= bool(np.any(x != x2)) or len(set(map(tuple, states))) == 1
        varied["parameters"] |= bool(np.any(w != w2)) or len(set(map(tuple, parameters))) == 1
        broken = kink(partial(values_along, game, function, chord), times)
        if broken is not None:
            (x,), (w,) = chord(np.array([broken]))
            return Condition(of, name, "fails", f"near (x, w) = {place(np.append(x, w))}")
    if all(varied.values()):
        return Condition(of, name, "holds")
    return Condition(of, name, "undecided", "as no chord lies in Z × W")


def kink(function: Callable[[Array], Array], times: int) -> float | None:
    """Where on [0, 1] a function, (share,) to (share, component), is not so many times continuously differentiable."""
    whole = np.linspace(0.0, 1.0, CELLS + 1)
    for component, values in enumerate(function(whole).T):
        if not np.all(np.isfinite(values)):
            return float(whole[np.argmin(np.isfinite(values))])
        broken = stays_rough(lambda shares, i=component: function(shares)[:, i], whole, values, times + 1)
        if broken is not None:
            return broken
    return None


def along(game: MarkovGame, x: Array, x2: Array, w: Array, w2: Array, share: Array) -> tuple[Array, Array]:
    """States and parameters (share, …) on the way from (x, w) to (x2, w2)."""
    return segment(x, x2, share, game.states), segment(w, w2, share, game.parameters)


def values_along(
    game: MarkovGame,
    function: Callable[[Array, Array], Array],
    chord: Callable[[Array], tuple[Array, Array]],
    share: Array,
) -> Array:
    """A function of (x, a) along a chord: (share, component)."""
    return np.array([function(x, game.policy(x, w)) for x, w in zip(*chord(share), strict=True)])


def allowed(game: MarkovGame, x: Array, w: Array) -> bool:
    """Whether (x, w) lies in Z × W and the action that it makes meets the constraints."""
    inside = game.states.contains(x) and game.parameters.contains(w)
    return inside and bool(np.all(game.constraints(x, game.policy(x, w)) <= ACTIVE))


def pairs(members: list[Array], count: int, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """So many pairs of members, drawn at random."""
    for first, second in rng.integers(len(members), size=(count, 2)):
        yield members[first], members[second]


def segment(start: Array, end: Array, share: Array, region: Region) -> Array:
    """Points (share, n) from start to end; rounding does not take them out of the region's box."""
    share = share[:, None]
    return np.clip((1 - share) * start + share * end, region.low, region.high)


def place(point: Array) -> str:
    """A point in words."""
    return f"({', '.join(f'{number:.4g}' for number in point)})"
