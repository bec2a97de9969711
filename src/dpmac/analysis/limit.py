"""What private communication can be worth on CCN, midway and MPE's speaker and listener: codes for scripted walkers,
and a bound for everybody.

Each receiver's place is the middle of the landmarks that the others know; with two agents that is CCN, and where one
of them stands still, the speaker and the listener. Messages arrive after the first step. Everything is exact over
secrets and noise draws: symbols are enumerated and weighed, on the starts that evaluation uses. `docs/limits.md` has
the proofs.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import multinomial

from dpmac import privacy
from dpmac.analysis import walk
from dpmac.config import require
from dpmac.frontiers import LINES as LINES_OF_TEAMS
from dpmac.privacy import scalar, staircase
from dpmac.privacy.loss import response_flip
from dpmac.privacy.staircase import Program
from dpmac.runner import train
from dpmac.tasks import particles
from dpmac.tasks.alarm import Alarm
from dpmac.tasks.base import Task
from dpmac.tasks.ccn import CCN
from dpmac.tasks.midway import Midway
from dpmac.tasks.particles import Bodies, Convention, Points
from dpmac.tasks.place import Place
from dpmac.tasks.speaker_listener import SpeakerListener

LINES = {
    "randomised": "randomised response, scripted walkers",
    "two": "two symbols, grouped by the landmarks, scripted walkers",
    "fixed": "fixed code, scripted walkers",
    "shared": "code by the landmarks, scripted walkers",
    "public": "code with public landmarks, scripted walkers",
    "bound": "bound: no mechanism and no walker passes",
}
MOST_AGENTS, MOST_SECRETS = 3, 4
MOST_HEARD = 150
"""What larger teams can hear, but for its order, at most; they have the line `randomised` alone."""
NUMBER_LINES = {"fixed": "best cells through randomised response", "bound": LINES["bound"]}
MOMENT_LINES = {
    "every": "randomised response at every step",
    "word": "randomised response on the moment",
    "bound": LINES["bound"],
}
MOST_SLOTS = 12
"""Steps of an episode whose messages are gone through at most."""
BY_SCENE = ("two", "shared", "public")
"""Lines of senders that see the landmarks; a speaker does not."""
ROUNDS = 3
"""How often a code is improved against itself where several senders share one."""
CHUNK = 512
"""Starts whose bounds are worked out at once."""


class Scenes(NamedTuple):
    """Everything of the starts but the secrets."""

    agents: np.ndarray
    """(episode, agent, 2) those who walk"""
    landmarks: np.ndarray
    """(episode, landmark, 2)"""
    others: int
    """Agents that each of them hears."""
    convention: Convention
    horizon: int


class Places(NamedTuple):
    """Where an agent's place is, given the columns that it has received from all others."""

    mean: np.ndarray
    """(episode, columns, 2)"""
    variance: np.ndarray
    """(episode, columns)"""


def curves(task: Task, epsilons: Sequence[float], episodes: int, delta: float = 0.0) -> dict[str, Any]:
    """All lines over ε as plain data: mean and standard error over starts of the return, for each line and ε; and the
    scripted walkers' return without any message. δ concerns the bound, and an alarm's symbols at every step; other
    codes do without. Agents with a limited view have the bound alone: scripted walkers see all landmarks."""
    if isinstance(task, Place):
        return curves_of_a_number(task, epsilons, episodes, delta)
    if isinstance(task, Alarm):
        return curves_of_a_moment(task, epsilons, episodes, delta)
    scenes = scenes_of(task, episodes)
    names = names_of(task)
    points: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for epsilon in epsilons:
        earned = scripted(scenes, epsilon) if "fixed" in names else {}
        if "bound" in names:
            earned["bound"] = bound(scenes, epsilon, delta)
        else:
            earned["randomised"] = randomised(scenes, epsilon)
        for name in names:
            points[name].append({"epsilon": float(epsilon)} | summary(earned[name]))
    lines = {name: {"label": LINES[name], "points": points[name]} for name in names}
    found = {"task": task.name, "episodes": episodes, "delta": delta, "lines": lines}
    return found if names == ["bound"] else found | {"silence": summary(silence(scenes))}


