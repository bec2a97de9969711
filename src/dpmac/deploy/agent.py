"""One agent at work: its own networks, its own account, everybody's noise scales, which are public, and the clock.

    agent = dpmac.deploy.Agent.open("bundle-0")           # what `dpmac deploy export` wrote
    agent.compile()                                       # costs no budget
    carry = agent.start()                                 # an episode
    action, messages, carry = agent.act(observation, received, carry)

Nothing that only training needs is imported here.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from dpmac.agents.mechanisms import Mechanism, NoiseScale, noise_scale
from dpmac.agents.policy import Policy
from dpmac.agents.team import Member, TaskShape, policy_of
from dpmac.config import BadInput, Release, check_choice, require
from dpmac.privacy import BudgetSpent, Entropy, Ledger, Measurement, mechanisms

WhenSpent = Literal["raise", "silent"]


class AgentCarry(NamedTuple):
    """What one agent carries from one step to the next."""

    hidden: Array
    inbox: Any
    """(other, number) what the others said last, or (other, time, number) all that they said, newest first, where the
    mechanism remembers; other k of agent i is (i + 1 + k) mod N."""
    arrived: Any
    """(other,) whether they said it to this agent."""
    time: int


@partial(jax.jit, static_argnums=(2, 3, 4))
def step_agent(
    member: Member,
    channel: Mechanism,
    aware: bool,
    policy: Policy,
    own: tuple[int, ...] | None,
    others: NoiseScale | None,
    carry: AgentCarry,
    observation: Array,
    key: np.ndarray,
    available: Array | None = None,
):
    """An action, a message before the channel (number,) and the next hidden state of one agent."""
    inbox = carry.inbox
    if channel.size and others:
        inbox = jax.vmap(lambda released, scale: channel.heard(released, scale, aware))(inbox, others)
    inbox = jnp.where(carry.time > 0, inbox, 0.0)
    aggregated = member.protocol.receive(inbox, carry.arrived, observation, member.protocol.project(carry.hidden))
    logits, hidden = member.actor(observation, aggregated, carry.hidden)
    action = policy.best(logits, available)
    draws, coded = draws_of(member.protocol, key), policy.coded(action)
    return action, member.say(observation, coded, member.protocol.project(hidden), draws, own), hidden


class Agent:
    """One agent of a team, which acts greedily."""

    def __init__(
        self,
        index: int,
        member: Member,
        channel: Mechanism,
        noise: Sequence[float],
        shape: TaskShape,
        ledger: Ledger,
        account: int,
        aware: bool = False,
        entropy: Entropy | None = None,
        when_spent: WhenSpent = "raise",
    ):
        """noise: scales of all agents. account: the place of this agent's account in the ledger."""
        check_choice("when_spent", when_spent, WhenSpent)
        self.index, self.member, self.channel, self.aware = index, member, channel, aware
        self.noise, self.observation_size = tuple(noise), shape.observation
        self.policy = policy_of(shape.actions, shape.continuous)
        self.own = shape.increments if channel.spec.increments else None
        self.remembers = mechanisms.of(channel.spec).remembers
        self.ledger, self.account, self.when_spent = ledger, account, when_spent
        self.others = [(index + 1 + other) % shape.agents for other in range(shape.agents - 1)]
        self.levels = noise_scale(channel.spec, tuple(noise[other] for other in self.others)) if self.others else None
        self.silent, self.refused = False, ""
        """Whether nothing real is said for the rest of this episode, and why."""
        source, release = entropy or Entropy(), Release(channel.spec, noise[index], shape.horizon)
        self._measurement = Measurement(ledger, account, release, channel.size, len(self.others), Entropy(source.read))
        self.sends = np.array([self._measurement.sends(step) for step in range(shape.horizon)])
        """(step,) whether messages leave: the clock alone decides."""
        self._entropy, self._keys = Entropy(source.read), np.zeros((0, 2), np.uint32)
        self._next = shape.horizon

    @classmethod
    def open(cls, bundle: str | PathLike[str], when_spent: WhenSpent = "silent") -> "Agent":
        """The agent of a bundle. When its budget is spent it acts on and says nothing real, or acting raises."""
        from dpmac.deploy.bundle import open_bundle

        return open_bundle(bundle, when_spent)

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return len(self.sends)

    def compile(self) -> None:
        """Compile what a step takes, which is slow, before it matters; nothing is charged and nothing leaves."""
        seen = np.zeros(self.observation_size, np.float32)
        for open_to in (None, np.ones(self.policy.actions, bool)):  # which a robot may say in any step
            jax.block_until_ready(self._step(self._fresh(), seen, np.zeros(2, np.uint32), open_to))

    def affords(self) -> bool:
        """Whether the account has room for all messages of one more episode."""
        cost, times = self._measurement.cost, self._measurement.charges
        return times == 0 or self.ledger.affords(self.account, cost, times)

    def start(self) -> AgentCarry:
        """The carry at the beginning of an episode, whose randomness is drawn now: nothing has been received.

        An agent that goes silent when its budget is spent decides so here, for the whole episode: whether it speaks
        depends on how much was said before, and on nothing that it will see.
        """
        self.silent, self.refused = False, ""
        if self.when_spent == "silent":
            self._try(self._begin)
        else:
            self._measurement.begin()
        self._keys, self._next = keys_of(self._entropy, self.horizon), 0
        return self._fresh()

    def _begin(self) -> None:
        if not self.affords():
            raise BudgetSpent("the budget has no room for another episode")
        self._measurement.begin()

    def _try(self, step: Any, *given: Any) -> Any:
        """What a step returns; one that the ledger refuses, for whatever reason, silences the rest of the episode."""
        try:
            return step(*given)
        except (BudgetSpent, BadInput, OSError) as error:
            self.silent, self.refused = True, str(error)
            return None

    def _fresh(self) -> AgentCarry:
        width, others = self.member.actor.head.weight.shape[0], len(self.others)
        said = (others, self.horizon, self.channel.size) if self.remembers else (others, self.channel.size)
        return AgentCarry(jnp.zeros(width), np.zeros(said, np.float32), np.ones(others, bool), 0)

    def _step(self, carry: AgentCarry, seen: Any, key: np.ndarray, available: Any = None) -> Any:
        known = (self.aware, self.policy, self.own, self.levels)
        return step_agent(self.member, self.channel, *known, carry, seen, key, available)

    def act(
        self,
        observation: ArrayLike,
        received: Mapping[int, ArrayLike],
        carry: AgentCarry,
        available: ArrayLike | None = None,
    ) -> tuple[Any, dict[int, np.ndarray], AgentCarry]:
        """An action, and messages by recipient, from one's own observation and the messages that arrived, by sender.

        available (action,) says which actions are allowed, where not all are. What was sent in one step arrives in the
        next. In steps in which nobody sends, the messages are empty; so are those of an agent that has gone silent.
        """
        time = carry.time
        check_time(time, self.horizon, self._next)
        carry = self.hear(received, carry)
        seen = checked(observation, (self.observation_size,))
        open_to = None if available is None else choices(available, (self.policy.actions,))
        action, raw, hidden = self._step(carry, seen, self._keys[time], open_to)
        self._next = self.horizon  # a refusal that raises ends the episode
        sent = None
        if self.when_spent == "raise":
            sent = self._measurement.release(time, np.asarray(raw))
        elif not self.silent:
            sent = self._try(self._measurement.release, time, np.asarray(raw))
        self._next = time + 1
        messages = {}
        if sent is not None:
            messages = {other: sent.copies[place] for place, other in enumerate(self.others) if sent.recipients[place]}
        return np.asarray(action)[()].tolist(), messages, carry._replace(hidden=hidden, time=time + 1)

    def valid(self, sender: int, message: np.ndarray) -> bool:
        """Whether numbers (number,) are a message that the channel of a sender can release."""
        return mechanisms.of(self.channel.spec).valid(message, self.noise[sender])

    def hear(self, received: Mapping[int, ArrayLike], carry: AgentCarry) -> AgentCarry:
        """The carry with what has just arrived; between releases the last messages are held."""
        if carry.time == 0 or not self.sends[carry.time - 1]:
            require(not received, f"nobody sends before step {carry.time}, yet messages of {list(received)} arrived")
            return carry
        inbox, arrived = np.zeros((len(self.others), self.channel.size), np.float32), np.zeros_like(carry.arrived)
        for sender, message in received.items():
            require(sender in self.others, f"agent {self.index} hears agents {self.others}, not {sender}")
            place = self.others.index(sender)
            inbox[place], arrived[place] = checked(message, (self.channel.size,)), True
            require(
                self.valid(sender, inbox[place]),
                f"what arrived from agent {sender} is no message of its channel ({self.channel.spec.mechanism})",
            )
        if self.remembers:
            inbox = np.concatenate([inbox[:, None], carry.inbox[:, :-1]], axis=1)
        return carry._replace(inbox=inbox, arrived=arrived)


