"""How fast a task steps, and how fast other people's `simple_spread` does, in one run.

Everybody does the same work: random actions are drawn in the timed loop, an episode's at once; every episode starts
from a fresh reset; the observations and rewards of all agents are produced in every step. Contenders take turns, so
that a busy machine disturbs all alike.
"""

import contextlib
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpmac.config import require
from dpmac.tasks import Task

PEERS = ("jaxmarl", "jaxmarl-step_env", "vmas", "mpe2")
HORIZON, AGENTS, ACTIONS = 25, 3, 5
"""Of `simple_spread`, which the peers play."""

Play = Callable[[int, int], None]
"""Plays so many rounds of parallel episodes from a seed, and returns when they are done."""


class Contender(NamedTuple):
    name: str
    play: Play
    steps: int
    """Environment steps of one round of parallel episodes."""
    compile_seconds: float


def peers_of(asked: Sequence[str], plain: bool) -> list[str]:
    """The peers that take part: those asked for, or those that are installed; none but on plain cn."""
    if tuple(asked) == ("none",) or not (asked or plain):
        return []
    require(plain, "peers play simple_spread: compare them with cn and no options")
    for peer in asked:
        require(peer in PEERS, f"peers must be some of {', '.join(PEERS)}, or none, not {peer!r}")
        require(
            installed(peer),
            f"{peer} is not installed; `make bench` installs it in an environment of its own",
        )
    return [peer for peer in asked or PEERS if installed(peer)]


def installed(peer: str) -> bool:
    return importlib.util.find_spec(peer.partition("-")[0]) is not None


def compare(task: Task, episodes: int, peers: Sequence[str], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Let the task and its peers play so many parallel episodes, each so many turns of about so many seconds: a row of
    medians for each, with the ratio of the task's speed to it."""
    makers = {"jaxmarl": jaxmarl, "jaxmarl-step_env": partial(jaxmarl, bare=True), "vmas": vmas, "mpe2": mpe2}
    contenders = [ours(task, episodes), *(makers[peer](episodes) for peer in peers)]
    counts = [rounds_in(contender, seconds) for contender in contenders]
    speeds: list[list[float]] = [[] for _ in contenders]
    for turn in range(rounds):
        for contender, count, speed in zip(contenders, counts, speeds, strict=True):
            speed.append(contender.steps * count / timed(contender.play, turn, count))
    return [
        {
            "name": contender.name,
            "episodes": episodes,
            "steps_per_second": statistics.median(speed),
            "compile_seconds": contender.compile_seconds,
            "ratio": statistics.median(our / their for our, their in zip(speeds[0], speed, strict=True)),
        }
        for contender, speed in zip(contenders, speeds, strict=True)
    ]


def timed(play: Play, seed: int, rounds: int) -> float:
    start = time.perf_counter()
    play(seed, rounds)
    return time.perf_counter() - start


def rounds_in(contender: Contender, seconds: float) -> int:
    """Rounds that take about so many seconds; the first, cold ones are not counted."""
    contender.play(0, 1)
    rounds, spent = 1, timed(contender.play, 1, 1)
    while spent < seconds / 4:
        rounds *= 4
        spent = timed(contender.play, 1, rounds)
    return max(1, round(rounds * seconds / spent))


def compiled(
    name: str,
    reset: Callable,
    step: Callable,
    episodes: int,
    agents: int,
    actions: int,
    horizon: int,
    resets_itself: bool = False,
) -> Contender:
    """A contender out of functions of JAX, over parallel episodes: `reset(key)` gives state and observations,
    `step(state, actions, key)` state, observations and rewards. The last observations and the sum of the rewards are
    carried along, so that none is left out."""

    def play(seed, rounds):
        def episode(i, carry):
            reset_key, act_key, step_key = jax.random.split(jax.random.fold_in(key, i), 3)

            def one(carry, chosen):
                state, _, total = carry
                state, observations, rewards = step(state, chosen, step_key)
                return (state, observations, jax.tree.map(jnp.add, total, rewards)), None

            state = carry[0] if resets_itself else reset(reset_key)[0]
            draws = jax.random.uniform(act_key, (horizon, episodes, agents))
            chosen = (actions * draws).astype(jnp.int32)
            return jax.lax.scan(one, (state, *carry[1:]), chosen)[0]

        key = jax.random.key(seed)
        state, observations = reset(key)
        rewards = step(state, jnp.zeros((episodes, agents), jnp.int32), key)[2]
        return jax.lax.fori_loop(0, rounds, episode, (state, observations, rewards))

    start = time.perf_counter()
    program = jax.jit(play).lower(0, 1).compile()
    spent = time.perf_counter() - start
    run = lambda seed, rounds: jax.block_until_ready(program(seed, rounds))  # noqa: E731
    return Contender(name, run, episodes * horizon, spent)


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Let nobody's chatter into our output, which may be JSON."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.__stdout__):
            if stream:
                stream.flush()
        os.dup2(saved, 1)
        os.close(saved)


def ours(task: Task, episodes: int) -> Contender:
    def reset(key):
        state = jax.vmap(task.reset)(jax.random.split(key, episodes))
        return state, jax.vmap(task.observe)(state)

    def step(state, actions, key):
        del key
        state, rewards = jax.vmap(task.step)(state, actions)
        return state, jax.vmap(task.observe)(state), rewards

    return compiled("dpmac", reset, step, episodes, task.agents, task.actions, task.horizon)


def jaxmarl(episodes: int, bare: bool = False) -> Contender:
    """By its public `step`, which resets at the horizon, or by the bare `step_env`, which does not."""
    with stdout_to_stderr():  # it greets, past `contextlib.redirect_stdout`
        from jaxmarl import make

        env = make("MPE_simple_spread_v3")

    def reset(key):
        observations, state = jax.vmap(env.reset)(jax.random.split(key, episodes))
        return state, observations

    def step(state, actions, key):
        chosen = {agent: actions[:, i] for i, agent in enumerate(env.agents)}
        keys = jax.random.split(key, episodes)  # the same in every step of an episode: these physics have no noise
        observations, state, rewards, _, _ = jax.vmap(env.step_env if bare else env.step)(keys, state, chosen)
        return state, observations, rewards

    name = "jaxmarl-step_env" if bare else "jaxmarl"
    return compiled(name, reset, step, episodes, AGENTS, ACTIONS, HORIZON, resets_itself=not bare)


def vmas(episodes: int) -> Contender:
    import torch
    from vmas import make_env

    start = time.perf_counter()
    env = make_env("simple_spread", num_envs=episodes, device="cpu", continuous_actions=False, n_agents=AGENTS)
    spent = time.perf_counter() - start

    def play(seed: int, rounds: int) -> None:
        torch.manual_seed(seed)
        with torch.no_grad():
            for _ in range(rounds):
                env.reset()
                for actions in torch.randint(ACTIONS, (HORIZON, AGENTS, episodes, 1)):
                    env.step(list(actions))

    return Contender("vmas", play, episodes * HORIZON, spent)


def mpe2(episodes: int) -> Contender:
    """One episode a round, whatever the number of parallel ones: it has none."""
    del episodes
    import numpy as np
    from mpe2 import simple_spread_v3

    start = time.perf_counter()
    env = simple_spread_v3.parallel_env(max_cycles=HORIZON)
    spent = time.perf_counter() - start

    def play(seed: int, rounds: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(rounds):
            env.reset()
            for actions in rng.integers(ACTIONS, size=(HORIZON, AGENTS)).tolist():
                env.step(dict(zip(env.agents, actions, strict=True)))

    return Contender("mpe2", play, HORIZON, spent)
