"""An agent as a process: it acts by the clock, hears whom it should, and sends a frame to everybody in every slot.

Frames leave from a thread of their own, at four fifths of each slot: the message if it is ready, a frame that says
nothing otherwise. So neither that something leaves, nor when, nor how long it is depends on what is said.
"""

import fcntl
import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpmac.config import BadInput, require
from dpmac.deploy.agent import Agent
from dpmac.deploy.clock import Clock
from dpmac.deploy.robot import SOCKET, Robot
from dpmac.deploy.transport import Peers, Transport
from dpmac.deploy.wire import FAULTS, Inbox, encode

WhenSpent = Literal["silent", "stop"]
TOLERANCE = 0.15
"""Part of a slot by which frames may leave late, as a loaded machine makes them; later ones never leave."""
Send = Callable[[Mapping[int, bytes]], object]


class Outlet:
    """Sends one frame to each other agent in every slot, at its time."""

    def __init__(self, agent: Agent, clock: Clock, send: Send):
        self._agent, self._clock, self._send = agent, clock, send
        self._ready: dict[int, Mapping[int, np.ndarray]] = {}
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.frames = self.said = self.unsaid = 0
        """Frames that left, messages that left, and messages that were not ready in time and never leave."""

    def hand(self, place: int, messages: Mapping[int, np.ndarray]) -> None:
        """Messages by recipient that are to leave in a slot; where its time has passed they never do."""
        with self._lock:
            passed = self._clock.now() >= self._clock.leaves(place)
            self.unsaid += len(messages) if passed else 0
            if not passed:
                self.unsaid += sum(map(len, self._ready.values()))  # the thread that sends was too late for them
                self._ready = {place: messages}

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        clock, last = self._clock, -1
        while not self._stop.is_set():
            now = clock.now()
            if last > clock.place(now) + 1:  # the clock went back
                last = -1
            place = max(last + 1, clock.place(now) + (now > clock.leaves(clock.place(now))))
            clock.wait(min(clock.leaves(place), now + clock.seconds), self._stop)
            late = clock.now() - clock.leaves(place)
            if late >= 0:
                last = place
                self.leave(place, late < TOLERANCE * clock.seconds)

    def leave(self, place: int, timely: bool = True) -> None:
        """Send the frames of a slot, unless it is too late for them."""
        with self._lock:
            messages = self._ready.pop(place, {})
        if not timely:
            self.unsaid += len(messages)
            return
        agent, (episode, step) = self._agent, self._clock.step_of(place)
        size = agent.channel.size
        self._send(
            {
                other: encode(agent.index, other, episode, step, messages.get(other), size)
                for other in sorted(agent.others)
            }
        )
        self.frames += len(agent.others)
        self.said += len(messages)

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(2.0)
        with self._lock:  # what was charged and handed over too late to leave
            self.unsaid += sum(map(len, self._ready.values()))
            self._ready = {}


