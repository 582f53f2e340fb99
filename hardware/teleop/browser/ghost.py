"""A page that shows the start of an episode over what the cameras see now, for the person who restores the scene.

Both pictures of a camera lie one over the other in the browser, and a slider mixes them. It is on loopback with a
token, as every page here, and has nothing that could be pressed.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import cv2
import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from hardware.teleop.browser import Place
from hardware.teleop.browser.auth_proxy import AuthProxy, overlay, with_overlays
from hardware.teleop.browser.guarded_viser import END, serve_end

PACKAGE = "hardware.teleop.browser"
GHOST = "/ghost"  # where the page finds its pictures
EVERY_S = 0.15  # between two pictures
KEPT = "The pictures of the start lie under those of now. Put everything where it was."
NONE = "There are no pictures of this start: they are kept when you say that everything is in its place."

Picture = NDArray[np.uint8]
Pictures = Mapping[str, Picture]


class GhostPage:
    """The page, from the moment that it is made until `close`, when it says `over`.

    Attributes:
      url: the address to open, with its token.

    Raises:
      BadInput: the address cannot be listened on.
    """

    def __init__(self, place: Place | None = None, over: str = "The trial is over.") -> None:
        place = place or Place()
        html = with_overlays(overlay(PACKAGE, "ghost.html"), overlay(PACKAGE, "session_end.html"))
        talks = {GHOST: self._talk, END: lambda socket: serve_end(socket, over)}
        self._shown: tuple[str, Pictures, Callable[[], Pictures]] = ("", {}, dict)
        self._proxy = AuthProxy(html, None, place, None, talks)
        self._proxy.open()
        access = self._proxy.access
        self.url = f"{access.scheme}://{place.host}:{self._proxy.port}/?token={access.token}"

    def show(self, text: str, then: Pictures, now: Callable[[], Pictures]) -> None:
        """Show `text` and (H, W, 3) pictures of a start, camera by camera, under what `now` returns; never waits."""
        self._shown = (text, then, now)

    def close(self) -> None:
        """Take the page away; more than once is no fault."""
        self._proxy.close()

    async def _talk(self, socket: web.WebSocketResponse) -> None:
        shown = None
        while not socket.closed:
            fresh, shown = self._shown is not shown, self._shown
            await socket.send_str(await asyncio.to_thread(_message, *shown, fresh))
            await asyncio.sleep(EVERY_S)


def _message(text: str, then: Pictures, now: Callable[[], Pictures], fresh: bool) -> str:
    """The message to a page: pictures of now, and all else where it is new."""
    message: dict[str, Any] = {"now": _sources(now())}
    if fresh:
        message |= {"text": text, "note": (KEPT if then else NONE) if text else "", "then": _sources(then)}
    return json.dumps(message)


def _sources(pictures: Pictures) -> dict[str, str]:
    """Camera → its picture as an address that holds it."""
    found = {}
    for name, picture in pictures.items():
        done, data = cv2.imencode(".jpg", np.ascontiguousarray(picture[..., ::-1]), [cv2.IMWRITE_JPEG_QUALITY, 85])
        assert done
        found[name] = "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode()
    return found
