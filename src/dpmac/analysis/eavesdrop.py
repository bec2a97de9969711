"""An eavesdropper on a trained team: how well can a sender's secret be guessed from what was said, beside what is
possible?

It hears every message of the one sender, or of all senders at once, over many whole episodes, as they left, and is told
the secret of some of them to learn from. On episodes that it has not seen it then guesses. Classes are balanced by
resampling, so that guessing without hearing is right once in k times, and no eavesdropper at all is right more often
than `privacy.limits` allows.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from scipy.special import betaincinv

from dpmac import privacy
from dpmac.agents import protocol
from dpmac.agents.layers import Linear, fill
from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.team import Team
from dpmac.analysis import audit
from dpmac.config import Release, require, whole
from dpmac.learner.rollout import rollout
from dpmac.runner.noise import noise_scales
from dpmac.runner.population import Loaded
from dpmac.runner.train import Program

HEARS = ("sender", "all")
"""Whom an eavesdropper hears: the sender whose secret it guesses alone, or everybody at once."""
EPISODES = 16_384
HIDDEN = 64
STEPS, BATCH, RATE, DECAY = 600, 256, 3e-3, 1e-3
"""Of the network that learns to guess."""
RIDGE = 1e-2
FEWEST = 20
"""Episodes of the rarest secret without which there is no answer."""


class Overheard(NamedTuple):
    """What was said, and what was secret."""

    messages: Array
    """(episode, use, agent, number) as they left; copies for several recipients side by side."""
    secrets: dict[str, Array]
    """(episode, agent) classes."""


@partial(jax.jit, static_argnums=(0, 4, 5))
def overhear(program: Program, team: Team, scale: NoiseScale, key: Array, episodes: int, step: int) -> Overheard:
    """Whole greedy episodes, with the secrets of one step."""
    trace = rollout(program.task, team, scale, key, episodes, greedy=True)
    states = jax.tree.map(lambda leaf: leaf[:, step], trace.states)
    said = trace.released[:, np.flatnonzero(team.sends)]
    facts = jax.vmap(program.task.secrets)(states)
    return Overheard(said.reshape(*said.shape[:3], -1), {name: classes_of(fact) for name, fact in facts.items()})


@partial(jax.jit, static_argnums=(0, 4, 5))
def composed(program: Program, team: Team, scale: NoiseScale, key: Array, episodes: int, step: int) -> Overheard:
    """The same episodes before the channel: what senders made (episode, time, agent, number) at every step."""

    def one(key: Array) -> tuple[Array, Any]:
        found = audit.said(program.task, team, scale, key)
        return found.made, program.task.secrets(jax.tree.map(lambda leaf: leaf[step], found.states))

    made, facts = jax.vmap(one)(jax.random.split(key, episodes))
    return Overheard(made, {name: classes_of(fact) for name, fact in facts.items()})


def deployed(made: Overheard, releases: list[Release]) -> Overheard:
    """What is heard where these messages leave through the measurement of each agent."""
    agents = range(len(releases))
    left = [audit.deployed(releases[agent], made.messages[:, :, agent], len(releases) - 1) for agent in agents]  # type: ignore[arg-type]
    said = np.stack(left, axis=2)
    return Overheard(said.reshape(*said.shape[:3], -1), made.secrets)  # type: ignore[arg-type]


def classes_of(facts: Array) -> Array:
    """Facts (episode, agent, …) as classes (episode, agent): whole numbers as they are, places by their quadrant."""
    if facts.ndim == 2 and jnp.issubdtype(facts.dtype, jnp.integer):
        return facts
    signs = (facts.reshape(*facts.shape[:2], -1) > 0).astype(int)
    return signs @ (2 ** jnp.arange(signs.shape[-1]))


# Guessing -------------------------------------------------------------------------------------------------------------


class Split(NamedTuple):
    """Places of episodes (class, episode), as many of each class: to learn from, to choose a guesser by, to count."""

    learn: np.ndarray
    choose: np.ndarray
    count: np.ndarray


class Guess(NamedTuple):
    """How often a guesser is right on balanced episodes that it has not seen."""

    right: int
    episodes: int
    classes: int
    guesser: str

    @property
    def accuracy(self) -> float:
        return self.right / self.episodes

    def at_least(self, confidence: float) -> float:
        """Clopper and Pearson's lower bound; that classes are as many each only makes it safer."""
        return float(betaincinv(self.right, self.episodes - self.right + 1, 1 - confidence)) if self.right else 0.0

    def at_most(self, confidence: float) -> float:
        wrong = self.episodes - self.right
        return float(betaincinv(self.right + 1, wrong, confidence)) if wrong else 1.0


