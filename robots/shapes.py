"""Collision shapes of an arm: rounded convex pieces, read from the geoms of its MJCF.

A piece is the convex hull of a few points, grown by a radius. Every geom lies within its piece:

    sphere, capsule   exactly: one point or two
    box               its corners, moved in by m on every side and grown by √3 m
    cylinder          two twelve-sided disks, moved in by m and grown by √2 m
    mesh              the polytope of 26 planes that touch it, along its axes and the diagonals between them
    ellipsoid         the box around it

All geoms count, those without collisions too: they are what the arm looks like. Joints that are not of the chain
(fingers, a jaw) may stand anywhere in their range, so their geoms are swept over it: where the gripper is, is known
only from its driver. What a slide sweeps is the hull of its two ends, exactly; what a hinge sweeps is up to m larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.core.scene import Shape

Array = NDArray[np.float64]

ROUNDING = 0.002  # [m] m above
SIDES = 12  # of a cylinder's disks
FLAT, SAME = 5e-4, 2e-4  # [m] a mesh is made thicker by the first; corners nearer than the second are one
_HINGE, _SLIDE = int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)
SWEEP = 9  # positions of a finger or jaw over its range


@dataclass(frozen=True, eq=False)
class Piece:
    """A rounded convex body on a link."""

    body: str  # the name of its body in the MJCF
    link: int  # number of joints of the chain below it: 0 is the base, n the last link
    # pieces that joints outside the chain move against each other have different ones; a link's own is `link`
    group: int
    points: Array  # (m, 3) in the frame of the link [m]
    radius: float  # [m]
    arm: int = 0  # number of the arm that it belongs to


def read_pieces(path: Path, joints: tuple[str, ...]) -> tuple[Piece, ...]:
    """The pieces of an arm. `joints`: the joints of the chain, base to tip. Raises `BadInput`: a geom is a height
    field, or hangs on a joint outside the chain that has no range or is not alone."""
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    data.qpos[:] = 0.0
    links = {int(model.joint(name).bodyid[0]): i + 1 for i, name in enumerate(joints)}
    pieces = []
    for geom in range(model.ngeom):
        kind = int(model.geom_type[geom])
        if kind == mujoco.mjtGeom.mjGEOM_PLANE:
            continue  # a floor: obstacles are the station's
        points, radius = _rounded(model, geom, kind, path.name)
        body = int(model.geom_bodyid[geom])
        name, extra = model.body(body).name, []
        while body not in links and body != 0:
            start, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
            extra += range(start, start + count)
            body = int(model.body_parentid[body])
        if extra:
            points, radius = _swept(model, data, geom, body, extra, points, radius, path.name)
        else:
            points = _in_link(model, data, geom, body, points)
        link = links.get(body, 0)
        group = link if not extra else len(joints) + 1 + extra[0]
        pieces.append(Piece(name, link, group, points, radius))
    return tuple(pieces)


def box_piece(name: str, link: int, half: Array, pos: Array, rot: Array) -> Piece:
    """A box with half sizes (3,), its centre (3,) [m] and orientation (3, 3) in the frame of a link."""
    corners, radius = _box(half)
    return Piece(name, link, link, corners @ rot.T + pos, radius)


def _rounded(model: mujoco.MjModel, geom: int, kind: int, file: str) -> tuple[Array, float]:
    """Points in the frame of the geom, and the radius."""
    size = model.geom_size[geom]
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        return np.zeros((1, 3)), float(size[0])
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        return np.array([[0.0, 0.0, -size[1]], [0.0, 0.0, size[1]]]), float(size[0])
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        m = min(ROUNDING, 0.5 * float(size[:2].min()))
        angles = np.arange(SIDES) * 2.0 * math.pi / SIDES
        disk = (size[0] - m) / math.cos(math.pi / SIDES) * np.stack([np.cos(angles), np.sin(angles)], 1)
        ends = [np.column_stack([disk, np.full(SIDES, z)]) for z in (m - size[1], size[1] - m)]
        return np.concatenate(ends), math.sqrt(2.0) * m
    if kind == mujoco.mjtGeom.mjGEOM_HFIELD:
        raise BadInput(f"geom of {file}", got="a height field", expected="bodies that move")
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        return _polytope(mesh_vertices(model, geom)), ROUNDING
    centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    points, radius = _box(half)
    return points + centre, radius


def mesh_vertices(model: mujoco.MjModel, geom: int) -> Array:
    """(m, 3) vertices of a mesh, in the frame of its geom [m]."""
    i = int(model.geom_dataid[geom])
    start = int(model.mesh_vertadr[i])
    return np.array(model.mesh_vert[start : start + int(model.mesh_vertnum[i])], dtype=np.float64)


def _polytope(vertices: Array) -> Array:
    """Corners of {x : n·x ≤ max_v n·v for n in the 26 directions}, which holds all vertices."""
    from scipy.spatial import HalfspaceIntersection  # as below

    grid = np.array([[x, y, z] for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1) if x or y or z], float)
    normals = grid / np.linalg.norm(grid, axis=1, keepdims=True)
    # A hair outside the mesh, so that a flat one has an inside, too.
    offsets = (vertices @ normals.T).max(axis=0) + FLAT
    found = HalfspaceIntersection(np.column_stack([normals, -offsets]), vertices.mean(axis=0), qhull_options="QJ")
    kept: list[Array] = []
    for point in found.intersections:
        if all(np.linalg.norm(point - other) > SAME for other in kept):
            kept.append(point)
    return np.array(kept)


def _box(half: Array) -> tuple[Array, float]:
    m = min(ROUNDING, 0.5 * float(np.min(half)))
    signs = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    return signs * (np.asarray(half) - m), math.sqrt(3.0) * m


def _in_link(model: mujoco.MjModel, data: mujoco.MjData, geom: int, body: int, points: Array) -> Array:
    """Points of a geom in the frame of a body, with the joints where `data` has them."""
    mujoco.mj_kinematics(model, data)
    world = points @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
    return (world - data.xpos[body]) @ data.xmat[body].reshape(3, 3)


def _swept(
    model: mujoco.MjModel, data: mujoco.MjData, geom: int, body: int, extra: list[int], points: Array, radius: float,
    file: str,
) -> tuple[Array, float]:  # fmt: skip
    """The hull of a geom over the range of the one joint that moves it against its link."""
    joint = extra[0]
    kind = int(model.jnt_type[joint])
    if len(extra) > 1 or not model.jnt_limited[joint] or kind not in (_HINGE, _SLIDE):
        raise BadInput(f"joint {model.joint(joint).name} of {file}", expected="a hinge or slide with a range, alone")
    low, high = model.jnt_range[joint]
    address = model.jnt_qposadr[joint]
    clouds = []
    for q in (low, high) if kind == _SLIDE else np.linspace(low, high, SWEEP):
        data.qpos[address] = q
        clouds.append(_in_link(model, data, geom, body, points))
    data.qpos[address] = 0.0
    if kind == _SLIDE:
        return np.concatenate(clouds), radius
    from scipy.spatial import ConvexHull  # takes a moment to import, and few commands need it

    # Between two positions a point moves on an arc, outside its chord by at most ρ (1 − cos Δ/2).
    far = float(np.linalg.norm(model.geom_pos[geom] - model.jnt_pos[joint])) + float(model.geom_rbound[geom])
    radius += far * (1.0 - math.cos(0.5 * (high - low) / (SWEEP - 1)))
    cloud = np.concatenate(clouds)
    kept: list[Array] = []
    for point in cloud[ConvexHull(cloud, qhull_options="QJ").vertices]:
        if all(np.linalg.norm(point - other) > ROUNDING for other in kept):
            kept.append(point)  # the others are within the radius of one that is kept
    return np.array(kept), radius + ROUNDING


_HIDDEN_GROUP = 3  # MuJoCo's viewers hide geoms from this group on
_DEFAULT_RGBA = (0.5, 0.5, 0.5, 1.0)  # of a geom that leaves its colour to its material
_KINDS = {
    mujoco.mjtGeom.mjGEOM_BOX: "box",
    mujoco.mjtGeom.mjGEOM_SPHERE: "ellipsoid",
    mujoco.mjtGeom.mjGEOM_ELLIPSOID: "ellipsoid",
    mujoco.mjtGeom.mjGEOM_CYLINDER: "cylinder",
    mujoco.mjtGeom.mjGEOM_CAPSULE: "capsule",
    mujoco.mjtGeom.mjGEOM_PLANE: "plane",
    mujoco.mjtGeom.mjGEOM_MESH: "mesh",
}


def visible_geoms(model: mujoco.MjModel, bodies: Iterable[int]) -> list[int]:
    """The geoms of `bodies` that MuJoCo's viewers show and that `shape_of` can draw, by number."""
    found = []
    for body in bodies:
        first = int(model.body_geomadr[body])
        found += [
            geom
            for geom in range(first, first + int(model.body_geomnum[body]))
            if model.geom_group[geom] < _HIDDEN_GROUP
            and mujoco.mjtGeom(int(model.geom_type[geom])) in _KINDS
            and geom_rgba(model, geom)[3] > 0
        ]
    return found


