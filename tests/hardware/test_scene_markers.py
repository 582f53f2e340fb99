"""Scenes as markers: what is sent is what is read, and what RViz's own rules say of it."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import trimesh
from visualization_msgs.msg import Marker, MarkerArray

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages
from hardware.ros2.scene import SceneMarkers, read_scene
from robolearn.core import BadInput
from robolearn.core.scene import Scene, Shape
from robots.stations.values import TYPES

TURN = np.array([np.cos(0.4), np.sin(0.4), 0.0, 0.0])  # 0.8 rad about x
CORNERS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
FACES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]], np.uint32)
SHAPES = (
    Shape("world/0", "plane", (2.0, 0.0, 0.1), (0.5, 0.5, 0.5, 1.0)),
    Shape("cube/0", "box", (0.1, 0.2, 0.3), (1.0, 0.0, 0.0, 1.0)),
    Shape("ball/0", "ellipsoid", (0.1, 0.1, 0.1), (0.0, 1.0, 0.0, 0.5)),
    Shape("can/0", "cylinder", (0.1, 0.3, 0.0), (0.0, 0.0, 1.0, 1.0)),
    Shape("peg/0", "capsule", (0.1, 0.3, 0.0), (0.25, 0.5, 0.75, 1.0)),
    Shape("part/0", "mesh", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0), CORNERS, FACES),
)


def scene(offset: float = 0.0) -> Scene:
    poses = np.zeros((len(SHAPES), 7))
    poses[:, 0], poses[:, 2], poses[:, 3:] = np.arange(len(SHAPES)), offset, TURN
    return Scene(SHAPES, poses)


def test_markers_have_the_extents_of_the_shapes() -> None:
    sent = SceneMarkers("base").message(scene(), 3.0)
    assert sent is not None
    markers = {marker.ns: marker for marker in sent.markers}
    assert len({marker.id for marker in sent.markers}) == len(sent.markers)
    assert all(m.action == Marker.ADD and m.header.frame_id == "base" for m in sent.markers)
    assert all(messages.seconds(m.header.stamp) == 3.0 for m in sent.markers)

    def extents(name: str) -> list[float]:
        s = markers[name].scale
        return [s.x, s.y, s.z]

    # RViz scales a unit box, ball and cylinder by these.
    assert extents("cube/0") == pytest.approx([0.2, 0.4, 0.6]) and markers["cube/0"].type == Marker.CUBE
    assert extents("ball/0") == pytest.approx([0.2] * 3) and markers["ball/0"].type == Marker.SPHERE
    assert extents("can/0") == pytest.approx([0.2, 0.2, 0.6]) and markers["can/0"].type == Marker.CYLINDER
    assert extents("world/0")[:2] == pytest.approx([4.0, 20.0])
    c = markers["ball/0"].color
    assert (c.r, c.g, c.b, c.a) == (0.0, 1.0, 0.0, 0.5)
    # The caps of a capsule lie along its own z, which is turned about x: z' = (0, −sin, cos).
    for name, way in (("peg/0.top", 1), ("peg/0.bottom", -1)):
        p = markers[name].pose.position
        assert [p.x, p.y, p.z] == pytest.approx([4, -way * 0.3 * np.sin(0.8), way * 0.3 * np.cos(0.8)])
    assert extents("peg/0.top") == pytest.approx([0.2] * 3)
    # The file in the message is an STL that another library reads.
    stl = bytes(markers["part/0"].mesh_file.data)
    assert struct.unpack("<I", stl[80:84]) == (4,)
    with trimesh.util.BytesIO(stl) as file:
        mesh = trimesh.load(file, file_type="stl")
    assert mesh.volume == pytest.approx(1 / 6) and markers["part/0"].scale.x == 1.0  # type: ignore[union-attr]


def test_what_is_read_is_what_was_sent() -> None:
    markers = SceneMarkers("base")
    sent = markers.message(scene(), 3.0)
    read = read_scene(sent)  # type: ignore[arg-type]
    assert read is not None
    for shape in SHAPES[1:4]:
        there = next(s for s in read.shapes if s.name == shape.name)
        assert there.kind == shape.kind and there.size[:2] == pytest.approx(shape.size[:2])
        assert there.rgba == pytest.approx(shape.rgba)
        assert read.pose(shape.name) == pytest.approx(scene().pose(shape.name))
    part = read.shapes[-1]
    triangles = {tuple(sorted(map(tuple, corners))) for corners in part.vertices[part.faces].tolist()}
    assert triangles == {tuple(sorted(map(tuple, corners))) for corners in CORNERS[FACES].tolist()}

    assert markers.message(scene(), 4.0) is None, "nothing moved"
    for step in range(1, 4):  # 0.4 of what is worth a message each: slow motion adds up
        moved = markers.message(scene(4e-6 * step), 5.0)
        assert (moved is not None) == (step == 3)
    assert read_scene(moved).pose("cube/0")[2] == pytest.approx(1.2e-5)  # type: ignore[union-attr, arg-type]


def test_slow_motion_beside_a_fast_one_adds_up() -> None:
    markers, now = SceneMarkers("base"), scene()
    for step in range(4):
        poses = now.poses.copy()
        poses[1, 2], poses[2, 2] = 4e-6 * step, 1.0 * step
        sent = markers.message(Scene(SHAPES, poses), 3.0)
        assert sent is not None
    assert read_scene(sent).pose("cube/0")[2] == pytest.approx(1.2e-5)  # type: ignore[union-attr]


def test_nonsense_is_not_drawn() -> None:
    def marker(**fields: object) -> Marker:
        made = Marker(ns="thing", type=Marker.CUBE)
        made.pose.orientation.w = 1.0
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    assert read_scene(MarkerArray(markers=[marker()])) is not None
    bad = marker()
    bad.pose.position.x = float("nan")
    assert read_scene(MarkerArray(markers=[bad])) is None
    bad = marker()
    bad.pose.orientation.w = 0.0
    assert read_scene(MarkerArray(markers=[bad])) is None
    for data in (b"", b"x" * 83, b"x" * 90):
        broken = marker(type=Marker.MESH_RESOURCE)
        broken.mesh_file.data = data
        assert len(read_scene(MarkerArray(markers=[broken])).shapes) == 0  # type: ignore[union-attr]
    assert len(read_scene(MarkerArray(markers=[marker(type=Marker.ARROW)])).shapes) == 0  # type: ignore[union-attr]


def test_no_contract_can_make_an_observation_of_it() -> None:
    with pytest.raises(BadInput):
        messages.message_type("visualization_msgs/msg/MarkerArray")


def test_whatever_type_a_contract_may_state_is_there() -> None:
    for role, types in TYPES.items():
        for name in types if role != "gripper.action" else ():
            assert messages.message_type(name).__name__ == name.rpartition("/")[2]
