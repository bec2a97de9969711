"""A team's keys: one authority, and for each agent a certificate whose name says which agent it is.

pki/authority.pem     everybody has it
pki/authority.key     signs certificates; no agent needs it, so keep it where no agent runs
pki/agent-0.pem       agent 0's certificate, under the common name agent-0
pki/agent-0.key       agent 0's own key
"""

import datetime
import os
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpmac.config import BadInput, require, whole

AUTHORITY = "authority"
PEM = serialization.Encoding.PEM


def name_of(agent: int) -> str:
    """The common name of an agent, to which access control is bound."""
    return f"agent-{agent}"


class Issuer(NamedTuple):
    """An authority that can sign."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def make(folder: Path, agents: int, days: int = 365, renew: bool = False) -> list[Path]:
    """Write an authority and a certificate for each of so many agents; the certificates' files.

    With `renew`, the authority that is there signs new keys for all agents.
    """
    require(whole(agents, 2, 256), f"agents must be a whole number from 2 to 256, not {agents}")
    require(whole(days, 1, 36_500), f"days must be a whole number from 1 to 36500, not {days}")
    there = (folder / f"{AUTHORITY}.key").exists()
    require(there or not renew, f"{folder} has no {AUTHORITY}.key, which must sign what is renewed")
    require(renew or not there, f"{folder} has an authority already: renew its agents' keys, or choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    issuer = read(folder) if renew else begin(folder, days)
    return [issue(folder, issuer, name_of(agent), days) for agent in range(agents)]


def begin(folder: Path, days: int) -> Issuer:
    """Write a new authority, which signs itself."""
    key, name = ec.generate_private_key(ec.SECP256R1()), subject(f"dpmac {AUTHORITY}")
    limits = x509.BasicConstraints(ca=True, path_length=0)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    made = dated(name, name, key.public_key(), days).add_extension(limits, True).add_extension(usage, True)
    certificate = made.sign(key, hashes.SHA256())
    write(folder, AUTHORITY, key, certificate)
    return Issuer(key, certificate)


def issue(folder: Path, issuer: Issuer, name: str, days: int) -> Path:
    """Write a key and a certificate under a name, good for both ends of a connection."""
    key = ec.generate_private_key(ec.SECP256R1())
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    made = (
        dated(subject(name), issuer.certificate.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(both, False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
    )
    return write(folder, name, key, made.sign(issuer.key, hashes.SHA256()))


def read(folder: Path) -> Issuer:
    """The authority of a folder."""
    try:
        key = serialization.load_pem_private_key((folder / f"{AUTHORITY}.key").read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((folder / f"{AUTHORITY}.pem").read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder} holds no authority that can be read: {error}") from None
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Issuer(key, certificate)


def subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def dated(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    """The beginning of a certificate; an hour in the past, for clocks differ."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def write(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Path:
    """Write a certificate, and its key for nobody else to read."""
    private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / f"{name}.key"
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(PEM))
    return folder / f"{name}.pem"
