"""The websocket of the dead-man's switch and the buttons: heartbeats of a page in, the state of things out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import WSMessage, WSMsgType, web

from hardware.teleop.browser.control_arbiter import ControlArbiter
from hardware.teleop.device import EpisodeEvent

BEAT = "/beat"  # where pages find it
STATUS_S = 0.1  # between two messages to a page about the state of things
HELLO_S = 10.0  # for the first message, with the page's key
UNKNOWN_KEY = 4403  # close code
_EVENTS = tuple(event.value for event in EpisodeEvent)


async def serve_heartbeats(
    page: web.WebSocketResponse, arbiter: ControlArbiter, status: Callable[[], dict[str, Any]]
) -> None:
    """Hand to `arbiter` what a page sends, which proves by its key which client of viser it is.

    Args:
      page: the open websocket.
      arbiter: decides which client has control.
      status: what a page is sent besides the state of its switch.

    Raises:
      TimeoutError: no first message within `HELLO_S`.
    """
    async with asyncio.timeout(HELLO_S):
        hello = _json(await page.receive())
    client = arbiter.owner(str(hello.get("key", "")))
    if client is None:
        await page.close(code=UNKNOWN_KEY, message=b"unknown key")
        return
    sending = asyncio.create_task(_send_status(page, arbiter, client, status))
    why = "the page at the controls is gone"
    try:
        async for message in page:
            content = _json(message)
            press, received = content.get("press"), content.get("t")
            if content.get("claim"):
                arbiter.claim(client)
            if content.get("event") in _EVENTS:
                arbiter.ask(client, EpisodeEvent(content["event"]))
            if isinstance(content.get("grip"), (int, float)):
                arbiter.grip(client, float(content["grip"]))
            if isinstance(content.get("large"), bool):
                arbiter.enlarge(client, content["large"])
            if content.get("hidden"):
                why = "the page is not on the screen any more"
                arbiter.silence(client, why)
            elif type(press) is int and 0 <= press < 1 << 53:
                arbiter.beat(client, press, float(received) if isinstance(received, (int, float)) else None)
    finally:
        arbiter.silence(client, why)
        sending.cancel()


async def _send_status(
    page: web.WebSocketResponse, arbiter: ControlArbiter, client: int, status: Callable[[], dict[str, Any]]
) -> None:
    while not page.closed:
        await page.send_str(json.dumps({**arbiter.standing(client), **status()}))
        await asyncio.sleep(STATUS_S)


def _json(message: WSMessage) -> dict[str, Any]:
    if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
        return {}
    try:
        value = json.loads(message.data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
