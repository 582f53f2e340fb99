"""Obstacles around an arm: planes and boxes, in its base frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Plane:
    """The arm stays on the side that the normal points to: n·x ≥ offset.

    Attributes:
      name: for the operator: table, wall.
      normal: (3,) unit vector.
      offset: [m].
    """

    name: str
    normal: Array
    offset: float = 0.0

    def __post_init__(self) -> None:
        normal = _vector(f"normal of {self.name}", self.normal)
        length = float(np.linalg.norm(normal))
        if not length > 1e-6 or not np.isfinite(self.offset):
            raise BadInput(f"plane {self.name}", got=f"{normal.tolist()}, {self.offset}", expected="a normal, a number")
        object.__setattr__(self, "normal", normal / length)

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "normal": self.normal.tolist(), "offset": self.offset}


@dataclass(frozen=True, eq=False)
class Box:
    """A box that the arm stays out of: mount, wall, camera post.

    Attributes:
      name: for the operator.
      lower, upper: (3,) its corners before it is turned [m].
      yaw: turned about the vertical through its centre [rad].
    """

    name: str
    lower: Array
    upper: Array
    yaw: float = 0.0

    def __post_init__(self) -> None:
        lower, upper = (_vector(f"corner of {self.name}", corner) for corner in (self.lower, self.upper))
        if not np.all(lower < upper) or not np.isfinite(self.yaw):
            got = f"{lower.tolist()} to {upper.tolist()}, yaw {self.yaw}"
            raise BadInput(f"box {self.name}", got=got, expected="lower corner below upper corner")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def centre(self) -> Array:
        """(3,) [m]."""
        return 0.5 * (self.lower + self.upper)

    @property
    def half(self) -> Array:
        """(3,) half sizes [m]."""
        return 0.5 * (self.upper - self.lower)

    @property
    def rotation(self) -> Array:
        """(3, 3)."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "lower": self.lower.tolist(), "upper": self.upper.tolist(), "yaw": self.yaw}


Obstacle = Plane | Box


def _vector(name: str, value: object) -> Array:
    try:
        vector = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(name, got=value, expected="three numbers") from None
    if vector.shape != (3,) or not np.isfinite(vector).all():
        raise BadInput(name, got=vector.tolist(), expected="three finite numbers")
    vector.flags.writeable = False
    return vector
