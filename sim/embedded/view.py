"""Shapes of a world besides the arm, at their poses in a state, for a page."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.scene import Scene
from robots import RobotSpec
from robots.geoms import shape_of, visible_geoms


class TaskView:
    """The shapes of a model that are not the arm's.

    Args:
      model: of the world.
      robot: the arm in it, which a page draws by itself.
    """

    def __init__(self, model: mujoco.MjModel, robot: RobotSpec) -> None:
        own = mujoco.MjModel.from_xml_path(str(robot.mjcf))
        arm = {own.body(i).name for i in range(1, own.nbody)}
        self._model, self._data = model, mujoco.MjData(model)
        self._geoms = visible_geoms(model, (i for i in range(model.nbody) if model.body(i).name not in arm))
        self._shapes = tuple(shape_of(model, geom) for geom in self._geoms)

    @property
    def geoms(self) -> dict[str, int]:
        """Name of a shape → its geom in the model."""
        return {shape.name: int(geom) for shape, geom in zip(self._shapes, self._geoms, strict=True)}

    def scene(self, qpos: NDArray, mocap_pos: NDArray, mocap_quat: NDArray) -> Scene:
        """The scene in this state: (nq,), (nmocap, 3) [m], (nmocap, 4) wxyz."""
        self._data.qpos, self._data.mocap_pos, self._data.mocap_quat = qpos, mocap_pos, mocap_quat
        mujoco.mj_kinematics(self._model, self._data)
        poses = np.empty((len(self._geoms), 7))
        poses[:, :3] = self._data.geom_xpos[self._geoms]
        for row, geom in zip(poses, self._geoms, strict=True):
            mujoco.mju_mat2Quat(row[3:], self._data.geom_xmat[geom])
        return Scene(self._shapes, poses)
