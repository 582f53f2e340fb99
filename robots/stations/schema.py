"""The schema of a contract file: one pydantic model a section, and its errors as `BadInput`.

Types are strict (no text for a number, no truth value for one), unknown keys are refused, and numbers are finite. A
known key with nothing behind it (all of its lines commented out) counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from robolearn.core.errors import BadInput
from robots import ROBOTS
from robots.control import CONTROLS
from robots.spec import RobotSpec
from robots.stations.contract import Camera, Topic
from robots.stations.message_types import JOINT_STATE, TRAJECTORY, TYPES

CONTROL_HZ = (1.0, 100.0)
STREAM_HZ = (50.0, 1000.0)
MAX_AGE_S = (0.001, 5.0)
IMAGE_EDGE = (8, 4096)  # [px]
GRIPPER_JOINT = (-10.0, 10.0)  # [rad or m]
WORKSPACE = (-10.0, 10.0)  # [m]
YAW = (-6.3, 6.3)  # [rad]
SHARES = ("velocity", "acceleration", "jerk")
PER_JOINT = ("lower", "upper", *SHARES)

_TOPIC = re.compile(r"(/[A-Za-z_][A-Za-z0-9_]*)+")
_OURS = "robolearn"  # type of the errors that carry the words of a `BadInput` in their context
_EXPECTED = {
    "string_type": "a word",
    "string_too_short": "a word",
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "key: value lines",
}


def refuse(expected: object = None, *, got: object = None, available: Iterable[object] = (), what: str = "") -> Any:
    """The error that a validator raises; `bad_input` gives its words to `BadInput`."""
    words = {"expected": expected, "got": got, "available": tuple(available), "what": what}
    return PydanticCustomError(_OURS, "{expected}", words)


def bad_input(error: ValidationError, file: str) -> BadInput:
    """The first mistake that `error` names, in one line: file, place, got, expected, available."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        where, _, key = where.rpartition(".")
        return BadInput(f"{file}: {where}" if where else file, got="none", expected=f"the key {key!r}")
    words: dict[str, Any] = dict(first.get("ctx", {})) if first["type"] == _OURS else {}
    if words.get("what"):
        what = f"{file}: {words['what']}" + (f" in {where}" if where else "")
    else:
        what = f"{file}: {where}" if where else file
    got = _short(first["input"]) if words.get("got") is None else words["got"]
    expected = words.get("expected") if words else _EXPECTED.get(first["type"], first["msg"])
    return BadInput(what, got=got, expected=expected, available=words.get("available", ()))


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


# --- values ------------------------------------------------------------------------------------------------


def _within(low: float, high: float) -> AfterValidator:
    def check(value: float) -> float:
        if not low <= value <= high:  # NaN fails this too
            raise refuse(f"{low:g} to {high:g}")
        return value

    return AfterValidator(check)


def _one_of(available: Collection[str]) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value not in tuple(available):
            raise refuse(available=available)
        return value

    return BeforeValidator(check)


def _entries(value: Any, length: int) -> Any:
    """`value`, if it is a list of so many."""
    if not isinstance(value, list):
        raise refuse(f"a list of {length}")
    if len(value) != length:
        raise refuse(f"{length} entries", got=len(value))
    return value


def _unique(names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise refuse("every name once", got=f"{name} {names.count(name)} times")
    return names


def _ros_name(text: str) -> str:
    if not _TOPIC.fullmatch(text):
        raise refuse("an absolute ROS topic name such as /joint_states")
    return text


def _positive(value: float) -> float:
    if not value > 0:
        raise refuse("more than 0")
    return value


def _edge(value: Any) -> int:
    low, high = IMAGE_EDGE
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise refuse(f"a whole number from {low} to {high}")
    return value


def _per_joint(value: Any, info: ValidationInfo) -> Any:
    return _entries(value, len(_robot(info).joints))


def _robot(info: ValidationInfo) -> RobotSpec:
    return (info.context or {})["robot"]


Word = Annotated[StrictStr, Field(min_length=1)]
TopicName = Annotated[Word, AfterValidator(_ros_name)]
Finite = Annotated[StrictFloat, Field(allow_inf_nan=False)]
Age = Annotated[StrictFloat, _within(*MAX_AGE_S)]
Share = Annotated[Finite, AfterValidator(_positive)]
GripperPosition = Annotated[StrictFloat, _within(*GRIPPER_JOINT)]
Edge = Annotated[Any, BeforeValidator(_edge)]
PerJoint = Annotated[list[Finite], BeforeValidator(_per_joint)]
Corner = Annotated[list[Annotated[StrictFloat, _within(*WORKSPACE)]], BeforeValidator(lambda value: _entries(value, 3))]


# --- sections ----------------------------------------------------------------------------------------------


def _known_keys(data: Any, known: Iterable[str]) -> dict[str, Any]:
    """`data` without the keys that have nothing behind them, if it has no unknown ones."""
    known = tuple(known)
    if not isinstance(data, dict):
        raise refuse("key: value lines", available=known)
    for key in data:
        if key not in known:
            raise refuse(got=key, available=known, what="unknown key")
    return {key: value for key, value in data.items() if value is not None}


class Section(BaseModel):
    """Key: value lines."""

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, data: Any) -> Any:
        return _known_keys(data, cls.model_fields)


