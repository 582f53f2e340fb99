"""Shapes as meshes of a page."""

from __future__ import annotations

import numpy as np
import trimesh
import viser

from robolearn.core.scene import Shape

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
    return server.scene.add_mesh_simple(
        name,
        np.asarray(mesh.vertices, dtype=np.float32),
        np.asarray(mesh.faces, dtype=np.uint32),
        color=rgba[:3],
        opacity=rgba[3] if rgba[3] < 1 else None,
    )
