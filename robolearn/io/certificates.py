"""X.509 certificates of our own, and their files: what signs itself on a page, and what an authority signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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
