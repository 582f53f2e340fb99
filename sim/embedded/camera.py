"""Cameras of the embedded world: observations and pictures for videos, rendered one world after the other."""

from __future__ import annotations

import os
import sys
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.core.specs import ArraySpec

FRAME_SIZE = (360, 480)  # of `Cameras.frame` [px]
_DISABLED = ("disable", "disabled", "off", "false", "0")  # values of MUJOCO_GL for no back end at all


class Cameras:
    """Renders with the model's own cameras; the GL context is made at the first picture.

    Args:
      model: the compiled world.
      names: cameras to observe.
      size: edge of the square observations [px].
      later: wait with OpenGL until the first picture, which may then be taken in another thread (all of them in the
        same one); otherwise a machine without it is refused here.
    """

    def __init__(self, model: mujoco.MjModel, names: tuple[str, ...], size: int, *, later: bool = False) -> None:
        known = [model.camera(i).name for i in range(model.ncam)]
        for name in names:
            if name not in known:
                raise BadInput("camera", got=name, available=known)
        self._model, self._names, self._size = model, names, size
        self._renderers: dict[tuple[int, int], mujoco.Renderer] = {}
        self._data: mujoco.MjData | None = None
        self.specs = {f"images.{name}": ArraySpec((size, size, 3), "uint8") for name in names}
        if names and not later:
            self._renderer((size, size))  # no GL: say so now, not at the first episode

    def render(self, batch: Batch, rows: NDArray[np.int64]) -> dict[str, NDArray[np.uint8]]:
        """``images.<camera>`` → (M, size, size, 3) uint8 of the worlds `rows` (M,)."""
        if not self._names:
            return {}
        shape = (len(rows), self._size, self._size, 3)
        images = {f"images.{name}": np.empty(shape, np.uint8) for name in self._names}
        renderer = self._renderer((self._size, self._size))
        for i, w in enumerate(rows.tolist()):
            data = self._posed(batch, w)
            for name in self._names:
                renderer.update_scene(data, camera=name)
                renderer.render(out=images[f"images.{name}"][i])
        return images

    def frame(self, batch: Batch, world: int) -> NDArray[np.uint8]:
        """`FRAME_SIZE` + (3,) uint8 picture of one world from the front camera."""
        renderer = self._renderer(FRAME_SIZE)
        renderer.update_scene(self._posed(batch, world), camera="front")
        return renderer.render()

    def image(self, data: mujoco.MjData, name: str) -> NDArray[np.uint8]:
        """(size, size, 3) picture of a state that is the caller's own; its derived fields are computed here."""
        renderer = self._renderer((self._size, self._size))
        self._place(data)
        renderer.update_scene(data, camera=name)
        return renderer.render()

    def close(self) -> None:
        """Free the GL contexts."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()

    def _posed(self, batch: Batch, world: int) -> mujoco.MjData:
        self._data = batch.get_data(world, self._data)
        self._place(self._data)
        return self._data

    def _place(self, data: mujoco.MjData) -> None:
        mujoco.mj_kinematics(self._model, data)
        mujoco.mj_comPos(self._model, data)
        mujoco.mj_camlight(self._model, data)

    def _renderer(self, size: tuple[int, int]) -> Any:
        if size not in self._renderers:
            try:
                if _windows_without_display():
                    raise RuntimeError("windows need a display")
                renderer = mujoco.Renderer(self._model, *size)
            except Exception as error:  # each GL back end raises its own types
                raise BadInput(
                    "cameras",
                    got=f"no OpenGL ({error})".splitlines()[0],
                    expected="EGL, OSMesa or a display",
                    hint="Install libegl1 and libgl1-mesa-dri, or leave the cameras out",
                ) from error
            # Shadows cost more than everything else together on a software renderer.
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = size == FRAME_SIZE
            self._renderers[size] = renderer
        return self._renderers[size]


def _windows_without_display() -> bool:
    """MuJoCo would open a GLFW window where there is no display: that does not raise but abort the process."""
    back_end = os.environ.get("MUJOCO_GL", "").lower().strip()
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform == "linux" and not display and back_end not in ("egl", "osmesa", *_DISABLED)
