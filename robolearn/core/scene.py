"""Shapes of a world, with colours and poses, for displays: made by a simulation, drawn by a page, in no observation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

KINDS = ("box", "ellipsoid", "cylinder", "capsule", "plane", "mesh")


@dataclass(frozen=True, eq=False)
class Shape:
    """One shape in a frame of its own; `Scene.poses` has where that is."""

    name: str  # unique in its scene: the body, and which of its shapes, e.g. ``"cube/0"``
    kind: str  # one of `KINDS`
    # (3,) [m]: half edges of a box, semi-axes of an ellipsoid, radius and half length along z of a cylinder and of a
    # capsule without its caps, half edges of a plane z = 0 (0: endless); of a mesh without meaning
    size: tuple[float, float, float]
    rgba: tuple[float, float, float, float]  # (4,) in [0, 1]
    # (V, 3) of a mesh [m]; else empty
    vertices: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 3), np.float32))
    # (F, 3) indices of vertices, counter-clockwise from outside; else empty
    faces: NDArray[np.uint32] = field(default_factory=lambda: np.zeros((0, 3), np.uint32))

    def same(self, other: Shape) -> bool:
        """True where the two look the same."""
        mine, theirs = (self.name, self.kind, self.size, self.rgba), (other.name, other.kind, other.size, other.rgba)
        return mine == theirs and all(
            a is b or np.array_equal(a, b) for a, b in ((self.vertices, other.vertices), (self.faces, other.faces))
        )


@dataclass(frozen=True, eq=False)
class Scene:
    """Shapes and where they are."""

    shapes: tuple[Shape, ...]  # N of them, in an order that stays
    poses: NDArray[np.float64]  # (N, 7) position [m] and quaternion wxyz in the base frame of the arm

    def pose(self, name: str) -> NDArray[np.float64]:
        """(7,) of the shape of that name. Raises KeyError."""
        for shape, pose in zip(self.shapes, self.poses, strict=True):
            if shape.name == name:
                return pose
        raise KeyError(name)