def names_of(task: Task) -> list[str]:
    """The lines of a task whose landmarks are known."""
    if not sees_all(task):
        return ["bound"]
    if task.agents > MOST_AGENTS:
        return ["randomised"]
    return [name for name in LINES if name not in BY_SCENE or not isinstance(task, SpeakerListener)]


def sees_all(task: Task) -> bool:
    return math.isinf(getattr(task, "view_radius", math.inf))


def curves_of_a_number(task: Place, epsilons: Sequence[float], episodes: int, delta: float) -> dict[str, Any]:
    """The same for a secret that is a number: the best cells through randomised response and a bound for every
    mechanism, both in the mean over all numbers, by receivers who point exactly."""
    pays = task.horizon - 1
    lines = {
        "fixed": lambda each: -pays * scalar.error_of(scalar.best_quantiser(each), each),
        "bound": lambda each: -pays * scalar.least_error(each, delta),
    }
    head = {"task": task.name, "episodes": episodes, "delta": delta}
    return head | exactly(-pays * scalar.PRIOR, lines, NUMBER_LINES, epsilons)


def curves_of_a_moment(task: Alarm, epsilons: Sequence[float], episodes: int, delta: float) -> dict[str, Any]:
    """The same for a secret that is a moment, by receivers who know what follows from all that they have heard."""
    lines = {
        "every": lambda each: told_moment(every_slot(task.horizon, each, delta)),
        "word": lambda each: told_moment(one_word(task.horizon, each)),
        "bound": lambda each: moment_bound(task.horizon, each, delta),
    }
    head = {"task": task.name, "episodes": episodes, "delta": delta}
    return head | exactly(task.silent_return, lines, MOMENT_LINES, epsilons)


def exactly(
    silence: float, lines: Mapping[str, Callable[[float], float]], labels: Mapping[str, str], epsilons: Sequence[float]
) -> dict[str, Any]:
    """Lines over ε whose returns are known without a start to sample."""

    def point(value: float) -> dict[str, float]:
        return {"return_mean": value, "return_se": 0.0}

    return {
        "silence": point(silence),
        "lines": {
            name: {"label": labels[name], "points": [{"epsilon": float(e)} | point(earned(float(e))) for e in epsilons]}
            for name, earned in lines.items()
        },
    }


def one_word(slots: int, epsilon: float) -> list[np.ndarray]:
    """Probabilities (moment, transcript) of what has been heard before each step, where the moment itself goes through
    randomised response: a word so far or none."""
    random = response_flip(epsilon, slots + 1) / slots
    outcome = np.full((slots, slots + 1), random) + np.eye(slots, slots + 1) * (1 - random * (slots + 1))
    return [np.column_stack([outcome[:, :t], outcome[:, t:].sum(1)]) for t in range(slots)]


def every_slot(slots: int, epsilon: float, delta: float) -> list[np.ndarray]:
    """The same where every step says by randomised response whether it has begun."""
    channel = dataclasses.replace(LINES_OF_TEAMS["response-every"].channel, symbols=2)
    flip = privacy.calibrate(channel, epsilon, delta, slots) if delta else response_flip(epsilon / slots, 2)
    heard = [np.ones((slots, 1))]
    for t in range(slots - 1):
        begun = (np.arange(slots) <= t)[:, None]
        true, false = np.where(begun, 1 - flip, flip), np.where(begun, flip, 1 - flip)
        heard.append(np.concatenate([heard[-1] * true, heard[-1] * false], axis=1))
    return heard


