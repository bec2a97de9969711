"""Trained teams at work: every message leaves through a measurement, with noise from the operating system.

    team = dpmac.load("runs/ccn", epsilon=1, limit=5.0, new_ledger=True)
    carry = team.start()
    actions, carry = team.act(observations, carry)      # observations (agent, feature), as the task makes them

Each act that sends charges `ledger.json` in the run's folder first. An act that the ledger refuses raises
`dpmac.privacy.BudgetSpent`, and nothing leaves. No step can be acted twice: the carry says which comes next, and the
measurement (`privacy.measurement`) refuses every other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from dpmac.agents.mechanisms import Mechanism, NoiseScale
from dpmac.agents.team import Carry, Member, Team
from dpmac.config import BadInput, Budget, Release, require
from dpmac.learner.rollout import Trace, rollout
from dpmac.privacy import Entropy, Ledger, Measurement, mechanisms
from dpmac.privacy.measurement import together
from dpmac.runner import population
from dpmac.runner.noise import noise_scales
from dpmac.runner.train import Program


@jax.jit
def step_team(team: Team, scale: NoiseScale, carry: Carry, observations: Array, keys: np.ndarray):
    """Actions (agent,), messages before the channel (agent, number) and the carry after listening."""
    logits, carry = team.listen(carry, observations, None, scale)  # type: ignore[arg-type]
    actions = jnp.argmax(logits, axis=-1)
    draws = jax.vmap(partial(draws_of, team.members.protocol))(keys)
    return actions, team.compose(observations, actions, carry.projected, draws), carry


def draws_of(protocol: Any, key: Any) -> Any:
    """The sender's own draws for one message of one agent, from the data of a key."""
    return jax.tree.map(lambda leaf: leaf[0, 0], protocol.draw(jax.random.wrap_key_data(key), (1, 1)))


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

    def act(self, observations: ArrayLike, carry: Carry) -> tuple[np.ndarray, Carry]:
        """Actions (agent,) for observations (agent, feature), once the messages about them are charged and sent.

        Takes and returns what agents remember; a carry that is not the last one returned is bad input.
        """
        team, task, time = self.team, self.program.task, int(carry.time)
        check_time(time, team.horizon, self._measurements[0])
        seen = checked(observations, (task.agents, task.observation_size))
        actions, raw, carry = step_team(team, self.scale, carry, seen, self._keys[time])
        sent = together(self._measurements, time, list(np.asarray(raw)))
        left = [one for one in sent if one is not None]
        if left:
            copies = jnp.stack([one.copies if team.channel.spec.copies > 1 else one.copies[0] for one in left])
            carry = carry._replace(released=copies, recipients=jnp.stack([one.recipients for one in left]))
        return np.asarray(actions), carry._replace(time=carry.time + 1)

    def spent(self, agent: int) -> float:
        """ε of everything that an agent has released so far, in all episodes."""
        return self.ledger.spent(agent)

    def simulate(self, key: Array, episodes: int = 1, greedy: bool = True) -> Trace:
        """Episodes in the task with noise from a key: repeatable, for experiments only, and charged to nobody."""
        return simulated(self.program, episodes, greedy, self.team, self.scale, key)

    def agents(self) -> list["DeployedAgent"]:
        """The agents one by one, each with what it needs and nothing of the others."""
        found = []
        for index, source in enumerate(self._sources):
            member = jax.tree.map(lambda leaf, i=index: jnp.array(leaf[i]), self.team.members)
            scale, ledger = jax.tree.map(jnp.array, self.scale), self.open_ledger()
            measurement, keys = self._measurement(index, ledger), Entropy(source.read)
            found.append(
                DeployedAgent(
                    index,
                    member,
                    self.team.channel,
                    self.team.sends.copy(),
                    self.team.aware,
                    scale,
                    self.noise,
                    measurement,
                    ledger,
                    keys,
                    self.program.task.observation_size,
                )
            )
        return found


