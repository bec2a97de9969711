"""Trained teams at work: noise from the operating system (see `voice`), every release in the books before it leaves.

    team = dpmac.load("runs/ccn")
    carry = team.start()
    actions, carry = team.act(observations, carry)      # observations (agent, feature), as the task makes them

Each act that sends charges `ledger.json` in the run's folder first. An act that the ledger refuses raises
`dpmac.privacy.BudgetSpent`, and nothing leaves.
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
from dpmac.config import require
from dpmac.deploy.channel import Entropy, Voice
from dpmac.learner.rollout import Trace, rollout
from dpmac.privacy import Ledger, ledger
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
        spec = team.channel.spec
        require(
            spec.place == "sender", "this run adds its noise at the receivers, which protects nothing: not deployed"
        )
        require(spec.rounds == 1, f"deployed agents send once a step; this run exchanges {spec.rounds} rounds")
        self.program, self.team, self.scale, self.noise = program, team, scale, tuple(noise)
        self.open_ledger, self.ledger = ledger, ledger()
        sources = entropy or [Entropy() for _ in noise]
        self.voices = [Voice(spec, team.horizon, team.agents - 1, *each) for each in zip(noise, sources, strict=True)]

    def start(self) -> Carry:
        """The carry at the beginning of an episode."""
        return self.team.start()

    def act(self, observations: ArrayLike, carry: Carry) -> tuple[np.ndarray, Carry]:
        """Actions (agent,) for observations (agent, feature), once the messages about them are charged and sent."""
        team, task, time = self.team, self.program.task, int(carry.time)
        check_time(time, team.horizon)
        seen = checked(observations, (task.agents, task.observation_size))
        keys = np.stack([voice.key() for voice in self.voices])
        actions, raw, carry = step_team(team, self.scale, carry, seen, keys)
        if team.channel.spec.sample_rate:
            carry = carry._replace(history=carry.history.at[time].set(raw))
        if team.sends[time] and team.channel.size:
            charge(self.ledger, dict(enumerate(self.voices)), time)
            past = np.asarray(carry.history[: time + 1] if team.channel.spec.sample_rate else raw[None])
            sent = [voice.release(voice.mix(past[:, agent], time)) for agent, voice in enumerate(self.voices)]
            copies = jnp.stack([copies if team.channel.spec.copies > 1 else copies[0] for copies, _ in sent])
            carry = carry._replace(released=copies, recipients=jnp.stack([recipients for _, recipients in sent]))
        return np.asarray(actions), carry._replace(time=carry.time + 1)

    def spent(self, agent: int) -> float:
        """ε of everything that an agent has released so far, in all episodes."""
        return self.ledger.spent(agent)

    def simulate(self, key: Array, episodes: int = 1, greedy: bool = True) -> Trace:
        """Episodes in the task with noise from a key: repeatable, for experiments only, and charged to nobody."""
        return simulated(self.program, episodes, greedy, self.team, self.scale, key)

    def agents(self) -> list["DeployedAgent"]:
        """The agents one by one, each with what it needs and nothing of the others."""
        return [
            DeployedAgent(
                index,
                jax.tree.map(lambda leaf, i=index: jnp.array(leaf[i]), self.team.members),
                self.team.channel,
                self.team.sends.copy(),
                self.team.aware,
                jax.tree.map(jnp.array, self.scale),
                Voice(voice.spec, voice.horizon, voice.others, voice.noise, Entropy(voice.entropy.read)),
                self.open_ledger(),
                self.program.task.observation_size,
            )
            for index, voice in enumerate(self.voices)
        ]


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
    history: tuple[np.ndarray, ...]
    """Its own messages before the channel, for a sender that samples its past."""
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
    """One agent of a team, which knows its own networks, everybody's noise levels, which are public, and the clock."""

    def __init__(
        self,
        index: int,
        member: Member,
        channel: Mechanism,
        sends: np.ndarray,
        aware: bool,
        scale: NoiseScale,
        voice: Voice,
        ledger: Ledger,
        observation_size: int,
    ):
        self.index, self.member, self.channel, self.sends, self.aware = index, member, channel, sends, aware
        self.voice, self.ledger, self.observation_size = voice, ledger, observation_size
        self.others = [(index + 1 + other) % (voice.others + 1) for other in range(voice.others)]
        self.levels = jax.tree.map(lambda leaf: leaf[np.array(self.others, int)], scale)

    def start(self) -> AgentCarry:
        """The carry at the beginning of an episode: nothing has been received."""
        width, others = self.member.actor.head.weight.shape[0], self.voice.others
        inbox = np.zeros((others, self.channel.size), np.float32)
        return AgentCarry(jnp.zeros(width), inbox, np.ones(others, bool), (), 0)

    def act(
        self, observation: ArrayLike, received: Mapping[int, ArrayLike], carry: AgentCarry
    ) -> tuple[int, dict[int, np.ndarray], AgentCarry]:
        """An action, and messages by recipient, from one's own observation and the messages that arrived, by sender.

        What was sent in one step arrives in the next. In steps in which nobody sends, the messages are empty.
        """
        time = carry.time
        check_time(time, len(self.sends))
        carry = self.hear(received, carry)
        seen = checked(observation, (self.observation_size,))
        action, raw, hidden = step_agent(
            self.member, self.channel, self.aware, self.levels, carry._replace(history=()), seen, self.voice.key()
        )
        history = (*(carry.history if self.voice.spec.sample_rate else ()), np.asarray(raw))
        sent = {}
        if self.sends[time] and self.channel.size:
            charge(self.ledger, {self.index: self.voice}, time)
            copies, recipients = self.voice.release(self.voice.mix(np.stack(history), time))
            sent = {other: copies[place] for place, other in enumerate(self.others) if recipients[place]}
        return int(action), sent, carry._replace(hidden=hidden, history=history, time=time + 1)

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
        return carry._replace(inbox=inbox, arrived=arrived)


