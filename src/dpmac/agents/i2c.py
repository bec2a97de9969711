"""I2C (Ding, Huang, Lu, NeurIPS 2020): agents that learn, from what the joint critic knows, whom it is worth to ask.

Agent i should ask agent j where j's action matters to its own. The joint critic says how much: with
P(a_i, a_j) ∝ exp(Q_i(a_i, a_j, …) / τ), the effect of j is KL(P(a_i) ‖ P(a_i | a_j)). A prior network learns from
i's own observation which effects are large, from as many large ones as small ones, and is asked instead of the critic
in execution.

Who is asked learns something about the asker. Where the channel stands at the sender, its claim covers all that leaves
an agent; so there everybody is always asked, and there is no prior.
"""

from collections.abc import Callable
from typing import Any, Literal, Self, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dpmac.agents.layers import Gru, Linear
from dpmac.agents.policy import allowed
from dpmac.agents.protocol import Protocol, ProtocolShape
from dpmac.agents.recurrent import unrolled
from dpmac.config import NetworkConfig

Form = Literal["authors", "early"]

SHARPNESS = 8.0
"""Inverse temperature of what policies are drawn to, on values whose mean is 0 and whose maximum is 1."""


class Prior(eqx.Module):
    """b(o, k): whether to ask other k, from one's own observation."""

    hidden: Linear
    belief: Linear

    def __init__(self, observation: int, others: int, width: int):
        self.hidden = Linear(observation + others, width)
        self.belief = Linear(width, 1)

    def __call__(self, observation: Array) -> Array:
        """Logits (other,) of asking."""
        seen, who = jnp.split(self.hidden.weight, [len(observation)])  # the input ends in a one-hot k
        return self.belief(jax.nn.relu(observation @ seen + who + self.hidden.bias))[:, 0]


class I2C(Protocol):
    """Those asked reply with their encoded observation; replies are encoded in the order of asking."""

    shared: Linear
    reply: Linear
    listener: Gru
    prior: Prior | None
    others: int = eqx.field(static=True)
    percentile: float = eqx.field(static=True)
    temperature: float = eqx.field(static=True)
    weight: float = eqx.field(static=True)
    form: Form = eqx.field(static=True)

    needs_values = True
    private_at = "receiver"

    @classmethod
    def create(
        cls,
        sizes: ProtocolShape,
        percentile: float = 80.0,
        temperature: float = 1.0,
        weight: float = 0.01,
        form: Form = "authors",
        listener: int = 0,
    ) -> Self:
        """percentile: of the effects in a batch, above which asking is right. temperature: τ. weight: of the policy's
        divergence from what the critic implies. The authors' code has 80 (60 on CN, 40 on PP), 1 and 0.01.

        listener: numbers that replies are encoded into; 0: as wide as `message_hidden`.
        form: `authors`, as their code has it. `early`, as version 0.1 of this package had it: effects are
        KL(P(a_i | a_j) ‖ P(a_i)), the prior learns from all of them, few large ones among many small ones, and policies
        are drawn to P(a_i | a_j) by KL(π_i ‖ P(a_i | a_j)).
        """
        if not (0 <= percentile <= 100 and temperature > 0 and weight >= 0):
            raise TypeError("percentile must lie in [0, 100], temperature above 0 and weight at least at 0")
        if form not in get_args(Form):
            raise TypeError(f"form must be one of {', '.join(get_args(Form))}, not {form!r}")
        width, others = sizes.networks.message_hidden, sizes.agents - 1
        if not 0 <= listener <= 4096:
            raise TypeError(f"listener must be a whole number from 0 to 4096, not {listener}")
        return cls(
            shared=Linear(sizes.observation, width),
            reply=Linear(width, sizes.message),
            listener=Gru(sizes.message, listener or width),
            prior=Prior(sizes.observation, others, width) if sizes.place == "receiver" else None,
            others=others,
            percentile=percentile,
            temperature=temperature,
            weight=weight,
            form=form,
        )

    @classmethod
    def message_size(cls, networks: NetworkConfig, **options: Any) -> int:
        return networks.message_size

    @property
    def aggregated_size(self) -> int:
        return self.listener.hidden.shape[-2]

    def send(self, observation: Array, action: Array, hidden: Array, draws: Array) -> Array:
        return self.reply(jax.nn.relu(self.shared(observation)))

    def asks(self, observation: Array) -> Array:
        """Whether each of the others (other,) is asked; no gradient flows, the prior learns from its labels alone."""
        return jnp.ones(self.others, bool) if self.prior is None else self.prior(observation) > 0

    def receive(self, inbox: Array, mask: Array, observation: Array, hidden: Array) -> Array:
        def hear(aggregated: Array, now: tuple[Array, Array]) -> tuple[Array, None]:
            reply, there = now
            return jnp.where(there, self.listener(reply, aggregated), aggregated), None

        asked = mask & self.asks(observation)
        return jax.lax.scan(hear, jnp.zeros(self.aggregated_size), (inbox, asked), unroll=unrolled())[0]

    @staticmethod
    def auxiliary(
        members: Any, episode: Any, logits: Array, values: Callable, key: Array
    ) -> tuple[Array, dict[str, Array]]:
        """The prior's cross entropy with its labels, and the policies' divergence from what the critics imply.

        Both at one step of each episode and for one other of each agent, drawn at random, so that this costs about as
        much as one more pass of the critics, whatever the number of agents.
        """
        protocol: I2C = members.protocol
        agents, count = logits.shape[1:3]
        time_key, other_key = jax.random.split(key)
        lasts = len(logits) if episode.live is None else jnp.sum(episode.live[:, 0], axis=0)
        time = jax.random.randint(time_key, (count,), 0, lasts)
        other = jax.random.randint(other_key, (agents, count), 0, max(protocol.others, 1))

        def now(x: Array) -> Array:
            return jax.vmap(lambda x, t: x[t], in_axes=(2, 0), out_axes=1)(x, time)

        observations, actions = now(episode.observations), now(episode.actions)
        can = None if episode.choices is None else now(episode.choices)
        partner = (jnp.arange(agents)[:, None] + 1 + other) % agents
        scores = pair_values(values, observations, actions, partner, logits.shape[-1]) / protocol.temperature
        if can is not None:
            theirs = jnp.take_along_axis(can, partner[..., None], axis=0)
            scores = allowed(scores, can[..., None] & theirs[..., None, :])
        taken = jnp.take_along_axis(actions, partner, axis=0).astype(int)
        informed, alone = implied(scores, taken)
        policy = jax.nn.log_softmax(allowed(now(logits), can))
        if protocol.form == "authors":
            effect, regulariser = divergence(alone, informed), divergence(sharpened(informed, can), policy)
        else:
            effect, regulariser = divergence(informed, alone), divergence(policy, informed)
        loss = protocol.weight * jnp.sum(jnp.mean(regulariser, axis=1))
        asks, report = jnp.ones(agents), {"effect": jnp.mean(effect)}
        if protocol.prior is not None:
            beliefs = jax.vmap(lambda prior, o: jax.vmap(prior)(o))(protocol.prior, observations)
            belief = jnp.take_along_axis(beliefs, other[..., None], axis=-1)[..., 0]
            loss += jnp.sum(prior_loss(belief, effect, protocol.percentile, protocol.form))
            asks = jnp.mean(beliefs > 0, axis=(1, 2))
        return loss, report | {f"asks_{agent}": asks[agent] for agent in range(agents)}


