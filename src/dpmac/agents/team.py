"""A team: the agents' networks stacked along an axis, and the order in which they listen, act and speak.

Messages sent at t arrive at t + 1. `listen` and `speak` make one step of one episode; `unroll` replays a recorded
episode with the same functions, all steps at once where the protocol allows it. Axes stand in the order (time, agent,
feature); the axis `use` counts releases, `other` the N - 1 others of an agent: other k of agent i is (i + 1 + k) mod N.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac.agents import protocol as protocols
from dpmac.agents.layers import Actor, Gru, fill
from dpmac.agents.mechanisms import Mechanism, NoiseScale, mechanism, noise_scale
from dpmac.agents.policy import Choice, Policy, Squashed
from dpmac.agents.protocol import Protocol, ProtocolShape
from dpmac.agents.recurrent import unrolled
from dpmac.config import BadInput, Channel, NetworkConfig, require

MOST_OUTCOMES = 1024
"""Joint releases of a team that are gone through at most."""


class Member(eqx.Module):
    """One agent's networks."""

    protocol: Protocol
    actor: Actor

    def products(self, hidden: Array) -> tuple[Array, Array]:
        """A hidden state's product (3 · width,) for the actor's next step, or nothing, and its projection for the
        protocol."""
        projection, cell = self.protocol.projection, self.actor.cell
        if projection is None or not isinstance(cell, Gru):
            return hidden @ cell.hidden if isinstance(cell, Gru) else jnp.zeros(0), self.protocol.project(hidden)
        recurrent, projected = jnp.split(
            hidden @ jnp.concatenate([cell.hidden, projection.weight], -1), [cell.hidden.shape[-1]]
        )
        return recurrent, projected + projection.bias

    def say(
        self, observation: Array, action: Array, projected: Array, draws: Any, own: tuple[int, ...] | None
    ) -> Array:
        """A message (message,) before the channel. `own`: places in the observation that are all a sender is given,
        with zeros for everything else; None: it is given everything."""
        if own is not None:
            kept = np.isin(np.arange(observation.shape[-1]), own)
            observation = jnp.where(kept, observation, 0.0)
            action, projected = jnp.zeros_like(action), jnp.zeros_like(projected)
        return self.protocol.send(observation, action, projected, draws)


class NoiseDraws(NamedTuple):
    """Everything random about the messages of one episode, drawn in advance; many episodes stand in front."""

    sender: Any
    """(use, agent, …) the protocol's own, such as ξ; (time, agent, …) for a sender that samples its past."""
    channel: Any
    """(use, agent, …), or (use, agent, other, …) with fresh noise for each recipient; (time, agent, …) at receivers."""
    recipients: Array
    """(use, agent, other) who receives; data play no part in it."""
    subset: Array
    """(use, agent, time) weights of the transitions that a sampling sender drew, or nothing."""
    jitter: Array
    """(use, agent, message) what a learner adds to messages before the channel, to explore; in execution nothing."""


class Given(NamedTuple):
    """In place of a channel's draws: what it is to release, whatever was sent."""

    released: Array
    """(use, agent, message)."""


class Carry(NamedTuple):
    """What a team carries from one step to the next."""

    hidden: Array
    """(agent, width) of the actors."""
    recurrent: Array
    """(agent, 3 · width) what the actors' next step takes from `hidden`; nothing if they are not recurrent."""
    projected: Array
    """(agent, …) the projection of `hidden` that protocols take, or of what the rounds of the last exchange made of it.
    """
    released: Array
    """(agent, message) or (agent, other, message): the last messages that left the agents, as they left; several rounds
    stand side by side in the last axis."""
    raw: Array
    """(agent, message) the last messages before the channel, which nobody but a learner may see."""
    recipients: Array
    """(agent, other) who received them."""
    history: Array
    """(time, agent, message) raw messages, for a sender that samples its past, or newest first for a mechanism that
    remembers; (time, agent, feature) observations, for one that draws one of them; else no time at all."""
    heard: Array
    """(time, …) as `released`, newest first, for a mechanism that remembers; else no time at all."""
    time: Array
    """Steps done."""


