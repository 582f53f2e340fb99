"""X.509 certificates of our own, and their files: what signs itself on a page, and what an authority signs.

An authority of one's own signs a certificate for the learner and one for its actors, who share a token:

ca.pem       in both places           ca.key       nowhere but here: it signs
learner.pem  learner.key  token       at the learner's
actor.pem    actor.key    token       at the actors'
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from robolearn.core import BadInput
from robolearn.io.atomic import write_private
from robolearn.io.paths import check_folder
from robolearn.io.wire.security import CA, TOKEN, new_token

Key = ec.EllipticCurvePrivateKey


def new_key() -> Key:
    """A private key on P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def common_name(text: str) -> x509.Name:
    """A name of nothing but `text`, cut to the 64 characters that are allowed."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def host_name(host: str) -> x509.GeneralName:
    """An address or a DNS name; raises `ValueError` for neither."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host.split("%")[0]))
    except ValueError:
        return x509.DNSName(host)


def signed(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    by: Key,
    days: int,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    """A certificate of `public`, signed `by` the issuer's key.

    Args:
      days: validity from now on; a day before counts too, for clocks of phones and robots are not exact.
      extensions: each with whether it is critical.
    """
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(by, hashes.SHA256())


def server_or_client(names: Sequence[x509.GeneralName], usage: x509.ObjectIdentifier) -> list:
    """Extensions of a certificate that signs no others, for one usage, under these names."""
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage([usage]), False),
        (x509.SubjectAlternativeName(names), False),
    ]


def pem(certificate: x509.Certificate) -> bytes:
    """The certificate as text."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: Key) -> bytes:
    """The key as text, not encrypted: the file's mode protects it."""
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


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
    authority = new_key()
    issuer = common_name(f"robolearn hil on {socket.gethostname()}")
    signing = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    constraints = [(x509.BasicConstraints(ca=True, path_length=0), True), (signing, True)]
    root = signed(issuer, issuer, authority.public_key(), authority, DAYS, constraints)
    files = {CA: pem(root), "ca.key": key_pem(authority), TOKEN: new_token().encode() + b"\n"}
    for side, usage in SIDES.items():
        key, extensions = new_key(), server_or_client(names, usage)
        certificate = signed(common_name(f"robolearn {side}"), issuer, key.public_key(), authority, DAYS, extensions)
        files |= {f"{side}.pem": pem(certificate), f"{side}.key": key_pem(key)}
    for name, content in files.items():
        write_private(folder / name, content, 0o644 if name.endswith(".pem") else 0o600)
    return [folder / name for name in files]


def _name(host: str) -> x509.GeneralName:
    try:
        return host_name(host)
    except ValueError:
        raise BadInput("--hosts", got=repr(host), expected="a name or an address") from None