def told_moment(heard: Sequence[np.ndarray]) -> float:
    """The share of steps in which the likelier answer is right, for what has been heard before each of them."""
    slots, late = len(heard), np.tri(len(heard), k=-1)  # (step, moment) whether it has begun before
    rights = [np.maximum(late[t] @ each, (1 - late[t]) @ each).sum() for t, each in enumerate(heard)]
    return float(sum(rights)) / slots**2


def moment_bound(slots: int, epsilon: float, delta: float) -> float:
    """What no mechanism passes: in each step one bit is asked for, and no (ε, δ)-DP transcript tells two moments apart
    by a test that is right more than (e^ε + δ)/(1 + e^ε) of the time on both sides."""
    late = np.arange(slots) / slots
    both = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon)) if epsilon < 700 else 1.0
    guesses = [late + (1 - late) * delta, 1 - late + late * delta, np.full(slots, both)]
    return float(np.max(guesses, axis=0).mean())


def summary(returns: np.ndarray) -> dict[str, float]:
    error = returns.std(ddof=1) / np.sqrt(len(returns))
    return {"return_mean": float(returns.mean()), "return_se": float(error)}


def known(task: Task) -> bool:
    return (isinstance(task, CCN) and task.convention == "openai") or isinstance(task, Midway | SpeakerListener)


def applies(task: Task) -> bool:
    """Whether limits are known for a task, and its agents and landmarks few enough to work them out."""
    if isinstance(task, Alarm):
        return task.horizon <= MOST_SLOTS
    if isinstance(task, Place) or not known(task):
        return isinstance(task, Place)
    secrets = getattr(task, "symbols", 0)
    few = task.agents <= MOST_AGENTS and secrets <= MOST_SECRETS
    return few or (sees_all(task) and math.comb(task.agents + secrets - 2, secrets - 1) <= MOST_HEARD)


def scenes_of(task: Task, episodes: int) -> Scenes:
    """The common starts of a task, as evaluation draws them."""
    names = "ccn under openai's convention, midway and speaker-listener"
    require(known(task), f"limits are known for {names}, not for {task}")
    assert isinstance(task, CCN | Midway | SpeakerListener)
    require(applies(task), f"limits enumerate what an agent can hear, which is too much with {task.agents} agents")
    require(episodes >= 2, f"a standard error needs at least 2 episodes, not {episodes}")
    start_key, *_ = jax.random.split(jax.random.key(train.EVALUATION_SEED), 4)
    states = jax.vmap(task.reset)(jax.random.split(start_key, episodes))
    agents, landmarks = (np.stack([part.x, part.y], -1).astype(float) for part in (states.bodies, states.landmarks))
    return Scenes(agents, landmarks, task.agents - 1, task.convention, task.horizon)


# Codes for scripted walkers -------------------------------------------------------------------------------------------


def silence(scenes: Scenes) -> np.ndarray:
    """Returns (episode,) of scripted walkers who hear nothing."""
    nothing = np.full((1, scenes.landmarks.shape[1]), 1.0)
    return walked(scenes, places(scenes, nothing))[:, 0]


def scripted(scenes: Scenes, epsilon: float) -> dict[str, np.ndarray]:
    """Returns (episode,) of scripted walkers who believe what a code tells them, for each code; the mean over secrets
    and noise draws."""
    program = staircase.program(epsilon, scenes.landmarks.shape[1])
    mass = staircase.posteriors(program.directions)[1]
    earned = walked(scenes, places(scenes, program.directions))
    spread = spreads(scenes, program.directions)
    response = np.zeros(len(mass))
    response[program.basis] = 1 / program.directions[0].sum()
    by_landmarks = staircase.shared(spread, epsilon).weights
    by_landmarks[:, -2] += by_landmarks[:, -1] * program.directions.min()  # all e^−ε tells as little as all 1
    codes = {
        "randomised": response,
        "two": two_symbols(spread, program),
        "fixed": fixed_code(earned, program, response),
        "shared": by_landmarks[:, :-1],
        "public": staircase.public(spread, program).weights,
    }
    return {name: expected(earned, weights * mass) for name, weights in codes.items()}


