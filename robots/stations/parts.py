"""Parts of a station's contract: topics, gripper, servos, conditions; checked where they come from a file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    StrictBool,
    StrictFloat,
    StrictInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from robots.arms import SO101
from robots.stations import values

HORIZON_S = (0.0, 0.1)  # silence means stop: not that much later
POSE_JOINTS = 6  # that a pose settles
WRENCH_NAMES = ("fx", "fy", "fz", "mx", "my", "mz")
Horizon = Annotated[StrictFloat, values.within(*HORIZON_S)]
# --- topics ------------------------------------------------------------------------------------------------


@values.section
class Topic:
    """A ROS topic.

    Attributes:
      topic: its absolute name, e.g. ``"/joint_states"``; in a file relative ones are those of the namespace.
      type: its message type in full, e.g. ``"sensor_msgs/msg/JointState"``.
      max_age_s: greatest age of the last message [s], by local arrival time.
    """

    topic: values.TopicName
    type: str
    max_age_s: values.Age = 0.1


@values.section
class JointStates(Topic):
    """Topic of measured joints, in any order."""

    type: Annotated[str, values.one_of(values.TYPES["joint_states"])]


@values.section
class CommandTopic(Topic):
    """Topic of set-points: `Float64MultiArray`, one-point `JointTrajectory`, or the tcp's `PoseStamped`.

    Attributes:
      horizon_s: how far ahead of the arm set-points are sent [s], for a trajectory controller: no motion ends because a
        message comes late, and the arm follows that much later. 0: each is for now.
      posture: where the joints of a commanded pose go, as a `JointState`: an arm with more than six takes a pose by
        many of them, and only those that the safety filter looked at are meant. None: nowhere.
    """

    type: Annotated[str, values.one_of(values.TYPES["command"])]
    horizon_s: Horizon = 0.0
    posture: JointStates | None = None

    @model_validator(mode="after")
    def _check_posture(self, info: ValidationInfo) -> CommandTopic:
        redundant = len(values.robot_of(info).joints) > POSE_JOINTS
        if self.type == values.POSE and redundant and self.posture is None:
            raise values.refuse("the key 'posture': with more than six joints a pose does not determine the elbow")
        if self.type != values.POSE and self.posture is not None:
            raise values.refuse(f"a posture with the type {values.POSE}", got=self.type)
        return self

    @model_validator(mode="after")
    def _check_horizon(self) -> CommandTopic:
        if self.horizon_s > 0 and self.type != values.TRAJECTORY:
            raise values.refuse(
                f"a horizon_s of 0, or the type {values.TRAJECTORY}", got=f"horizon_s {self.horizon_s:g}"
            )
        return self


@values.section
class Objects(Topic):
    """The task's privileged vector as named positions (simulation only)."""

    type: Annotated[str, values.one_of(values.TYPES["objects"])]


