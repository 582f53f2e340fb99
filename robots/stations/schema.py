"""The schema of a contract file: one pydantic model a section, and its errors as `BadInput`.

Types are strict (no text for a number, no truth value for one), unknown keys are refused, and numbers are finite. A
known key with nothing behind it (all of its lines commented out) counts as absent.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    StrictBool,
    StrictFloat,
    StrictInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from robots import ROBOTS
from robots.control import CONTROLS
from robots.stations.condition import Condition
from robots.stations.contract import DRIVERS
from robots.stations.message_types import FLOATS, JOINT_STATE, POSE, TRAJECTORY, TYPES
from robots.stations.schema_cameras import CameraSection
from robots.stations.schema_gripper import GripperSection, ServosSection
from robots.stations.schema_mounting import FramesSection, ToolSection
from robots.stations.schema_values import (
    WORKSPACE,
    Age,
    Corner,
    Finite,
    Namespace,
    PerJoint,
    Section,
    Share,
    TopicName,
    TopicSection,
    Word,
    known_keys,
    one_of,
    per_joint,
    refuse,
    robot_of,
    unique,
    within,
)
from robots.stations.schema_values import bad_input as bad_input

CONTROL_HZ = (1.0, 100.0)
STREAM_HZ = (50.0, 1000.0)
HORIZON_S = (0.0, 0.1)  # silence means stop: not that much later
YAW = (-6.3, 6.3)  # [rad]
POSE_JOINTS = 6  # that a pose settles
SHARES = ("velocity", "acceleration", "jerk")
PER_JOINT = ("lower", "upper", *SHARES)

_MESSAGE = re.compile(r"[a-z][a-z0-9_]*/msg/[A-Z][A-Za-z0-9]*")
Horizon = Annotated[StrictFloat, within(*HORIZON_S)]


def _message_name(text: str) -> str:
    if not _MESSAGE.fullmatch(text):
        raise refuse("a message type such as std_msgs/msg/Bool")
    return text


def _identifier(text: str) -> str:
    if not text.isidentifier() or text.startswith("_"):
        raise refuse("the name of a field")
    return text


# --- sections ----------------------------------------------------------------------------------------------


class JointStatesSection(TopicSection):
    type: Annotated[str, one_of(TYPES["joint_states"])]


class CommandSection(TopicSection):
    type: Annotated[str, one_of(TYPES["command"])]
    horizon_s: Horizon = 0.0
    posture: JointStatesSection | None = None

    @model_validator(mode="after")
    def _check_posture(self, info: ValidationInfo) -> CommandSection:
        redundant = len(robot_of(info).joints) > POSE_JOINTS
        if self.type == POSE and redundant and self.posture is None:
            raise refuse("the key 'posture': of an arm with more than six joints a pose says not where the elbow is")
        if self.type != POSE and self.posture is not None:
            raise refuse(f"a posture with the type {POSE}", got=self.type)
        return self

    @model_validator(mode="after")
    def _check_horizon(self) -> CommandSection:
        if self.horizon_s > 0 and self.type != TRAJECTORY:
            raise refuse(f"a horizon_s of 0, or the type {TRAJECTORY}", got=f"horizon_s {self.horizon_s:g}")
        return self


class ObjectsSection(TopicSection):
    type: Annotated[str, one_of(TYPES["objects"])]


class ContactSection(TopicSection):
    """External torques of the joints, or the wrench at the tool, and from which magnitude on they stop the arm."""

    type: Annotated[str, one_of(TYPES["contact"])]
    max_torque: PerJoint | None = None
    max_force: Share | None = None
    max_moment: Share | None = None
    gravity: StrictBool = False

    @model_validator(mode="after")
    def _check_most(self, info: ValidationInfo) -> ContactSection:
        given = [name for name in ("max_torque", "max_force", "max_moment") if getattr(self, name) is not None]
        expected = ["max_torque"] if self.type == JOINT_STATE else ["max_force", "max_moment"]
        if given != expected:
            raise refuse(" and ".join(expected), got=", ".join(given) or "none")
        if self.gravity and self.type != JOINT_STATE:
            raise refuse(f"gravity with the type {JOINT_STATE}", got=self.type)
        effort = robot_of(info).effort
        for most, own in zip(self.max_torque or (), effort, strict=False):
            if not 0.0 < most < own:
                words = ", ".join(f"{own:g}" for own in effort)
                raise refuse(f"torques above 0 and below those of the joints: {words} Nm", got=f"{most:g}")
        return self


class ConditionSection(Section):
    """A number that the driver publishes, and which of its values permit motion."""

    topic: TopicName
    type: Annotated[Word, AfterValidator(_message_name)]
    field: Annotated[Word, AfterValidator(_identifier)] = "data"
    latched: StrictBool = False
    max_age_s: Age = Condition.max_age_s
    allowed: list[StrictInt] | None = None
    least: Finite | None = None
    words: dict[StrictInt, Word] | None = None
    mend: Word

    @model_validator(mode="after")
    def _check_values(self) -> ConditionSection:
        if bool(self.allowed) == (self.least is not None):
            raise refuse("either allowed or least", got="both" if self.allowed else "none")
        return self


class BoxSection(Section):
    """A box: lower and upper corner [m]."""

    lower: Corner
    upper: Corner


class ObstacleSection(Section):
    """A plane (the side that its normal points to is free) or a box, base frame [m]; a box may be turned by `yaw`."""

    normal: Corner | None = None
    offset: Annotated[StrictFloat, within(*WORKSPACE)] | None = None
    lower: Corner | None = None
    upper: Corner | None = None
    yaw: Annotated[StrictFloat, within(*YAW)] | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> ObstacleSection:
        plane, box = (self.normal, self.offset), (self.lower, self.upper, self.yaw)
        kinds = (self.normal is not None and box == (None,) * 3, None not in box[:2] and plane == (None, None))
        if not any(kinds):
            given = [name for name in type(self).model_fields if getattr(self, name) is not None]
            expected = "normal and offset of a plane, or lower, upper and yaw of a box"
            raise refuse(expected, got=", ".join(given) or "none")
        return self


class LimitsSection(Section):
    """What to tighten, in the words of `robots.limits.Limits`; a share is of the robot's own limit."""

    lower: PerJoint | None = None
    upper: PerJoint | None = None
    velocity: PerJoint | None = None
    acceleration: PerJoint | None = None
    jerk: PerJoint | None = None
    velocity_share: Share | None = None
    acceleration_share: Share | None = None
    jerk_share: Share | None = None
    workspace: BoxSection | None = None
    obstacles: dict[str, ObstacleSection] | None = None
    held: BoxSection | None = None
    max_jump: Finite | None = None
    command_timeout_s: Finite | None = None
    state_timeout_s: Finite | None = None
    deadman_timeout_s: Finite | None = None
    singularity: Finite | None = None
    collision_distance: Finite | None = None
    obstacle_distance: Finite | None = None
    gripper_max: Finite | None = None
    gripper_speed: Finite | None = None

    @model_validator(mode="after")
    def _check_shares(self) -> LimitsSection:
        for name in SHARES:
            if getattr(self, name) is not None and getattr(self, f"{name}_share") is not None:
                raise refuse(f"either {name} or {name}_share", got="both")
        return self