def randomised(scenes: Scenes, epsilon: float) -> np.ndarray:
    """The same for randomised response alone and any number of agents: their place depends on how often each symbol was
    sent, and all symbols are as likely."""
    program = staircase.program(epsilon, scenes.landmarks.shape[1])
    response = program.directions[program.basis]
    sent = np.array(list(combinations_with_replacement(range(len(response)), scenes.others)))
    counts = np.array([np.bincount(each, minlength=len(response)) for each in sent])
    likely = multinomial.pmf(counts, scenes.others, np.full(len(response), 1 / len(response)))
    return walked(scenes, places(scenes, response, sent.T)) @ likely


def places(scenes: Scenes, directions: np.ndarray, sent: np.ndarray | None = None) -> Places:
    """Mean and variance of an agent's place for columns (direction, landmark) that the others can have `sent` (other,
    columns); by default all."""
    belief = staircase.posteriors(directions)[0]
    mean = belief @ scenes.landmarks
    variance = belief @ np.sum(scenes.landmarks**2, -1)[..., None]
    variance = variance[..., 0] - np.sum(mean**2, -1)
    if sent is None:
        sent = np.indices((len(directions),) * scenes.others).reshape(scenes.others, -1)
    return Places(mean[:, sent].mean(1), variance[:, sent].sum(1) / scenes.others**2)


def spreads(scenes: Scenes, directions: np.ndarray) -> np.ndarray:
    """How far (episode, direction) a column moves the mean of a landmark, squared, times its probability.

    A code by the landmarks, which all agents see, maximises it: the variance that it takes away. It knows neither where
    the receivers stand nor how they walk.
    """
    belief, mass = staircase.posteriors(directions)
    moved = belief @ scenes.landmarks - scenes.landmarks.mean(1, keepdims=True)
    return mass * np.sum(moved**2, -1)


def two_symbols(spread: np.ndarray, program: Program) -> np.ndarray:
    """Weights (episode, direction) of binary randomised response on the best split of the secrets in two groups."""
    high = program.directions == 1
    pairs = [(i, j) for i in range(len(high)) for j in range(i) if (high[i] != high[j]).all()]
    splits = np.zeros((len(pairs), len(high)))
    for split, pair in zip(splits, pairs, strict=True):
        split[list(pair)] = 1 / (1 + program.directions.min())
    return splits[np.argmax(spread @ splits.T, axis=1)]


