"""A file server that answers range requests, as a process: python range_server.py FOLDER LOG. Prints its port.

The log has a line for every request: method, path and range.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from aiohttp import web


def app_of(folder: Path, log: Path) -> web.Application:
    @web.middleware
    async def noted(request, handler):
        with open(log, "a") as file:
            print(request.method, request.rel_url.raw_path, request.headers.get("Range", "-"), file=file)
        return await handler(request)

    app = web.Application(middlewares=[noted])
    app.router.add_static("/", folder)
    return app


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    web.run_app(app_of(Path(sys.argv[1]), Path(sys.argv[2])), sock=listener, print=None)
