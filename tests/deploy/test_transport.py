"""Connections: made in whatever order agents start, made again when they are lost, and open to nobody else."""

import time

import numpy as np
import pytest
from exported import free_ports, until

from dpmac.deploy import keys, transport
from dpmac.deploy.transport import Peers, Transport

AGENTS = 3


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    keys.make(folder, AGENTS)
    keys.issue(folder, keys.read(folder), "stranger", 1)
    return folder


@pytest.fixture(scope="module")
def peers():
    return Peers("tiny", tuple(f"127.0.0.1:{port}" for port in free_ports(AGENTS)))


class Net:
    """Three transports and what each has heard."""

    def __init__(self, peers, pki):
        self.peers, self.pki, self.heard = peers, pki, [[] for _ in range(AGENTS)]
        self.ends = {agent: self.opened(agent) for agent in (2, 1, 0)}

    def opened(self, agent):
        return Transport(self.peers, agent, self.pki, lambda sender, data: self.heard[agent].append((sender, data)))

    def connected(self):
        """Send until everybody has heard everybody; then forget it."""
        pairs = {(a, b) for a in range(AGENTS) for b in range(AGENTS) if a != b}

        def said():
            for agent, end in self.ends.items():
                end.send({other: b"hello" for other in range(AGENTS) if other != agent})
            return {(sender, agent) for agent in range(AGENTS) for sender, _ in self.heard[agent]} == pairs

        until(said, 20)
        time.sleep(0.1)
        for box in self.heard:
            box.clear()


@pytest.fixture(scope="module")
def net(peers, pki):
    found = Net(peers, pki)
    yield found
    for end in found.ends.values():
        end.close()


def intruder(net, certificate, pki):
    """A session at agent 0 with a certificate of a folder, and without any rules of its own."""
    settings = transport.configuration(net.peers, 1, net.pki) | {
        "listen/endpoints": [],
        "connect/endpoints": [f"tls/{net.peers.agents[0]}"],
        "access_control": {"enabled": False},
    }
    files = {"root_ca_certificate": pki / "authority.pem"} | {
        f"{end}_{kind}": pki / f"{certificate}.{suffix}"
        for end in ("listen", "connect")
        for kind, suffix in (("certificate", "pem"), ("private_key", "key"))
    }
    settings["transport/link/tls"] |= {name: str(path) for name, path in files.items()}
    return transport.opened(settings)


def shout(net, session):
    """What agent 0 hears of one who speaks as agents 1 and 2, and what that one overhears of agent 0."""
    overheard = []
    for key in ("dpmac/tiny/0/1", "dpmac/tiny/0/2", "dpmac/tiny/0/*", "**"):
        session.declare_subscriber(key, lambda sample: overheard.append(str(sample.key_expr)))
    time.sleep(0.4)
    for _ in range(5):
        net.ends[0].send({1: b"secret", 2: b"secret"})
        for sender in (1, 2):
            session.put(net.peers.key(sender, 0), b"forged")
        time.sleep(0.05)
    heard = {sender for sender, data in net.heard[0] if data == b"forged"}
    net.heard[0].clear()
    return heard, {key for key in overheard if key.startswith("dpmac/tiny/0/")}


def test_agents_start_in_any_order_and_connections_are_made_again(net):
    net.connected()
    net.ends[0].close()
    net.ends[0] = net.opened(0)
    net.connected()


def test_a_stranger_of_the_right_authority_is_neither_heard_nor_told_anything(net, pki):
    with intruder(net, "stranger", pki) as session:
        assert until(session.info.peers_zid, 5)  # it may connect
        assert shout(net, session) == (set(), set())


def test_an_agent_is_heard_in_its_own_name_only(net, pki):
    with intruder(net, "agent-1", pki) as session:
        until(session.info.peers_zid, 5)
        heard, overheard = shout(net, session)
    assert heard == {1}
    assert overheard <= {net.peers.key(0, 1)}


def test_a_forged_authority_and_plain_tcp_are_refused(net, tmp_path):
    keys.make(tmp_path, AGENTS)
    with intruder(net, "agent-1", tmp_path) as session:
        assert shout(net, session) == (set(), set())
        assert not session.info.peers_zid()
    plain = transport.configuration(net.peers, 1, None) | {"listen/endpoints": []}
    with transport.opened(plain | {"connect/endpoints": [f"tcp/{net.peers.agents[0]}"]}) as session:
        assert shout(net, session) == (set(), set())
        assert not session.info.peers_zid()
    net.connected()


def test_a_large_frame_is_not_taken_off_the_connection(net):
    net.connected()
    net.ends[1].send({0: np.zeros(4 * transport.LARGEST, np.uint8).tobytes()})
    time.sleep(0.3)
    assert not net.heard[0]
    net.connected()
