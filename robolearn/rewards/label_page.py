"""A small page on this machine that asks one question after the other, of single frames or of pairs of clips.

Each answer is handed over at once: whoever closes the page loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from robolearn.runs.loopback import LoopbackPage

OTHERWISE = ("skip", "back", "finish")

PAGE = Path(__file__).with_name("label.html")


@dataclass(frozen=True)
class PageAnswer:
    """A button: its name, what is kept where it is pressed, its text, and its key as browsers call it."""

    name: str
    value: Any
    text: str
    key: str


@dataclass(frozen=True)
class PageKind:
    """A sort of questions.

    Attributes:
      name: of the cookie: pages of other commands on this machine have others.
      asks: the question, behind the task.
      pictures: their media type.
    """

    name: str
    asks: str
    answers: tuple[PageAnswer, ...]
    pictures: str


FRAMES = PageKind(
    "robolearn_label",
    "done here?",
    (PageAnswer("done", True, "Done (d)", "d"), PageAnswer("not_done", False, "Not done (n)", "n")),
    "image/png",
)
PAIRS = PageKind(
    "robolearn_prefer",
    "which does it better?",
    (
        PageAnswer("left", "left", "Left (←)", "ArrowLeft"),
        PageAnswer("right", "right", "Right (→)", "ArrowRight"),
        PageAnswer("same", "same", "Same (↓)", "ArrowDown"),
    ),
    "image/jpeg",
)


@dataclass(frozen=True)
class PageQuestion:
    """A frame to be labelled, or a pair of clips to be compared.

    Attributes:
      where: what is shown, in words.
      names: of the pictures: cameras, or sides.
      picture: makes the picture of this number: one frame, or the frames of a film below each other.
      frames: of each film; empty where frames are shown.
      hz: the films' frames a second.
    """

    task: str
    where: str
    names: tuple[str, ...]
    picture: Callable[[int], bytes]
    frames: tuple[int, ...] = ()
    hz: float = 0.0


class LabelPage:
    """See the module.

    Args:
      kind: of the questions.
      questions: in the order in which they are asked.
      keep: called with the answers so far, number of a question → value, whenever one has changed.

    Attributes:
      answers: number of a question → value; those that were skipped are not in it.
    """

    def __init__(
        self, kind: PageKind, questions: Sequence[PageQuestion], keep: Callable[[dict[int, Any]], object]
    ) -> None:
        self._kind, self._questions, self._keep = kind, list(questions), keep
        self._values = {answer.name: answer.value for answer in kind.answers}
        self._at, self._ended = 0, asyncio.Event()
        self.answers: dict[int, Any] = {}

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
            web.get("/picture/{number:\\d+}/{which:\\d+}", self._picture),
            web.post("/answer", self._answer),
        ]
        await LoopbackPage(routes, self._kind.name).serve(port, ready, self._ended)

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=PAGE.read_text(), content_type="text/html")

    async def _question(self, request: web.Request) -> web.Response:
        count, number = len(self._questions), self._at
        over = number >= count
        q = self._questions[-1 if over else number]
        return web.json_response({
            "number": None if over else number,
            "count": count,
            "asks": f"{q.task}: {self._kind.asks}",
            "where": q.where,
            "names": () if over else q.names,
            "frames": q.frames,
            "hz": q.hz,
            "answers": [asdict(answer) for answer in self._kind.answers],
        })  # fmt: skip

    async def _picture(self, request: web.Request) -> web.Response:
        number, which = int(request.match_info["number"]), int(request.match_info["which"])
        if number >= len(self._questions) or which >= len(self._questions[number].names):
            raise web.HTTPNotFound
        return web.Response(body=self._questions[number].picture(which), content_type=self._kind.pictures)

    async def _answer(self, request: web.Request) -> web.Response:
        given = None
        with contextlib.suppress(ValueError, AttributeError):
            given = (await request.json()).get("answer")
        known = (*self._values, *OTHERWISE)
        if given not in known:
            raise web.HTTPBadRequest(text=f"an answer of {', '.join(known)}")
        before = dict(self.answers)
        if given == "back":
            self._at = max(self._at - 1, 0)
            self.answers.pop(self._at, None)
        elif given == "finish":
            self._at = len(self._questions)
        elif self._at < len(self._questions):
            if given != "skip":
                self.answers[self._at] = self._values[given]
            self._at += 1
        if self.answers != before:
            self._keep(dict(self.answers))
        if self._at >= len(self._questions):
            self._ended.set()
        return web.json_response({"answers": len(self.answers)})
