"""The layers that networks are made of: arrays only, written for one input; `jax.vmap` makes them serve many."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class Linear(eqx.Module):
    """x ↦ x·W + b, initialised uniformly within 1/√inputs."""

    weight: Array
    bias: Array

    def __init__(self, key: Array, inputs: int, outputs: int):
        weight_key, bias_key = jax.random.split(key)
        bound = max(inputs, 1) ** -0.5
        self.weight = jax.random.uniform(weight_key, (inputs, outputs), minval=-bound, maxval=bound)
        self.bias = jax.random.uniform(bias_key, (outputs,), minval=-bound, maxval=bound)

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


class Gru(eqx.Module):
    """A gated recurrent unit; the two products of its three gates are one product each."""

    input: Linear
    hidden: Linear

    def __init__(self, key: Array, inputs: int, width: int):
        input_key, hidden_key = jax.random.split(key)
        self.input = Linear(input_key, inputs, 3 * width)
        self.hidden = Linear(hidden_key, width, 3 * width)

    def __call__(self, x: Array, memory: Array) -> Array:
        """x (inputs,), memory (width,) ↦ the next memory (width,)."""
        x_reset, x_update, x_new = jnp.split(self.input(x), 3)
        h_reset, h_update, h_new = jnp.split(self.hidden(memory), 3)
        reset = jax.nn.sigmoid(x_reset + h_reset)
        update = jax.nn.sigmoid(x_update + h_update)
        new = jnp.tanh(x_new + reset * h_new)
        return new + update * (memory - new)


class Actor(eqx.Module):
    """Logits over actions from what an agent sees, what it heard, and what it remembers."""

    cell: Gru | Linear
    head: Linear

    def __init__(self, key: Array, inputs: int, width: int, actions: int, recurrent: bool):
        cell_key, head_key = jax.random.split(key)
        self.cell = (Gru if recurrent else Linear)(cell_key, inputs, width)
        self.head = Linear(head_key, width, actions)

    def __call__(self, observation: Array, heard: Array, memory: Array) -> tuple[Array, Array]:
        """(logits (action,), next memory (width,)); a feed-forward actor's memory is its hidden layer, never read."""
        x = jnp.concatenate([observation, heard])
        memory = self.cell(x, memory) if isinstance(self.cell, Gru) else jax.nn.relu(self.cell(x))
        return self.head(memory), memory


class Critic(eqx.Module):
    """Q(o, a) of one agent from everybody's observations and actions."""

    observation: Linear
    action: Linear
    hidden: Linear | Gru
    value: Linear

    def __init__(self, key: Array, observations: int, actions: int, width: int, recurrent: bool):
        keys = jax.random.split(key, 4)
        self.observation = Linear(keys[0], observations, width)
        self.action = Linear(keys[1], actions, width)
        self.hidden = (Gru if recurrent else Linear)(keys[2], width, width)
        self.value = Linear(keys[3], width, 1)

    def __call__(self, observations: Array, actions: Array) -> Array:
        """One episode of joint observations (time, agent · feature) and one-hot actions (time, agent · action)."""
        x = jax.nn.relu(self.observation(observations) + self.action(actions))
        if isinstance(self.hidden, Gru):
            cell = self.hidden
            _, x = jax.lax.scan(lambda h, now: (h := cell(now, h), h), jnp.zeros(self.value.weight.shape[0]), x)
        else:
            x = jax.nn.relu(self.hidden(x))
        return self.value(x)[..., 0]
