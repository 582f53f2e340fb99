"""The only door to the page: it tells who may come in, and passes on what they say to viser behind it.

viser itself knows no TLS, no token and no origin: it listens on loopback alone, and nobody talks to it but this gate.

- On loopback: the Host header must be ours and a websocket's Origin the page itself. Otherwise any web page that the
  operator visits could drive the arm (cross-site websockets, DNS rebinding).
- Beyond loopback: the same, over TLS alone, and with a token that is new at every start. The address with the token is
  exchanged for a cookie (Secure, HttpOnly, SameSite) and never shown again; without it nothing is passed on.

A query beside the token is dropped: viser would let a link choose another server for the page. The content security
policy says the same to the browser.

The gate also adds the dead-man's switch and the buttons to the page, and hears them on a websocket of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http
import ipaddress
import json
import logging
import os
import secrets
import ssl
import threading
from collections.abc import Callable
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.client import connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import WebSocketException
from websockets.http11 import Request, Response

from hardware.teleop.browser.desk import Desk
from hardware.teleop.device import EpisodeEvent
from robolearn.core.errors import BadInput

log = logging.getLogger(__name__)

BEAT = "/beat"
COOKIE = "__Host-robolearn"  # the prefix keeps other hosts of the domain from setting it
SAY_S = 0.1  # between two words to a page about the state of things
LONGEST = 1 << 20  # [bytes] of a message from a browser; viser's own are a few hundred
_EVENTS = tuple(event.value for event in EpisodeEvent)
PATIENCE_S = 10.0  # for a handshake

# 'self' covers the websocket. Blobs and data are viser's workers, pictures and its environment map.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval' blob: data:",
        "worker-src blob: data:",
        "connect-src 'self' blob: data:",
        "img-src 'self' blob: data:",
        "style-src 'self' 'unsafe-inline'",
        "font-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


def is_loopback(host: str) -> bool:
    """Whether a server that listens there can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Gate:
    """A server in a thread of its own, from `open` to `close`.

    Args:
      page: the HTML of the page.
      behind: host and port of viser.
      desk: hears the heartbeats.
      host, port: where to listen; port 0 takes any that is free.
      tls: None on loopback alone.
      say: what a page is told besides the state of its switch; called in the gate's thread.

    Attributes:
      token: demanded beyond loopback, else empty.
    """

    def __init__(
        self,
        page: str,
        behind: tuple[str, int],
        desk: Desk,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        say: Callable[[], dict[str, Any]],
    ) -> None:
        if tls is None and not is_loopback(host):
            raise BadInput("page", got=f"host {host} without TLS", expected="TLS wherever others can reach it")
        self._page = with_overlay(page).encode()
        self._behind = behind
        self._desk = desk
        self._host, self.port = host, port
        self._tls = tls
        self._say = say
        self.token = secrets.token_urlsafe(32) if tls is not None else ""
        self._session = secrets.token_urlsafe(32)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def scheme(self) -> str:
        """``"https"``, or ``"http"`` on loopback."""
        return "http" if self._tls is None else "https"

    def open(self) -> None:
        """Listen.

        Raises:
          BadInput: the address is not this machine's, or another program listens there.
        """
        started = _Started()
        self._thread = threading.Thread(target=self._run, args=(started,), name="teleop-gate", daemon=True)
        self._thread.start()
        started.wait()
        if started.error is not None:
            self._thread.join()
            self._thread = None
            error = started.error
            got = f"{self._host}:{self.port} ({os.strerror(error.errno) if error.errno else error})"
            raise BadInput("address of the page", got=got, expected="an address of this machine and a free port")

    def close(self) -> None:
        """Let everybody go; more than once is no fault."""
        if self._thread is None or self._loop is None or self._stop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=5.0)
        self._thread = None

    # --- the server ------------------------------------------------------------------------------------------

    def _run(self, started: _Started) -> None:
        try:
            asyncio.run(self._serve(started))
        except Exception as error:
            log.exception("the gate of the page broke")
            started.failed(OSError(str(error)))

    async def _serve(self, started: _Started) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        quiet = logging.Logger("gate", level=logging.CRITICAL)  # refusals are ours to log
        try:
            server: Server = await serve(
                self._handle,
                self._host,
                self.port,
                ssl=self._tls,
                process_request=self._admit,
                select_subprotocol=lambda _, offered: next((p for p in offered if p.startswith("viser-v")), None),
                compression=None,
                max_size=LONGEST,
                open_timeout=PATIENCE_S,
                close_timeout=1.0,
                server_header=None,
                logger=quiet,
            )
        except (OSError, OverflowError) as error:
            started.failed(error if isinstance(error, OSError) else OSError(str(error)))
            return
        async with server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            started.set()
            await self._stop.wait()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a request; None lets a websocket come in."""
        url = urlsplit(request.path)
        host = self._host_header(request)
        if host is None:
            return _answer(http.HTTPStatus.FORBIDDEN, "This page goes by another name.\n")
        if self.token:
            offered = parse_qs(url.query).get("token", [])
            if offered and _same(offered[0], self.token):
                cookie = f"{COOKIE}={self._session}; Path=/; Secure; HttpOnly; SameSite=Strict"
                return _answer(http.HTTPStatus.SEE_OTHER, "", Location="/", **{"Set-Cookie": cookie})
            if not _same(_cookie(request), self._session):
                log.warning("refused a page without a valid token from %s", connection.remote_address)
                return _answer(http.HTTPStatus.FORBIDDEN, "Open the address with its token from the terminal.\n")
        if [value.lower() for value in request.headers.get_all("Upgrade")] == ["websocket"]:
            origins = request.headers.get_all("Origin")
            if origins != [f"{self.scheme}://{host}"]:
                log.warning("refused a websocket from another site: %s", ", ".join(origins) or "it does not say which")
                return _answer(http.HTTPStatus.FORBIDDEN, "Not from another site.\n")
            return None if url.path in ("", "/", BEAT) else _answer(http.HTTPStatus.NOT_FOUND, "Nothing here.\n")
        if url.path not in ("", "/"):
            return _answer(http.HTTPStatus.NOT_FOUND, "Nothing here.\n")
        if url.query:
            return _answer(http.HTTPStatus.SEE_OTHER, "", Location="/")
        return _answer(http.HTTPStatus.OK, self._page, **{"Content-Type": "text/html; charset=utf-8"})

    def _host_header(self, request: Request) -> str | None:
        """What the browser takes this page for, or None if it cannot be this one (DNS rebinding).

        Beyond loopback there is no telling which names are ours, and the cookie is bound to the name anyway.
        """
        hosts = request.headers.get_all("Host")
        names = {f"{name}:{self.port}" for name in ("localhost", "127.0.0.1", "[::1]", self._host, f"[{self._host}]")}
        return hosts[0] if len(hosts) == 1 and (self._tls is not None or hosts[0] in names) else None

    async def _handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        path = urlsplit(connection.request.path).path
        log.debug("%s of %s opened", path, connection.remote_address)
        try:
            await (self._hear(connection) if path == BEAT else self._pass_on(connection))
        except (OSError, TimeoutError, WebSocketException) as error:
            log.debug("%s of %s: %r", path, connection.remote_address, error)
        except Exception:
            log.exception("%s of %s broke", path, connection.remote_address)
        log.debug("%s of %s closed", path, connection.remote_address)

    async def _pass_on(self, page: ServerConnection) -> None:
        """Messages in both directions, until either side ends."""
        host, port = self._behind
        async with connect(
            f"ws://{host}:{port}",
            subprotocols=[page.subprotocol] if page.subprotocol else None,
            compression=None,
            max_size=None,
            ping_interval=None,
            proxy=None,
        ) as viser:

            async def forward(source: Any, sink: Any) -> None:
                async for message in source:
                    await sink.send(message)

            both = [asyncio.create_task(forward(page, viser)), asyncio.create_task(forward(viser, page))]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)

    async def _hear(self, page: ServerConnection) -> None:
        """Heartbeats of a page that proves by its key which client of viser it is."""
        async with asyncio.timeout(PATIENCE_S):
            hello = _json(await page.recv())
        client = self._desk.owner(str(hello.get("key", "")))
        if client is None:
            await page.close(4403, "unknown key")
            return
        talk = asyncio.create_task(self._tell(page, client))
        why = "the page at the controls is gone"
        try:
            async for text in page:
                word = _json(text)
                press, told = word.get("press"), word.get("t")
                if word.get("claim"):
                    self._desk.claim(client)
                if word.get("event") in _EVENTS:
                    self._desk.ask(client, EpisodeEvent(word["event"]))
                if isinstance(word.get("grip"), (int, float)):
                    self._desk.grip(client, float(word["grip"]))
                if word.get("hidden"):
                    why = "the page is not on the screen any more"
                    self._desk.silence(client, why)
                elif type(press) is int and 0 <= press < 1 << 53:
                    self._desk.beat(client, press, float(told) if isinstance(told, (int, float)) else None)
        finally:
            self._desk.silence(client, why)
            talk.cancel()

    async def _tell(self, page: ServerConnection, client: int) -> None:
        while True:
            await page.send(json.dumps({**self._desk.standing(client), **self._say()}))
            await asyncio.sleep(SAY_S)


class _Started:
    """Hands over to the opening thread that the server listens, or why it does not."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.error: OSError | None = None

    def set(self) -> None:
        self._event.set()

    def failed(self, error: OSError) -> None:
        self.error = error
        self._event.set()

    def wait(self) -> None:
        self._event.wait()


def with_overlay(page: str) -> str:
    """The page with the dead-man's switch and its heartbeats in it."""
    overlay = resources.files("hardware.teleop.browser").joinpath("overlay.html").read_text(encoding="utf-8")
    head, end, rest = page.partition("</head>")
    if not end:
        raise BadInput("viser's page", got="no </head> in it", expected="a page of viser 1")
    return head + overlay + end + rest


def _answer(status: http.HTTPStatus, body: str | bytes, **headers: str) -> Response:
    content = body.encode() if isinstance(body, str) else body
    fields = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(content)),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": POLICY,
        **headers,
    }
    return Response(status.value, status.phrase, Headers(fields), content)


def _same(offered: str, secret: str) -> bool:
    return hmac.compare_digest(offered.encode("utf-8", "surrogateescape"), secret.encode())


def _cookie(request: Request) -> str:
    # By hand: `http.cookies` gives up on all of them where another program's is not to its taste, and browsers send
    # those of every port of a host.
    for pair in ";".join(request.headers.get_all("Cookie")).split(";"):
        name, _, value = pair.partition("=")
        if name.strip() == COOKIE:
            return value.strip()
    return ""


def _json(text: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
