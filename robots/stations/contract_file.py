"""Reads contract files: every mistake is one line that names the file, the place and the nearest right word.

The shipped ones lie beside this module; `load_contract` takes their names or the path of your own. What one part has to
hold stands in `robots.stations.parts`; here is what several parts have to agree on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    StrictBool,
    StrictFloat,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from robolearn.core.errors import BadInput
from robots import ROBOTS
from robots.control import CONTROLS
from robots.limits import Box, Limits, Obstacle, Plane
from robots.own import STATION, own_stations
from robots.spec import GripperKind, RobotSpec
from robots.stations import values
from robots.stations.contract import DRIVERS, Contract
from robots.stations.folder import in_station, version_of
from robots.stations.mounting import BoxForm, Camera, Frames, ToolForm
from robots.stations.parts import (
    CommandTopic,
    Condition,
    ContactSensing,
    Gripper,
    GripperForm,
    JointStates,
    Objects,
    Servos,
    Topic,
)

CONTRACTS = Path(__file__).parent
PAIR_CONTRACTS = CONTRACTS / "pairs"
CONTROL_HZ = (1.0, 100.0)
STREAM_HZ = (50.0, 1000.0)
YAW = (-6.3, 6.3)  # [rad]
SHARES = ("velocity", "acceleration", "jerk")
PER_JOINT = ("lower", "upper", *SHARES)


def _named(conditions: Any) -> Any:
    """Conditions with the names that are their keys."""
    if not isinstance(conditions, dict):
        return conditions
    for one in conditions.values():
        if isinstance(one, dict) and "name" in one:
            raise values.refuse(got="name", available=[one.name for one in fields(Condition)][1:], what="unknown key")
    return {key: {**one, "name": str(key)} if isinstance(one, dict) else one for key, one in conditions.items()}


def _remember(robot: str, info: ValidationInfo) -> str:
    """The parts that follow are checked by this robot."""
    assert isinstance(info.context, dict)
    info.context["robot"] = ROBOTS[robot]
    return robot


@values.section
class ObstacleForm:
    """A plane or a box, base frame.

    Attributes:
      normal: of a plane; the side that it points to is free.
      offset: of a plane from the origin, along its normal [m].
      lower, upper: corners of a box before it is turned [m].
      yaw: turn of a box about the vertical through its centre [rad].
    """

    normal: values.Corner | None = None
    offset: Annotated[StrictFloat, values.within(*values.WORKSPACE)] | None = None
    lower: values.Corner | None = None
    upper: values.Corner | None = None
    yaw: Annotated[StrictFloat, values.within(*YAW)] | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> ObstacleForm:
        plane, box = (self.normal, self.offset), (self.lower, self.upper, self.yaw)
        kinds = (self.normal is not None and box == (None,) * 3, None not in box[:2] and plane == (None, None))
        if not any(kinds):
            given = [one.name for one in fields(self) if getattr(self, one.name) is not None]
            expected = "normal and offset of a plane, or lower, upper and yaw of a box"
            raise values.refuse(expected, got=", ".join(given) or "nothing")
        return self

    def record(self, name: str) -> Obstacle:
        """The obstacle itself."""
        given = {one.name: v for one in fields(self) if (v := getattr(self, one.name)) is not None}
        return Plane(name, **given) if "normal" in given else Box(name, **given)


@values.section
class LimitsForm:
    """Tightened limits, in the words of `robots.limits.Limits`; by default the robot's own.

    Attributes:
      velocity_share, acceleration_share, jerk_share: in place of a limit of each joint: share of the robot's own.
    """

    lower: values.PerJoint | None = None
    upper: values.PerJoint | None = None
    velocity: values.PerJoint | None = None
    acceleration: values.PerJoint | None = None
    jerk: values.PerJoint | None = None
    velocity_share: values.LimitShare | None = None
    acceleration_share: values.LimitShare | None = None
    jerk_share: values.LimitShare | None = None
    workspace: BoxForm | None = None
    obstacles: dict[str, ObstacleForm] | None = None
    held: BoxForm | None = None
    max_jump: values.Finite | None = None
    command_timeout_s: values.Finite | None = None
    state_timeout_s: values.Finite | None = None
    deadman_timeout_s: values.Finite | None = None
    singularity: values.Finite | None = None
    collision_distance: values.Finite | None = None
    obstacle_distance: values.Finite | None = None
    gripper_max: values.Finite | None = None
    gripper_speed: values.Finite | None = None

    @model_validator(mode="after")
    def _check_shares(self) -> LimitsForm:
        for name in SHARES:
            if getattr(self, name) is not None and getattr(self, f"{name}_share") is not None:
                raise values.refuse(f"either {name} or {name}_share", got="both")
        return self


@values.section
class ContractFile:
    """The whole file, in the words of `Contract`.

    Attributes:
      name: of the contract; by default that of the file, or of the station's folder.
      tool: in place of the robot's own hand, or in addition.
    """

    robot: Annotated[str, values.one_of(ROBOTS), AfterValidator(_remember)]
    action_kind: Annotated[str, values.one_of(CONTROLS)]
    control_hz: Annotated[StrictFloat, values.within(*CONTROL_HZ)]
    stream_hz: StrictFloat
    joints: Annotated[tuple[values.Word, ...], BeforeValidator(values.per_joint), AfterValidator(values.unique)]
    joint_states: JointStates
    command: CommandTopic
    name: values.Word = ""
    namespace: values.Namespace = ""
    frames: Frames = Frames()
    tool: ToolForm | None = None
    simulated: StrictBool = False
    driver: Annotated[str, values.one_of(DRIVERS)] = ""
    gripper: GripperForm | None = None
    servos: Servos | None = None
    objects: Objects | None = None
    contact: ContactSensing | None = None
    cameras: Mapping[str, Camera] = field(default_factory=dict)
    limits: LimitsForm = LimitsForm()
    conditions: Annotated[Mapping[str, Condition], BeforeValidator(_named)] = field(default_factory=dict)

    @field_validator("stream_hz")
    @classmethod
    def _check_stream(cls, stream_hz: float, info: ValidationInfo) -> float:
        low = max(STREAM_HZ[0], info.data.get("control_hz", STREAM_HZ[0]))
        if not low <= stream_hz <= STREAM_HZ[1]:
            raise values.refuse(f"{low:g} to {STREAM_HZ[1]:g}")
        return stream_hz

    @field_validator("joints")
    @classmethod
    def _check_order(cls, joints: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Refuse the robot's joints in another order, whatever stands around their words and numbers: each would be
        sent another's command."""
        robot = values.robot_of(info)
        if out_of_order(joints, robot.joints):
            raise values.refuse(f"base to tip: {', '.join(robot.joints)}", got=", ".join(joints))
        return joints

    @model_validator(mode="after")
    def _check_vector(self) -> ContractFile:
        """One vector of numbers, in the order of the joints: what our driver of servos takes, too."""
        vector = self.gripper is not None and self.gripper.in_command
        if vector and self.command.type != values.FLOATS:
            raise values.refuse(f"command.type {values.FLOATS} with gripper.in_command", got=self.command.type)
        if self.servos is not None and not vector:
            raise values.refuse("gripper.in_command: true with servos, which take one vector", got="nothing")
        return self

    @field_validator("cameras", mode="before")
    @classmethod
    def _check_cameras(cls, cameras: Any) -> Any:
        if not isinstance(cameras, dict):
            raise values.refuse("camera name: {topic, type, size} lines")
        for name in cameras:
            if not isinstance(name, str) or not name.isidentifier():
                raise values.refuse("a camera name of letters, digits and _", got=name)
        return cameras