def pair_values(values: Callable, observations: Array, actions: Array, partner: Array, count: int) -> Array:
    """Q_i (agent, episode, own, other's) for every pair of actions of agent i and its partner, the rest as recorded.

    observations (agent, episode, feature), actions (agent, episode), partner (agent, episode).
    """
    agents = len(partner)
    own, theirs = jnp.divmod(jnp.arange(count**2), count)
    who = jnp.arange(agents)
    is_own = (who == who[:, None])[:, None, :, None]  # (critic, 1, agent, 1)
    is_partner = (partner[:, None] == who[:, None])[:, None]  # (critic, 1, agent, episode)
    pairs = (None, slice(None), None, None)
    joint = jnp.where(is_own, own[pairs], jnp.where(is_partner, theirs[pairs], actions))
    found = values(jnp.broadcast_to(observations, (count**2, *observations.shape)), jax.nn.one_hot(joint, count))
    return jnp.moveaxis(found, 0, -1).reshape(*partner.shape, count, count)


def implied(scores: Array, taken: Array) -> tuple[Array, Array]:
    """log P(a_i | a_j) (…, own) for the action that the other took (…), and log P(a_i) (…, own).

    scores (…, own, other's) are Q / τ; P(a_i) sums the joint soft-max over the other's actions.
    """
    informed = jnp.take_along_axis(scores, taken[..., None, None], axis=-1)[..., 0]
    return jax.nn.log_softmax(informed), jax.nn.log_softmax(jax.nn.logsumexp(scores, axis=-1))


def divergence(p: Array, q: Array) -> Array:
    """KL(p ‖ q) (…) of log probabilities (…, action)."""
    return jnp.sum(jnp.exp(p) * (p - q), axis=-1)


def sharpened(values: Array, can: Array | None = None) -> Array:
    """log probabilities (…, action) of the soft-max of values that were centred and divided by their maximum, so that
    it is as sharp where values differ little as where they differ much; of allowed actions alone."""
    centred = values - jnp.mean(values, axis=-1, keepdims=True, where=can)
    sharp = SHARPNESS * centred / jnp.maximum(jnp.max(centred, axis=-1, keepdims=True), 1e-6)
    return jax.nn.log_softmax(allowed(sharp, can))


def prior_loss(belief: Array, effect: Array, percentile: float, form: Form) -> Array:
    """Cross entropy (agent,) of logits (agent, sample) with the labels that effects at or above the percentile give.

    As the authors have it, each agent has a threshold of its own, and each class weighs one half: the mean over all
    batches that are drawn half from above the threshold and half from below.
    """
    own = form == "authors"
    label = effect >= jnp.percentile(effect, percentile, axis=1 if own else None, keepdims=True)
    entropy = jax.nn.softplus(jnp.where(label, -belief, belief))
    if not own:
        return jnp.mean(entropy, axis=1)
    above, below = (jnp.sum(jnp.where(of, entropy, 0.0), 1) / jnp.maximum(jnp.sum(of, 1), 1) for of in (label, ~label))
    return (above + below) / 2
