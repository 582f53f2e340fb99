"""A small page on this machine that asks of one frame after the other whether the task is done there.

Each answer is handed over at once: whoever closes the page loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from robolearn.runs.loopback import LoopbackPage

COOKIE = "robolearn_label"
ANSWERS = ("done", "not_done", "skip", "back", "finish")

PAGE = Path(__file__).with_name("label.html")


@dataclass(frozen=True)
class FrameToLabel:
    """A frame to be labelled.

    Attributes:
      pictures: makes the PNG of each camera.
    """

    episode: int
    frame: int
    task: str
    cameras: tuple[str, ...]
    pictures: Callable[[], list[bytes]]


class LabelPage:
    """See the module.

    Args:
      questions: in the order in which they are asked.
      keep: called with the answers so far, number of a question → done, whenever one has changed.

    Attributes:
      answers: number of a question → done; those that were skipped are not in it.
    """

    def __init__(self, questions: Sequence[FrameToLabel], keep: Callable[[dict[int, bool]], object]) -> None:
        self._questions, self._keep = list(questions), keep
        self._at, self._ended = 0, asyncio.Event()
        self.answers: dict[int, bool] = {}

    async def serve(self, port: int, ready: Callable[[str], None]) -> None:
        """Answer requests until all questions are answered, or somebody finishes.

        Args:
          port: 0 for any.
          ready: called with the address, token included.

        Raises:
          BadInput: the port is taken.
        """
        routes = [
            web.get("/", self._page),
            web.get("/question", self._question),
            web.get("/picture/{number:\\d+}/{camera:\\d+}", self._picture),
            web.post("/answer", self._answer),
        ]
        await LoopbackPage(routes, COOKIE).serve(port, ready, self._ended)

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=PAGE.read_text(), content_type="text/html")

    async def _question(self, request: web.Request) -> web.Response:
        count, number = len(self._questions), self._at
        if number >= count:
            return web.json_response({"number": None, "count": count, "task": self._questions[-1].task, "pictures": 0})
        q = self._questions[number]
        shown = {"episode": q.episode, "frame": q.frame, "task": q.task, "cameras": q.cameras}
        return web.json_response({"number": number, "count": count, "pictures": len(q.cameras), **shown})

    async def _picture(self, request: web.Request) -> web.Response:
        number, camera = int(request.match_info["number"]), int(request.match_info["camera"])
        if number >= len(self._questions) or camera >= len(self._questions[number].cameras):
            raise web.HTTPNotFound
        return web.Response(body=self._questions[number].pictures()[camera], content_type="image/png")

    async def _answer(self, request: web.Request) -> web.Response:
        given = None
        with contextlib.suppress(ValueError, AttributeError):
            given = (await request.json()).get("answer")
        if given not in ANSWERS:
            raise web.HTTPBadRequest(text=f"an answer of {', '.join(ANSWERS)}")
        before = dict(self.answers)
        if given == "back":
            self._at = max(self._at - 1, 0)
            self.answers.pop(self._at, None)
        elif given == "finish":
            self._at = len(self._questions)
        elif self._at < len(self._questions):
            if given != "skip":
                self.answers[self._at] = given == "done"
            self._at += 1
        if self.answers != before:
            self._keep(dict(self.answers))
        if self._at >= len(self._questions):
            self._ended.set()
        return web.json_response({"answers": len(self.answers)})