class Process:
    """One agent, its clock, what it hears, what it sends, and the program that it acts for."""

    def __init__(self, agent: Agent, clock: Clock, inbox: Inbox, outlet: Outlet, robot: Robot, when_spent: WhenSpent):
        self.agent, self.clock, self.inbox, self.outlet, self.robot = agent, clock, inbox, outlet, robot
        self.when_spent, self.stop, self.begun, self.ending = when_spent, threading.Event(), time.time(), ""
        self.episode, self.step, self.played = -1, 0, 0

    def run(self, episodes: int = 0) -> None:
        """Play so many episodes, 0: until asked to stop; `ending` says why it ended."""
        self.agent.compile()
        gc.collect()
        gc.freeze()  # a collection of all that was imported takes as long as a slot
        self.outlet.start()
        try:
            while not self.stop.is_set() and not (episodes and self.played >= episodes):
                gc.collect()  # what status computes with leaves large arrays in cycles
                jumps = self.clock.jumps
                episode = self.clock.next_episode()
                if self.clock.jumps > jumps:
                    self.inbox.forget()
                if self.when_spent == "stop" and self.spent():
                    self.ending = "the budget has no room for another episode"
                    return
                self.play(episode)
            self.ending = "asked to stop" if self.stop.is_set() else f"played {self.played} episodes"
        finally:
            self.outlet.stop()

    def spent(self) -> bool:
        """Whether the budget has no room for another episode; a ledger that cannot be read only silences the agent."""
        try:
            return not self.agent.affords()
        except (BadInput, OSError):
            return False

    def play(self, episode: int) -> None:
        """One episode, step after step; one whose time has passed, because the process stood still, is given up."""
        carry, first = self.agent.start(), self.clock.place_of(episode, 0)
        if not self.clock.wait(self.clock.begins(first), self.stop):
            return
        for step in range(self.clock.horizon):
            place = first + step
            if not self.clock.wait(self.clock.acts(place), self.stop):
                return
            if self.clock.place() >= first + self.clock.slots:
                return
            self.episode, self.step = episode, step
            received = self.inbox.take(place - 1)
            heard = received if step else {}  # what was said at rest is of no episode
            action, messages, carry = self.agent.act(self.robot.observation(), heard, carry, self.robot.available)
            self.robot.act(episode, step, action)
            self.outlet.hand(place, messages)
        self.played += 1

    def status(self) -> dict[str, Any]:
        """Where the process stands, for people and collectors."""
        agent, ledger = self.agent, self.agent.ledger
        try:
            spent, releases = ledger.spent(agent.account), ledger.charged(agent.account).total()
        except (BadInput, OSError):  # whoever cannot read it does not speak, and says why
            spent, releases = None, None
        peers = {
            str(other): {"heard": self.inbox.counts[other]["heard"]}
            | {fault: self.inbox.counts[other][fault] for fault in FAULTS}
            | {"latency_ms": round(1e3 * self.inbox.latency[other], 3)}
            for other in sorted(agent.others)
        }
        return {
            "agent": agent.index,
            "written": time.time(),
            "uptime": time.time() - self.begun,
            "episode": self.episode,
            "step": self.step,
            "horizon": agent.horizon,
            "slot_seconds": self.clock.seconds,
            "episodes_played": self.played,
            "frames_sent": self.outlet.frames,
            "messages_sent": self.outlet.said,
            "messages_not_ready": self.outlet.unsaid,
            "epsilon_spent": spent,
            "epsilon_limit": ledger.epsilon[agent.account],
            "delta": ledger.delta,
            "releases": releases,
            "silent": agent.silent,
            "silent_because": agent.refused,
            "observations_missed": self.robot.missed,
            "observations_refused": self.robot.refused,
            "clock_jumps": self.clock.jumps,
            "ended": self.ending,
            "peers": peers,
        }


@contextmanager
def opened(
    folder: Path, peers: Peers, tls: Path | None, seconds: float, when_spent: WhenSpent, robot: Path | None = None
) -> Iterator[Process]:
    """The agent of a bundle, connected to its peers and to its robot; one process at a time works on a bundle."""
    agent = Agent.open(folder)
    count = len(agent.noise)
    require(len(peers.agents) == count, f"the team has {count} agents, and the file of peers {len(peers.agents)}")
    clock = Clock(seconds, agent.horizon)
    inbox = Inbox(agent.index, agent.others, agent.channel.size, clock, agent.sends, agent.valid)
    with alone(folder):
        transport = Transport(peers, agent.index, tls, inbox.hear)
        body = Robot(robot or folder / SOCKET, agent.observation_size, agent.policy.actions)
        try:
            yield Process(agent, clock, inbox, Outlet(agent, clock, transport.send), body, when_spent)
        finally:
            body.close()
            transport.close()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a bundle alone; the operating system lets go of it should the process die."""
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(f"another process is at work on {folder}") from None
        yield
