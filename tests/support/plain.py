"""One agent's networks in plain NumPy, to which the vectorised ones are equal."""

import jax
import numpy as np


def agent_of(team, index):
    """The networks of one agent, in double precision."""
    return jax.tree.map(lambda leaf: np.asarray(leaf[index], np.float64), team.members)


def linear(layer, x):
    return x @ layer.weight + layer.bias


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def gru(layer, x, carry):
    """r, z = σ(…), n = tanh(W·x + b + r ⊙ U·h), h' = (1 - z) ⊙ n + z ⊙ h."""
    from_input, from_memory = np.split(linear(layer.input, x), 3), np.split(carry @ layer.hidden, 3)
    reset, update = (sigmoid(a + b) for a, b in zip(from_input[:2], from_memory[:2], strict=True))
    new = np.tanh(from_input[2] + reset * from_memory[2])
    return (1 - update) * new + update * carry


def act(actor, observation, aggregated, carry):
    """Logits and the next carry of a recurrent actor."""
    carry = gru(actor.cell, np.concatenate([observation, aggregated]), carry)
    return linear(actor.head, carry), carry


def clip(message, clip_norm):
    return message * min(1.0, clip_norm / np.linalg.norm(message))


def others_of(index, agents):
    """The other agents in the order in which an agent counts them."""
    return [(index + 1 + k) % agents for k in range(agents - 1)]