_FILE = TypeAdapter(ContractFile)

_PLAIN = {"joint", "j", "pos", "position"}  # words of a joint's name that tell it from no other


def out_of_order(given: Sequence[str], own: Sequence[str]) -> bool:
    """True where `given` (n,) names a robot's joints, `own` (n,) from base to tip, in another order: by its words,
    ``Left_ShoulderLift.pos`` for ``shoulder_lift_joint``, or by numbers, ``J2`` before ``J1``."""
    known = [_words(name) for name in own]
    places = []
    for name in given:
        words = _words(name)
        found = [i for i, needed in enumerate(known) if needed <= words]
        places += found if len(found) == 1 else []
    numbers = [[int(number) for number in re.findall(r"\d+", name)][-1:] for name in given]
    counted = [one[0] for one in numbers if one]
    rising = places == sorted(set(places))
    return not rising or (len(set(counted)) == len(given) and counted != sorted(counted))


def _words(name: str) -> set[str]:
    """The words and numbers of a joint's name that tell it from others."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return set(re.findall(r"[a-z]+|\d+", apart.lower())) - _PLAIN


class NoContract(BadInput):
    """There is no contract of that name."""


def contract_names() -> tuple[str, ...]:
    """The contracts that come with the package, and those of the user's own arms."""
    return tuple(sorted({*own_stations(), *(path.stem for path in CONTRACTS.glob("*.yaml"))}))


