"""The torques that carry an arm at rest, by MuJoCo's inverse dynamics on its model and what its station mounts on it.

    τ = M(q) q̈ + c(q, q̇) + g(q) − τ_ext

At rest the motors carry g(q) and what the world puts on the arm, so that is g(q) − τ. In motion inertia, Coriolis
forces and friction are in the difference, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from robots.tool import Tool

Array = NDArray[np.float64]


class Gravity:
    """Gravity of one arm. Not thread-safe.

    Args:
      mjcf: its model, with gravity and the masses of its links.
      joints: its n joints.
      flange: origin of the flange in the frame of the last link [m].
      tool: what is mounted on it besides the model's own hand, or None.
    """

    def __init__(
        self, mjcf: Path, joints: Sequence[str], flange: tuple[float, float, float], tool: Tool | None
    ) -> None:
        spec = mujoco.MjSpec.from_file(str(mjcf))
        if tool is not None and tool.mass > 0.0:
            last = next(body for body in spec.bodies if any(joint.name == joints[-1] for joint in body.joints))
            body = last.add_body(name="robolearn_tool", pos=np.array(flange) + np.array(tool.centre))
            body.mass, body.inertia, body.ipos = tool.mass, np.full(3, 1e-6), np.zeros(3)
            body.explicitinertial = True
        self._model = spec.compile()
        self._data = mujoco.MjData(self._model)
        found = [self._model.joint(name) for name in joints]
        self._q, self._v = (np.array([getattr(joint, at)[0] for joint in found]) for at in ("qposadr", "dofadr"))
        self._out = np.zeros(self._model.nv)

    def torques(self, q: ArrayLike) -> Array:
        """(n,) g(q): what the motors have to give to carry the arm at `q` (n,) [rad], in Nm."""
        self._data.qpos[self._q] = q
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_comVel(self._model, self._data)
        mujoco.mj_rne(self._model, self._data, 0, self._out)
        return self._out[self._v].copy()

    def external(self, q: ArrayLike, effort: ArrayLike) -> Array:
        """(n,) torques that the world puts on the arm at rest at `q` (n,) whose motors give `effort` (n,) [Nm]."""
        return self.torques(q) - np.asarray(effort, dtype=np.float64)
