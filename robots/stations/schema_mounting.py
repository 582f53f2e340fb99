"""Sections of a contract file about where things are mounted: the tool, the frames, the pose of a camera."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, StrictFloat, model_validator

from robolearn.core.errors import BadInput
from robots.stations.schema_values import Corner, Section, Word, entries, refuse, within
from robots.tool import Box, Pose, Tool

MASS = (0.0, 20.0)  # [kg]
ANGLE = (-2 * math.pi, 2 * math.pi)

Angles = Annotated[list[Annotated[StrictFloat, within(*ANGLE)]], BeforeValidator(lambda value: entries(value, 3))]
Quaternion = Annotated[
    list[Annotated[StrictFloat, within(-1.0, 1.0)]], BeforeValidator(lambda value: entries(value, 4))
]


class PoseSection(Section):
    """A pose: position [m], and a quaternion wxyz or the roll, pitch and yaw of a URDF [rad]."""

    position: Corner
    quaternion: Quaternion | None = None
    rpy: Angles | None = None

    @model_validator(mode="after")
    def _check_rotation(self) -> PoseSection:
        if self.quaternion is not None and self.rpy is not None:
            raise refuse("either quaternion or rpy", got="both")
        self.pose()
        return self

    def pose(self) -> Pose:
        """The same as a record."""
        if self.rpy is not None:
            return Pose.from_rpy(self.position, self.rpy)
        try:
            return Pose(tuple(self.position), tuple(self.quaternion or (1.0, 0.0, 0.0, 0.0)))  # type: ignore[arg-type]
        except BadInput as error:
            raise refuse("a quaternion wxyz of length 1", got=f"{np.linalg.norm(self.quaternion or ()):.4g}") from error


class ToolBoxSection(Section):
    """A part of the tool that takes up space: lower and upper corner of a box in the frame of the flange [m]."""

    lower: Corner
    upper: Corner


class ToolSection(Section):
    """What is mounted on the flange in place of the robot's own hand, or in addition: tcp, space, and weight.

    The weight is besides that of the model's hand.
    """

    tcp: PoseSection
    boxes: dict[str, ToolBoxSection] | None = None
    mass: Annotated[StrictFloat, within(*MASS)] = 0.0
    centre: Corner | None = None

    @model_validator(mode="after")
    def _check_mass(self) -> ToolSection:
        if self.centre is not None and self.mass == 0.0:
            raise refuse("the key 'mass' with its centre", got="none")
        return self

    def tool(self) -> Tool:
        """The same as a record."""
        boxes = tuple(self._box(name, box) for name, box in (self.boxes or {}).items())
        return Tool(self.tcp.pose(), boxes, self.mass, tuple(self.centre or (0.0, 0.0, 0.0)))  # type: ignore[arg-type]

    @staticmethod
    def _box(name: str, box: ToolBoxSection) -> Box:
        return Box(str(name), tuple(box.lower), tuple(box.upper))  # type: ignore[arg-type]


class FramesSection(Section):
    """Names of the arm's frames in tf: they stand in the headers of what is published."""

    base: Word = "base"
    flange: Word = "flange"
    tcp: Word = "tcp"


def one_parent(value: Any) -> Any:
    """A camera is mounted on the base or on the flange."""
    if value not in ("base", "flange"):
        raise refuse(available=("base", "flange"))
    return value


class CameraPoseSection(PoseSection):
    """The pose of a camera (z forward, x right, y down) in its parent, as `robolearn calibrate` writes it."""

    parent: Annotated[str, BeforeValidator(one_parent)]
