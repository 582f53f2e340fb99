"""The tool that a station mounts on the flange: its tcp and its collision shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.core.se3 import matrix_to_quat, quat_to_matrix

Triple = tuple[float, float, float]
UNIT = 1e-3  # how far from 1 the length of a typed quaternion may be


@dataclass(frozen=True)
class Pose:
    """A pose.

    Raises:
      BadInput: the quaternion is longer or shorter.
    """

    position: Triple  # [m]
    # wxyz, of length 1 to a thousandth; stored normalised
    quaternion: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        length = math.hypot(*self.quaternion)
        if not abs(length - 1.0) <= UNIT:
            raise BadInput("quaternion", got=f"length {length:.4g}", expected="length 1, wxyz")
        w, x, y, z = (value / length for value in self.quaternion)
        object.__setattr__(self, "quaternion", (w, x, y, z))

    @staticmethod
    def from_rpy(position: Sequence[float], rpy: Sequence[float]) -> Pose:
        """Of a URDF: R = Rz(yaw) Ry(pitch) Rx(roll), angles [rad]."""
        (cr, sr), (cp, sp), (cy, sy) = ((math.cos(angle), math.sin(angle)) for angle in rpy)
        x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
        y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
        z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
        return Pose.from_matrix(np.asarray(position, dtype=np.float64), z @ y @ x)

    @staticmethod
    def from_matrix(position: NDArray[np.float64], rotation: NDArray[np.float64]) -> Pose:
        """Of a position (3,) and a rotation matrix (3, 3)."""
        x, y, z = position.tolist()
        qw, qx, qy, qz = matrix_to_quat(rotation).tolist()
        return Pose((x, y, z), (qw, qx, qy, qz))

    @property
    def rotation(self) -> NDArray[np.float64]:
        """(3, 3) rotation matrix."""
        return quat_to_matrix(np.array(self.quaternion))


@dataclass(frozen=True)
class ToolBox:
    """A box in the frame of the flange: lower and upper corner [m].

    Raises:
      BadInput: it is empty.
    """

    name: str
    lower: Triple
    upper: Triple

    def __post_init__(self) -> None:
        if not all(low < high for low, high in zip(self.lower, self.upper, strict=True)):
            got = f"{list(self.lower)} to {list(self.upper)}"
            raise BadInput(f"tool box {self.name}", got=got, expected="lower corner below upper corner")


@dataclass(frozen=True)
class Tool:
    """A tool."""

    tcp: Pose  # pose of the tool centre point in the frame of the flange
    boxes: tuple[ToolBox, ...] = ()  # what the tool fills of space, beside the robot's own hand
    mass: float = 0.0  # what it weighs, beside the robot's own hand [kg]
    centre: Triple = (0.0, 0.0, 0.0)  # of that mass, in the frame of the flange [m]