@partial(jax.jit, static_argnums=(0, 1, 2))
def simulated(program: Program, episodes: int, greedy: bool, team: Team, scale: NoiseScale, key: Array) -> Trace:
    return rollout(program.task, team, scale, key, episodes, greedy=greedy)


class AgentCarry(NamedTuple):
    """What one agent carries from one step to the next."""

    hidden: Array
    inbox: Any
    """(other, number) what the others said last; other k of agent i is (i + 1 + k) mod N."""
    arrived: Any
    """(other,) whether they said it to this agent."""
    time: int


@partial(jax.jit, static_argnums=2)
def step_agent(
    member: Member,
    channel: Mechanism,
    aware: bool,
    others: NoiseScale,
    carry: AgentCarry,
    observation: Array,
    key: np.ndarray,
):
    """An action, a message before the channel (number,) and the next hidden state of one agent."""
    inbox = jax.vmap(channel.decode)(carry.inbox, others) if aware and channel.size else carry.inbox
    inbox = jnp.where(carry.time > 0, inbox, 0.0)
    aggregated = member.protocol.receive(inbox, carry.arrived, observation, member.protocol.project(carry.hidden))
    logits, hidden = member.actor(observation, aggregated, carry.hidden)
    action = jnp.argmax(logits)
    one_hot = jax.nn.one_hot(action, logits.shape[-1])
    draws = draws_of(member.protocol, key)
    return action, member.protocol.send(observation, one_hot, member.protocol.project(hidden), draws), hidden


class DeployedAgent:
    """One agent of a team, which knows its own networks, everybody's noise scales, which are public, and the clock."""

    def __init__(
        self,
        index: int,
        member: Member,
        channel: Mechanism,
        sends: np.ndarray,
        aware: bool,
        scale: NoiseScale,
        noise: Sequence[float],
        measurement: Measurement,
        ledger: Ledger,
        entropy: Entropy,
        observation_size: int,
    ):
        self.index, self.member, self.channel, self.sends, self.aware = index, member, channel, sends, aware
        self.ledger, self.observation_size, self.noise = ledger, observation_size, tuple(noise)
        self.others = [(index + 1 + other) % len(noise) for other in range(len(noise) - 1)]
        self.levels = jax.tree.map(lambda leaf: leaf[np.array(self.others, int)], scale)
        self._measurement, self._entropy, self._keys = measurement, entropy, np.zeros((0, 2), np.uint32)

    def start(self) -> AgentCarry:
        """The carry at the beginning of an episode, whose randomness is drawn now: nothing has been received."""
        self._measurement.begin()
        self._keys = keys_of(self._entropy, len(self.sends))
        width, others = self.member.actor.head.weight.shape[0], len(self.others)
        return AgentCarry(jnp.zeros(width), np.zeros((others, self.channel.size), np.float32), np.ones(others, bool), 0)

    def act(
        self, observation: ArrayLike, received: Mapping[int, ArrayLike], carry: AgentCarry
    ) -> tuple[int, dict[int, np.ndarray], AgentCarry]:
        """An action, and messages by recipient, from one's own observation and the messages that arrived, by sender.

        What was sent in one step arrives in the next. In steps in which nobody sends, the messages are empty.
        """
        time = carry.time
        check_time(time, len(self.sends), self._measurement)
        carry = self.hear(received, carry)
        seen = checked(observation, (self.observation_size,))
        action, raw, hidden = step_agent(
            self.member, self.channel, self.aware, self.levels, carry, seen, self._keys[time]
        )
        sent = self._measurement.release(time, np.asarray(raw))
        messages = {}
        if sent is not None:
            messages = {other: sent.copies[place] for place, other in enumerate(self.others) if sent.recipients[place]}
        return int(action), messages, carry._replace(hidden=hidden, time=time + 1)

    def hear(self, received: Mapping[int, ArrayLike], carry: AgentCarry) -> AgentCarry:
        """The carry with what has just arrived; between releases the last messages are held."""
        if carry.time == 0 or not self.sends[carry.time - 1]:
            require(not received, f"nobody sends before step {carry.time}, yet messages of {list(received)} arrived")
            return carry
        inbox, arrived = np.zeros_like(carry.inbox), np.zeros_like(carry.arrived)
        for sender, message in received.items():
            require(sender in self.others, f"agent {self.index} hears agents {self.others}, not {sender}")
            place = self.others.index(sender)
            inbox[place], arrived[place] = checked(message, (self.channel.size,)), True
            valid = mechanisms.of(self.channel.spec).valid(inbox[place], self.noise[sender])
            require(
                valid, f"what arrived from agent {sender} is no message of its channel ({self.channel.spec.mechanism})"
            )
        return carry._replace(inbox=inbox, arrived=arrived)