def load_contract(name_or_path: str | Path, namespace: str = "", *, override: bool = False) -> Contract:
    """The contract called `name_or_path`, or in that file or station's folder; relative topics are in `namespace`
    (``"/left"``), unless the contract has one itself and it is no `override`. Raises `BadInput`: there is no such
    contract, or it breaks the schema; the message names the file, the place in it, what was found and what was
    expected."""
    shipped = (folder / f"{name_or_path}.yaml" for folder in (CONTRACTS, PAIR_CONTRACTS))
    own = own_stations().get(str(name_or_path)) or in_station(Path(name_or_path).expanduser(), STATION)
    path = next((file for file in shipped if file.is_file()), own)
    if not path.is_file():
        raise NoContract("contract", got=name_or_path, available=(*contract_names(), "<path>.yaml"))
    data = values.read_yaml(path)
    if isinstance(data, dict) and "arms" in data:
        expected = "a contract of one arm, for this command"
        raise BadInput(values.place(path), got="a station with two arms", expected=expected)
    try:
        file = _FILE.validate_python(data, context={})
    except ValidationError as error:
        raise values.bad_input(error, values.place(path)) from error
    return _contract(file, path, namespace if override else file.namespace or namespace)


def _contract(given: ContractFile, path: Path, namespace: str) -> Contract:
    """The contract of a checked file; `BadInput` where its parts do not fit together."""
    robot, gripper, version = ROBOTS[given.robot], given.gripper, version_of(path)
    if given.tool is not None:
        try:
            robot = replace(robot, tool=given.tool.tool())
        except BadInput as error:
            raise BadInput(f"{values.place(path)}: {error}") from error
    shared = {one.name for one in fields(Contract)} & {one.name for one in fields(ContractFile)}
    found = {name: getattr(given, name) for name in shared} | {
        "name": given.name or (path.resolve().parent.name if version else path.stem),
        "robot": robot,
        "gripper_joints": () if gripper is None else gripper.joints,
        "gripper_range": _gripper_range(gripper, robot, values.place(path)),
        "gripper": None if gripper is None else gripper.commanded(),
        "gripper_states": None if gripper is None else gripper.states,
        "gripper_in_command": gripper is not None and gripper.in_command,
        "conditions": tuple(given.conditions.values()),
        "limits": _limits(given.limits, robot, values.place(path)),
        "namespace": namespace,
        "path": str(path),
        "version": version,
    }
    contract = _resolved(Contract(**found))
    _check_unique(contract, values.place(path))
    return contract


