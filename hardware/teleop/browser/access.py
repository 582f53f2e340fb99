"""Access control of the page: host, token, cookie and origin of every request, before anything is passed on.

- The Host header must be ours and a websocket's Origin the page itself. Otherwise any web page that the operator visits
  could drive the arm (cross-site websockets, DNS rebinding).
- A token that is new at every start, on loopback too, where every user of the machine can connect. The address with the
  token is exchanged for a cookie (HttpOnly, SameSite) and never shown again; without it nothing is passed on.
- Beyond loopback: TLS alone, and the cookie is Secure and counts under the name it was given for.
- A program is opened with an invitation in the token's place, for what it is started with can be read by every user of
  the machine: it counts once, for `INVITED_S`, and where the system says whose a connection is, for this user alone.

A query beside the token is dropped: viser would let a link choose another server for the page. The content security
policy forbids it in the browser, too. Only GET requests without a body are served: there is nothing to send to the page
but websocket messages, and a request whose length two parsers read differently (request smuggling) is refused whole.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import math
import os
import secrets
import socket
import sys
import time
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from aiohttp import web

from hardware.teleop.device import Clock

log = logging.getLogger(__name__)

EVERY_S = 30.0


class RareLog:
    """Writes at most one line per `EVERY_S` to `log`, for warnings that any request can cause; the others are counted.

    Args:
      clock: seconds that only grow.
    """

    def __init__(self, log: logging.Logger, clock: Clock = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._told, self._untold = -math.inf, 0

    def warning(self, what: str, *values: object) -> None:
        """Write `what` % `values`, or count it."""
        now = self._clock()
        if now - self._told < EVERY_S:
            self._untold += 1
            return
        more = f" ({self._untold} more refused since the last line)" if self._untold else ""
        self._log.warning(what + "%s", *values, more)
        self._told, self._untold = now, 0


TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _UID = 1, 2, 7  # columns


def same_user(transport: asyncio.BaseTransport | None) -> bool:
    """True if the other end is a socket of this machine and this user, or the system has no table of sockets."""
    if not TABLES[0].exists():
        return True
    if transport is None:
        return False
    # What is remote here is local there.
    theirs, ours = (_spelled(*transport.get_extra_info(name)[:2]) for name in ("peername", "sockname"))
    for table in TABLES:
        rows = table.read_text().splitlines()[1:] if table.exists() else ()
        for row in map(str.split, rows):
            if row[_LOCAL] == theirs and row[_REMOTE] == ours:
                return int(row[_UID]) == os.getuid()
    return False


def _spelled(host: str, port: int) -> str:
    """An address as the table has it: words of 32 bits in the byte order of the machine, then the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    words = [packed[i : i + 4] for i in range(0, len(packed), 4)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    return f"{b''.join(words).hex().upper()}:{port:04X}"


COOKIE = "robolearn"
INVITED_S = 60.0  # a browser that has to start first takes seconds
SERVER = {"Server": "robolearn"}  # instead of the names and versions of libraries

# 'self' covers the websocket. Blobs and data are viser's workers, pictures and its environment map.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval' blob: data:; worker-src blob: data:; "
    "connect-src 'self' blob: data:; img-src 'self' blob: data:; style-src 'self' 'unsafe-inline'; font-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def is_loopback(host: str) -> bool:
    """True if a server that listens there can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Access:
    """The checks of one server.

    Args:
      host, tls: where it listens, and whether with TLS.
      page, sockets: the HTML that is served at ``/``, and the paths of the websockets.

    Attributes:
      token: in the address that the operator opens.
    """

    def __init__(
        self, host: str, *, tls: bool, page: bytes, sockets: tuple[str, ...], clock: Clock = time.monotonic
    ) -> None:
        self._names = {"localhost", "127.0.0.1", "[::1]", host, f"[{host}]"}
        self._tls, self._page, self._sockets = tls, page, sockets
        self.token, self._key = secrets.token_urlsafe(32), secrets.token_bytes(32)
        self._clock, self._invitations = clock, dict[str, float]()
        self._log = RareLog(log)

    @property
    def scheme(self) -> str:
        """``"https"``, or ``"http"`` on loopback."""
        return "https" if self._tls else "http"

    def invite(self) -> str:
        """An invitation: it replaces the token once, for `INVITED_S`."""
        invitation = secrets.token_urlsafe(32)
        self._invitations[invitation] = self._clock() + INVITED_S
        return invitation

    def answer(self, request: web.BaseRequest, port: int) -> web.Response | None:
        """The response to `request` at `port`; None for a websocket handshake that is admitted."""
        if request.method != "GET" or not request.raw_path.startswith("/"):
            return response(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET.\n", Allow="GET")
        if "Transfer-Encoding" in request.headers or request.headers.get("Content-Length", "0") != "0":
            return response(HTTPStatus.BAD_REQUEST, "No body.\n")
        url = urlsplit(request.raw_path)
        host = self._host(request, port)
        if host is None:
            return response(HTTPStatus.FORBIDDEN, "This page goes by another name.\n")
        name = self._cookie(port)
        offered = parse_qs(url.query).get("token", [])
        if offered and (_same(offered[0], self.token) or self._invited(offered[0], request)):
            cookie = f"{name}={self._session(host)}; Path=/; {'Secure; ' if self._tls else ''}HttpOnly; SameSite=Strict"
            return response(HTTPStatus.SEE_OTHER, "", Location="/", **{"Set-Cookie": cookie})
        if not _same(_cookie(request, name), self._session(host)):
            self._log.warning("refused a page without a valid token from %s", request.remote)
            return response(HTTPStatus.FORBIDDEN, "Open the address with its token from the terminal.\n")
        if [value.lower() for value in request.headers.getall("Upgrade", [])] == ["websocket"]:
            origins = request.headers.getall("Origin", [])
            if origins != [f"{self.scheme}://{host}"]:
                self._log.warning("refused a websocket from another site: %s", ", ".join(origins) or "no Origin")
                return response(HTTPStatus.FORBIDDEN, "Not from another site.\n")
            return None if url.path in self._sockets else response(HTTPStatus.NOT_FOUND, "Nothing here.\n")
        if url.path != "/":
            return response(HTTPStatus.NOT_FOUND, "Nothing here.\n")
        if url.query:
            return response(HTTPStatus.SEE_OTHER, "", Location="/")
        return response(HTTPStatus.OK, self._page, **{"Content-Type": "text/html; charset=utf-8"})

    def _invited(self, offered: str, request: web.BaseRequest) -> bool:
        for invitation, end in tuple(self._invitations.items()):
            if _same(offered, invitation) and same_user(request.transport):
                del self._invitations[invitation]
                return self._clock() <= end
        return False

    def _session(self, host: str) -> str:
        """The cookie's value; beyond loopback each name has its own: browsers keep to that, others may not."""
        name = host if self._tls else ""
        return hmac.new(self._key, name.encode("utf-8", "surrogateescape"), "sha256").hexdigest()

    def _cookie(self, port: int) -> str:
        """The cookie's name. With TLS its prefix keeps other hosts of the domain from setting it; on loopback the port
        keeps two pages of one machine apart.
        """
        return f"__Host-{COOKIE}" if self._tls else f"{COOKIE}-{port}"

    def _host(self, request: web.BaseRequest, port: int) -> str | None:
        """The Host header, or None if it cannot mean this server (DNS rebinding).

        Beyond loopback any name may be ours; the cookie is valid under the one that the token came by, alone.
        """
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1:
            return None
        return hosts[0] if self._tls or hosts[0] in {f"{name}:{port}" for name in self._names} else None


def response(status: HTTPStatus, body: str | bytes, **headers: str) -> web.Response:
    """An answer that ends its connection, with the headers that all answers have."""
    fields = {
        "Content-Type": "text/plain; charset=utf-8",
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": POLICY,
        **SERVER,
        **headers,
    }
    content = body.encode() if isinstance(body, str) else body
    response = web.Response(status=status.value, reason=status.phrase, body=content, headers=fields)
    response.force_close()  # one request per connection: nothing that is pipelined behind a refusal is read
    return response


def _same(offered: str, secret: str) -> bool:
    return hmac.compare_digest(offered.encode("utf-8", "surrogateescape"), secret.encode())


def _cookie(request: web.BaseRequest, wanted: str) -> str:
    # By hand: `http.cookies`, which aiohttp uses too, gives up on all of them where another program's is not to its
    # taste, and browsers send those of every port of a host.
    for pair in ";".join(request.headers.getall("Cookie", [])).split(";"):
        name, _, value = pair.partition("=")
        if name.strip() == wanted:
            return value.strip()
    return ""
