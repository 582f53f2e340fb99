"""An authority of one's own, and what it signs: a certificate for the learner, one for its actors, and a token.

ca.pem       in both places           ca.key       nowhere but here: it signs
learner.pem  learner.key  token       at the learner's
actor.pem    actor.key    token       at the actors'
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from robolearn.core import BadInput
from robolearn.hil.wire.security import CA, TOKEN, new_token, write_private
from robolearn.io.paths import check_folder

DAYS = 825
SIDES = {"learner": ExtendedKeyUsageOID.SERVER_AUTH, "actor": ExtendedKeyUsageOID.CLIENT_AUTH}


def make_certificates(folder: Path, hosts: Iterable[str]) -> list[Path]:
    """Write all files into the new folder `folder`; keys and token can be read by their owner alone.

    Args:
      hosts: names and addresses by which actors reach the learner, beside ``localhost`` and this machine's name.

    Raises:
      BadInput: the folder has content, or a host is none.
    """
    check_folder(folder, f"folder {folder}")
    if folder.is_dir() and any(folder.iterdir()):
        raise BadInput(f"folder {folder}", got="one with content", expected="a new one")
    names = [_name(host) for host in dict.fromkeys(("localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts))]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"robolearn hil on {socket.gethostname()}"[:64])])
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    signing = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    root = (
        _builder(issuer, issuer, authority.public_key())
        .add_extension(constraints, critical=True)
        .add_extension(signing, critical=True)
        .sign(authority, hashes.SHA256())
    )
    files = {CA: _pem(root), "ca.key": _secret(authority), TOKEN: new_token().encode() + b"\n"}
    for side, usage in SIDES.items():
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"robolearn {side}")])
        certificate = (
            _builder(subject, issuer, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(authority, hashes.SHA256())
        )
        files |= {f"{side}.pem": _pem(certificate), f"{side}.key": _secret(key)}
    for name, content in files.items():
        write_private(folder / name, content, 0o644 if name.endswith(".pem") else 0o600)
    return [folder / name for name in files]


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise BadInput("--hosts", got=repr(host), expected="a name or an address") from None


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of robots are not exact
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
