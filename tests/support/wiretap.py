"""A tap on a connection: a relay on the loopback device that notes when how many bytes went which way."""

import socket
import threading
import time
from contextlib import suppress
from typing import NamedTuple


class Piece(NamedTuple):
    """What one read of the relay brought."""

    at: float
    """Wall clock."""
    outward: bool
    """From whoever connected to whom it connected to."""
    data: bytes


class Tap:
    """Relays whatever connects to its port on to another one."""

    def __init__(self, target: int):
        self._target, self.pieces = target, list[Piece]()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                for one in (near, far):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, sink, outward in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._relay, args=(source, sink, outward), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, outward: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self.pieces.append(Piece(time.time(), outward, data))
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stream(self, outward: bool) -> bytes:
        """All that went one way."""
        return b"".join(piece.data for piece in self.pieces if piece.outward == outward)

    def close(self) -> None:
        self._server.close()


def records(tap: Tap, outward: bool) -> list[tuple[float, int]]:
    """When each record of TLS went one way, and how long it is; one that came in several reads counts by its last."""
    found, rest = [], b""
    for piece in [piece for piece in tap.pieces if piece.outward == outward]:
        rest += piece.data
        while len(rest) >= 5 and len(rest) >= (whole := 5 + int.from_bytes(rest[3:5], "big")):
            found.append((piece.at, whole))
            rest = rest[whole:]
    return found
