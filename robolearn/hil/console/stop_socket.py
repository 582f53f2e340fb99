"""The websocket of STOP: presses in, whether the arm is stopped out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from aiohttp import WSMsgType, web

STOP_PATH = "/stop"
STATUS_S = 0.1  # between two messages to a page


async def serve_stop(page: web.WebSocketResponse, stop: Callable[[], None], stopped: Callable[[], bool]) -> None:
    """Serve one page until it is gone.

    Args:
      page: the open websocket.
      stop: called at every press.
      stopped: whether the arm is stopped.
    """
    sending = asyncio.create_task(_send(page, stopped))
    try:
        async for message in page:
            if message.type is not WSMsgType.TEXT:
                continue
            try:
                content = json.loads(message.data)
            except ValueError:
                continue
            if isinstance(content, dict) and content.get("press") == "stop":
                stop()
                await page.send_str(json.dumps({"stopped": stopped()}))
    finally:
        sending.cancel()


async def _send(page: web.WebSocketResponse, stopped: Callable[[], bool]) -> None:
    while not page.closed:
        await page.send_str(json.dumps({"stopped": stopped()}))
        await asyncio.sleep(STATUS_S)
