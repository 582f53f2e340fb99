"""A page for the person at this machine alone.

It listens on loopback. Every user of the machine can connect to that, so the address has a token, new at every start,
which is exchanged for a cookie; a request for another host, or one that another site's page sends, is refused.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import sys
from collections.abc import Callable, Sequence

from aiohttp import web

from robolearn.core import BadInput

HOST = "127.0.0.1"


def show_address(url: str) -> None:
    """Say where the page is, beside a result that goes to standard output."""
    print(f"open {url}", file=sys.stderr, flush=True)


class LoopbackPage:
    """See the module.

    Args:
      routes: what is served; the page itself at ``/``.
      cookie: its name: pages of other commands on this machine have others.
    """

    def __init__(self, routes: Sequence[web.RouteDef], cookie: str) -> None:
        self._routes, self._name = routes, cookie
        self._token, self._cookie = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._own: tuple[str, ...] = ()

    async def serve(self, port: int, ready: Callable[[str], None], ended: asyncio.Event) -> None:
        """Answer requests until `ended`.

        Args:
          port: 0 for any.
          ready: called with the address, token included.

        Raises:
          BadInput: the port is taken.
        """
        app = web.Application(middlewares=[self._guard])
        app.add_routes(self._routes)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, HOST, port)
            try:
                await site.start()
            except OSError as error:
                raise BadInput("--port", got=f"{port} ({error.strerror})", expected="a free one, or 0") from None
            port = runner.addresses[0][1]
            self._own = (f"{HOST}:{port}", f"localhost:{port}")
            ready(f"http://{HOST}:{port}/?token={self._token}")
            await ended.wait()
            await asyncio.sleep(0.2)  # the page shows that it is over
        finally:
            await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable) -> web.StreamResponse:
        """Refuse what is not from our own page."""
        origin = request.headers.get("Origin")
        if request.host not in self._own or (origin is not None and origin.removeprefix("http://") not in self._own):
            raise web.HTTPForbidden(text="another host or site")
        entering = request.path == "/" and hmac.compare_digest(request.query.get("token", ""), self._token)
        if not entering and not hmac.compare_digest(request.cookies.get(self._name, ""), self._cookie):
            raise web.HTTPForbidden(text="open the address that the command shows")
        response = await handler(request)
        if entering:
            response.set_cookie(self._name, self._cookie, httponly=True, samesite="Strict")
        response.headers["Cache-Control"] = "no-store"
        return response