class Team(eqx.Module):
    """All agents of a team; every array leaf has the agents as its first axis."""

    members: Member
    channel: Mechanism
    hearing: Mechanism
    """The channel once more, as wide as what enters an actor, for noise at the receiver."""
    agents: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    aware: bool = eqx.field(static=True)
    shared: bool = eqx.field(static=True)
    continuous: bool = eqx.field(static=True, default=False)
    increments: tuple[int, ...] = eqx.field(static=True, default=())
    """Places in an observation that hold its step's own increment."""

    @property
    def policy(self) -> Policy:
        """What the actors' outputs mean."""
        return policy_of(self.actions, self.continuous)

    @property
    def parameters(self) -> int:
        """How many numbers a joint gradient has."""
        return sum(leaf.size for leaf in jax.tree.leaves(self)) // (self.agents if self.shared else 1)

    def joint(self, gradient: Any) -> Any:
        """A gradient with respect to a team; where agents share their parameters, one for all (1, …), its mean."""
        return jax.tree.map(lambda x: jnp.mean(x, axis=0, keepdims=True), gradient) if self.shared else gradient

    def tied(self, gradient: Any) -> Any:
        """The same for each agent (agent, …)."""
        if not self.shared:
            return gradient
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (self.agents, *x.shape[1:])), self.joint(gradient))

    @property
    def free(self) -> NoiseScale:
        """Noise scales (agent,) at which messages are released as they are."""
        return noise_scale(self.channel.spec, (0.0,) * self.agents)

    # Randomness -----------------------------------------------------------------------------------------------------

    def draw(self, key: Array, episodes: int) -> NoiseDraws:
        """The draws of so many episodes (episode, …)."""
        return jax.vmap(self.noise_draws)(jax.random.split(key, episodes))

    def noise_draws(self, key: Array) -> NoiseDraws:
        """The draws of one episode."""
        sender_key, channel_key, recipient_key, subset_key = jax.random.split(key, 4)
        spec, others = self.channel.spec, self.agents - 1
        shape = (self.uses, self.agents)
        if spec.place == "receiver":
            draws = self.hearing.draw(channel_key, ((self.horizon + 1) * spec.rounds, self.agents))
        else:
            draws = self.channel.draw(channel_key, shape if spec.copies == 1 else (*shape, others))
        count = spec.recipients(others) if others else 0
        ranks = jnp.argsort(jax.random.uniform(recipient_key, (*shape, others)), axis=-1) if count < others else 0
        recipients = jnp.broadcast_to(jnp.asarray(ranks) < count, (*shape, others))
        messages = self.horizon if spec.sample_rate else self.uses
        return NoiseDraws(
            self.members.protocol.draw(sender_key, (messages, self.agents)),
            draws,
            recipients,
            self.draw_subsets(subset_key) if spec.sample_rate or self.past else jnp.zeros((*shape, 0)),
            jnp.zeros((*shape, 0)),
        )

    def draw_subsets(self, key: Array) -> Array:
        """Weights (use, agent, time): at each release the mean over transitions drawn without replacement."""
        steps = np.flatnonzero(self.sends)
        draws = np.array([1 if self.past else self.channel.spec.draws(int(step)) for step in steps])[:, None, None]
        order = jax.random.uniform(key, (len(steps), self.agents, self.horizon))
        exists = np.arange(self.horizon) <= steps[:, None, None]
        ranks = jnp.argsort(jnp.argsort(jnp.where(exists, order, 2.0), axis=-1), axis=-1)
        return jnp.where(ranks < draws, 1 / np.maximum(draws, 1), 0.0)

    @property
    def past(self) -> int:
        """Numbers that senders keep of every observation (see `Protocol.past`)."""
        return self.members.protocol.past

    @property
    def remembers(self) -> bool:
        """Whether a release is made from all messages so far."""
        return self.channel.host.remembers

    @property
    def uses(self) -> int:
        """Releases in an episode."""
        return self.channel.spec.uses(self.horizon)

    @property
    def sends(self) -> np.ndarray:
        """(time,) whether a message is released at a step: the clock alone decides."""
        steps, period = np.arange(self.horizon), self.channel.spec.period
        return steps == 0 if period == 0 else steps % period == 0

    @property
    def speaks_once(self) -> bool:
        """Whether it releases messages at the first step alone, and keeps nothing of later ones."""
        return self.uses == 1 and not (self.channel.spec.sample_rate or self.past or self.remembers)

    @property
    def outcomes(self) -> Array | None:
        """Everything (outcome, agent, symbol) that the team may release in an episode, where each agent releases one of
        a few symbols once; nothing for other channels, or where these are too many to go through."""
        spec, size = self.channel.spec, self.channel.size
        law = jax.eval_shape(lambda: self.channel.law(jnp.zeros(size), pick(self.free, 0))) if size else None
        once = spec.copies == self.uses == 1 and spec.place == "sender" and not spec.sample_rate
        if law is None or not once or size**self.agents > MOST_OUTCOMES:
            return None
        symbols = np.indices((size,) * self.agents).reshape(self.agents, -1).T
        return jax.nn.one_hot(symbols, size)

    # One step -------------------------------------------------------------------------------------------------------

    def start(self) -> Carry:
        """The carry before the first step: nothing has been received."""
        spec, others, size = self.channel.spec, self.agents - 1, self.channel.size
        copies = () if spec.copies == 1 else (others,)
        hidden, released = jnp.zeros((self.agents, self.width)), (self.agents, *copies, spec.rounds * size)
        kept = self.horizon if spec.sample_rate or self.past or self.remembers else 0
        return Carry(
            hidden,
            *jax.vmap(Member.products)(self.members, hidden),
            jnp.zeros(released),
            jnp.zeros((self.agents, size)),
            jnp.ones((self.agents, others), bool),
            jnp.zeros((kept, self.agents, self.past or size)),
            jnp.zeros((self.horizon if self.remembers else 0, *released)),
            jnp.zeros((), jnp.int32),
        )

    def listen(self, carry: Carry, observations: Array, draws: NoiseDraws, scale: NoiseScale) -> tuple[Array, Carry]:
        """Logits (agent, action) after hearing what was sent one step before."""
        last = jnp.moveaxis(carry.heard, 0, 1) if self.remembers else carry.released
        inbox, mask = self.deliver(last, carry.recipients, scale)
        inbox = jnp.where(carry.time > 0, inbox, 0.0)
        spec = self.channel.spec
        noise = pick(draws.channel, (carry.time + 1) * spec.rounds - 1) if spec.place == "receiver" else None
        aggregated = self.receive(inbox, mask, observations, carry.projected, noise, scale)
        logits, hidden = jax.vmap(lambda member, *given: member.actor(*given))(
            self.members, observations, aggregated, carry.hidden, carry.recurrent
        )
        recurrent, projected = jax.vmap(Member.products)(self.members, hidden)
        return logits, carry._replace(hidden=hidden, recurrent=recurrent, projected=projected)

    def speak(self, carry: Carry, observations: Array, actions: Array, draws: NoiseDraws, scale: NoiseScale) -> Carry:
        """Release messages about this step's observations (agent, feature) and actions (agent,), if it is time to.

        With several rounds, all but the last are heard at once, and what is made of them shapes the next.
        """
        spec, history, thought, projected, released = (
            self.channel.spec,
            carry.history,
            carry.hidden,
            carry.projected,
            [],
        )
        raw = carry.raw
        use = jnp.asarray(np.cumsum(self.sends) - 1)[carry.time] * spec.rounds
        for turn in range(spec.rounds):
            if turn > 0:
                inbox, mask = self.deliver(released[-1], draws.recipients[use], scale)
                at = (carry.time + 1) * spec.rounds + turn - 1
                noise = pick(draws.channel, at) if spec.place == "receiver" else None
                aggregated = self.receive(inbox, mask, observations, projected, noise, scale)
                thought = jax.vmap(lambda member, c, h: member.protocol.ponder(c, h))(self.members, aggregated, thought)
                projected = self.project(thought)
                use = use + 1
            seen = observations
            if self.past:
                history = history.at[carry.time].set(observations)
                seen = self.recalled(observations, jnp.einsum("it,tif->if", draws.subset[use], history), scale)
            raw = self.compose(seen, actions, projected, pick(draws.sender, carry.time if spec.sample_rate else use))
            raw = self.rescaled(raw, scale)
            if spec.sample_rate:
                history = history.at[carry.time].set(raw)
                raw = jnp.einsum("it,tid->id", draws.subset[use], history)
            noise = pick(draws.channel, use) if spec.place == "sender" else None
            explored = raw + draws.jitter[use] if draws.jitter.size else raw
            if self.remembers:
                history = pushed(history, explored)
                explored = jnp.moveaxis(history, 0, 1)
            released.append(self.release(explored, noise, scale))
        send = jnp.asarray(self.sends)[carry.time]
        left = self.channel.host.keeps(jnp, carry.released, jnp.concatenate(released, axis=-1))
        return carry._replace(
            projected=jnp.where(send, projected, carry.projected),
            released=jnp.where(send, left, carry.released),
            heard=pushed(carry.heard, left),
            raw=jnp.where(send, raw, carry.raw),
            recipients=jnp.where(send, draws.recipients[use], carry.recipients),
            history=history,
            time=carry.time + 1,
        )

    # Whole episodes -------------------------------------------------------------------------------------------------

    def unroll(self, observations: Array, actions: Array, draws: NoiseDraws, scale: NoiseScale) -> Array:
        """Logits (time, agent, episode, action) that the team would have had in recorded episodes.

        observations (T or T + 1, agent, episode, feature), actions (T, agent, episode), draws (episode, …), scale
        (agent,) or (episode, agent); messages are recomputed with these senders. Episodes are the last axis but one
        because the recurrent layer takes all of them at once, with each agent's weights.
        """
        sequential, axes = self.members.protocol.sequential, (2, 2, 0, 0 if scale.value.ndim == 2 else None)
        replay = jax.vmap(self.replay_stepwise if sequential else self.replay, in_axes=axes, out_axes=2)
        aggregated = replay(observations, actions, draws, scale)
        if sequential:  # what was heard is in the hidden states already
            return jax.vmap(lambda member, h: member.actor.logits(h), in_axes=(0, 1), out_axes=1)(
                self.members, aggregated
            )
        return jax.vmap(lambda member, o, q: member.actor.unroll(o, q), in_axes=(0, 1, 1), out_axes=1)(
            self.members, observations, aggregated
        )

    def replay(self, observations: Array, actions: Array, draws: NoiseDraws, scale: NoiseScale) -> Array:
        """What the actors hear (time, agent, aggregated) in one recorded episode, all steps at once."""
        spec, nothing = self.channel.spec, jnp.zeros((self.agents, self.width))
        steps = np.arange(self.horizon) if spec.sample_rate else np.flatnonzero(self.sends)
        seen = observations[steps]
        if self.past:
            drawn = jnp.einsum("uit,tif->uif", draws.subset, observations[: self.horizon])
            seen = self.recalled(seen, drawn, scale)
        sent = jax.vmap(self.compose, in_axes=(0, 0, None, 0))(seen, actions[steps], nothing, draws.sender)
        sent = self.rescaled(sent, scale)
        if spec.sample_rate:
            sent = jnp.einsum("uit,tid->uid", draws.subset, sent)
        at_sender, at_receiver = (None, draws.channel) if spec.place == "receiver" else (draws.channel, None)
        released = jax.vmap(self.release, in_axes=(0, 0, None))(self.channel.windows(sent), at_sender, scale)
        last = self.channel.windows(self.channel.held(released))
        inbox, mask = jax.vmap(self.deliver, in_axes=(0, 0, None))(last, draws.recipients, scale)
        # What arrives at t was released at or before t - 1; nothing has arrived at 0.
        use = (np.cumsum(self.sends) - 1)[np.maximum(np.arange(len(observations)) - 1, 0)]
        first = (np.arange(len(observations)) == 0)[:, None, None, None]
        inbox, mask = jnp.where(first, 0.0, inbox[use]), jnp.where(first[..., 0], True, mask[use])
        return jax.vmap(self.receive, in_axes=(0, 0, 0, None, 0, None))(
            inbox, mask, observations, nothing, pick(at_receiver, slice(len(observations))), scale
        )

    def replay_stepwise(self, observations: Array, actions: Array, draws: NoiseDraws, scale: NoiseScale) -> Array:
        """The actors' hidden states (time, agent, width) in one recorded episode, step after step as in a rollout."""
        missing = len(observations) - len(actions)
        actions = jnp.concatenate([actions, jnp.zeros((missing, *actions.shape[1:]), actions.dtype)])

        def step(carry: Carry, now: tuple[Array, Array]) -> tuple[Carry, Array]:
            observation, action = now
            _, carry = self.listen(carry, observation, draws, scale)
            return self.speak(carry, observation, action, draws, scale), carry.hidden

        return jax.lax.scan(step, self.start(), (observations, actions), unroll=unrolled())[1]

    # What both are made of ------------------------------------------------------------------------------------------

    def project(self, hidden: Array) -> Array:
        """What protocols read (agent, …) of the actors' hidden states (agent, width)."""
        return jax.vmap(lambda member, h: member.protocol.project(h))(self.members, hidden)

    def compose(self, observations: Array, actions: Array, projected: Array, draws: Any) -> Array:
        """Messages (agent, message) before the channel."""
        one_hot = actions if actions.ndim == 2 else self.policy.coded(actions)
        return jax.vmap(lambda member, *given: member.say(*given, self.own))(
            self.members, observations, one_hot, projected, draws
        )

    @property
    def own(self) -> tuple[int, ...] | None:
        """All that senders are given of an observation; None: everything."""
        return self.increments if self.channel.spec.increments else None

    def recalled(self, now: Array, drawn: Array, scale: NoiseScale) -> Array:
        """Observations (…, agent, feature) that messages are made from: of private senders, the drawn ones."""
        return jnp.where(scale.value[:, None] > 0, drawn, now)

    def rescaled(self, messages: Array, scale: NoiseScale) -> Array:
        """Messages (…, agent, message), of private senders at the clip norm where the protocol rescales."""
        if not self.members.protocol.rescales:
            return messages
        norm = jnp.sqrt(jnp.sum(jnp.square(messages), axis=-1, keepdims=True) + 1e-12)
        return jnp.where(scale.value[:, None] > 0, messages * (self.channel.spec.clip_norm / norm), messages)

    def release(self, messages: Array, draws: Any, scale: NoiseScale) -> Array:
        """What leaves the agents: (agent, message), or (agent, other, message) with noise for each recipient.

        Where the mechanism remembers, messages are (agent, time, message), newest first."""
        if self.channel.spec.place == "receiver":
            return messages
        if isinstance(draws, Given):
            return draws.released
        release = self.channel.release
        if self.channel.spec.copies > 1:
            release = jax.vmap(release, in_axes=(None, 0, None))
        return jax.vmap(release)(messages, draws, scale)

    def deliver(self, released: Array, recipients: Array, scale: NoiseScale) -> tuple[Array, Array]:
        """Inboxes (agent, other, message) and masks (agent, other) from what was released last, and to whom.

        Where the mechanism remembers, `released` is all of it (agent, time, message), newest first."""
        released = released[..., -self.channel.size :]
        if self.channel.spec.place == "sender" and self.channel.size:

            def heard(released: Array, scale: NoiseScale) -> Array:
                return self.channel.heard(released, scale, self.aware)

            each = jax.vmap(heard, in_axes=(0, None)) if self.channel.spec.copies > 1 else heard
            released = jax.vmap(each)(released, scale)
        agent, other = np.indices((self.agents, self.agents - 1))
        source = (agent + 1 + other) % self.agents
        slot = self.agents - 2 - other  # seen from the sender, agent i is other N - 2 - k where the sender is i's k-th
        inbox = released[source, slot] if released.ndim == 3 else released[source]
        return inbox, recipients[source, slot]

    def receive(
        self, inbox: Array, mask: Array, observations: Array, projected: Array, draws: Any, scale: NoiseScale
    ) -> Array:
        """What enters the actors (agent, aggregated); noised here if the channel stands at the receiver."""
        aggregated = jax.vmap(lambda member, *given: member.protocol.receive(*given))(
            self.members, inbox, mask, observations, projected
        )
        return aggregated if draws is None else jax.vmap(self.hearing.release)(aggregated, draws, scale)


