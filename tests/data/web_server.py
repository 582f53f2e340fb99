"""A server of the tests, in a thread of its own, whose every answer one function makes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web


@contextmanager
def serving(path: str, handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Iterator[str]:
    """Answer requests for `path` below ``/set`` by `handle`; yields the address of ``/set``."""
    addresses: list[str] = []
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        app = web.Application()
        app.router.add_route("*", f"/set/{path}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        addresses.append(f"http://127.0.0.1:{runner.addresses[0][1]}/set")
        ready.set()
        await asyncio.to_thread(stop.wait)
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield addresses[0]
    finally:
        stop.set()
        thread.join()
