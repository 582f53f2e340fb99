"""Limits on connections that aiohttp and viser do not set: how many, how slow, and behind which key.

aiohttp waits for the first request of a connection for ever, so that a client that sends a byte now and then
(slowloris) keeps its connection, and asyncio counts a connection with TLS only after its handshake: a thousand silent
ones use up the file descriptors of the server. Here each is counted from its first moment.

viser listens on loopback, checks neither who connects nor from which page, and has no setting for it: any program and
any user of the machine could move the target. Its server is one of `websockets`, whose check of each request
(`process_request`) is put in front of viser's own while viser starts: without the key, which only the auth proxy has, a
connection is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import inspect
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, cast

import websockets.asyncio.server


class ConnectionLimits:
    """Limits of one server.

    Args:
      most, of_one: connections at once, in all and from one address; one more is closed at once.
      request_s: time for the handshake and the whole request to arrive [s].
    """

    def __init__(self, most: int, of_one: int, request_s: float) -> None:
        self.most, self.of_one, self.request_s = most, of_one, request_s
        # The socket of a connection → its origin, and the timer that will cut it.
        self.open: dict[object, tuple[str, asyncio.TimerHandle | None]] = {}

    def extend(self, transport: asyncio.BaseTransport | None, seconds: float | None) -> None:
        """The request has arrived: the connection may last `seconds` from now, or without a limit (None)."""
        if transport is not None and (socket := _socket(transport)) in self.open:
            self._set(socket, transport, seconds)

    def enter(self, transport: asyncio.Transport) -> bool:
        """Count a new connection; False, and the connection is cut, where there are too many."""
        address = (transport.get_extra_info("peername") or "?")[0]  # who has gone already has no name
        of_this = sum(other == address for other, _ in self.open.values())
        if len(self.open) >= self.most or of_this >= self.of_one:
            transport.abort()
            return False
        self.open[_socket(transport)] = address, None
        self._set(_socket(transport), transport, self.request_s)
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """The connection has ended."""
        _, timer = self.open.pop(_socket(transport), ("", None))
        if timer is not None:
            timer.cancel()

    def _set(self, socket: object, transport: asyncio.BaseTransport, seconds: float | None) -> None:
        address, before = self.open[socket]
        if before is not None:
            before.cancel()
        abort = cast(asyncio.Transport, transport).abort
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, abort)
        self.open[socket] = address, timer


class Guarded(asyncio.Protocol):
    """Passes every event on to `inner`, from a connection that the limits admit; its server leaves TLS to it."""

    def __init__(self, limits: ConnectionLimits, inner: asyncio.Protocol, tls: ssl.SSLContext | None) -> None:
        self._limits, self._inner, self._tls = limits, inner, tls
        self._raw: asyncio.BaseTransport = asyncio.Transport()  # below TLS, which drops it before its end arrives
        self._begun = False  # admitted, and its TLS is there
        self._handshake: asyncio.Task[None] | None = None
        self._lost = False
        self._early = b""  # what came in one piece with the end of the handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = raw = cast(asyncio.Transport, transport)
        if not self._limits.enter(raw):
            return
        if self._tls is None:
            self._begin(raw)
        else:
            raw.pause_reading()  # until the handshake's own protocol listens
            self._handshake = asyncio.get_running_loop().create_task(self._shake(raw, self._tls))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._begun:
            self._limits.leave(self._raw)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._begun:
            self._inner.data_received(data)
        elif self._handshake is not None:
            self._early += data

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._begun else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def _begin(self, transport: asyncio.BaseTransport) -> None:
        self._begun = True
        self._inner.connection_made(transport)
        if self._early:
            self._inner.data_received(self._early)

    async def _shake(self, raw: asyncio.Transport, tls: ssl.SSLContext) -> None:
        loop, limit = asyncio.get_running_loop(), self._limits.request_s
        done = None
        # asyncio waits for ever for the TLS of a connection that ends while its handshake begins.
        with contextlib.suppress(OSError):  # no TLS, or none in time
            async with asyncio.timeout(limit + 1.0):
                done = await loop.start_tls(raw, self, tls, server_side=True, ssl_handshake_timeout=limit)
        if done is None or self._lost:
            raw.abort()
            self._limits.leave(raw)
        else:
            self._begin(done)


def _socket(transport: asyncio.BaseTransport) -> object:
    """The socket that a connection and the TLS on it share."""
    return transport.get_extra_info("socket")


HEADER = "X-Robolearn-Key"
_starting = threading.Lock()


@contextmanager
def behind(key: str) -> Iterator[None]:
    """Servers of `websockets` that start meanwhile answer only requests with `key` in their `HEADER`."""
    serve: Any = websockets.asyncio.server.serve

    def guarded(handler: Any, *places: Any, process_request: Any = None, **options: Any) -> Any:
        async def check(connection: Any, request: Any) -> Any:
            offered = request.headers.get_all(HEADER)
            if len(offered) != 1 or not hmac.compare_digest(offered[0].encode(), key.encode()):
                return connection.respond(HTTPStatus.FORBIDDEN, "Not here.\n")
            answer = process_request(connection, request) if process_request is not None else None
            return await answer if inspect.isawaitable(answer) else answer

        return serve(handler, *places, process_request=check, **options)

    with _starting:
        websockets.asyncio.server.serve = guarded  # type: ignore[assignment, misc]
        try:
            yield
        finally:
            websockets.asyncio.server.serve = serve  # type: ignore[misc]