def shape_of(model: mujoco.MjModel, geom: int) -> Shape:
    """A geom as a shape, in the geom's own frame; its name is that of its body and its number in it."""
    kind, size = mujoco.mjtGeom(int(model.geom_type[geom])), np.array(model.geom_size[geom])
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        size[:] = size[0]
    body = int(model.geom_bodyid[geom])
    name = f"{model.body(body).name or f'body{body}'}/{geom - int(model.body_geomadr[body])}"
    half = (float(size[0]), float(size[1]), float(size[2]))
    if kind != mujoco.mjtGeom.mjGEOM_MESH:
        return Shape(name, _KINDS[kind], half, geom_rgba(model, geom))
    i = int(model.geom_dataid[geom])
    faces = slice(int(model.mesh_faceadr[i]), int(model.mesh_faceadr[i] + model.mesh_facenum[i]))
    points: NDArray[np.float32] = mesh_vertices(model, geom).astype(np.float32)
    return Shape(name, "mesh", half, geom_rgba(model, geom), points, np.array(model.mesh_face[faces], np.uint32))


def geom_rgba(model: mujoco.MjModel, geom: int) -> tuple[float, float, float, float]:
    """The colour that a geom is drawn in: its own, or else its material's."""
    r, g, b, a = (float(c) for c in model.geom_rgba[geom])
    material = int(model.geom_matid[geom])
    if material >= 0 and np.allclose((r, g, b, a), _DEFAULT_RGBA, atol=1e-6):
        r, g, b, a = (float(c) for c in model.mat_rgba[material])
    return r, g, b, a
