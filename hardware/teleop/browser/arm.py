"""The 3-D arm of a page: the geoms of the robot's own model as meshes, one frame a body, moved by its kinematics."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import trimesh
import viser
from numpy.typing import NDArray

from hardware.teleop.browser.meshes import Rgba, draw_mesh, mesh_of
from robolearn.core.se3 import quat_to_matrix
from robots import RobotSpec
from robots.geoms import geom_rgba, shape_of, visible_geoms

Array = NDArray[np.float64]

_MOVED = 1e-5  # of a pose [m, 1]: less is not worth a message


class ArmView:
    """Draws the arm under ``/arm`` and moves it.

    Args:
      server: the page.
      robot: the arm.
    """

    def __init__(self, server: viser.ViserServer, robot: RobotSpec) -> None:
        self._server = server
        self._robot = robot
        self._model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
        self._data = mujoco.MjData(self._model)
        self._joints = [int(self._model.joint(name).qposadr[0]) for name in robot.joints]
        self._fingers = [int(self._model.joint(name).qposadr[0]) for name in robot.gripper.joints]
        self._frames: dict[int, viser.FrameHandle] = {}
        self._drawn: dict[int, Array] = {}
        for body in range(self._model.nbody):
            self._draw(body)
        self.move(np.asarray(robot.home), 1.0)

    def move(self, q: Array, opening: float) -> None:
        """Show the arm at joint positions (n,) [rad], its gripper open by 0 … 1."""
        closed, open_ = self._robot.gripper.joint_range
        self._data.qpos[self._joints] = q
        self._data.qpos[self._fingers] = closed + opening * (open_ - closed)
        mujoco.mj_kinematics(self._model, self._data)
        with self._server.atomic():
            for body, frame in self._frames.items():
                pose = np.concatenate([self._data.xpos[body], self._data.xquat[body]])
                if body in self._drawn and np.abs(pose - self._drawn[body]).max() < _MOVED:
                    continue
                self._drawn[body] = pose
                frame.position, frame.wxyz = pose[:3], pose[3:]

    def pose(self, body: str) -> tuple[Array, Array]:
        """Where a body is drawn: (3,) [m] and (4,) wxyz."""
        i = self._model.body(body).id
        return self._data.xpos[i].copy(), self._data.xquat[i].copy()

    def _draw(self, body: int) -> None:
        parts: dict[Rgba, list[trimesh.Trimesh]] = {}
        for geom in visible_geoms(self._model, [body]):
            parts.setdefault(geom_rgba(self._model, geom), []).append(geom_mesh(self._model, geom))
        if not parts:
            return
        name = f"/arm/{self._model.body(body).name or body}"
        self._frames[body] = self._server.scene.add_frame(name, show_axes=False)
        for i, (rgba, meshes) in enumerate(parts.items()):
            whole: Any = trimesh.util.concatenate(meshes)
            draw_mesh(self._server, f"{name}/{i}", whole, rgba)


def geom_mesh(model: mujoco.MjModel, geom: int) -> trimesh.Trimesh:
    """The surface of a visible geom in its body's frame [m]."""
    mesh = mesh_of(shape_of(model, geom))
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = quat_to_matrix(model.geom_quat[geom]), model.geom_pos[geom]
    mesh.apply_transform(pose)
    return mesh
