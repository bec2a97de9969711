"""Keys, and the file of peers."""

import stat

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from dpmac.cli import main
from dpmac.config import BadInput
from dpmac.deploy import keys, transport


def name_in(path):
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value


def test_each_agent_has_a_certificate_of_the_teams_authority(tmp_path, capsys):
    assert main(["deploy", "keys", "--agents", "3", "--out", str(tmp_path / "pki")]) == 0
    assert "agent-0, agent-1, agent-2" in capsys.readouterr().out
    authority = keys.read(tmp_path / "pki").certificate
    for agent in range(3):
        path = tmp_path / "pki" / f"agent-{agent}.pem"
        assert name_in(path) == f"agent-{agent}"
        x509.load_pem_x509_certificate(path.read_bytes()).verify_directly_issued_by(authority)
    for path in (tmp_path / "pki").glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keys_are_renewed_and_never_written_over(tmp_path):
    keys.make(tmp_path, 2)
    authority, before = (tmp_path / "authority.pem").read_bytes(), (tmp_path / "agent-0.pem").read_bytes()
    with pytest.raises(BadInput, match="has an authority already"):
        keys.make(tmp_path, 2)
    assert (tmp_path / "agent-0.pem").read_bytes() == before
    keys.make(tmp_path, 2, renew=True)
    assert (tmp_path / "authority.pem").read_bytes() == authority
    assert (tmp_path / "agent-0.pem").read_bytes() != before
    with pytest.raises(BadInput, match="must sign what is renewed"):
        keys.make(tmp_path / "other", 2, renew=True)
    with pytest.raises(BadInput, match="agents must be"):
        keys.make(tmp_path / "other", 1)
    (tmp_path / "authority.pem").write_text("no certificate")
    with pytest.raises(BadInput, match="no authority that can be read"):
        keys.make(tmp_path, 2, renew=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("agents = 3", "team must be a name"),
        ('team = "a/b"\nagents = ["h:1", "h:2"]', "team must be a name"),
        ('team = "a"\nagents = ["h:1"]', "at least two"),
        ('team = "a"\nagents = ["h:1", "h"]', "no host:port"),
        ('team = "a"\nagents = ["h:1", "h:1"]', "the same address"),
        ('team = "a"\nagents = ["h:1", "h:2"]\nbroker = "b"', "not broker"),
        ("team = ", "cannot be read"),
    ],
)
def test_a_file_of_peers_that_is_none_is_refused(tmp_path, text, says):
    (tmp_path / "peers.toml").write_text(text)
    with pytest.raises(BadInput, match=says):
        transport.read_peers(tmp_path / "peers.toml")


def test_tls_or_plain_tcp_must_be_said(tmp_path, capsys):
    words = ["deploy", "run", str(tmp_path), "--peers", str(tmp_path / "peers.toml")]
    assert main(words) == 2
    assert main([*words, "--tls", str(tmp_path), "--insecure"]) == 2
    assert "either --tls FOLDER or --insecure" in capsys.readouterr().err
    peers = transport.Peers("a", ("127.0.0.1:1", "127.0.0.1:2"))
    with pytest.raises(BadInput, match=r"authority\.pem is missing"):
        transport.configuration(peers, 0, tmp_path)


def test_an_agent_looks_for_nobody_and_allows_its_peers_their_own_keys_only(tmp_path):
    keys.make(tmp_path, 3)
    peers = transport.Peers("a", ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"))
    settings = transport.configuration(peers, 1, tmp_path)
    assert settings["scouting/multicast/enabled"] is False
    assert settings["scouting/gossip/enabled"] is False
    assert settings["listen/endpoints"] == ["tls/127.0.0.1:2"]
    assert settings["connect/endpoints"] == ["tls/127.0.0.1:1"]
    assert settings["transport/link/protocols"] == ["tls"]
    rules = settings["access_control"]
    assert rules["default_permission"] == "deny"
    may = {(*rule["messages"], *rule["flows"], *rule["key_exprs"]) for rule in rules["rules"]}
    assert may == {
        (message, flow, f"dpmac/a/{sender}/{recipient}")
        for other in (0, 2)
        for message, flow, sender, recipient in (
            ("put", "ingress", other, 1),
            ("put", "egress", 1, other),
            ("declare_subscriber", "ingress", 1, other),
            ("declare_subscriber", "egress", other, 1),
        )
    }
