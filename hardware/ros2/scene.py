"""The scene of a simulation as `visualization_msgs/MarkerArray`, which RViz shows too: for people's eyes alone.

Each message is whole and the newest is kept (latched), so that whoever comes late, or lost one, sees everything. A
policy cannot receive it: no role of a contract has this type (`robots.stations.values`).

A capsule is a cylinder and two balls, an endless plane one of 20 m, a mesh a binary STL inside of its message.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from geometry_msgs.msg import Point, Pose, Quaternion, Vector3
from numpy.typing import NDArray
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from hardware.ros2 import messages
from robolearn.core.scene import Scene, Shape
from robolearn.core.se3 import quat_to_matrix

log = logging.getLogger(__name__)

MOST = 1000  # shapes of a message that are drawn
ENDLESS_M = 10.0  # half edge of a plane without an end
FLAT_M = 1e-3  # thickness of a plane, below its surface: RViz draws nothing that has none
MOVED = 1e-5  # of a pose [m, 1]: less is not worth a message

_STL = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
_STL_HEADER = 80
_KINDS = {Marker.CUBE: "box", Marker.SPHERE: "ellipsoid", Marker.CYLINDER: "cylinder", Marker.MESH_RESOURCE: "mesh"}

_Part = tuple[int, Marker, NDArray[np.float64]]  # shape, marker, (3,) where it is in the frame of its shape


class SceneMarkers:
    """Messages of one scene, made anew only where it changes, in `frame`, the arm's base frame."""

    def __init__(self, frame: str) -> None:
        self._frame = frame
        self._shapes: tuple[Shape, ...] = ()
        self._parts: list[_Part] = []
        self._poses: NDArray[np.float64] = np.zeros((0, 7))
        self._message: MarkerArray | None = None

    def message(self, scene: Scene, stamp: float) -> MarkerArray | None:
        """The message of `scene`; None while it is as it was."""
        if scene.shapes is not self._shapes or self._message is None:
            self._shapes, self._poses = scene.shapes, np.full_like(scene.poses, np.inf)
            self._parts = [(i, *part) for i, shape in enumerate(scene.shapes) for part in _parts(shape)]
            for number, (_, marker, _) in enumerate(self._parts):
                marker.id, marker.header.frame_id = number, self._frame
            self._message = MarkerArray(markers=[marker for _, marker, _ in self._parts])
        moved: NDArray[np.bool_] = np.any(np.abs(scene.poses - self._poses) > MOVED, axis=1)
        if not moved.any():
            return None
        at = messages.to_stamp(stamp)
        for i, marker, offset in self._parts:
            marker.header.stamp = at
            if moved[i]:
                pose = scene.poses[i]
                x, y, z = (float(v) for v in pose[:3] + quat_to_matrix(pose[3:]) @ offset)
                w, i_, j, k = (float(v) for v in pose[3:])
                marker.pose = Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(w=w, x=i_, y=j, z=k))
        self._poses[moved] = scene.poses[moved]
        return self._message


def read_scene(message: MarkerArray) -> Scene | None:
    """The scene of a message; None, and a line in the log, where it makes no sense."""
    shapes: list[Shape] = []
    poses: list[list[float]] = []
    for marker in list(message.markers)[:MOST]:
        p, o, s, c = marker.pose.position, marker.pose.orientation, marker.scale, marker.color
        pose = [p.x, p.y, p.z, o.w, o.x, o.y, o.z]
        size = np.array([s.x, s.y, s.z])
        if not (np.isfinite(pose).all() and abs(np.linalg.norm(pose[3:]) - 1.0) < 1e-3 and np.isfinite(size).all()):
            log.warning("a scene is not shown: marker %s has no pose or size", marker.ns)
            return None
        kind = _KINDS.get(marker.type)
        if kind is None:
            log.debug("marker %s of type %s is not shown", marker.ns, marker.type)
            continue
        x, y, z = (float(v) for v in 0.5 * size)
        half = (x, z, 0.0) if kind == "cylinder" else (x, y, z)
        rgba = (float(c.r), float(c.g), float(c.b), float(c.a))
        if kind == "mesh":
            vertices, faces = _from_stl(marker.mesh_file.data)
            if not len(faces):
                continue
            shapes.append(Shape(marker.ns, kind, half, rgba, vertices, faces))
        else:
            shapes.append(Shape(marker.ns, kind, half, rgba))
        poses.append(pose)
    return Scene(tuple(shapes), np.array(poses, dtype=np.float64).reshape(-1, 7))


def _parts(shape: Shape) -> list[tuple[Marker, NDArray[np.float64]]]:
    x, y, z = (float(v) for v in shape.size)
    if shape.kind == "cylinder":
        return [_marker(shape, Marker.CYLINDER, (x, x, y))]
    if shape.kind == "capsule":
        return [
            _marker(shape, Marker.CYLINDER, (x, x, y)),
            _marker(shape, Marker.SPHERE, (x, x, x), part=".top", z=y),
            _marker(shape, Marker.SPHERE, (x, x, x), part=".bottom", z=-y),
        ]
    if shape.kind == "plane":
        half = (x or ENDLESS_M, y or ENDLESS_M, 0.5 * FLAT_M)
        return [_marker(shape, Marker.CUBE, half, z=-0.5 * FLAT_M)]
    if shape.kind == "mesh":
        made, offset = _marker(shape, Marker.MESH_RESOURCE, (0.5, 0.5, 0.5))
        made.mesh_file.filename = f"{shape.name.replace('/', '-')}.stl"
        made.mesh_file.data = _to_stl(shape)
        made.mesh_resource = f"embedded://{made.mesh_file.filename}"
        return [(made, offset)]
    return [_marker(shape, Marker.SPHERE if shape.kind == "ellipsoid" else Marker.CUBE, (x, y, z))]


def _marker(
    shape: Shape, kind: int, half: tuple[float, float, float], *, part: str = "", z: float = 0.0
) -> tuple[Marker, NDArray[np.float64]]:
    r, g, b, a = (float(v) for v in shape.rgba)
    made = Marker(ns=shape.name + part, type=kind, action=Marker.ADD, frame_locked=True)
    made.scale = Vector3(x=2 * half[0], y=2 * half[1], z=2 * half[2])
    made.color = ColorRGBA(r=r, g=g, b=b, a=a)
    return made, np.array([0.0, 0.0, z])


def _to_stl(shape: Shape) -> bytes:
    triangles = np.zeros(len(shape.faces), _STL)
    triangles["corners"] = shape.vertices[shape.faces]
    return bytes(_STL_HEADER) + np.uint32(len(triangles)).tobytes() + triangles.tobytes()


def _from_stl(data: Any) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
    content = bytes(data)
    start = _STL_HEADER + 4
    whole = (len(content) - start) // _STL.itemsize
    corners = np.frombuffer(content, _STL, max(whole, 0), start)["corners"].reshape(-1, 3) if whole > 0 else []
    vertices, faces = np.unique(np.asarray(corners, np.float32).reshape(-1, 3), axis=0, return_inverse=True)
    return vertices, faces.reshape(-1, 3).astype(np.uint32)
