"""The reverse proxy in front of viser: it admits a request or refuses it, and passes on websocket messages.

viser has no TLS, no token and no check of origins: it listens on loopback alone, and only this proxy has the key to it
(`behind`). `access` has the checks. Beside viser's websocket it serves others of our pages, as that of the dead-man's
switch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import WSMsgType, web

from hardware.teleop.browser import Place
from hardware.teleop.browser.access import SERVER, Access, is_loopback, response
from hardware.teleop.browser.connection_limits import HEADER, ConnectionLimits, Guarded
from robolearn.core.errors import BadInput

log = logging.getLogger(__name__)

Talks = Mapping[str, Callable[[web.WebSocketResponse], Awaitable[None]]]

LONGEST = 1 << 20  # [bytes] of a message from a browser; viser's own are a few hundred
LINE = 8192  # [bytes] of the request line, and of one header
HEADERS = 128
CONNECTIONS, OF_ONE = 64, 32  # at once, and from one address; a page has three
PATIENCE_S = 10.0  # for a TLS handshake, and for a request to arrive
SEND_S = 60.0  # for a page to take its HTML
PING_S = 20.0  # a websocket whose other end has vanished is closed after one and a half of these


class AuthProxy:
    """A server in a thread of its own, from `open` to `close`.

    Args:
      page: the HTML of the page.
      behind: host, port and key of viser; None: the page needs none.
      place: where to listen.
      tls: None on loopback alone.
      sockets: path → server of an open websocket there, in the proxy's thread; all others are viser's.

    Attributes:
      access: its token, and who is let in.

    Raises:
      BadInput: `host` can be reached by others and there is no TLS.
    """

    def __init__(
        self, page: str, behind: tuple[str, int, str] | None, place: Place, tls: ssl.SSLContext | None, sockets: Talks
    ) -> None:
        self._host, self.port = place.host, place.port
        if tls is None and not is_loopback(place.host):
            raise BadInput("page", got=f"host {place.host} without TLS", expected="TLS wherever others can reach it")
        admitted = (*sockets, *(() if behind is None else ("/",)))
        self.access = Access(place.host, tls=tls is not None, page=page.encode(), sockets=admitted)
        self.limits = ConnectionLimits(CONNECTIONS, OF_ONE, PATIENCE_S)
        self._behind, self._tls, self._talks = behind, tls, dict(sockets)
        self._sockets: set[web.WebSocketResponse] = set()
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None

    def open(self) -> None:
        """Listen.

        Raises:
          BadInput: the address is not this machine's, or another program listens there.
        """
        listening: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(listening,), name="page-proxy", daemon=True)
        self._thread.start()
        try:
            self.port = listening.result()
        except (OSError, OverflowError) as error:
            self._thread.join()
            self._thread = None
            number = getattr(error, "errno", None) or 0
            got = f"{self._host}:{self.port} ({os.strerror(number) if number > 0 else error})"
            expected = "an address of this machine and a free port"
            raise BadInput("address of the page", got=got, expected=expected) from None

    def close(self) -> None:
        """Close every connection; more than once is no fault."""
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._stop()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
            self._thread = None

    # --- the server ------------------------------------------------------------------------------------------

    def _run(self, listening: Future[int]) -> None:
        try:
            asyncio.run(self._serve(listening))
        except Exception as error:
            if listening.done():
                log.exception("the page's proxy failed")
            else:
                listening.set_exception(error)

    async def _serve(self, listening: Future[int]) -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(end.set)
        server = web.Server(self._handle)
        quiet = logging.Logger("proxy", level=logging.CRITICAL)  # refusals are ours to log
        options: dict[str, Any] = {"access_log": None, "logger": quiet, "lingering_time": 0.0}
        options |= {"max_line_size": LINE, "max_field_size": LINE, "max_headers": HEADERS}
        listener = await loop.create_server(
            lambda: Guarded(self.limits, _Connection(server, loop=loop, **options), self._tls), self._host, self.port
        )
        async with listener, aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as self._client:
            listening.set_result(listener.sockets[0].getsockname()[1])
            await end.wait()
            listener.close()
            closing = (socket.close(code=aiohttp.WSCloseCode.GOING_AWAY) for socket in tuple(self._sockets))
            await asyncio.gather(*closing, return_exceptions=True)
            await server.shutdown(timeout=1.0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = self.access.answer(request, self.port)
        self.limits.extend(request.transport, None if answer is None else SEND_S)
        if answer is not None:
            return answer
        try:
            return await self._talk(request)
        except web.HTTPException as error:  # a handshake that is none
            return _refusal(error.status)

    async def _talk(self, request: web.BaseRequest) -> web.WebSocketResponse:
        """Serve a websocket until either side ends it."""
        offered = ",".join(request.headers.getall("Sec-WebSocket-Protocol", [])).split(",")
        protocols = [name.strip() for name in offered if name.strip().startswith("viser-v")]
        options: dict[str, Any] = {"timeout": 1.0, "heartbeat": PING_S, "compress": False, "max_msg_size": LONGEST}
        socket = web.WebSocketResponse(protocols=protocols, **options)
        socket.headers.update(SERVER)
        await socket.prepare(request)
        path = urlsplit(request.raw_path).path
        log.debug("%s of %s opened", path, request.remote)
        self._sockets.add(socket)
        try:
            if talk := self._talks.get(path):
                await talk(socket)
            else:
                await self._pass_on(socket)
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            log.debug("%s of %s: %r", path, request.remote, error)
        except Exception:
            log.exception("%s of %s failed", path, request.remote)
        finally:
            self._sockets.discard(socket)
            await socket.close()
        log.debug("%s of %s closed", path, request.remote)
        return socket

    async def _pass_on(self, page: web.WebSocketResponse) -> None:
        """Messages in both directions, until either side ends."""
        assert self._behind is not None  # or its path is refused
        host, port, key = self._behind
        protocols = [page.ws_protocol] if page.ws_protocol else []
        async with self._client.ws_connect(
            f"ws://{host}:{port}", protocols=protocols, compress=0, max_msg_size=0, headers={HEADER: key}
        ) as viser:
            both = [asyncio.create_task(_forward(page, viser)), asyncio.create_task(_forward(viser, page))]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)


class _Connection(web.RequestHandler):
    """Refusals that aiohttp makes by itself, of requests that it cannot read, in the form of ours."""

    def handle_error(self, request: web.BaseRequest, status: int = 500, *why: Any, **named: Any) -> web.StreamResponse:
        super().handle_error(request, status, *why, **named)  # raises where part of an answer is sent already
        return _refusal(status)


def _refusal(status: int) -> web.Response:
    return response(HTTPStatus(status), f"{HTTPStatus(status).phrase}.\n")


async def _forward(source: Any, sink: Any) -> None:
    """Every message of one websocket into the other, until `source` ends."""
    async for message in source:
        if message.type is WSMsgType.TEXT:
            await sink.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await sink.send_bytes(message.data)
        else:
            return  # e.g. a message that was too long: the websocket is closing


def with_overlays(page: str, *overlays: str) -> str:
    """viser's page with these pieces of HTML in its head."""
    head, end, rest = page.partition("</head>")
    if not end:
        raise BadInput("viser's page", got="no </head> in it", expected="a page of viser 1")
    return head + "".join(overlays) + end + rest


def overlay(package: str, name: str) -> str:
    """A file of a package, for `with_overlays`."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