def _resolved(contract: Contract) -> Contract:
    """The contract with absolute topics: relative ones are those of its namespace."""

    def absolute(name: str) -> str:
        return name if name.startswith("/") or not name else f"{contract.namespace}/{name}"

    def resolve(value: Any) -> Any:
        if isinstance(value, Topic | Condition):
            value = replace(value, topic=absolute(value.topic))
        if isinstance(value, Camera):
            return replace(value, info=absolute(value.info))
        if isinstance(value, CommandTopic) and value.posture is not None:
            return replace(value, posture=resolve(value.posture))
        if isinstance(value, Gripper) and value.action is not None:
            return replace(value, action=replace(value.action, name=absolute(value.action.name)))
        return value

    changed = {one.name: resolve(getattr(contract, one.name)) for one in fields(contract)}
    changed["cameras"] = {name: resolve(camera) for name, camera in contract.cameras.items()}
    changed["conditions"] = tuple(resolve(condition) for condition in contract.conditions)
    return replace(contract, **changed)


def _gripper_range(form: GripperForm | None, robot: RobotSpec, file: str) -> tuple[float, float]:
    closed, opened = robot.gripper.joint_range
    if form is None:
        return closed, opened
    if robot.gripper.kind is GripperKind.NONE:
        raise BadInput(f"{file}: gripper", got=", ".join(form.joints), expected=f"none: {robot.name} has no gripper")
    closed = closed if form.closed is None else form.closed
    opened = opened if form.open is None else form.open
    if closed == opened:
        raise BadInput(f"{file}: gripper", got=f"{closed:g} for both", expected="two positions, closed and open")
    return closed, opened


def _limits(form: LimitsForm, robot: RobotSpec, file: str) -> Limits:
    own = Limits.of(robot)
    given: dict[str, Any] = {one.name: v for one in fields(form) if (v := getattr(form, one.name)) is not None}
    for name in SHARES:
        if f"{name}_share" in given:
            given[name] = given.pop(f"{name}_share") * getattr(own, name)
    for name in PER_JOINT:
        if name in given:
            given[name] = np.array(given[name])
    for name in ("workspace", "held"):
        if name in given:
            given[name] = np.array([given[name].lower, given[name].upper])
    try:
        if "obstacles" in given:
            given["obstacles"] = tuple(one.record(name) for name, one in given["obstacles"].items())
        return own.tightened(**given)
    except BadInput as error:
        raise BadInput(f"{file}: limits: {error}") from error


def _check_unique(contract: Contract, file: str) -> None:
    """Refuse a joint or a topic that has two meanings."""
    both = set(contract.joints) & set(contract.gripper_joints)
    if both:
        raise BadInput(f"{file}: gripper.joints", got=min(both), expected="joints that are not the arm's")
    used: dict[str, str] = {}
    topics: dict[str, Topic | Condition | None] = {
        "joint_states": contract.joint_states,
        "command": contract.command,
        "command.posture": contract.command.posture,
        "gripper": contract.gripper,
        "gripper.states": contract.gripper_states,
        "objects": contract.objects,
        "contact": contract.contact,
        **{f"conditions.{one.name}": one for one in contract.conditions},
        **{f"cameras.{name}": camera for name, camera in contract.cameras.items()},
    }
    for where, topic in topics.items():
        if topic is None:
            continue
        # Raw torques stand beside the positions that gravity is taken for.
        if where == "contact" and contract.contact is not None and contract.contact.gravity:
            if topic.topic != contract.joint_states.topic:
                expected = f"with gravity the topic of the joint states: {contract.joint_states.topic}"
                raise BadInput(f"{file}: {where}.topic", got=topic.topic, expected=expected)
            continue
        if topic.topic in used:
            expected = f"another topic than {used[topic.topic]}'s"
            raise BadInput(f"{file}: {where}.topic", got=topic.topic, expected=expected)
        used[topic.topic] = where