def draws_of(protocol: Any, key: Any) -> Any:
    """The sender's own draws for one message of one agent, from the data of a key."""
    return jax.tree.map(lambda leaf: leaf[0, 0], protocol.draw(jax.random.wrap_key_data(key), (1, 1)))


def keys_of(entropy: Entropy, horizon: int) -> np.ndarray:
    """Data of keys (time, 2) for the sender's own draws of an episode, which no claim relies on."""
    return entropy.words(horizon, 1).view(np.uint32)


def check_time(time: int, horizon: int, next_one: int) -> None:
    """Refuse every step but the next, before anything is computed."""
    over = time >= horizon or next_one >= horizon
    require(
        not over, f"the episode is over after {horizon} steps, or where one was refused; begin the next with start()"
    )
    require(time == next_one, f"step {next_one} comes next, not {time}: no step is acted twice")


def choices(available: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """Truth values of this shape (…, action), at least one true of each agent, or bad input."""
    found = checked(available, shape) > 0
    require(bool(found.any(axis=-1).all()), "at least one action must be available")
    return found


def checked(values: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """Finite numbers of this shape, or bad input."""
    try:
        array = np.asarray(values, np.float32)
    except (TypeError, ValueError):
        raise BadInput(f"expected numbers of the shape {shape}, not {values!r}") from None
    require(array.shape == shape, f"expected numbers of the shape {shape}, not {array.shape}")
    require(bool(np.isfinite(array).all()), f"expected finite numbers, and {np.sum(~np.isfinite(array))} are not")
    return array