def fixed_code(earned: np.ndarray, program: Program, weights: np.ndarray) -> np.ndarray:
    """Weights (direction,) of the best code for all scenes. Where receivers hear several senders, all use it, and it is
    improved while the others keep theirs, so that a better one may exist."""
    mass = staircase.posteriors(program.directions)[1]
    mean, best = earned.mean(0, keepdims=True), weights
    for _ in range(ROUNDS):
        effective = mean.reshape(len(mass), -1) @ heard(weights * mass, mean.size // len(mass))
        weights = staircase.fixed((mass * effective)[None], program).weights
        best = max(best, weights, key=lambda code: expected(mean, code * mass)[0])
    return best


def heard(probability: np.ndarray, combinations: int) -> np.ndarray:
    """Probabilities (combinations,) of what independent senders with one code send."""
    found = np.ones(1)
    while len(found) < combinations:
        found = np.kron(found, probability)
    return found


def expected(earned: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """Mean (episode,) of what is earned (episode, columns) when all senders use these probabilities (…, direction)."""
    while earned.shape[1] > 1:
        by_first = earned.reshape(len(earned), probability.shape[-1], -1)
        earned = np.sum(by_first * probability[..., None], axis=1)
    return earned[:, 0]


def walked(scenes: Scenes, goal: Places) -> np.ndarray:
    """Returns (episode, columns) of scripted walkers: to the middle of all landmarks first, then to their place."""
    shape = (*scenes.agents.shape[:2], goal.mean.shape[1])
    start = np.broadcast_to(scenes.agents[:, :, None], (*shape, 2)).reshape(-1, 2)
    middle = np.broadcast_to(scenes.landmarks.mean(1)[:, None, None], (*shape, 2)).reshape(-1, 2)
    place = np.broadcast_to(goal.mean[:, None], (*shape, 2)).reshape(-1, 2)
    cost = np.asarray(steered(*map(jnp.asarray, (start, middle, place)), scenes.convention, scenes.horizon), float)
    return -np.sum(cost.reshape(shape) + scenes.horizon * goal.variance[:, None], axis=1)


@partial(jax.jit, static_argnums=(3, 4))
def steered(start: jax.Array, first: jax.Array, then: jax.Array, convention: Convention, horizon: int) -> jax.Array:
    """Squared distances to `then`, summed over time (body,), of bodies that set out for `first` for one step."""
    bodies = particles.at_rest(Points(start[:, 0], start[:, 1]))

    def step(bodies: Bodies, time: jax.Array) -> tuple[Bodies, jax.Array]:
        goal = jnp.where(time > 0, then, first)
        bodies = particles.glide(bodies, particles.steer(bodies, Points(goal[:, 0], goal[:, 1])), convention)
        return bodies, (bodies.x - then[:, 0]) ** 2 + (bodies.y - then[:, 1]) ** 2

    return jnp.sum(jax.lax.scan(step, bodies, jnp.arange(horizon))[1], axis=0)


# The bound ------------------------------------------------------------------------------------------------------------


def bound(scenes: Scenes, epsilon: float, delta: float = 0.0) -> np.ndarray:
    """Upper bounds (episode,) on the return of every mechanism whose transcript is (ε, δ)-DP for each sender, and of
    every walker; the mean over secrets and noise draws.

    For each receiver and each first action: the joint program of all others over the least costs of walking. The best
    first action counts. With limits on δ, several senders take the dual of the pure program, extended, or cut where
    columns would be too many.
    """
    parts = [
        scenes._replace(agents=scenes.agents[i : i + CHUNK], landmarks=scenes.landmarks[i : i + CHUNK])
        for i in range(0, len(scenes.agents), CHUNK)
    ]
    by_action = np.concatenate([bounds(part, epsilon, delta) for part in parts])
    return np.sum(np.max(by_action, axis=2), axis=1)


def bounds(scenes: Scenes, epsilon: float, delta: float) -> np.ndarray:
    """The same (episode, agent, action) for each receiver and first action."""
    secrets, senders = scenes.landmarks.shape[1], scenes.others
    several = delta > 0 and senders > 1
    one = staircase.program(epsilon, secrets, 0 if several else delta)
    found = staircase.solve(relaxed(scenes, one.directions), staircase.joint(one, senders))
    if not several:
        return found.bound
    wide = staircase.program(epsilon, secrets, delta)
    if len(wide.directions) ** senders > staircase.MOST_COLUMNS:
        return staircase.cut(found, relaxed(scenes, np.eye(secrets)), senders * (secrets - 1) * delta)
    return staircase.extend(found.dual, relaxed(scenes, wide.directions), staircase.joint(wide, senders))


def relaxed(scenes: Scenes, directions: np.ndarray) -> np.ndarray:
    """What the best walker can earn at most (episode, agent, action, columns) upon columns from all others, times the
    columns' probability."""
    goal, mass = places(scenes, directions), staircase.posteriors(directions)[1]
    offsets = scenes.agents[:, :, None] - goal.mean[:, None]
    cost = walk.least_cost(offsets, scenes.convention, scenes.horizon)
    cost += scenes.horizon * goal.variance[:, None, :, None]
    return np.moveaxis(-cost, -1, 2) * heard(mass, goal.mean.shape[1])
