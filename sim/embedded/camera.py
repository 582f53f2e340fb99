"""Cameras of the embedded world: observations and pictures for videos, rendered one world after the other."""

from __future__ import annotations

import warnings
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.core.specs import ArraySpec

FRAME_SIZE = (360, 480)  # of `Cameras.frame` [px]


class Cameras:
    """Renders with the model's own cameras; the GL context is made at the first picture.

    Args:
      model: the compiled world.
      names: cameras to observe.
      size: edge of the square observations [px].
    """

    def __init__(self, model: mujoco.MjModel, names: tuple[str, ...], size: int) -> None:
        known = [model.camera(i).name for i in range(model.ncam)]
        for name in names:
            if name not in known:
                raise BadInput("camera", got=name, available=known)
        self._model, self._names, self._size = model, names, size
        self._renderers: dict[tuple[int, int], mujoco.Renderer] = {}
        self._data: mujoco.MjData | None = None
        self.specs = {f"images.{name}": ArraySpec((size, size, 3), "uint8") for name in names}
        if names:
            self._renderer((size, size))  # no GL: say so now, not at the first episode

    def render(self, batch: Batch) -> dict[str, NDArray[np.uint8]]:
        """``images.<camera>`` → (N, size, size, 3) uint8."""
        if not self._names:
            return {}
        shape = (batch.nsim, self._size, self._size, 3)
        images = {f"images.{name}": np.empty(shape, np.uint8) for name in self._names}
        renderer = self._renderer((self._size, self._size))
        for w in range(batch.nsim):
            data = self._posed(batch, w)
            for name in self._names:
                renderer.update_scene(data, camera=name)
                renderer.render(out=images[f"images.{name}"][w])
        return images

    def frame(self, batch: Batch, world: int) -> NDArray[np.uint8]:
        """`FRAME_SIZE` + (3,) uint8 picture of one world from the front camera."""
        renderer = self._renderer(FRAME_SIZE)
        renderer.update_scene(self._posed(batch, world), camera="front")
        return renderer.render()

    def close(self) -> None:
        """Free the GL contexts."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()

    def _posed(self, batch: Batch, world: int) -> mujoco.MjData:
        self._data = batch.get_data(world, self._data)
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)
        return self._data

    def _renderer(self, size: tuple[int, int]) -> Any:
        if size not in self._renderers:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # GLFW warns, twice, of what the error below says once
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
