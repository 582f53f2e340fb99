"""Addresses, tokens and certificates of servers and of those who call them."""

from __future__ import annotations

import ipaddress
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import grpc

from robolearn.core import BadInput
from robolearn.io.atomic import write_private

TOKEN_VARIABLE = "ROBOLEARN_HIL_TOKEN"
LEAST_TOKEN = 16  # characters
CA, TOKEN = "ca.pem", "token"


@dataclass(frozen=True)
class Address:
    """Address of a server.

    Attributes:
      host: a name or a number.
      port: 0 for one that is free.
    """

    host: str
    port: int

    @staticmethod
    def parse(text: str, what: str) -> Address:
        """``HOST:PORT``, with an IPv6 number in brackets. Raises `BadInput`: another form."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise BadInput(what, got=text, expected="HOST:PORT")
        return Address(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """True where only this machine can reach it. Of names, which others look up, only ``localhost`` counts."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Certificates:
    """A folder of `robolearn hil certs`: the authority, and a certificate with its key for each side."""

    folder: Path

    def server(self) -> grpc.ServerCredentials:
        """Own certificate; the caller must show one of the same authority."""
        key, certificate = self._pair("learner")
        return grpc.ssl_server_credentials([(key, certificate)], self._read(CA), require_client_auth=True)

    def client(self) -> grpc.ChannelCredentials:
        """Own certificate; the server must show one of the same authority."""
        key, certificate = self._pair("actor")
        return grpc.ssl_channel_credentials(self._read(CA), key, certificate)

    def token(self) -> str | None:
        """The token that lies with them, if one does."""
        path = self.folder / TOKEN
        return self._read(TOKEN, secret=True).decode(errors="replace").strip() if path.exists() else None

    def _pair(self, side: str) -> tuple[bytes, bytes]:
        return self._read(f"{side}.key", secret=True), self._read(f"{side}.pem")

    def _read(self, name: str, *, secret: bool = False) -> bytes:
        path = self.folder / name
        try:
            mode = path.stat().st_mode & 0o777
            if secret and mode & 0o077:
                raise BadInput(f"key {path}", got=f"mode {mode:04o}", expected="0600", hint=f"chmod 600 {path}")
            return path.read_bytes()
        except OSError as error:
            hint = "robolearn hil certs --out FOLDER makes them"
            raise BadInput(f"certificates {path}", got=error.strerror, hint=hint) from error


def check_encryption(address: Address, certificates: Certificates | None) -> None:
    """Raise `BadInput` for an address beyond loopback without certificates, where the token could be read on the
    way."""
    if certificates is None and not address.is_loopback:
        raise BadInput(
            f"address {address}", got="no certificates", expected="--certs FOLDER beyond loopback",
            hint="robolearn hil certs --out FOLDER makes them",
        )  # fmt: skip


def own_token(path: Path) -> str:
    """The token in the file `path`, which only its owner can read; made where there is none."""
    if not path.exists():
        write_private(path, new_token() + "\n")
    return path.read_text().strip()


def new_token() -> str:
    """A new random token."""
    return secrets.token_urlsafe(32)


def find_token(given: str, certificates: Certificates | None, variable: str = TOKEN_VARIABLE) -> str | None:
    """The token of --token, the environment's `variable` or the folder of certificates, in this order; None without.
    Raises `BadInput`: it is short, or no header of HTTP can hold it."""
    token = given or os.environ.get(variable, "") or (certificates.token() if certificates else None)
    if token is not None and not (len(token) >= LEAST_TOKEN and token.isascii() and token.isprintable()):
        raise BadInput("--token", got=f"{len(token)} characters", expected=f"at least {LEAST_TOKEN}, printable ASCII")
    return token