def split(labels: np.ndarray, classes: int) -> Split | None:
    """Balanced shares of a half, a quarter and a quarter; nothing where a class is too rare."""
    places = [np.flatnonzero(labels == index) for index in range(classes)]
    each = min(map(len, places)) // 4
    if 4 * each < FEWEST:
        return None
    table = np.stack([place[: 4 * each] for place in places])
    return Split(table[:, : 2 * each], table[:, 2 * each : 3 * each], table[:, 3 * each :])


def guess(messages: np.ndarray, secrets: np.ndarray, seed: int = 0) -> Guess | None:
    """Learn to tell secrets (episode,) from messages (episode, use, number), and count on episodes held out.

    Two guessers learn: a linear one from the mean over the episode, in which noise averages out, and a network from
    all messages. The better one on episodes of its own is counted. Nothing where there is only one secret, or too few
    episodes of one.
    """
    values, labels = np.unique(secrets, return_inverse=True)
    parts = split(labels, len(values)) if len(values) > 1 else None
    if parts is None or messages.size == 0:
        return None
    inputs = np.concatenate([messages.reshape(len(messages), -1), messages.mean(1)], axis=1).astype(np.float32)
    inputs = (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-6)
    drawn = np.random.default_rng(seed).integers(0, parts.learn.shape[1], (STEPS, len(values), BATCH // len(values)))
    batches = np.take_along_axis(parts.learn[None], drawn, axis=2).reshape(STEPS, -1)
    guesses = {
        "linear": linear(inputs[:, -messages.shape[2] :], parts.learn),
        "network": np.asarray(learned(jax.random.key(seed), inputs, labels, batches, len(values))),
    }

    def right(name: str, places: np.ndarray) -> int:
        return int(np.sum(guesses[name][places] == np.arange(len(values))[:, None]))

    best = max(guesses, key=lambda name: right(name, parts.choose))
    return Guess(right(best, parts.count), parts.count.size, len(values), best)


def linear(inputs: np.ndarray, learn: np.ndarray) -> np.ndarray:
    """Guesses (episode,) by the nearest mean of a class, in units of the spread within classes."""
    known = inputs[learn]
    means = known.mean(1)
    within = (known - means[:, None]).reshape(-1, inputs.shape[1])
    spread = within.T @ within / len(within) + RIDGE * np.eye(inputs.shape[1])
    weights = np.linalg.solve(spread, means.T)
    return np.argmax(inputs @ weights - np.sum(means * weights.T, axis=1) / 2, axis=1)


class Listener(eqx.Module):
    """A network with one hidden layer."""

    hidden: Linear
    scores: Linear

    def __call__(self, inputs: Array) -> Array:
        return self.scores(jax.nn.relu(self.hidden(inputs)))


@partial(jax.jit, static_argnums=4)
def learned(key: Array, inputs: Array, labels: Array, batches: Array, classes: int) -> Array:
    """Guesses (episode,) of a small network that has learned from batches (step, place) of episodes."""
    network: Any = fill(key, Listener(Linear(inputs.shape[1], HIDDEN), Linear(HIDDEN, classes)))
    rule = optax.adamw(optax.cosine_decay_schedule(RATE, STEPS), weight_decay=DECAY)

    def loss(network: Any, batch: Array) -> Array:
        scores = jax.vmap(network)(inputs[batch])
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores, labels[batch]))

    def step(carry: tuple[Any, Any], batch: Array) -> tuple[tuple[Any, Any], None]:
        network, memory = carry
        change, memory = rule.update(jax.grad(loss)(network, batch), memory, network)
        return (optax.apply_updates(network, change), memory), None

    (network, _), _ = jax.lax.scan(step, (network, rule.init(network)), batches)
    return jnp.argmax(jax.vmap(network)(inputs), axis=1)


# Trained teams --------------------------------------------------------------------------------------------------------


