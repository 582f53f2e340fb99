"""One OpenGL context that draws states of a model, for one thread.

What a picture of a world costs on a software renderer is its triangles and samples, not its pixels: of a policy's
pictures nothing is seen of either, so they are drawn without multisampling, without shadows and from coarse shapes, at
about six times the rate of MuJoCo's own settings. Pictures for people's eyes have all three.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from sim.embedded.visual_randomisation import Appearance

COARSE = {"offsamples": 0, "numslices": 10, "numstacks": 6, "numquads": 2}  # of `mujoco.MjModel.vis.quality`
_DISABLED = ("disable", "disabled", "off", "false", "0")  # values of MUJOCO_GL for no back end at all
# Mesa's llvmpipe shares what it allocates among all contexts of a process, without a lock that holds (22.3: eight
# threads that draw end in a segmentation fault within a minute). It draws each picture with all cores by itself.
_gl = threading.Lock()


class RenderContext:
    """Draws in the thread that made it.

    Args:
      size: height, width [px].
      fine: for people: multisampling, shadows, round shapes.

    Raises:
      BadInput: there is no OpenGL.
    """

    def __init__(self, model: mujoco.MjModel, size: tuple[int, int], *, fine: bool) -> None:
        self._model = copy.copy(model)  # its colours, lights and cameras change from world to world
        self._appearance: Appearance | None = None
        self._renderer = _renderer(self._model, size, COARSE if not fine else {})
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = fine

    def place(self, data: mujoco.MjData, appearance: Appearance | None = None) -> None:
        """Compute where bodies, cameras and lights of `data` are, from its positions alone."""
        if appearance is not None and appearance is not self._appearance:
            appearance.apply_to(self._model)
            self._appearance = appearance
        mujoco.mj_kinematics(self._model, data)
        mujoco.mj_comPos(self._model, data)
        mujoco.mj_camlight(self._model, data)

    def draw(self, data: mujoco.MjData, camera: str, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """(H, W, 3) picture of the placed state `data`, into `out` if that is given."""
        self._renderer.update_scene(data, camera=camera)
        if self._appearance is not None:
            self._appearance.add_distractors(self._renderer.scene)
        with _gl:
            picture = self._renderer.render(out=out)
        if self._appearance is not None:
            self._appearance.expose_and_blur(picture)
        return picture

    def close(self) -> None:
        """Free the context, in the thread that made it."""
        with _gl:
            self._renderer.close()


def _renderer(model: mujoco.MjModel, size: tuple[int, int], quality: dict[str, int]) -> Any:
    # A buffer of the picture's size: what is not read costs a tenth of the time to clear.
    buffer = {"offheight": size[0], "offwidth": size[1]}
    with _gl, _set(model.vis.quality, quality), _set(model.vis.global_, buffer):
        try:
            if _windows_without_display():
                raise RuntimeError("windows need a display")
            return mujoco.Renderer(model, *size)
        except Exception as error:  # each GL back end raises its own types
            raise BadInput(
                "cameras",
                got=f"no OpenGL ({error})".splitlines()[0],
                expected="EGL, OSMesa or a display",
                hint="Install libegl1 and libgl1-mesa-dri (and set MUJOCO_GL=egl where mujoco is imported before "
                "robolearn), or leave the cameras out",
            ) from error


@contextlib.contextmanager
def _set(part: Any, values: dict[str, int]) -> Iterator[None]:
    """Attributes of `part` while a context is made of them."""
    usual = {name: getattr(part, name) for name in values}
    try:
        for name, value in values.items():
            setattr(part, name, value)
        yield
    finally:
        for name, value in usual.items():
            setattr(part, name, value)


def _windows_without_display() -> bool:
    """MuJoCo would open a GLFW window where there is no display: that does not raise but abort the process."""
    back_end = os.environ.get("MUJOCO_GL", "").lower().strip()
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform == "linux" and not display and back_end not in ("egl", "osmesa", *_DISABLED)
