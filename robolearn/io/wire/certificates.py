"""An authority of one's own, and what it signs: a certificate for the learner, one for its actors, and a token.

ca.pem       in both places           ca.key       nowhere but here: it signs
learner.pem  learner.key  token       at the learner's
actor.pem    actor.key    token       at the actors'
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from robolearn.core import BadInput
from robolearn.io.atomic import write_private
from robolearn.io.certificates import common_name, host_name, key_pem, new_key, pem, server_or_client, signed
from robolearn.io.paths import check_folder
from robolearn.io.wire.security import CA, TOKEN, new_token

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
