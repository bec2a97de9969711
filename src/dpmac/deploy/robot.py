"""The local interface between an agent and the program that senses and moves: lines of JSON over a Unix socket.

    in    {"observation": [0.1, …], "available": [1, …]} as often as there is something new; the last one counts
    out   {"episode": 7, "step": 3, "action": 2}         one a step

`available` may be left out: then all actions are allowed. The agent listens; one program is connected at a time, and
the latest to come takes the place of the one before.
"""

import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dpmac.config import BadInput, require
from dpmac.deploy.agent import checked, choices

LONGEST = 1 << 20
"""Bytes of the longest line."""
SOCKET = "robot.sock"
"""Its name within a bundle."""


def lines(connection: socket.socket) -> Any:
    """Objects, one a line, until the other side hangs up or sends what is none."""
    with suppress(OSError, ValueError, RecursionError), connection.makefile("rb") as file:
        while (line := file.readline(LONGEST)).endswith(b"\n"):
            data = json.loads(line)
            if not isinstance(data, dict):
                return
            yield data


def send(connection: socket.socket, data: dict[str, Any], flags: int = 0) -> bool:
    """Send an object as a line; whether the other side was there to take it."""
    try:
        connection.sendall(json.dumps(data).encode() + b"\n", flags)
        return True
    except OSError:
        return False


class Robot:
    """An agent's side: the latest observation, and where actions go."""

    def __init__(self, path: Path, observation_size: int, actions: int = 0):
        self._size, self._actions, self._path, self._lock = observation_size, actions, path, threading.Lock()
        self._observation, self._available = np.zeros(observation_size, np.float32), None
        self._fresh, self._connection = False, None
        self.missed = self.refused = 0
        """Steps without a new observation, for which the last one stood; observations that did not fit."""
        require(path.is_socket() or not os.path.lexists(path), f"{path} is there and is no socket")
        path.unlink(missing_ok=True)  # of a process that was killed
        self._server = socket.socket(socket.AF_UNIX)
        try:
            before = os.umask(0o177)  # nobody but the owner may connect
            try:
                self._server.bind(str(path))
            finally:
                os.umask(before)
        except OSError as error:
            raise BadInput(f"no socket can be made at {path}: {error}") from None
        self._server.listen(1)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                connection.settimeout(None)
                with self._lock:
                    previous, self._connection = self._connection, connection
                if previous is not None:
                    with suppress(OSError):
                        previous.shutdown(socket.SHUT_RDWR)
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with connection:
            for data in lines(connection):
                self.observe(data.get("observation"), data.get("available"))
        with self._lock:
            if self._connection is connection:
                self._connection = None

    def observe(self, observation: Any, available: Any = None) -> None:
        """Take in an observation (feature,) and which actions (action,) are allowed; what does not fit is counted, and
        the last ones stand."""
        try:
            require(isinstance(observation, list), "an observation is a list of numbers")
            seen = checked(observation, (self._size,))
            open_to = None if available is None else choices(available, (self._actions,))
        except (BadInput, OverflowError):
            self.refused += 1
            return
        with self._lock:
            self._observation, self._available, self._fresh = seen, open_to, True

    def observation(self) -> np.ndarray:
        """The latest observation (feature,); zeros before the first."""
        with self._lock:
            self.missed += not self._fresh
            self._fresh = False
            return self._observation

    @property
    def available(self) -> np.ndarray | None:
        """Which actions (action,) are allowed with the latest observation; None: all."""
        return self._available

    def act(self, episode: int, step: int, action: int) -> None:
        """Hand over an action, if anybody is there; the agent waits for nobody, and drops whoever does not read."""
        with self._lock:
            connection = self._connection
        told = {"episode": episode, "step": step, "action": action}
        if connection is not None and not send(connection, told, socket.MSG_DONTWAIT):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._path.unlink(missing_ok=True)
