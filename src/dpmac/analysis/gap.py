"""Where a team that speaks in symbols loses what its channel could carry: in what is said, or in what is made of it.

How often is the symbol right? That is the sender's part. What is earned when no symbol is flipped, and what by agents
who are Bayes-optimal receivers? What lies between is the receiver's part.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dpmac.agents.mechanisms import NoiseScale
from dpmac.agents.team import Team
from dpmac.analysis import eavesdrop
from dpmac.learner.rollout import returns, rollout
from dpmac.privacy import mechanisms
from dpmac.runner import train
from dpmac.runner.population import Loaded
from dpmac.runner.train import Program

EPISODES = 4096


@partial(jax.jit, static_argnums=(0, 4))
def played(program: Program, team: Team, scale: NoiseScale, key: Array, episodes: int) -> dict[str, Array]:
    """First symbols (episode, agent), secrets (episode, agent), what each agent's others saw then (episode, agent,
    other · feature), and returns (episode,) of greedy episodes."""
    trace = rollout(program.task, team, scale, key, episodes, greedy=True)
    (secrets,) = jax.vmap(program.task.secrets)(jax.tree.map(lambda leaf: leaf[:, 0], trace.states)).values()
    seen = trace.episode.observations[:, 1]
    others = (np.arange(team.agents)[:, None] + np.arange(1, team.agents)) % team.agents
    return {
        "symbols": jnp.argmax(trace.released[:, 0], axis=-1),
        "secrets": secrets,
        "seen": seen[:, others].reshape(episodes, team.agents, -1),
        "returns": returns(trace.episode),
    }


def information(secrets: np.ndarray, symbols: np.ndarray) -> tuple[float, float]:
    """Bits that symbols tell of secrets (episode,), and how often the likeliest secret of a symbol is the right one.

    >>> information(np.array([0, 1, 0, 1]), np.array([2, 0, 2, 0]))
    (1.0, 1.0)
    """
    (values, secret), (names, symbol) = (np.unique(facts, return_inverse=True) for facts in (secrets, symbols))
    counts = np.zeros((len(values), len(names)))
    np.add.at(counts, (secret, symbol), 1)
    joint = counts / len(secrets)
    apart = joint.sum(1, keepdims=True) * joint.sum(0)
    there = joint > 0
    return float(np.sum(joint[there] * np.log2(joint[there] / apart[there]))), float(counts.max(0).sum() / len(secrets))


def applies(loaded: Loaded) -> bool:
    """Whether there are symbols to look at, and one secret of few values that they may stand for."""
    task, spec = loaded.program.task, loaded.config.channel
    facts = jax.eval_shape(lambda key: task.secrets(task.reset(key)), jax.random.key(0))
    whole = [fact.ndim == 1 and jnp.issubdtype(fact.dtype, jnp.integer) for fact in facts.values()]
    return mechanisms.of(spec).one_symbol and spec.copies == spec.rounds == 1 and whole == [True]


def gaps(loaded: Loaded, episodes: int = EPISODES) -> list[dict[str, Any] | None]:
    """For each run how well its agents tell and use what they are told; means over agents that have a secret, on the
    common starts, and nothing where none has.

    bits, right: what the first symbol tells before any flip, and how often it names the secret by the best fixed code.
    right_after: the same as it left. right_in_view: how often one who sees what the others see can name the secret
    from the symbol before any flip, for a code may depend on the scene. return_on, return_off: with the channel's flips
    and without, receivers knowing the same noise scale.
    """
    if not applies(loaded):
        return [None] * len(loaded.runs)
    key, found = jax.random.key(train.EVALUATION_SEED), []
    for index in range(len(loaded.runs)):
        team, scale = loaded.one(index)
        _, never = team.channel.noiseless(None, scale)
        on, off = (jax.device_get(played(loaded.program, team, now, key, episodes)) for now in (scale, never))
        knowing = [agent for agent in range(team.agents) if np.ptp(off["secrets"][:, agent])]
        if not knowing:
            found.append(None)
            continue
        before = [information(off["secrets"][:, i], off["symbols"][:, i]) for i in knowing]
        after = [information(on["secrets"][:, i], on["symbols"][:, i]) for i in knowing]
        seen = [in_view(off, agent, loaded.config.channel.symbols) for agent in knowing]
        seen = [right for right in seen if right is not None]
        found.append(
            {
                "bits": float(np.mean([bits for bits, _ in before])),
                "right": float(np.mean([right for _, right in before])),
                "right_after": float(np.mean([right for _, right in after])),
                "right_in_view": float(np.mean(seen)) if seen else None,
                "return_on": float(on["returns"].mean()),
                "return_off": float(off["returns"].mean()),
            }
        )
    return found


def in_view(played: dict[str, np.ndarray], agent: int, symbols: int) -> float | None:
    """How often a sender's secret can be guessed from its symbol together with what the others see."""
    symbol = np.eye(symbols)[played["symbols"][:, agent]]
    seen = played["seen"][:, agent]
    inputs = np.concatenate([symbol, seen, (symbol[:, :, None] * seen[:, None]).reshape(len(seen), -1)], axis=1)
    answer = eavesdrop.guess(inputs[:, None], played["secrets"][:, agent])
    return answer and answer.accuracy
