"""Geoms as shapes, against what the MJCF says."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from robolearn.core.scene import KINDS
from robots.shapes import shape_of, visible_geoms

MODEL = mujoco.MjModel.from_xml_string(
    """<mujoco><asset><material name="paint" rgba=".1 .2 .3 .4"/>
    <mesh name="m" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset><worldbody>
    <geom type="plane" size="2 3 .1"/><geom type="sphere" size=".3" group="3"/>
    <body name="thing"><geom type="box" size=".1 .2 .3" rgba="1 0 0 1"/><geom type="sphere" size=".3" material="paint"/>
    <geom type="capsule" size=".1 .2" material="paint" rgba="0 1 0 1"/><geom type="cylinder" size=".1 .2"/>
    <geom type="ellipsoid" size=".1 .2 .3"/><geom type="mesh" mesh="m"/><geom type="box" size="1 1 1" rgba="1 1 1 0"/>
    </body></worldbody></mujoco>"""
)


def test_every_kind_of_geom_that_is_seen_is_a_shape() -> None:
    shapes = [shape_of(MODEL, geom) for geom in visible_geoms(MODEL, range(MODEL.nbody))]
    assert [(s.name, s.kind) for s in shapes] == [
        ("world/0", "plane"), ("thing/0", "box"), ("thing/1", "ellipsoid"), ("thing/2", "capsule"),
        ("thing/3", "cylinder"), ("thing/4", "ellipsoid"), ("thing/5", "mesh"),
    ]  # fmt: skip
    assert {s.kind for s in shapes} == set(KINDS)
    sizes = [(2, 3), (0.1, 0.2, 0.3), (0.3, 0.3, 0.3), (0.1, 0.2), (0.1, 0.2), (0.1, 0.2, 0.3)]
    for shape, size in zip(shapes, sizes, strict=False):
        assert shape.size[: len(size)] == pytest.approx(size)
    colours = [(0.5, 0.5, 0.5, 1), (1, 0, 0, 1), (0.1, 0.2, 0.3, 0.4), (0, 1, 0, 1)]
    for shape, rgba in zip(shapes, colours, strict=False):
        assert shape.rgba == pytest.approx(rgba)
    assert shapes[-1].vertices.shape == (4, 3) and shapes[-1].faces.shape == (4, 3)


def test_shapes_that_look_alike_are_the_same() -> None:
    mesh, again, box = shape_of(MODEL, 7), shape_of(MODEL, 7), shape_of(MODEL, 2)
    assert mesh.same(again) and not mesh.same(box)
    again.vertices[0] += np.float32(0.1)
    assert not mesh.same(again)
