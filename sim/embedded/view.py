"""A world for people: its shapes besides the arm, for a page, and pictures of one that runs elsewhere."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.scene import Scene
from robots import RobotSpec
from robots.shapes import shape_of, visible_geoms
from sim.embedded.camera import FRAME_SIZE
from sim.embedded.painter import RenderContext
from sim.embedded.scene import build_model
from sim.embedded.task import Array, Task


class TaskView:
    """The shapes of a model that are not the arm's. `robot`: the arm in it, which a page draws by itself."""

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


class SceneFilm:
    """Draws `FRAME_SIZE` pictures from the front camera, in the thread that made it. Raises `BadInput`: there is no
    OpenGL."""

    def __init__(self, robot: RobotSpec, task: Task) -> None:
        self._gripper = robot.gripper
        self._model = model = build_model(robot, task)
        self._data = mujoco.MjData(model)
        self._joints = [int(model.joint(name).qposadr[0]) for name in robot.joints]
        self._fingers = [int(model.joint(name).qposadr[0]) for name in robot.gripper.joints]
        self._geoms = TaskView(model, robot).geoms
        self._context = RenderContext(model, FRAME_SIZE, fine=True)

    def frame(self, q: Array, width: float, scene: Scene) -> NDArray[np.uint8]:
        """`FRAME_SIZE` + (3,) picture.

        Args:
          q: (n,) joint positions [rad].
          width: opening of the gripper [m]; NaN: not known, drawn open.
          scene: of `TaskView`, of the same task; shapes that it lacks stay where they are.
        """
        closed, opened = self._gripper.joint_range
        most = self._gripper.max_width
        share = min(max(width / most, 0.0), 1.0) if width == width and most > 0 else 1.0
        self._data.qpos[self._joints] = q
        self._data.qpos[self._fingers] = closed + share * (opened - closed)
        self._context.place(self._data)
        matrix = np.empty(9)
        for shape, pose in zip(scene.shapes, scene.poses, strict=True):
            geom = self._geoms.get(shape.name)
            if geom is None:  # a part of one: some messages know no capsules
                continue
            mujoco.mju_quat2Mat(matrix, pose[3:])
            self._data.geom_xpos[geom], self._data.geom_xmat[geom] = pose[:3], matrix
        return self._context.draw(self._data, "front").copy()

    def close(self) -> None:
        """Free the GL context."""
        self._context.close()
