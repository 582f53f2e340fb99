"""The certificate of the page: made once, signed by itself, kept where only its owner can read it.

No authority has signed it, so a browser warns once; the operator compares the fingerprint with the one in the terminal.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import socket
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from robolearn.core.errors import BadInput, first_line
from robolearn.io import certificates
from robolearn.io.atomic import write_private

DAYS = 397  # browsers refuse certificates that are valid for longer than 398
RENEW_DAYS = 30


def own_certificate(folder: Path | None = None) -> Path:
    """The file under `folder` with the certificate and its key; made anew where missing or about to expire.

    By default the folder is ``~/.config/robolearn``, or its counterpart under ``XDG_CONFIG_HOME``.

    Raises:
      BadInput: it can be read by others, or it cannot be written.
    """
    folder = folder or Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "robolearn"
    path = folder / "teleop.pem"
    if path.exists():
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise BadInput(f"key {path}", got=f"mode {mode:04o}", expected="0600", hint="chmod 600, or delete it")
        left = _read(path).not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        if left > datetime.timedelta(days=RENEW_DAYS):
            return path
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key, host = certificates.new_key(), socket.gethostname()
        name = certificates.common_name(f"robolearn teleoperation on {host}")
        hosts = dict.fromkeys(("localhost", host, f"{host}.local", "127.0.0.1", "::1", *addresses()))
        names = [certificates.host_name(one) for one in hosts]
        extensions = certificates.server_or_client(names, ExtendedKeyUsageOID.SERVER_AUTH)
        certificate = certificates.signed(name, name, key.public_key(), key, DAYS - 1, extensions)
        write_private(path, certificates.pem(certificate) + certificates.key_pem(key))
    except OSError as error:
        raise BadInput(f"folder for the page's certificate {folder}", got=error.strerror) from error
    return path


def fingerprint(certificate: Path) -> str:
    """SHA-256, as browsers show it.

    Raises:
      BadInput: the file is missing or holds no certificate.
    """
    return _read(certificate).fingerprint(hashes.SHA256()).hex(":").upper()


def server_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """TLS 1.2 and later with this certificate; its key lies in the same file, or in `key`.

    Raises:
      BadInput: the files are missing or do not belong together.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        got = f"{certificate} and {key or 'the key in it'} ({error})"
        raise BadInput("TLS certificate and key", got=got) from error
    return context


def addresses() -> list[str]:
    """The addresses by which other machines may reach this one, the most likely first."""
    found: list[str] = []
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        # A UDP socket sends nothing when it connects, but learns its own address.
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))
            found.append(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)]
    usable = (a for a in found if not ipaddress.ip_address(a.split("%")[0]).is_loopback)
    return list(dict.fromkeys(usable))


def _read(certificate: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"certificate {certificate}", got=first_line(error)) from error
