"""A task's world for agents that run as processes: it speaks to each of them as the program of its robot would.

At the beginning of each slot it sends every agent what it observes, and at the slot's end it takes the actions that
have come. An agent that gives none, because it is dead or late, does what the first action is that is allowed. An
episode that ends early stands still until the horizon, so that messages go on.
"""

import math
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpmac.config import require, whole
from dpmac.deploy.clock import Clock
from dpmac.deploy.robot import lines, send
from dpmac.tasks import Task, advance, allowed

RETRY, PATIENCE = 0.2, 120.0
"""Seconds between attempts to reach an agent, and until they are given up."""
LARGEST = 2**31 - 1
"""The largest number that is taken for an action at all; arrays hold no larger ones."""


class Body(threading.Thread):
    """The world's connection to one agent, made again whenever it is lost."""

    def __init__(self, path: Path, stop: threading.Event):
        super().__init__(daemon=True)
        self._path, self._stop_asked = path, stop
        self._connection: socket.socket | None = None
        self.actions: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        while not self._stop_asked.is_set():
            with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(self._path))
                self._connection = connection
                for data in lines(connection):
                    self._take(data)
            self._connection = None
            self._stop_asked.wait(RETRY)

    def _take(self, data: dict[str, Any]) -> None:
        episode, step, action = (data.get(name) for name in ("episode", "step", "action"))
        if whole(episode, 0) and whole(step, 0) and whole(action, 0, LARGEST):
            self.actions[episode, step] = action

    @property
    def reached(self) -> bool:
        return self._connection is not None

    def show(self, observation: np.ndarray, available: np.ndarray | None) -> None:
        connection = self._connection
        if connection is not None:
            choices = {} if available is None else {"available": available.astype(int).tolist()}
            send(connection, {"observation": observation.tolist()} | choices)

    def close(self) -> None:
        with suppress(OSError, AttributeError):
            self._connection.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


class Played(NamedTuple):
    """What came of an episode."""

    episode: int
    """By the clock."""
    value: float
    """The return."""
    absent: int
    """Actions that did not come."""


def starts(task: Task, seed: int, episodes: int) -> Any:
    """First states (episode, …): those of `DeployedTeam.simulate(jax.random.key(seed), episodes)`."""
    start_key, *_ = jax.random.split(jax.random.key(seed), 4)
    return jax.jit(jax.vmap(task.reset))(jax.random.split(start_key, episodes))


def play(task: Task, sockets: Sequence[Path], seconds: float, episodes: int, seed: int = 0) -> Iterator[Played]:
    """Play so many whole episodes, each when the clock says that one begins, once all agents have been reached."""
    count = task.agents
    require(len(sockets) == count, f"{task.name} has {count} agents, not {len(sockets)}")
    require(whole(episodes, 1), f"episodes must be a whole number from 1, not {episodes}")
    clock, stop = Clock(seconds, task.horizon), threading.Event()
    observe, step = jax.jit(lambda state: (task.observe(state), allowed(task, state))), jax.jit(partial(advance, task))
    states = starts(task, seed, episodes)
    first = jax.tree.map(lambda leaf: leaf[0], states)
    jax.block_until_ready((observe(first), step(first, jnp.zeros(count, jnp.int32))))
    bodies = [Body(path, stop) for path in sockets]
    for body in bodies:
        body.start()
    try:
        ends = time.monotonic() + PATIENCE
        while missing := [str(path) for path, body in zip(sockets, bodies, strict=True) if not body.reached]:
            if time.monotonic() > ends:
                raise TimeoutError(f"no agent answers at {', '.join(missing)}")
            stop.wait(RETRY)
        for index in range(episodes):
            episode = clock.next_episode()
            state, value, absent = jax.tree.map(lambda leaf, i=index: leaf[i], states), 0.0, 0
            for body in bodies:
                body.actions.clear()
            for now in range(task.horizon):
                place, (seen, available) = clock.place_of(episode, now), jax.device_get(observe(state))
                open_to = np.ones((count, task.actions), bool) if available is None else available
                masks = [None] * count if available is None else available
                clock.wait(clock.begins(place), stop)
                for body, one, mask in zip(bodies, seen, masks, strict=True):
                    body.show(one, mask)
                clock.wait(clock.begins(place + 1), stop)
                given = [body.actions.pop((episode, now), -1) for body in bodies]
                fits = [0 <= action < task.actions and open_to[i, action] for i, action in enumerate(given)]
                absent += fits.count(False)
                actions = np.where(fits, given, open_to.argmax(axis=-1))
                state, rewards = step(state, jnp.asarray(actions))
                value += float(jnp.mean(rewards))
            yield Played(episode, value, absent)
    finally:
        stop.set()
        for body in bodies:
            body.close()


def summary(found: Sequence[Played]) -> dict[str, Any]:
    """Mean return with the half-width of its 95 % interval, and how many actions did not come."""
    values = np.array([one.value for one in found])
    half = 1.96 * values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return {
        "episodes": len(values),
        "return_mean": float(values.mean()),
        "return_ci95": [float(values.mean() - half), float(values.mean() + half)],
        "absent": sum(one.absent for one in found),
    }