@values.section
class ContactSensing(Topic):
    """External torques of the joints, or the wrench at the tool, and the magnitudes that stop the arm.

    A `JointState` has the external torque of each joint in its efforts: the driver's own estimate, without gravity,
    inertia and friction; with `gravity` the raw torque of each motor, from which the model's gravity is taken here. A
    `WrenchStamped` has force and moment at the tool, without the tool's weight.

    Attributes:
      max_torque: of each joint [Nm].
      max_force: at the tool [N].
      max_moment: at the tool [Nm].
      gravity: the efforts hold gravity: those of the joint states, beside the positions that it is taken for.
    """

    type: Annotated[str, values.one_of(values.TYPES["contact"])]
    max_torque: values.PerJoint | None = None
    max_force: values.Share | None = None
    max_moment: values.Share | None = None
    gravity: StrictBool = False

    @model_validator(mode="after")
    def _check_most(self, info: ValidationInfo) -> ContactSensing:
        given = [name for name in ("max_torque", "max_force", "max_moment") if getattr(self, name) is not None]
        expected = ["max_torque"] if self.type == values.JOINT_STATE else ["max_force", "max_moment"]
        if given != expected:
            raise values.refuse(" and ".join(expected), got=", ".join(given) or "nothing")
        if self.gravity and self.type != values.JOINT_STATE:
            raise values.refuse(f"gravity with the type {values.JOINT_STATE}", got=self.type)
        effort = values.robot_of(info).effort
        for most, own in zip(self.max_torque or (), effort, strict=False):
            if not 0.0 < most < own:
                words = ", ".join(f"{own:g}" for own in effort)
                raise values.refuse(f"torques above 0 and below those of the joints: {words} Nm", got=f"{most:g}")
        return self

    @property
    def most(self) -> tuple[float, ...]:
        """The largest magnitudes: of the torque of each joint [Nm], or of force [N] and moment [Nm]."""
        return self.max_torque or (self.max_force or 0.0, self.max_moment or 0.0)

    @property
    def feature(self) -> str:
        """Its name as an observation: ``external_torque`` [Nm], (n,), or ``wrench`` [N, Nm], (6,)."""
        return "wrench" if self.type == values.WRENCH else "external_torque"


@values.section
class Condition:
    """One number that a driver publishes, and which of its values permit motion: a program that plays, no stop.

    Attributes:
      name: in the contract.
      topic: its absolute name.
      type: its message type in full; any that is installed.
      field: of the message.
      latched: published on change only, and kept for those who come later; else it has to keep coming.
      max_age_s: greatest age [s], where it is not latched.
      allowed: the values that permit motion; empty: all from `least` on.
      least: the least that does.
      words: value → its meaning, for reasons.
      mend: remedy, in words.
    """

    injected: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    topic: values.TopicName
    type: Annotated[
        values.Word,
        values.matching("[a-z][a-z0-9_]*/msg/[A-Z][A-Za-z0-9]*", "a message type such as std_msgs/msg/Bool"),
    ]
    field: Annotated[values.Word, values.matching(r"[^\W\d_]\w*", "the name of a field")] = "data"
    latched: StrictBool = False
    max_age_s: values.Age = 0.5
    allowed: tuple[StrictInt, ...] = ()
    least: values.Finite = -math.inf
    words: Mapping[StrictInt, values.Word] = dataclasses.field(default_factory=dict)
    mend: values.Word = ""

    @model_validator(mode="after")
    def _check_values(self) -> Condition:
        if bool(self.allowed) == math.isfinite(self.least):
            raise values.refuse("either allowed or least", got="both" if self.allowed else "nothing")
        if not self.mend:
            raise values.refuse("the key 'mend'", got="nothing")
        return self

    def permits(self, value: float) -> bool:
        """True where the arm may move at that value; never at one that is not finite."""
        return math.isfinite(value) and (value in self.allowed if self.allowed else value >= self.least)

    def report(self, value: float) -> str:
        """The value in words, with its remedy."""
        word = self.words.get(int(value)) if math.isfinite(value) and value == int(value) else None
        expected = " or ".join(self.words.get(v, str(v)) for v in self.allowed) or f"at least {self.least:g}"
        return self._mended(f"the {self.name} is {word or f'{value:g}'}, expected {expected}")

    def silent(self, seconds: float) -> str:
        """Report of a silence, from the start (infinite) or for `seconds`."""
        what = "nothing arrived yet" if math.isinf(seconds) else f"silent for {seconds:.2f} s"
        return self._mended(f"the {self.name} on {self.topic}: {what}")

    def _mended(self, text: str) -> str:
        return f"{text}: {self.mend}" if self.mend else text


# --- gripper -----------------------------------------------------------------------------------------------


