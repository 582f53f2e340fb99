"""Cameras of the embedded world: observations of N worlds on several GL contexts side by side, and single pictures."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.core.specs import ArraySpec
from sim.embedded.looks import Look
from sim.embedded.render_context import RenderContext

FRAME_SIZE = (360, 480)  # of `Cameras.frame` [px]
IMAGE_SIZE = 84  # edge of what a policy sees, by default [px]


class Cameras:
    """Renders with the model's own cameras; GL contexts are made at the first picture.

    Args:
      model: the compiled world.
      names: cameras to observe.
      size: edge of the square observations [px].
      contexts: how many worlds are drawn side by side, each in a thread and a GL context of its own.
      later: wait with OpenGL until the first picture; otherwise a machine without it is refused here.

    Raises:
      BadInput: an unknown camera, an impossible size, or no OpenGL.
    """

    def __init__(
        self, model: mujoco.MjModel, names: tuple[str, ...], size: int, *, contexts: int = 1, later: bool = False
    ) -> None:
        known = [model.camera(i).name for i in range(model.ncam)]
        for name in names:
            if name not in known:
                raise BadInput("camera", got=name, available=known)
        most = min(model.vis.global_.offwidth, model.vis.global_.offheight)
        if not 8 <= size <= most:
            raise BadInput("image size", got=f"{size} px", expected=f"8 to {most}")
        self._model, self._names, self._size = model, tuple(dict.fromkeys(names)), size
        self._threads = [_Painter(model, (size, size)) for _ in range(max(contexts, 1))]
        self._own: RenderContext | None = None
        self._film: RenderContext | None = None
        self._data: mujoco.MjData | None = None
        self.specs = {f"images.{name}": ArraySpec((size, size, 3), "uint8") for name in self._names}
        if names and not later:
            self._threads[0].paint([]).result()  # no GL: say so now, not at the first episode

    def render(
        self, batch: Batch, rows: NDArray[np.int64], out: dict[str, NDArray[np.uint8]], looks: Sequence[Look | None]
    ) -> None:
        """Draw the worlds `rows` (M,) into the rows 0 to M − 1 of ``out["images.<camera>"]`` (M, size, size, 3).

        Args:
          looks: of all worlds; None for the model's own.
        """
        if not self._names or not len(rows):
            return
        jobs = [
            _Job(int(w), name, out[f"images.{name}"][i], looks[w])
            for i, w in enumerate(rows.tolist())
            for name in self._names
        ]
        shares = min(len(self._threads), len(rows))
        bounds = np.linspace(0, len(rows), shares + 1).astype(int) * len(self._names)
        begun = [
            thread.paint(jobs[a:b], batch) for thread, a, b in zip(self._threads, bounds[:-1], bounds[1:], strict=False)
        ]
        for share in begun:
            share.result()

    def frame(self, batch: Batch, world: int, look: Look | None = None) -> NDArray[np.uint8]:
        """`FRAME_SIZE` + (3,) uint8 picture of one world from the front camera, for people."""
        if self._film is None:
            self._film = RenderContext(self._model, FRAME_SIZE, fine=True)
        self._data = batch.get_data(world, self._data)
        self._film.place(self._data, look)
        return self._film.draw(self._data, "front")

    def image(self, data: mujoco.MjData, name: str) -> NDArray[np.uint8]:
        """(size, size, 3) picture of a state that is the caller's own; its derived fields are computed here.

        Always from one and the same thread.
        """
        if self._own is None:
            self._own = RenderContext(self._model, (self._size, self._size), fine=False)
        self._own.place(data)
        return self._own.draw(data, name)

    def close(self) -> None:
        """Free the GL contexts; from the thread that called `frame` and `image`."""
        for thread in self._threads:
            thread.close()
        for context in (self._film, self._own):
            if context is not None:
                context.close()
        self._film = self._own = None


class _Job(NamedTuple):
    """A picture to be drawn."""

    world: int
    camera: str
    out: NDArray[np.uint8]
    look: Look | None


class _Painter:
    """A thread with a GL context and a state of its own, both made when there is something to paint."""

    def __init__(self, model: mujoco.MjModel, size: tuple[int, int]) -> None:
        self._model, self._size = model, size
        self._thread: ThreadPoolExecutor | None = None
        self._context: RenderContext | None = None
        self._data: mujoco.MjData | None = None

    def paint(self, jobs: list[_Job], batch: Batch | None = None) -> Future[None]:
        """Draw one after the other, the cameras of a world side by side in the list."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="camera")
        return self._thread.submit(self._paint, jobs, batch)

    def _paint(self, jobs: list[_Job], batch: Batch | None) -> None:
        if self._context is None:
            self._context = RenderContext(self._model, self._size, fine=False)
        placed = -1
        for world, camera, out, look in jobs:
            if world != placed:
                assert batch is not None
                self._data = batch.get_data(world, self._data)
                self._context.place(self._data, look)
                placed = world
            assert self._data is not None
            self._context.draw(self._data, camera, out)

    def close(self) -> None:
        if self._thread is None:
            return
        if self._context is not None:
            self._thread.submit(self._context.close).result()
        self._thread.shutdown()
        self._thread = self._context = None
