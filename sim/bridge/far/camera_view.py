"""Pictures of a MuJoCo model by one of its own cameras, cheap ones: no shadows, no multisampling."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from .errors import BadInput


class CameraView:
    """Square pictures with an edge of `size` [px]. Those of a camera that stands on its head are turned upright.

    Raises:
      BadInput: no such camera, or no OpenGL.
    """

    def __init__(self, model: Any, size: int, task: str, cameras: tuple[str, ...]) -> None:
        known = [model.cam(i).name for i in range(model.ncam)]
        for camera in cameras:
            if camera not in known:
                raise BadInput(f"camera of {task}", got=camera, available=known)
        self._standing = {camera for camera in cameras if model.cam(camera).bodyid[0] == 0}
        model.vis.quality.offsamples = 0
        try:
            self._renderer = mujoco.Renderer(model, size, size)
        except Exception as error:  # each GL back end raises its own types
            got = f"no OpenGL ({error})".splitlines()[0]
            raise BadInput(f"cameras of {task}", got=got, expected="EGL or OSMesa") from error
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._renderer.scene.flags[flag] = 0

    def picture(self, data: Any, camera: str) -> NDArray[np.uint8]:
        """(size, size, 3)."""
        self._renderer.update_scene(data, camera=camera)
        picture = np.asarray(self._renderer.render(), np.uint8)
        upside_down = camera in self._standing and data.cam(camera).xmat[7] < -0.1  # the z of its y axis
        return picture[::-1, ::-1].copy() if upside_down else picture

    def close(self) -> None:
        """Free the context."""
        self._renderer.close()
