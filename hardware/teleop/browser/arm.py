"""The 3-D arm of a page: the geoms of the robot's own model as meshes, one frame a body, moved by its kinematics."""

from __future__ import annotations

import mujoco
import numpy as np
import trimesh
import viser
from numpy.typing import NDArray

from robots import RobotSpec

Array = NDArray[np.float64]

_EDGE_RAD = 0.6  # faces that meet at more than this angle keep their edge
_HIDDEN_GROUP = 3  # MuJoCo's viewers hide geoms from this group on
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
        first, count = int(self._model.body_geomadr[body]), int(self._model.body_geomnum[body])
        parts: dict[tuple[float, ...], list[trimesh.Trimesh]] = {}
        for geom in range(first, first + count):
            mesh = geom_mesh(self._model, geom)
            rgba = tuple(float(c) for c in self._model.geom_rgba[geom])
            if mesh is not None and rgba[3] > 0 and self._model.geom_group[geom] < _HIDDEN_GROUP:
                parts.setdefault(rgba, []).append(mesh)
        if not parts:
            return
        name = f"/arm/{self._model.body(body).name or body}"
        self._frames[body] = self._server.scene.add_frame(name, show_axes=False)
        for i, (rgba, meshes) in enumerate(parts.items()):
            # Without it, shading would round the rims of cylinders and the edges of boxes.
            mesh = trimesh.graph.smooth_shade(trimesh.util.concatenate(meshes), angle=_EDGE_RAD)
            self._server.scene.add_mesh_simple(
                f"{name}/{i}",
                np.asarray(mesh.vertices, dtype=np.float32),
                np.asarray(mesh.faces, dtype=np.uint32),
                color=(rgba[0], rgba[1], rgba[2]),
                opacity=rgba[3] if rgba[3] < 1 else None,
            )


def geom_mesh(model: mujoco.MjModel, geom: int) -> trimesh.Trimesh | None:
    """The surface of a geom in its body's frame [m], or None for one without any that could be drawn (a plane)."""
    size = model.geom_size[geom]
    kind = mujoco.mjtGeom(int(model.geom_type[geom]))
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        mesh = trimesh.creation.box(2 * size)
    elif kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        # MuJoCo measures the cylindrical part by its half, from the middle.
        mesh = trimesh.creation.capsule(height=2 * size[1], radius=size[0], count=[24, 12])
        mesh.apply_translation(-mesh.bounds.mean(axis=0))
    elif kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        mesh = trimesh.creation.cylinder(radius=size[0], height=2 * size[1], sections=32)
    elif kind in (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_ELLIPSOID):
        mesh = trimesh.creation.icosphere(subdivisions=3)
        mesh.apply_scale(size if kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID else size[0])
    elif kind == mujoco.mjtGeom.mjGEOM_MESH:
        i = int(model.geom_dataid[geom])
        vertices = slice(int(model.mesh_vertadr[i]), int(model.mesh_vertadr[i] + model.mesh_vertnum[i]))
        faces = slice(int(model.mesh_faceadr[i]), int(model.mesh_faceadr[i] + model.mesh_facenum[i]))
        mesh = trimesh.Trimesh(model.mesh_vert[vertices], model.mesh_face[faces])
    else:
        return None
    pose = np.eye(4)
    mujoco.mju_quat2Mat(matrix := np.empty(9), model.geom_quat[geom])
    pose[:3, :3], pose[:3, 3] = matrix.reshape(3, 3), model.geom_pos[geom]
    mesh.apply_transform(pose)
    return mesh
