"""Limits on connections that aiohttp does not set: how many at once, and how long a request may take to arrive.

aiohttp waits for the first request of a connection for ever, so that a client that sends a byte now and then
(slowloris) keeps its connection; a few hundred of them use up the file descriptors.
"""

from __future__ import annotations

import asyncio
from typing import cast


class ConnectionLimits:
    """Wraps the protocol of each connection of one server.

    Args:
      most: connections at once; one more is closed at once.
      request_s: time for the whole request to arrive [s].
    """

    def __init__(self, most: int, request_s: float) -> None:
        self.most, self.request_s = most, request_s
        self._open: dict[asyncio.BaseTransport, asyncio.TimerHandle | None] = {}

    def guard(self, protocol: asyncio.Protocol) -> asyncio.Protocol:
        """`protocol`, under these limits."""
        return _Guarded(self, protocol)

    def extend(self, transport: asyncio.BaseTransport | None, seconds: float | None) -> None:
        """The request has arrived: the connection may last `seconds` from now, or without a limit (None)."""
        if transport is not None and transport in self._open:
            self._set(transport, seconds)

    def enter(self, transport: asyncio.Transport) -> bool:
        """Count a new connection; False, and the connection is cut, where there are too many."""
        if len(self._open) >= self.most:
            transport.abort()
            return False
        self._set(transport, self.request_s)
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """The connection has ended."""
        if (timer := self._open.pop(transport, None)) is not None:
            timer.cancel()

    def _set(self, transport: asyncio.BaseTransport, seconds: float | None) -> None:
        self.leave(transport)
        abort = cast(asyncio.Transport, transport).abort
        self._open[transport] = None if seconds is None else asyncio.get_running_loop().call_later(seconds, abort)


class _Guarded(asyncio.Protocol):
    """Passes every event on to the protocol behind it, from an admitted connection."""

    def __init__(self, limits: ConnectionLimits, inner: asyncio.Protocol) -> None:
        self._limits, self._inner = limits, inner
        self._transport: asyncio.Transport | None = None  # None: not admitted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._limits.enter(cast(asyncio.Transport, transport)):
            self._transport = cast(asyncio.Transport, transport)
            self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._limits.leave(self._transport)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