def eavesdrop(
    loaded: Loaded,
    episodes: int = EPISODES,
    step: int = 0,
    confidence: float = 0.99,
    seed: int = 0,
    path: str = "simulated",
    deployed_episodes: int | None = None,
    hears: Sequence[str] = HEARS,
    tell: Callable[[str], object] = lambda _: None,
) -> list[list[dict[str, Any]]]:
    """For each run its entries, one for every agent, secret, path and choice of whom to hear. All verdicts
    hold together with this confidence.

    Secrets are those of a step; only those of the first can be no consequence of what was said, so that others have no
    cap. Whoever hears everybody has the cap of all releases together: others may see and say what the sender knows.
    `tell` is told of each agent, secret and path before its turn.
    """
    require(0.5 <= confidence < 1, f"confidence must lie in [0.5, 1), not {confidence}")
    task, config = loaded.program.task, loaded.config
    require(protocol.find(config.method).speaks, f"method {config.method} sends nothing to overhear")
    require(0 <= step < task.horizon, f"step must lie in [0, {task.horizon}), not {step}")
    counts = {"simulated": episodes, "deployed": episodes if deployed_episodes is None else deployed_episodes}
    for count in counts.values():
        require(
            whole(count, 4 * FEWEST, 10**6), f"episodes must be a whole number from {4 * FEWEST} to 10^6, not {count}"
        )
    names = jax.eval_shape(lambda key: task.secrets(task.reset(key)), jax.random.key(seed))
    if not names:
        return [[] for _ in loaded.runs]
    paths = audit.paths_of(path, config.channel)
    verdicts = len(loaded.runs) * task.agents * len(names) * len(paths) * len(hears)
    each = privacy.family_confidence(verdicts, confidence)
    found = []
    for index, run in enumerate(loaded.runs):
        team, scale = loaded.one(index)
        noise = noise_scales(run.budget, config.channel, task.agents, task.horizon)
        releases, entries = [Release(config.channel, amount, task.horizon) for amount in noise], []
        for one in paths:
            listen = overhear if one == "simulated" else composed
            heard = jax.device_get(listen(loaded.program, team, scale, jax.random.key(seed), counts[one], step))
            heard = heard if one == "simulated" else deployed(heard, releases)
            said = np.asarray(heard.messages)
            for name, secrets in heard.secrets.items():
                for agent, whom in itertools.product(range(task.agents), hears):
                    if whom == hears[0]:
                        tell(f"eavesdropping on budget {run.label}, seed {run.seed}, agent {agent}: {name}, {one}")
                    senders = [agent] if whom == "sender" else list(range(task.agents))
                    answer = guess(
                        said[:, :, senders].reshape(*said.shape[:2], -1), np.asarray(secrets[:, agent]), seed
                    )
                    if answer:
                        what = {"agent": agent, "secret": name, "step": step, "path": one, "hears": whom}
                        numbers = judged(answer, [releases[i] for i in senders], run.budget, senders, step, each)
                        entries.append({"budget": run.label, "seed": run.seed, **what, **numbers})
        found.append(entries)
    return found


def judged(
    answer: Guess, releases: list[Release], budget: Any, senders: list[int], step: int, confidence: float
) -> dict[str, Any]:
    """An answer beside what is possible at the noise of all that was heard, and what the budgets of the senders claim,
    which add up."""
    claims = [budget.epsilon[sender if len(budget.epsilon) > 1 else 0] for sender in senders]
    cap = None
    if step == 0:
        alone = len(releases) == 1
        cap = (
            privacy.transcript_accuracy(releases[0], answer.classes)
            if alone
            else privacy.joint_accuracy(releases, answer.classes)
        )
    surely, delta = answer.at_least(confidence), min(1.0, len(senders) * budget.delta)
    return {
        "accuracy": answer.accuracy,
        "low": answer.at_least(0.975),
        "high": answer.at_most(0.975),
        "chance": 1 / answer.classes,
        "cap": cap,
        "claimed_epsilon": sum(claims),
        "cap_of_claim": privacy.private_accuracy(sum(claims), delta, answer.classes),
        "unit": budget.unit,
        "exact_epsilon": privacy.loss.epsilon_of(privacy.accounting.composed(Counter(releases)), budget.delta),
        "surely": surely,
        "confidence": confidence,
        "episodes": answer.episodes,
        "guesser": answer.guesser,
        "verdict": "no cap" if cap is None else "violated" if surely > cap else "within",
    }
