"""Trained teams at work: every message leaves through a measurement, with noise from the operating system.

    team = dpmac.load("runs/ccn", epsilon=1, limit=5.0, new_ledger=True)
    carry = team.start()
    actions, carry = team.act(observations, carry)      # observations (agent, feature), as the task makes them

Each act that sends charges `ledger.json` in the run's folder first. An act that the ledger refuses raises
`dpmac.privacy.BudgetSpent`, and nothing leaves. No step can be acted twice: the carry says which comes next, and the
measurement (`privacy.measurement`) refuses every other.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from dpmac.agents import protocol
from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.team import Carry, Team, pushed
from dpmac.config import Budget, Release, require
from dpmac.deploy.agent import Agent, check_time, checked, choices, draws_of, keys_of
from dpmac.learner.rollout import Trace, rollout
from dpmac.privacy import Entropy, Ledger, Measurement
from dpmac.privacy.measurement import together
from dpmac.runner import population
from dpmac.runner.noise import noise_scales
from dpmac.runner.train import Program
from dpmac.tasks import abilities


@jax.jit
def step_team(
    team: Team, scale: NoiseScale, carry: Carry, observations: Array, keys: np.ndarray, available: Array | None = None
):
    """Actions (agent,), messages before the channel (agent, number) and the carry after listening."""
    logits, carry = team.listen(carry, observations, None, scale)  # type: ignore[arg-type]
    actions = team.policy.best(logits, available)
    draws = jax.vmap(partial(draws_of, team.members.protocol))(keys)
    return actions, team.compose(observations, actions, carry.projected, draws), carry


class DeployedTeam:
    """A trained team that acts greedily, its agents together in one process."""

    def __init__(
        self,
        program: Program,
        team: Team,
        scale: NoiseScale,
        noise: Sequence[float],
        ledger: Callable[[], Ledger],
        entropy: Sequence[Entropy] | None = None,
    ):
        self.program, self.team, self.scale, self.noise = program, team, scale, tuple(noise)
        self.open_ledger, self.ledger = ledger, ledger()
        self._sources = list(entropy or [Entropy() for _ in noise])
        require(
            len(self._sources) == len(noise) == team.agents, "every agent has a noise scale and a source of its own"
        )
        self._measurements = [self._measurement(agent, self.ledger) for agent in range(team.agents)]
        self._keys = np.zeros((0, team.agents, 2), np.uint32)

    def _measurement(self, agent: int, ledger: Ledger) -> Measurement:
        release = Release(self.team.channel.spec, self.noise[agent], self.team.horizon)
        source = Entropy(self._sources[agent].read)
        return Measurement(ledger, agent, release, self.team.channel.size, self.team.agents - 1, source)

    def start(self) -> Carry:
        """The carry at the beginning of an episode, whose randomness is drawn now; the last episode is over."""
        for measurement in self._measurements:
            measurement.begin()
        self._keys = np.stack([keys_of(source, self.team.horizon) for source in self._sources], axis=1)
        return self.team.start()

    def act(
        self, observations: ArrayLike, carry: Carry, available: ArrayLike | None = None
    ) -> tuple[np.ndarray, Carry]:
        """Actions (agent,) for observations (agent, feature), once the messages about them are charged and sent.

        Takes and returns what agents remember; a carry that is not the last one returned is bad input. In a task whose
        actions are not always allowed, available (agent, action) says which are.
        """
        team, task, time = self.team, self.program.task, int(carry.time)
        check_time(time, team.horizon, self._measurements[0].step)
        seen = checked(observations, (task.agents, task.observation_size))
        masked = abilities(task).available is not None
        require(available is not None or not masked, f"{task.name}: say which actions (agent, action) are available")
        open_to = None if available is None else choices(available, (task.agents, task.actions))
        actions, raw, carry = step_team(team, self.scale, carry, seen, self._keys[time], open_to)
        sent = together(self._measurements, time, list(np.asarray(raw)))
        left = [one for one in sent if one is not None]
        if left:
            copies = jnp.stack([one.copies if team.channel.spec.copies > 1 else one.copies[0] for one in left])
            recipients = jnp.stack([one.recipients for one in left])
            carry = carry._replace(released=copies, recipients=recipients, heard=pushed(carry.heard, copies))
        return np.asarray(actions), carry._replace(time=carry.time + 1)

    def spent(self, agent: int) -> float:
        """ε of everything that an agent has released so far, in all episodes."""
        return self.ledger.spent(agent)

    def simulate(self, key: Array, episodes: int = 1, greedy: bool = True) -> Trace:
        """Episodes in the task with noise from a key: repeatable, for experiments only, and charged to nobody."""
        return simulated(self.program, episodes, greedy, self.team, self.scale, key)

    def agents(self) -> list[Agent]:
        """The agents one by one, each with what it needs and nothing of the others but the ledger's file.

        Agents in processes of their own are exported (`dpmac.deploy.bundle`), each with a ledger of its own.
        """
        return [
            Agent(
                index,
                jax.tree.map(lambda leaf, i=index: jnp.array(leaf[i]), self.team.members),
                self.team.channel,
                self.noise,
                self.program.shape,
                self.open_ledger(),
                index,
                self.team.aware,
                source,
            )
            for index, source in enumerate(self._sources)
        ]

    def compile(self) -> None:
        """Compile what a step takes before it matters; nothing is charged and nothing leaves."""
        team, task = self.team, self.program.task
        seen = np.zeros((task.agents, task.observation_size), np.float32)
        keys = np.zeros((task.agents, 2), np.uint32)
        masked = abilities(task).available is not None
        open_to = np.ones((task.agents, task.actions), bool) if masked else None
        jax.block_until_ready(step_team(team, self.scale, team.start(), seen, keys, open_to))


@partial(jax.jit, static_argnums=(0, 1, 2))
def simulated(program: Program, episodes: int, greedy: bool, team: Team, scale: NoiseScale, key: Array) -> Trace:
    return rollout(program.task, team, scale, key, episodes, greedy=greedy)


def load(
    folder: str | Path,
    epsilon: float | str | None = None,
    seed: int | None = None,
    limit: float | Sequence[float] | None = None,
    new_ledger: bool = False,
) -> DeployedTeam:
    """A trained team of a run's folder, ready to act.

    epsilon: the budget, as a number or as it was written for training (`1:0.1:inf`); a run of several needs it named,
    and so does one in which messages of an agent leave as they are (`inf`). seed: the first unless named.
    limit: the ε that agents (all alike, or one for each) may spend over all episodes of this folder, enforced by its
    ledger. Where any agent has noise it must be said, and `math.inf` is no limit.
    new_ledger: begin `ledger.json`, which fixes the limits. Without it the ledger must be there, so that one that was
    lost is not replaced by an empty one.
    """
    folder = Path(folder)
    loaded = population.load(folder)
    agents, horizon = loaded.program.task.agents, loaded.program.task.horizon
    index = chosen(loaded, epsilon, seed)
    team, scale = loaded.one(index)
    check_deployable(team)
    budget = loaded.runs[index].budget
    noise = noise_scales(budget, team.channel.spec, agents, horizon)
    silent = team.channel.size == 0 or not any(noise)
    require(silent or limit is not None, "limit must be said: the epsilon that agents may spend, math.inf for no limit")
    path, limits = folder / "ledger.json", limits_of(math.inf if limit is None else limit, agents)
    require(
        new_ledger or path.exists(),
        f"{folder} has no ledger.json: begin one with new_ledger=True, unless there was one, which must be put back",
    )
    if new_ledger:
        Ledger(path, limits, budget.delta, create=True)
    return DeployedTeam(loaded.program, team, scale, noise, partial(Ledger, path, limits, budget.delta))


def check_deployable(team: Team) -> None:
    """Bad input where senders do what only simulations can."""
    require(
        team.members.protocol.deployable,
        "senders that draw a past observation or rescale their messages are for simulations, and are not deployed",
    )


def limits_of(limit: Any, agents: int) -> list[float]:
    """ε of each agent: one number for all, or one for each."""
    limits = (
        list(limit) if isinstance(limit, Sequence | np.ndarray) and not isinstance(limit, str) else [limit] * agents
    )
    number = all(isinstance(each, int | float) and not isinstance(each, bool) and each > 0 for each in limits)
    require(number, f"limit must be a number above 0, or inf for no limit, not {limit!r}")
    require(len(limits) == agents, f"limit must be one number or {agents}, not {len(limits)}")
    return [float(each) for each in limits]


def chosen(loaded: population.Loaded, epsilon: float | str | None, seed: int | None) -> int:
    """The place of the run of a budget, named by its label or its numbers, and of a seed, by default the first."""
    labels, budgets = loaded.config.labels, loaded.config.budgets
    named = f"this run's budgets are {', '.join(labels)}"
    if epsilon is None:
        private = [label for label, budget in zip(labels, budgets, strict=True) if math.inf not in budget.epsilon]
        require(len(labels) == 1, f"{named}: name one, as epsilon={[*private, *labels][0]!r}")
        raw = protocol.find(loaded.config.method).speaks and math.inf in budgets[0].epsilon
        require(not raw, f"messages of epsilon {labels[0]} leave as they are: if they may, say epsilon={labels[0]!r}")
        return population.member(loaded, labels[0], seed)
    if epsilon in labels:
        return population.member(loaded, str(epsilon), seed)
    wanted = Budget.parse(str(epsilon)).epsilon
    found = [label for label, budget in zip(labels, budgets, strict=True) if budget.epsilon == wanted]
    require(len(found) > 0, f"no budget of this run is {epsilon}; {named}")
    require(len(found) == 1, f"epsilon {epsilon} is said of several; {named}: name one in full")
    return population.member(loaded, found[0], seed)