def charge(ledger: Ledger, voices: Mapping[int, Voice], time: int) -> None:
    """Put what agents are about to release into the books: all of them, or none where one has not enough left."""
    costs = {agent: voice.cost(time) for agent, voice in voices.items()}
    due = {agent: cost for agent, cost in costs.items() if cost is not None}
    if due:
        ledger.charge(due)


def check_time(time: int, horizon: int) -> None:
    require(time < horizon, f"the episode is over after {horizon} steps; begin the next with start()")


def checked(values: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Finite numbers of this shape, or bad input."""
    array = np.asarray(values, np.float32)
    require(
        array.shape == shape and bool(np.isfinite(array).all()), f"expected finite numbers {shape}, not {array.shape}"
    )
    return jnp.asarray(array)


def load(
    folder: str | Path,
    epsilon: str | None = None,
    seed: int | None = None,
    limit: float | Sequence[float] | None = None,
) -> DeployedTeam:
    """A trained team of a run's folder, by default its first, ready to act.

    limit: the ε that agents (all alike, or one for each) may spend over all episodes of this folder, enforced by its
    ledger. It is fixed when the ledger is begun; without one, what is spent is recorded, and nothing is refused.
    """
    folder = Path(folder)
    loaded = population.load(folder)
    index, agents = population.member(loaded, epsilon, seed), loaded.program.task.agents
    team, scale = loaded.one(index)
    budget, spec = loaded.runs[index].budget, team.channel.spec
    noise = noise_scales(budget, spec, agents, loaded.program.task.horizon)
    path = folder / "ledger.json"
    if limit is None:
        limit = ledger.limits(path) if path.exists() else math.inf
    limits = [limit] * agents if isinstance(limit, (int, float)) else list(limit)
    require(len(limits) == agents, f"limit must be one number or {agents}, not {len(limits)}")
    if not path.exists():
        Ledger(path, limits, budget.delta, create=True)
    return DeployedTeam(loaded.program, team, scale, noise, partial(Ledger, path, limits, budget.delta))
