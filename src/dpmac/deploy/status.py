"""What people and collectors see of agents at work: a file that each process renews, a live page, and metrics.

A process writes `status.json` into its bundle about once a second. Everything else reads it, in a process of its own,
so that an agent listens on nothing but its peers' port and its robot's socket.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

from dpmac.config import dumps, loads, require, to_json

FILE = "status.json"
STALE = 5.0
"""Seconds after which a file that is not renewed belongs to a process that has ended or stands still."""
GAUGES = {
    "episode": "Episode by the clock",
    "step": "Step of the episode",
    "epsilon_spent": "Epsilon of everything released so far",
    "epsilon_limit": "Epsilon that may be spent over all episodes",
    "silent": "Whether nothing real is said in this episode",
    "alive": "Whether the status was renewed lately",
}
COUNTERS = {
    "episodes_played": "Episodes played by this process",
    "frames_sent": "Frames sent, one to each other agent in every slot",
    "messages_sent": "Frames sent that say something",
    "messages_not_ready": "Messages that were not ready in their slot and never left",
    "releases": "Releases charged to the ledger",
    "observations_missed": "Steps without a new observation",
    "observations_refused": "Observations that did not fit",
    "clock_jumps": "Jumps of the wall clock",
}
BY_PEER = {
    "heard": "Frames accepted from a peer",
    "missed": "Slots without a frame from a peer",
    "late": "Frames from a peer that came too late",
    "early": "Frames from a peer that came too early",
    "doubled": "Frames from a peer that came again",
    "malformed": "Frames from a peer that are none, or hold what its channel cannot release",
}


def keep(path: Path, status: Callable[[], dict[str, Any]], stop: threading.Event, every: float = 1.0) -> None:
    """Renew a status file until asked to stop, and once more then; what a status costs is waited for twentyfold."""
    while True:
        ending, begun = stop.is_set(), time.monotonic()
        aside = path.with_name(f".{path.name}.aside")
        with suppress(OSError):  # a full disk must not stop an agent
            aside.write_text(dumps(status()) + "\n")
            os.replace(aside, path)
        if ending:
            return
        stop.wait(max(every, 20 * (time.monotonic() - begun)))


def read(bundles: Sequence[Path]) -> list[dict[str, Any]]:
    """The last status of each bundle; one that never ran says only which bundle it is."""
    found = []
    for bundle in bundles:
        require((bundle / "agent.json").is_file(), f"{bundle} is no bundle: it has no agent.json")
        data: dict[str, Any] = {"bundle": bundle.name, "alive": False}
        with suppress(OSError, ValueError, KeyError, TypeError):
            data |= loads((bundle / FILE).read_text())
            data["alive"] = time.time() - data["written"] < STALE and not data["ended"]
        found.append(data)
    return found


def metrics(found: Sequence[dict[str, Any]]) -> str:
    """All statuses in Prometheus' text format."""
    return "\n".join(_metrics([one for one in found if "agent" in one])) + "\n"


def _metrics(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    for kind, names in (("gauge", GAUGES), ("counter", COUNTERS)):
        for name, said in names.items():
            yield from _heading(name, kind, said)
            for one in found:
                if one.get(name) is not None:
                    yield f'{_name(name, kind)}{{agent="{one["agent"]}"}} {_number(one[name])}'
    for name, kind, said in (
        *((name, "counter", said) for name, said in BY_PEER.items()),
        ("latency_ms", "gauge", "Milliseconds from a peer's slot to the arrival of its frame"),
    ):
        yield from _heading(name, kind, said)
        for one in found:
            for peer, counts in one["peers"].items():
                yield f'{_name(name, kind)}{{agent="{one["agent"]}",peer="{peer}"}} {_number(counts[name])}'


def _name(name: str, kind: str) -> str:
    return f"dpmac_{name}_total" if kind == "counter" else f"dpmac_{name}"


def _heading(name: str, kind: str, said: str) -> list[str]:
    return [f"# HELP {_name(name, kind)} {said}.", f"# TYPE {_name(name, kind)} {kind}"]


def _number(value: Any) -> str:
    return f"{float(value):g}".replace("inf", "+Inf") if abs(float(value)) >= 2**53 else repr(float(value))


def table(found: Sequence[dict[str, Any]]) -> str:
    """All statuses in a line each, with a line for each peer below."""
    lines = []
    for one in found:
        if "agent" not in one:
            lines.append(f"{one['bundle']}: never ran")
            continue
        state = "at work" if one["alive"] else f"ended: {one['ended']}" if one["ended"] else "not answering"
        spent = "unknown" if one["epsilon_spent"] is None else f"{float(one['epsilon_spent']):.4g}"
        lines.append(
            f"agent {one['agent']}  {state}  episode {one['episode']} step {one['step']}  "
            f"messages {one['messages_sent']} of {one['frames_sent']} frames  "
            f"epsilon {spent} of {float(one['epsilon_limit']):.4g}"
        )
        if one["silent"]:
            lines.append(f"  silent: {one['silent_because']}")
        for peer, counts in one["peers"].items():
            rest = "  ".join(f"{name} {counts[name]}" for name in BY_PEER)
            lines.append(f"  from {peer}:  {rest}  latency {counts['latency_ms']:.1f} ms")
    return "\n".join(lines)


def page() -> bytes:
    """The live page, which asks for status.json again and again and loads nothing from elsewhere."""
    return resources.files("dpmac.deploy").joinpath("status.html").read_bytes()


def server(bundles: Sequence[Path], host: str, port: int) -> ThreadingHTTPServer:
    """An HTTP server of the page at /, of `status.json`, and of metrics at /metrics."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers = {
                "/": ("text/html; charset=utf-8", page),
                "/status.json": ("application/json", lambda: json.dumps(to_json(read(bundles))).encode()),
                "/metrics": ("text/plain; version=0.0.4; charset=utf-8", lambda: metrics(read(bundles)).encode()),
            }
            kind, answer = answers.get(self.path, ("text/plain", lambda: b"there is /, /status.json and /metrics\n"))
            body = answer()
            self.send_response(200 if self.path in answers else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    return ThreadingHTTPServer((host, port), Handler)