def pushed(window: Array, newest: Array) -> Array:
    """A window (time, …), newest first, after one more; of no time at all it stays so."""
    return jnp.concatenate([newest[None], window])[: len(window)]


def pick(draws: Any, index: Any) -> Any:
    """The draws of one step, or of some."""
    return jax.tree.map(lambda x: x[index], draws)


class TaskShape(NamedTuple):
    """The sizes of a task that a team is built for."""

    agents: int
    observation: int
    actions: int
    """How many there are, or how many numbers one has."""
    horizon: int
    continuous: bool = False
    increments: tuple[int, ...] = ()
    """Places in an observation that hold its step's own increment."""


def policy_of(actions: int, continuous: bool) -> Policy:
    """A choice among so many actions, or so many numbers."""
    return (Squashed if continuous else Choice)(actions)


def make_team(
    key: Array, shape: TaskShape, method: str, options: dict[str, Any], channel: Channel, networks: NetworkConfig
) -> Team:
    """A freshly initialised team."""
    kind = protocols.find(method)
    channel = protocols.channel_of(method, channel)
    others = max(1, shape.agents - 1)
    also = f", or {others} (fresh noise for each other agent)" if others > 1 else ", for there is one other agent"
    require(channel.copies in (1, others), f"copies must be 1 (broadcast){also}, not {channel.copies}")
    require(
        channel.rounds == 1 or kind.ponders, f"method {method} makes one exchange a step, not {channel.rounds} rounds"
    )
    require(
        not (networks.aware and channel.place == "receiver"),
        "a receiver that adds the noise itself has no noisy message to decode: aware needs noise at the sender",
    )
    options = protocols.read_options(kind, method, options)
    try:
        size = kind.message_size(networks, **options)
        through = mechanism(channel, size)
        sizes = ProtocolShape(shape.agents, shape.observation, shape.actions, through.size, networks, channel.place)
        protocol = kind.create(sizes, **options)
        require(
            not (channel.sample_rate and protocol.past), "a sender draws one past observation, or a share of its past"
        )
        require(
            not (through.host.remembers and protocol.past),
            f"mechanism {channel.mechanism} adds up messages, and a sender that draws a past observation has no stream",
        )
    except TypeError as error:
        raise BadInput(f"method {method}: {error}") from None
    if channel.increments:
        require(
            len(shape.increments) > 0,
            "this task does not declare which part of an observation is the increment of its step",
        )
        require(
            not (kind.sequential or protocol.past),
            f"the sender of method {method} remembers earlier steps, so one increment would enter many messages; a "
            "claim for an increment needs senders that use only their step",
        )

    actor = Actor(
        shape.observation,
        protocol.aggregated_size,
        networks.hidden,
        policy_of(shape.actions, shape.continuous).outputs,
        networks.recurrent_actor,
        networks.products,
        max(networks.layers, networks.entry_layer),
        networks.layer_norm,
    )
    keys = jnp.broadcast_to(key, (shape.agents,)) if networks.share_parameters else jax.random.split(key, shape.agents)
    return Team(
        jax.vmap(fill, in_axes=(0, None))(keys, Member(protocol, actor)),
        through,
        mechanism(channel, protocol.aggregated_size),
        shape.agents,
        shape.horizon,
        shape.actions,
        networks.hidden,
        networks.aware,
        networks.share_parameters,
        shape.continuous,
        shape.increments,
    )
