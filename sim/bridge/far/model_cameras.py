"""Pictures of a MuJoCo world by the cameras of its model, cheap ones: no shadows, no multisampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from .errors import BadInput
from .facts import AdapterEnv, Features, Spec

FILM_EDGE = 256  # [px] of videos


class ModelCameras:
    """Square pictures. Those of a camera that stands on its head are turned upright.

    Args:
      env: has ``model`` and ``data``.
      cameras: those that are observed, with an edge of `size` [px].
      film: the camera of videos.
      hidden: groups of geometry that are not drawn.

    Raises:
      BadInput: no such camera, or no OpenGL.
    """

    def __init__(
        self, env: Any, task: str, cameras: tuple[str, ...], size: int, film: str, hidden: Sequence[int] = ()
    ) -> None:
        self._env, self._task, self._cameras, self._size, self._film = env, task, cameras, size, film
        self._hidden = list(hidden)
        model = env.model
        known = [model.cam(i).name for i in range(model.ncam)]
        for camera in cameras:
            if camera not in known:
                raise BadInput(f"camera of {task}", got=camera, available=known)
        self._standing = {name for name in known if model.cam(name).bodyid[0] == 0}
        self._renderers: dict[int, Any] = {}
        model.vis.quality.offsamples = 0
        room = model.vis.global_
        room.offwidth, room.offheight = max(size, FILM_EDGE, room.offwidth), max(size, FILM_EDGE, room.offheight)
        if cameras:
            self._renderer(size)
        self.specs = {f"images.{camera}": Spec((size, size, 3), "uint8") for camera in cameras}

    def pictures(self) -> Features:
        """The observed pictures."""
        return {f"images.{camera}": self._picture(camera, self._size) for camera in self._cameras}

    def film(self) -> NDArray[np.uint8]:
        """A picture for videos."""
        return self._picture(self._film, FILM_EDGE)

    def _picture(self, camera: str, size: int) -> NDArray[np.uint8]:
        data, renderer = self._env.data, self._renderer(size)
        shown = mujoco.MjvOption()
        shown.geomgroup[self._hidden] = 0
        renderer.update_scene(data, camera=camera, scene_option=shown)
        picture = np.asarray(renderer.render(), np.uint8)
        upside_down = camera in self._standing and data.cam(camera).xmat[7] < -0.1  # the z of its y axis
        return picture[::-1, ::-1].copy() if upside_down else picture.copy()

    def _renderer(self, size: int) -> Any:
        if size not in self._renderers:
            try:
                made = self._renderers[size] = mujoco.Renderer(self._env.model, size, size)
            except Exception as error:  # each GL back end raises its own types
                got = f"no OpenGL ({error})".splitlines()[0]
                raise BadInput(f"cameras of {self._task}", got=got, expected="EGL or OSMesa") from error
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                made.scene.flags[flag] = 0
        return self._renderers[size]

    def close(self) -> None:
        """Free the contexts."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()


class FilmedEnv(AdapterEnv):
    """An adapter whose pictures are those of its model's cameras."""

    _env: Any
    _cameras: ModelCameras

    def render(self) -> NDArray[np.uint8]:
        """A picture for videos."""
        return self._cameras.film()

    def close(self) -> None:
        """Close the env and its cameras."""
        self._cameras.close()
        self._env.close()
