"""`dpmac bench env`: how fast a task steps, and how fast other people's `simple_spread` does, in one run.

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
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from dpmac import cli
from dpmac.config import require

PEERS = ("jaxmarl", "jaxmarl-step_env", "vmas", "mpe2")
HORIZON, AGENTS, ACTIONS = 25, 3, 5
"""Of `simple_spread`, which the peers play."""

Play = Callable[[int, int], None]
"""Plays so many rounds of parallel episodes from a seed, and returns when they are done."""


@dataclass(frozen=True)
class Options:
    """Environment steps per second under random actions, compile time apart.

    On cn also those of JaxMARL, VMAS and mpe2, where the extra `bench` is installed, and the ratio to each. mpe2 has no
    parallel episodes and plays them one after the other.
    """

    task: str = "cn"
    """A task by name, or as package.module:Name."""
    set: tuple[str, ...] = ()
    """Options of the task, as key=value."""
    episodes: tuple[int, ...] = (1, 16, 256, 4096)
    """Numbers of parallel episodes."""
    peers: tuple[str, ...] = ()
    """Some of jaxmarl, jaxmarl-step_env, vmas, mpe2, or none; all that are installed where none is given."""
    rounds: int = 5
    """Turns of each contender; medians are reported."""
    seconds: float = 0.5
    """About how long a turn takes."""
    json: bool = False
    """Print JSON."""


class Contender(NamedTuple):
    name: str
    play: Play
    steps: int
    """Environment steps of one round of parallel episodes."""
    compile_seconds: float


def run_env(argv: Sequence[str]) -> None:
    options = cli.parse(Options, argv, "dpmac bench env", "dpmac bench env --episodes 1 256 --json")
    require(options.rounds >= 1, f"rounds must be at least 1, not {options.rounds}")
    require(options.seconds > 0, f"seconds must be above 0, not {options.seconds}")
    require(all(count >= 1 for count in options.episodes), "episodes must be whole numbers from 1")
    from dpmac import plugins, tasks

    task = tasks.make(options.task, **plugins.settings(options.set))
    rows = [row for count in options.episodes for row in compare(task, count, peers_of(options), options)]
    cli.emit(rows, options.json, lambda: table(rows))


def peers_of(options: Options) -> list[str]:
    """The peers that take part: those asked for, or those that are installed; none but on plain cn."""
    if options.peers == ("none",) or (not options.peers and (options.task != "cn" or options.set)):
        return []
    require(options.task == "cn" and not options.set, "peers play simple_spread: compare them with cn and no options")
    for peer in options.peers:
        require(peer in PEERS, f"peers must be some of {', '.join(PEERS)}, or none, not {peer!r}")
        require(
            installed(peer),
            f"{peer} is not installed; `make bench` installs it in an environment of its own",
        )
    return [peer for peer in options.peers or PEERS if installed(peer)]


def installed(peer: str) -> bool:
    return importlib.util.find_spec(peer.partition("-")[0]) is not None


def compare(task: Any, episodes: int, peers: list[str], options: Options) -> list[dict[str, Any]]:
    """Let the task and its peers play so many parallel episodes, in turns."""
    makers = {"jaxmarl": jaxmarl, "jaxmarl-step_env": partial(jaxmarl, bare=True), "vmas": vmas, "mpe2": mpe2}
    contenders = [ours(task, episodes), *(makers[peer](episodes) for peer in peers)]
    counts = [rounds_in(contender, options.seconds) for contender in contenders]
    speeds: list[list[float]] = [[] for _ in contenders]
    for turn in range(options.rounds):
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
    import jax
    import jax.numpy as jnp

    def play(seed, rounds):
        def episode(i, carry):
            reset_key, act_key, step_key = jax.random.split(jax.random.fold_in(key, i), 3)

            def one(carry, chosen):
                state, _, total = carry
                state, observations, rewards = step(state, chosen, step_key)
                return (state, observations, jax.tree.map(jnp.add, total, rewards)), None

            state = carry[0] if resets_itself else reset(reset_key)[0]
            lots = jax.random.uniform(act_key, (horizon, episodes, agents))
            chosen = (actions * lots).astype(jnp.int32)
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


def ours(task: Any, episodes: int) -> Contender:
    import jax

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
    import jax

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


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = [f"{'episodes':>8}  {'':<8} {'steps/s':>12}  {'dpmac is':>9}  {'to compile':>10}"]
    for row in rows:
        ratio = "" if row["name"] == "dpmac" else f"{row['ratio']:.1f} ×"
        speed, spent = f"{row['steps_per_second']:,.0f}", f"{row['compile_seconds']:.1f} s"
        lines.append(f"{row['episodes']:>8}  {row['name']:<8} {speed:>12}  {ratio:>9}  {spent:>10}")
    return "\n".join(lines)
