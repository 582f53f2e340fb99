"""The geoms of a MuJoCo model as shapes that a page can draw."""

from __future__ import annotations

from collections.abc import Iterable

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.scene import Shape

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
    vertices = slice(int(model.mesh_vertadr[i]), int(model.mesh_vertadr[i] + model.mesh_vertnum[i]))
    faces = slice(int(model.mesh_faceadr[i]), int(model.mesh_faceadr[i] + model.mesh_facenum[i]))
    points: NDArray[np.float32] = np.array(model.mesh_vert[vertices], np.float32)
    return Shape(name, "mesh", half, geom_rgba(model, geom), points, np.array(model.mesh_face[faces], np.uint32))


def geom_rgba(model: mujoco.MjModel, geom: int) -> tuple[float, float, float, float]:
    """The colour that a geom is drawn in: its own, or else its material's."""
    r, g, b, a = (float(c) for c in model.geom_rgba[geom])
    material = int(model.geom_matid[geom])
    if material >= 0 and np.allclose((r, g, b, a), _DEFAULT_RGBA, atol=1e-6):
        r, g, b, a = (float(c) for c in model.mat_rgba[material])
    return r, g, b, a