@values.section
class GripperAction:
    """The action of a gripper that takes no topic; the node `gripper` passes openings on to it.

    Attributes:
      name: of the action, or of the node whose actions are `move` and `grasp`.
      type: in full, e.g. ``"control_msgs/action/GripperCommand"``.
      speed: [m/s], where the action has one.
      force: while closing [N]; the greatest effort, where the action has no force.
    """

    name: values.TopicName
    type: Annotated[str, values.one_of(values.TYPES["gripper.action"])]
    speed: values.Share = 0.1
    force: values.Share = 20.0


@values.section
class Gripper(Topic):
    """Topic of gripper commands.

    Attributes:
      unit: ``"opening"``: one number, the distance between the fingers [m]; ``"joint"``: the position of each
        gripper joint. A `JointTrajectory` is always of joints.
      action: to which the node `gripper` passes on what comes on the topic, or None.
    """

    unit: str = "opening"
    action: GripperAction | None = None


@values.section
class GripperForm:
    """The gripper, in the words of `Gripper`; without a topic it is measured and not commanded, unless its joints are
    in the arm's command.

    Attributes:
      joints: their ROS names in the joint states.
      states: where it is measured, where that is not on the arm's joint states.
      in_command: the positions of its joints are the last numbers of the arm's command vector.
      closed, open: position of each joint when closed and when open, in the driver's unit; by default the model's.
    """

    joints: Annotated[tuple[values.Word, ...], AfterValidator(values.unique), values.must(bool, "at least one joint")]
    topic: values.TopicName | None = None
    type: Annotated[str, values.one_of(values.TYPES["gripper"])] | None = None
    states: JointStates | None = None
    action: GripperAction | None = None
    max_age_s: values.Age = Topic.max_age_s
    unit: str | None = None
    in_command: StrictBool = False
    closed: values.GripperPosition | None = None
    open: values.GripperPosition | None = None

    @field_validator("unit", mode="before")
    @classmethod
    def _check_unit(cls, unit: Any, info: ValidationInfo) -> Any:
        # A trajectory is always of joints.
        available = ("joint",) if info.data.get("type") == values.TRAJECTORY else ("opening", "joint")
        if unit not in available:
            raise values.refuse(available=available)
        return unit

    @model_validator(mode="after")
    def _check_type(self) -> GripperForm:
        if self.topic is not None and self.type is None:
            raise values.refuse("the key 'type'", got="nothing")
        if self.in_command and (self.topic is not None or self.action is not None):
            raise values.refuse("either in_command or a topic of its own", got="both")
        if self.action is not None and self.type != values.FLOATS:
            raise values.refuse(f"a topic of the type {values.FLOATS} for an action", got=self.type or "nothing")
        return self

    def commanded(self) -> Gripper | None:
        """Topic of its commands; None where it is only measured."""
        if self.topic is None or self.type is None:
            return None
        unit = self.unit or ("joint" if self.type == values.TRAJECTORY else Gripper.unit)
        return Gripper(self.topic, self.type, self.max_age_s, unit, self.action)


@values.section
class ServoPort:
    """A bus of servos.

    Attributes:
      port: its serial port, e.g. ``"/dev/ttyACM0"``.
      calibration: LeRobot's ``id``, which names the calibration file.
    """

    port: Annotated[values.Word, values.matching("(?s)/dev/.*", "a serial port such as /dev/ttyACM0")]
    # It becomes the name of a file.
    calibration: Annotated[
        values.Word, values.matching("[A-Za-z0-9][A-Za-z0-9_.-]*", "the --robot.id that lerobot-calibrate was given")
    ]


@values.section
class Servos(ServoPort):
    """Those that the node `servos` drives, for an arm without a ROS driver."""

    @model_validator(mode="after")
    def _check_robot(self, info: ValidationInfo) -> Servos:
        robot = values.robot_of(info)
        if (robot.joints, robot.gripper.joints) != (SO101.joints, SO101.gripper.joints):
            raise values.refuse(f"none: LeRobot's bus of servos is that of {SO101.name}", got=f"robot {robot.name}")
        return self