def keys_of(entropy: Entropy, horizon: int) -> np.ndarray:
    """Data of keys (time, 2) for the sender's own draws of an episode, which no claim relies on."""
    return entropy.words(horizon, 1).view(np.uint32)


def check_time(time: int, horizon: int, measurement: Measurement) -> None:
    """Refuse every step but the next, before anything is computed."""
    next_one = measurement.step
    over = time >= horizon or next_one >= horizon
    require(
        not over, f"the episode is over after {horizon} steps, or where one was refused; begin the next with start()"
    )
    require(time == next_one, f"step {next_one} comes next, not {time}: no step is acted twice")


def checked(values: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Finite numbers of this shape, or bad input."""
    try:
        array = np.asarray(values, np.float32)
    except (TypeError, ValueError):
        raise BadInput(f"expected numbers of the shape {shape}, not {values!r}") from None
    require(array.shape == shape, f"expected numbers of the shape {shape}, not {array.shape}")
    require(bool(np.isfinite(array).all()), f"expected finite numbers, and {np.sum(~np.isfinite(array))} are not")
    return jnp.asarray(array)


def load(
    folder: str | Path,
    epsilon: float | str | None = None,
    seed: int | None = None,
    limit: float | Sequence[float] | None = None,
    new_ledger: bool = False,
) -> DeployedTeam:
    """A trained team of a run's folder, ready to act.

    epsilon: the budget, as a number or as it was written for training (`1:0.1:inf`); a run of several needs it named,
    and `inf` is a team whose messages leave as they are. seed: the first unless named.
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
    require(
        team.members.protocol.deployable,
        "senders that draw a past observation or rescale their messages are for simulations, and are not deployed",
    )
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


def limits_of(limit: Any, agents: int) -> list[float]:
    """ε of each agent: one number for all, or one for each."""
    limits = (
        list(limit) if isinstance(limit, Sequence | np.ndarray) and not isinstance(limit, str) else [limit] * agents
    )
    number = all(isinstance(each, int | float) and not isinstance(each, bool) and each > 0 for each in limits)
    require(number, f"limit must be a number above 0, math.inf for none, not {limit!r}")
    require(len(limits) == agents, f"limit must be one number or {agents}, not {len(limits)}")
    return [float(each) for each in limits]


def chosen(loaded: population.Loaded, epsilon: float | str | None, seed: int | None) -> int:
    """The place of the run of a budget, named by its label or its numbers, and of a seed, by default the first."""
    labels, budgets = loaded.config.labels, loaded.config.budgets
    named = f"this run's budgets are {', '.join(labels)}"
    if epsilon is None:
        require(len(labels) == 1, f"{named}: name one, as epsilon={labels[0]!r}")
        return population.member(loaded, labels[0], seed)
    if epsilon in labels:
        return population.member(loaded, str(epsilon), seed)
    wanted = Budget.parse(str(epsilon)).epsilon
    found = [label for label, budget in zip(labels, budgets, strict=True) if budget.epsilon == wanted]
    require(len(found) > 0, f"no budget of this run is {epsilon}; {named}")
    require(len(found) == 1, f"epsilon {epsilon} is said of several; {named}: name one in full")
    return population.member(loaded, found[0], seed)
