"""The scene of a page: camera, lights and floor, the arm of the robot's own model, and the bodies around it.

One mesh a shape, one frame a body; the arm is moved by its kinematics, the rest by the simulation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import trimesh
import viser
from numpy.typing import NDArray

from robolearn.core.scene import Scene, Shape
from robolearn.core.se3 import quat_to_matrix
from robots.pair import AnyRobot
from robots.shapes import geom_rgba, shape_of, visible_geoms

Array = NDArray[np.float64]
Rgba = tuple[float, float, float, float]

ENDLESS_M = 10.0  # half edge of a plane without an end
_EDGE_RAD = 0.6  # faces that meet at more than this angle keep their edge


def mesh_of(shape: Shape) -> trimesh.Trimesh:
    """The surface of a shape in its own frame [m]."""
    x, y, z = shape.size
    if shape.kind == "mesh":
        return trimesh.Trimesh(shape.vertices, shape.faces)
    if shape.kind == "box":
        return trimesh.creation.box((2 * x, 2 * y, 2 * z))
    if shape.kind == "cylinder":
        return trimesh.creation.cylinder(radius=x, height=2 * y, sections=32)
    if shape.kind == "capsule":
        mesh = trimesh.creation.capsule(height=2 * y, radius=x, count=[24, 12])
        mesh.apply_translation(-mesh.bounds.mean(axis=0))
        return mesh
    if shape.kind == "plane":
        x, y = x or ENDLESS_M, y or ENDLESS_M
        corners = [(-x, -y, 0.0), (x, -y, 0.0), (x, y, 0.0), (-x, y, 0.0)]
        return trimesh.Trimesh(corners, [(0, 1, 2), (0, 2, 3)])
    mesh = trimesh.creation.icosphere(subdivisions=3)
    mesh.apply_scale((x, y, z))
    return mesh


def draw_mesh(server: viser.ViserServer, name: str, mesh: trimesh.Trimesh, rgba: Rgba) -> viser.MeshHandle:
    """Put `mesh` into the scene of a page under `name`."""
    # Without it, shading would round the rims of cylinders and the edges of boxes.
    mesh = trimesh.graph.smooth_shade(mesh, angle=_EDGE_RAD)
    vertices, faces = np.asarray(mesh.vertices, dtype=np.float32), np.asarray(mesh.faces, dtype=np.uint32)
    opacity = rgba[3] if rgba[3] < 1 else None
    return server.scene.add_mesh_simple(name, vertices, faces, color=rgba[:3], opacity=opacity)


ROOT = "/scene"
_MOVED = 1e-5  # of a pose [m, 1]: less is not worth a message


def move(handle: viser.SceneNodeHandle, pose: Array) -> None:
    """Put it at `pose`: (7,) position [m] and quaternion wxyz."""
    if np.abs(np.concatenate([handle.position, handle.wxyz]) - pose).max() > _MOVED:
        handle.position, handle.wxyz = pose[:3], pose[3:]


class SceneView:
    """Draws a scene under `ROOT` and moves it; draws it anew where other shapes come."""

    def __init__(self, server: viser.ViserServer) -> None:
        self._server = server
        self._shapes: tuple[Shape, ...] = ()
        self._nodes: list[viser.MeshHandle] = []

    def show(self, scene: Scene) -> None:
        """Show it as it is now."""
        with self._server.atomic():
            pairs = zip(self._shapes, scene.shapes, strict=False)
            if len(self._shapes) != len(scene.shapes) or not all(a is b or a.same(b) for a, b in pairs):
                self._draw(scene.shapes)
            for node, pose in zip(self._nodes, scene.poses, strict=True):
                move(node, pose)

    def _draw(self, shapes: tuple[Shape, ...]) -> None:
        for node in self._nodes:
            node.remove()
        self._shapes = shapes
        self._nodes = [draw_mesh(self._server, f"{ROOT}/{s.name}", mesh_of(s), s.rgba) for s in shapes]


class ArmView:
    """Draws the arm, or both of two, under ``/arm`` and moves it."""

    def __init__(self, server: viser.ViserServer, robot: AnyRobot) -> None:
        self._server = server
        self.model = robot.model_spec().compile()
        self.data = mujoco.MjData(self.model)
        self._joints = self._addresses(robot.joints)
        grippers = [(part, part.robot.gripper) for part in robot.parts]
        self._fingers = [self._addresses(map(part.named, gripper.joints)) for part, gripper in grippers]
        self._ranges = [gripper.joint_range for _, gripper in grippers]
        self.frames: dict[int, viser.FrameHandle] = {}
        for body in range(self.model.nbody):
            self._draw(body)
        self.move(np.asarray(robot.home), 1.0)

    def _addresses(self, joints: Iterable[str]) -> list[int]:
        return [int(self.model.joint(name).qposadr[0]) for name in joints]

    def move(self, q: Array, opening: float | Array) -> None:
        """Show the arm at joint positions (n,) [rad], its gripper open by 0 … 1; of two arms (2,)."""
        self.data.qpos[self._joints] = q
        shares = np.broadcast_to(opening, len(self._fingers))
        for fingers, (closed, open_), share in zip(self._fingers, self._ranges, shares, strict=True):
            self.data.qpos[fingers] = closed + share * (open_ - closed)
        mujoco.mj_kinematics(self.model, self.data)
        with self._server.atomic():
            for body, frame in self.frames.items():
                move(frame, np.concatenate([self.data.xpos[body], self.data.xquat[body]]))

    def _draw(self, body: int) -> None:
        parts: dict[Rgba, list[trimesh.Trimesh]] = {}
        for geom in visible_geoms(self.model, [body]):
            parts.setdefault(geom_rgba(self.model, geom), []).append(geom_mesh(self.model, geom))
        if not parts:
            return
        name = f"/arm/{self.model.body(body).name or body}"
        self.frames[body] = self._server.scene.add_frame(name, show_axes=False)
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


@dataclass(frozen=True)
class Viewpoint:
    """First pose of the page's camera, and sizes of the scene.

    Attributes:
      size: of the arm: distance of the tcp from the base at home [m]; of two arms of the farther one from the station.
      position, look_at: [m]; the camera's up is z.
      fov: from bottom to top [rad].
      gizmo: length of the target's arrows [m].
    """

    size: float
    position: tuple[float, float, float]
    look_at: tuple[float, float, float]
    fov: float
    gizmo: float

    @staticmethod
    def of(robot: AnyRobot, aspect: float = 1.6, *, high: bool = False) -> Viewpoint:
        """The one for this arm in a window of so many times its height in width; further off in a narrow one.

        Args:
          high: the panel is; a phone's covers the lower part of the window, up to the middle with it.
        """
        size = float(np.linalg.norm(robot.forward(np.array([robot.home]))[0], axis=-1).max())
        narrow, lower = (1.3, 0.75) if high else (0.65, 0.6)
        far = size * max(1.0, narrow / max(aspect, 0.2))
        x, y, z = 0.6 * size, 0.0, 0.5 * size - lower * (far - size)
        return Viewpoint(size, (x + 1.6 * far, y - 2.2 * far, z + 1.0 * far), (x, y, z), 0.75, 0.3 * far)


class Stage:
    """The arm, and what a simulation says is around it."""

    def __init__(self, server: viser.ViserServer, robot: AnyRobot) -> None:
        self.view = Viewpoint.of(robot)
        self._most = np.array([part.robot.gripper.max_width for part in robot.parts])
        self.arm, self._around = ArmView(server, robot), SceneView(server)
        size, camera = self.view.size, server.initial_camera
        camera.look_at, camera.position, camera.fov = self.view.look_at, self.view.position, self.view.fov
        # Lights of our own: viser's picture of a surrounding takes phones and software renderers seconds to prepare.
        server.scene.configure_environment_map(None)
        server.scene.configure_default_lights(False)
        white, ground, upright = (255, 255, 255), (170, 165, 160), (0.7071, 0.7071, 0, 0)
        server.scene.add_light_hemisphere("/sky", sky_color=white, ground_color=ground, intensity=1.7, wxyz=upright)
        sun = 0.3 * size, -1.2 * size, 2.5 * size
        server.scene.add_light_directional("/sun", intensity=2.2, cast_shadow=True, position=sun)
        self._floor = server.scene.add_grid("/floor", width=4 * size, height=4 * size, cell_size=0.1, section_size=0.5)

    def show(self, joints: Array, opening: float | Array, scene: Scene | None, *, otherwise: float = 1.0) -> None:
        """Show it as it is now.

        Args:
          joints: (n,) joint positions [rad].
          opening: of the gripper [m], of two arms (2,).
          scene: what is around; None: nothing is known.
          otherwise: share of the gripper's opening where `opening` is NaN.
        """
        known = (np.asarray(opening) >= 0) & (self._most > 0)
        shares = np.divide(opening, self._most, out=np.full(len(self._most), otherwise), where=known)
        self.arm.move(np.asarray(joints, np.float64), shares)
        if scene is not None:
            self._floor.visible = False  # the task has one of its own
            self._around.show(scene)
