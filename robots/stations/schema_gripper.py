"""The sections of a contract about its gripper, and about servos that our own node drives."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, StrictBool, ValidationInfo, field_validator, model_validator

from robots import SO101
from robots.stations.contract import GripperAction, Topic
from robots.stations.message_types import FLOATS, TRAJECTORY, TYPES
from robots.stations.schema_values import (
    Age,
    GripperPosition,
    Section,
    Share,
    TopicName,
    TopicSection,
    Word,
    one_of,
    refuse,
    robot_of,
    unique,
)


def _port(text: str) -> str:
    if not text.startswith("/dev/"):
        raise refuse("a serial port such as /dev/ttyACM0")
    return text


def _calibration(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", text):  # it becomes the name of a file
        raise refuse("the --robot.id that lerobot-calibrate was given")
    return text


class _StatesSection(TopicSection):
    type: Annotated[str, one_of(TYPES["joint_states"])]


class GripperActionSection(Section):
    """The action of a gripper that knows no topic."""

    name: TopicName
    type: Annotated[str, one_of(TYPES["gripper.action"])]
    speed: Share = GripperAction.speed
    force: Share = GripperAction.force


class GripperSection(Section):
    """The gripper; without a topic it is measured and not commanded, unless its joints are in the arm's command."""

    joints: Annotated[list[Word], AfterValidator(unique)]
    topic: TopicName | None = None
    type: Annotated[str, one_of(TYPES["gripper"])] | None = None
    states: _StatesSection | None = None
    action: GripperActionSection | None = None
    max_age_s: Age = Topic.max_age_s
    unit: str | None = None
    in_command: StrictBool = False
    closed: GripperPosition | None = None
    open: GripperPosition | None = None

    @field_validator("joints")
    @classmethod
    def _check_joints(cls, joints: list[str]) -> list[str]:
        if not joints:
            raise refuse("at least one joint")
        return joints

    @field_validator("unit", mode="before")
    @classmethod
    def _check_unit(cls, unit: Any, info: ValidationInfo) -> Any:
        # A trajectory is always of joints.
        available = ("joint",) if info.data.get("type") == TRAJECTORY else ("opening", "joint")
        if unit not in available:
            raise refuse(available=available)
        return unit

    @model_validator(mode="after")
    def _check_type(self) -> GripperSection:
        if self.topic is not None and self.type is None:
            raise refuse("the key 'type'", got="none")
        if self.in_command and (self.topic is not None or self.action is not None):
            raise refuse("either in_command or a topic of its own", got="both")
        if self.action is not None and self.type != FLOATS:
            raise refuse(f"a topic of the type {FLOATS} for an action", got=self.type or "none")
        return self


class ServosSection(Section):
    """Bus servos that our own node drives."""

    port: Annotated[Word, AfterValidator(_port)]
    calibration: Annotated[Word, AfterValidator(_calibration)]

    @model_validator(mode="after")
    def _check_robot(self, info: ValidationInfo) -> ServosSection:
        robot = robot_of(info)
        if (robot.joints, robot.gripper.joints) != (SO101.joints, SO101.gripper.joints):
            raise refuse(f"none: LeRobot's bus of servos is that of {SO101.name}", got=f"robot {robot.name}")
        return self
