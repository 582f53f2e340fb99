"""Cameras of the embedded world: observations of N worlds, and single pictures."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput
from sim.embedded.painter import Canvas, CanvasSpec, Painter, PainterProcesses, RenderContext
from sim.embedded.visual_randomisation import Appearance, VisualRandomisation

FRAME_SIZE = (360, 480)  # of `Cameras.frame` [px]
IMAGE_SIZE = 84  # edge of what a policy sees, by default [px]
MOST_PROCESSES = 8
PAYS_FROM = 16  # worlds: fewer are drawn as fast by this process, and begin sooner


def usual_processes(num_envs: int, threads: int) -> int:
    """Processes that draw `num_envs` worlds where nothing else is said: one for each of `threads`, if it pays."""
    pays = num_envs >= PAYS_FROM and threads > 1 and sys.platform == "linux"
    return min(threads, MOST_PROCESSES) if pays else 0


class Cameras:
    """Renders with the model's own cameras.

    Args:
      names: cameras to observe.
      size: edge of the square observations [px].
      processes: that draw side by side; 0: one thread of this process does.
      later: wait with OpenGL until the first picture; otherwise a machine without it is refused here.

    Raises:
      BadInput: an unknown camera, an impossible size, or no OpenGL.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        names: tuple[str, ...],
        size: int,
        *,
        num_envs: int = 1,
        bodies: tuple[str, ...] = (),
        randomisation: VisualRandomisation | None = None,
        processes: int = 0,
        later: bool = False,
    ) -> None:
        known = [model.camera(i).name for i in range(model.ncam)]
        for name in names:
            if name not in known:
                raise BadInput("camera", got=name, available=known)
        most = min(model.vis.global_.offwidth, model.vis.global_.offheight)
        if not 8 <= size <= most:
            raise BadInput("image size", got=f"{size} px", expected=f"8 to {most}")
        names = tuple(dict.fromkeys(names))
        self._model, self._size = model, size
        self._own: RenderContext | None = None
        self._film: RenderContext | None = None
        self.specs = {f"images.{name}": ArraySpec((size, size, 3), "uint8") for name in names}
        drawn = randomisation or VisualRandomisation()
        spec = CanvasSpec(num_envs, model.nq + 7 * model.nmocap, names, size, bodies, drawn)
        self._painters: PainterProcesses | _PainterThread | None = None
        if names and not later:  # no GL: say so now, not at the first episode
            self._painters = PainterProcesses(model, spec, processes) if processes else _PainterThread(model, spec)

    def render(
        self, rows: NDArray[np.int64], states: NDArray[np.float64], episodes: NDArray[np.int64]
    ) -> dict[str, NDArray[np.uint8]]:
        """``images.<camera>`` → (M, size, size, 3) pictures of the worlds `rows` (M,).

        Args:
          states: (M, nq + 7 nmocap), see `Physics.drawn_state`.
          episodes: (M, 3) seed, start id and number of the episode.
        """
        if self._painters is None or not len(rows):
            return {key: np.empty((len(rows), *spec.shape), np.uint8) for key, spec in self.specs.items()}
        canvas = self._painters.canvas
        canvas.states[rows], canvas.episodes[rows] = states, episodes
        self._painters.paint(rows)
        return {key: canvas.pictures[rows, c] for c, key in enumerate(self.specs)}

    def frame(self, data: mujoco.MjData, appearance: Appearance | None = None) -> NDArray[np.uint8]:
        """`FRAME_SIZE` + (3,) uint8 picture of a state from the front camera, for people."""
        if self._film is None:
            self._film = RenderContext(self._model, FRAME_SIZE, fine=True)
        self._film.place(data, appearance)
        return self._film.draw(data, "front")

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
        if self._painters is not None:
            self._painters.close()
        for context in (self._film, self._own):
            if context is not None:
                context.close()
        self._film = self._own = None


class _PainterThread:
    """A painter in a thread of this process: a GL context belongs to one thread, worlds may be stepped by any."""

    def __init__(self, model: mujoco.MjModel, spec: CanvasSpec) -> None:
        self.canvas = Canvas(spec, bytearray(Canvas.bytes_of(spec)))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="camera")
        self._painter = self._thread.submit(Painter, model, spec).result()

    def paint(self, rows: NDArray[np.int64]) -> None:
        """Draw the worlds `rows` (M,) of the canvas."""
        self._thread.submit(self._painter.paint, self.canvas, rows.tolist()).result()

    def close(self) -> None:
        """Free the GL context."""
        self._thread.submit(self._painter.close)
        self._thread.shutdown()
