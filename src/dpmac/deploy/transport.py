"""Frames between agents: Zenoh over mutual TLS, where a certificate's name decides what a peer may publish and hear.

Agent i publishes what is for agent j under the key `dpmac/TEAM/i/j`. Everybody accepts on each connection exactly the
keys of the agent whose certificate is at its other end, and nothing else. There is no broker, nobody is looked for by
multicast or gossip, and a frame that cannot leave at once is dropped.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zenoh

from dpmac.config import BadInput, require
from dpmac.deploy.keys import AUTHORITY, name_of

LARGEST = 65_536
"""Bytes of the largest frame that is taken off a connection."""
PLAIN = (
    "--insecure: frames go over plain TCP. Whoever reaches the network reads what agents release, and may speak for "
    "any of them. What an agent releases is still private; what it is told is not authentic."
)


@dataclass(frozen=True)
class Peers:
    """Who is in a team, and where."""

    team: str
    agents: tuple[str, ...]
    """host:port of each, where it listens and the others connect to."""

    def key(self, sender: int, recipient: int) -> str:
        """What frames of one agent to another are published under."""
        return f"dpmac/{self.team}/{sender}/{recipient}"


def read_peers(path: Path) -> Peers:
    """Peers from a file: `team = "name"` and `agents = ["host:port", …]`."""
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a list of peers: {error}") from None
    unknown = set(data) - {"team", "agents"}
    require(not unknown, f"{path} has team and agents, not {', '.join(sorted(unknown))}")
    team, agents = data.get("team"), data.get("agents")
    if not (isinstance(team, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", team)):
        raise BadInput(f"{path}: team must be a name of letters, digits, - and _, not {team!r}")
    if not (isinstance(agents, list) and len(agents) > 1 and all(isinstance(one, str) for one in agents)):
        raise BadInput(f'{path}: agents must be a list of at least two, each as "host:port", not {agents!r}')
    for one in agents:
        require(
            re.fullmatch(r"[^\s/:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", one) is not None, f"{one!r} is no host:port"
        )
    require(len(set(agents)) == len(agents), f"{path}: two agents have the same address")
    return Peers(team, tuple(agents))


def configuration(peers: Peers, agent: int, tls: Path | None) -> dict[str, Any]:
    """Zenoh's settings for one agent; each pair is connected by the one with the larger number."""
    scheme = "tcp" if tls is None else "tls"
    settings: dict[str, Any] = {
        "mode": "peer",
        "listen/endpoints": [f"{scheme}/{peers.agents[agent]}"],
        "connect/endpoints": [f"{scheme}/{address}" for address in peers.agents[:agent]],
        "connect/timeout_ms": -1,  # try for ever, in the background
        "connect/exit_on_failure": False,
        "connect/retry": {"period_init_ms": 200, "period_max_ms": 1000, "period_increase_factor": 1.5},
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "adminspace/enabled": False,
        "transport/link/protocols": [scheme],
        "transport/link/rx/max_message_size": LARGEST,
    }
    if tls is None:
        return settings
    own = name_of(agent)
    files = {suffix: tls / f"{name}" for suffix, name in ((".pem", f"{own}.pem"), (".key", f"{own}.key"))}
    for path in (tls / f"{AUTHORITY}.pem", *files.values()):
        require(path.is_file(), f"{path} is missing: {own} needs {AUTHORITY}.pem, {own}.pem and {own}.key")
    return settings | {
        "transport/link/tls": {
            "root_ca_certificate": str(tls / f"{AUTHORITY}.pem"),
            "enable_mtls": True,
            "listen_certificate": str(files[".pem"]),
            "listen_private_key": str(files[".key"]),
            "connect_certificate": str(files[".pem"]),
            "connect_private_key": str(files[".key"]),
            # Who a peer is, its certificate's common name says, to which access control is bound; not its address.
            "verify_name_on_connect": False,
            "close_link_on_expiration": True,
        },
        "access_control": access(peers, agent),
    }


def access(peers: Peers, agent: int) -> dict[str, Any]:
    """What each other agent, known by its certificate's name, may exchange with this one; all else is denied."""
    rules, policies, subjects = [], [], []
    for other in range(len(peers.agents)):
        if other == agent:
            continue
        to_us, to_them, name = peers.key(other, agent), peers.key(agent, other), name_of(other)
        for flow, published, subscribed in (("ingress", to_us, to_them), ("egress", to_them, to_us)):
            for message, key in (("put", published), ("declare_subscriber", subscribed)):
                rules.append(
                    {
                        "id": f"{name} {flow} {message}",
                        "permission": "allow",
                        "messages": [message],
                        "flows": [flow],
                        "key_exprs": [key],
                    }
                )
        subjects.append({"id": name, "cert_common_names": [name]})
        policies.append({"rules": [rule["id"] for rule in rules[-4:]], "subjects": [name]})
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }


def opened(settings: Mapping[str, Any]) -> zenoh.Session:
    """A session with these settings and none of anybody's environment."""
    config = zenoh.Config()
    for name, value in settings.items():
        config.insert_json5(name, json.dumps(value))
    try:
        return zenoh.open(config)
    except zenoh.ZError as error:
        raise OSError(f"the network cannot be opened: {error}") from None


class Transport:
    """One agent's connections to all others."""

    def __init__(self, peers: Peers, agent: int, tls: Path | None, hear: Callable[[int, bytes], object]):
        """hear(sender, frame) is called by threads of the transport for whatever arrives."""
        others = [other for other in range(len(peers.agents)) if other != agent]
        self._session = opened(configuration(peers, agent, tls))
        self._publishers = {
            other: self._session.declare_publisher(
                peers.key(agent, other), congestion_control=zenoh.CongestionControl.DROP, express=True
            )
            for other in others
        }
        self._subscribers = [
            self._session.declare_subscriber(
                peers.key(other, agent), lambda sample, other=other: hear(other, sample.payload.to_bytes())
            )
            for other in others
        ]

    def send(self, frames: Mapping[int, bytes]) -> None:
        """Send each recipient its frame, or drop it."""
        for other, frame in frames.items():
            self._publishers[other].put(frame)

    def close(self) -> None:
        self._session.close()