class TopicSection(Section):
    """A topic; its sections differ in the message types that they may have."""

    topic: TopicName
    type: str
    max_age_s: Age = Topic.max_age_s


class JointStatesSection(TopicSection):
    type: Annotated[str, _one_of(TYPES["joint_states"])]


class CommandSection(TopicSection):
    type: Annotated[str, _one_of(TYPES["command"])]


class ObjectsSection(TopicSection):
    type: Annotated[str, _one_of(TYPES["objects"])]


class ContactSection(TopicSection):
    """External torques of the joints, or the wrench at the tool, and from which magnitude on they stop the arm."""

    type: Annotated[str, _one_of(TYPES["contact"])]
    max_torque: PerJoint | None = None
    max_force: Share | None = None
    max_moment: Share | None = None

    @model_validator(mode="after")
    def _check_most(self, info: ValidationInfo) -> ContactSection:
        given = [name for name in ("max_torque", "max_force", "max_moment") if getattr(self, name) is not None]
        expected = ["max_torque"] if self.type == JOINT_STATE else ["max_force", "max_moment"]
        if given != expected:
            raise refuse(" and ".join(expected), got=", ".join(given) or "none")
        effort = _robot(info).effort
        for most, own in zip(self.max_torque or (), effort, strict=False):
            if not 0.0 < most < own:
                words = ", ".join(f"{own:g}" for own in effort)
                raise refuse(f"torques above 0 and below those of the joints: {words} Nm", got=f"{most:g}")
        return self


class CameraSection(TopicSection):
    type: Annotated[str, _one_of(TYPES["cameras"])]
    size: Annotated[list[Edge], BeforeValidator(lambda value: _entries(value, 2))] = list(Camera.size)


class GripperSection(Section):
    """The gripper; without a topic it is measured and not commanded."""

    joints: Annotated[list[Word], AfterValidator(_unique)]
    topic: TopicName | None = None
    type: Annotated[str, _one_of(TYPES["gripper"])] | None = None
    max_age_s: Age = Topic.max_age_s
    unit: str | None = None
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
        return self


class BoxSection(Section):
    """A box: lower and upper corner [m]."""

    lower: Corner
    upper: Corner


class ObstacleSection(Section):
    """A plane (the side that its normal points to is free) or a box, base frame [m]; a box may be turned by `yaw`."""

    normal: Corner | None = None
    offset: Annotated[StrictFloat, _within(*WORKSPACE)] | None = None
    lower: Corner | None = None
    upper: Corner | None = None
    yaw: Annotated[StrictFloat, _within(*YAW)] | None = None

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

    robot: Annotated[str, _one_of(ROBOTS)]
    action_kind: Annotated[str, _one_of(CONTROLS)]
    control_hz: Annotated[StrictFloat, _within(*CONTROL_HZ)]
    stream_hz: StrictFloat
    joints: Annotated[list[Word], BeforeValidator(_per_joint), AfterValidator(_unique)]
    joint_states: JointStatesSection
    command: CommandSection
    name: Word | None = None
    simulated: StrictBool = False
    gripper: GripperSection | None = None
    objects: ObjectsSection | None = None
    contact: ContactSection | None = None
    cameras: dict[str, CameraSection] | None = None
    limits: LimitsSection | None = None

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
        robot = _robot(info)
        owners = [[own for own in robot.joints if joint.endswith(own)] for joint in joints]
        order = tuple(found[0] for found in owners if len(found) == 1)
        if len(order) == len(joints) and order != robot.joints:
            raise refuse(f"base to tip: {', '.join(robot.joints)}", got=", ".join(joints))
        return joints

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

    robot: Annotated[str, _one_of(ROBOTS)]

    @model_validator(mode="before")
    @classmethod
    def _only_robot(cls, data: Any) -> Any:
        found = _known_keys(data, ContractSection.model_fields)
        return {key: value for key, value in found.items() if key == "robot"}
