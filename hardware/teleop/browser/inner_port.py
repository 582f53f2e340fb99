"""viser behind a key: whoever connects to its port without the key, which only the auth proxy has, is refused.

viser listens on loopback, checks neither who connects nor from which page, and has no setting for it: any program and
any user of the machine could move the target. Its server is one of `websockets`, whose check of each request
(`process_request`) is put in front of viser's own while viser starts.
"""

from __future__ import annotations

import hmac
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import websockets.asyncio.server

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