class ContractSection(Section):
    """The whole file."""

    robot: Annotated[str, one_of(ROBOTS)]
    action_kind: Annotated[str, one_of(CONTROLS)]
    control_hz: Annotated[StrictFloat, within(*CONTROL_HZ)]
    stream_hz: StrictFloat
    joints: Annotated[list[Word], BeforeValidator(per_joint), AfterValidator(unique)]
    joint_states: JointStatesSection
    command: CommandSection
    name: Word | None = None
    namespace: Namespace | None = None
    frames: FramesSection | None = None
    tool: ToolSection | None = None
    simulated: StrictBool = False
    driver: Annotated[str, one_of(DRIVERS)] | None = None
    gripper: GripperSection | None = None
    servos: ServosSection | None = None
    objects: ObjectsSection | None = None
    contact: ContactSection | None = None
    cameras: dict[str, CameraSection] | None = None
    limits: LimitsSection | None = None
    conditions: dict[str, ConditionSection] | None = None

    @field_validator("stream_hz")
    @classmethod
    def _check_stream(cls, stream_hz: float, info: ValidationInfo) -> float:
        low = max(STREAM_HZ[0], info.data.get("control_hz", STREAM_HZ[0]))
        if not low <= stream_hz <= STREAM_HZ[1]:
            raise refuse(f"{low:g} to {STREAM_HZ[1]:g}")
        return stream_hz

    @field_validator("joints")
    @classmethod
    def _check_order(cls, joints: list[str], info: ValidationInfo) -> list[str]:
        """Refuse the robot's joints (with whatever prefix) in another order: each would be commanded to another's."""
        robot = robot_of(info)
        owners = [[own for own in robot.joints if joint.endswith(own)] for joint in joints]
        order = tuple(found[0] for found in owners if len(found) == 1)
        if len(order) == len(joints) and order != robot.joints:
            raise refuse(f"base to tip: {', '.join(robot.joints)}", got=", ".join(joints))
        return joints

    @model_validator(mode="after")
    def _check_vector(self) -> ContractSection:
        """One vector of numbers, in the order of the joints: what our driver of servos takes, too."""
        vector = self.gripper is not None and self.gripper.in_command
        if vector and self.command.type != FLOATS:
            raise refuse(f"command.type {FLOATS} with gripper.in_command", got=self.command.type)
        if self.servos is not None and not vector:
            raise refuse("gripper.in_command: true with servos, which take one vector", got="none")
        return self

    @field_validator("cameras", mode="before")
    @classmethod
    def _check_cameras(cls, cameras: Any) -> Any:
        if not isinstance(cameras, dict):
            raise refuse("camera name: {topic, type, size} lines")
        for name in cameras:
            if not isinstance(name, str) or not name.isidentifier():
                raise refuse("a camera name of letters, digits and _", got=name)
        return cameras


class RobotKey(BaseModel):
    """The arm alone: how many joints the other sections must have depends on it."""

    robot: Annotated[str, one_of(ROBOTS)]

    @model_validator(mode="before")
    @classmethod
    def _onlyrobot_of(cls, data: Any) -> Any:
        found = known_keys(data, ContractSection.model_fields)
        return {key: value for key, value in found.items() if key == "robot"}
