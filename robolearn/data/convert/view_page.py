"""A page with a grid of a set's episodes: each one's last picture, its film, its outcome; filtered and sorted there.

Films are the set's own video files, of which the browser plays the episode's part; of pictures in tables, and of a set
on a server, single frames are shown. Nothing is decoded before somebody looks at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
from aiohttp import web

from robolearn.data.lerobot.features import IMAGES
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.readers import VideoReader
from robolearn.runs.loopback import LoopbackPage

COOKIE = "robolearn_view"
PAGE = Path(__file__).with_name("view.html")


class EpisodeGrid:
    """See the module.

    Args:
      dataset: with its pictures.
      episodes: those to show.
      scores: episode → its last progress by a reward model, of those that have been scored.
    """

    def __init__(self, dataset: Dataset, episodes: Sequence[int], scores: Mapping[int, float] | None = None) -> None:
        self._dataset, self._episodes, self._scores = dataset, list(episodes), scores or {}
        self._cameras = list(dataset.readers)
        self._ended = asyncio.Event()

    async def serve(self, port: int, ready: Callable[[str], None]) -> None:
        """Answer requests until somebody closes the page by its button; raises as `LoopbackPage.serve` does."""
        place = "{camera:\\d+}/{episode:\\d+}"
        routes = [
            web.get("/", self._page),
            web.get("/episodes", self._rows),
            web.get(f"/film/{place}", self._film),
            web.get(f"/frame/{place}/{{step:\\d+}}", self._frame),
            web.post("/close", self._close),
        ]
        await LoopbackPage(routes, COOKIE).serve(port, ready, self._ended)

    def row(self, episode: int) -> dict[str, Any]:
        """Facts of an episode for its card."""
        dataset = self._dataset
        steps, first = int(dataset.lengths[episode]), int(dataset.starts[episode])
        return {
            "episode": episode,
            "steps": steps,
            "task": dataset.tasks[int(dataset.task_index[first])],
            "success": bool(dataset.success[episode]) if dataset.outcomes else None,
            "failure": dataset.failure[episode] if dataset.failure else "",
            "helped": int(dataset.intervention[first : first + steps].sum()),
            "score": self._scores.get(episode),
            "films": [self._part(camera, episode) for camera in range(len(self._cameras))],
        }

    def _part(self, camera: int, episode: int) -> list[float] | None:
        """Begin and end of an episode in its film [s], or None where it has none that can be played."""
        reader = self._dataset.readers[self._cameras[camera]]
        if not isinstance(reader, VideoReader) or not isinstance(reader.root, Path):
            return None
        begin = float(reader.begins[episode])
        return [begin, begin + int(reader.lengths[episode]) / reader.hz]

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=PAGE.read_text(), content_type="text/html")

    async def _rows(self, request: web.Request) -> web.Response:
        return web.json_response({
            "name": self._dataset.path.name,
            "hz": self._dataset.interface.control_hz,
            "cameras": [camera.removeprefix(IMAGES) for camera in self._cameras],
            "episodes": [self.row(episode) for episode in self._episodes],
        })  # fmt: skip

    async def _film(self, request: web.Request) -> web.StreamResponse:
        camera, episode = self._asked(request)
        if self._part(camera, episode) is None:
            raise web.HTTPNotFound
        reader = self._dataset.readers[self._cameras[camera]]
        return web.FileResponse(Path(str(reader.root)) / reader.paths[episode])

    async def _frame(self, request: web.Request) -> web.Response:
        camera, episode = self._asked(request)
        step = min(int(request.match_info["step"]), int(self._dataset.lengths[episode]) - 1)
        reader = self._dataset.readers[self._cameras[camera]]
        (picture,) = await asyncio.to_thread(reader.decode, episode, step, 1)
        done, data = cv2.imencode(".jpg", picture[..., ::-1])
        assert done
        return web.Response(body=data.tobytes(), content_type="image/jpeg")

    async def _close(self, request: web.Request) -> web.Response:
        self._ended.set()
        return web.json_response({})

    def _asked(self, request: web.Request) -> tuple[int, int]:
        camera, episode = int(request.match_info["camera"]), int(request.match_info["episode"])
        if camera >= len(self._cameras) or episode >= self._dataset.episodes:
            raise web.HTTPNotFound
        return camera, episode
