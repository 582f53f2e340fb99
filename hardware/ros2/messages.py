"""ROS messages ↔ arrays. Everything that comes in is checked here or handed on as it is, never repaired.

Stamps are seconds as float64: at today's dates they resolve 0.24 µs, far below what is measured with them.
"""

from __future__ import annotations

import importlib
import json
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from builtin_interfaces.msg import Duration, Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import PoseStamped, WrenchStamped
from numpy.typing import NDArray
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import Float64MultiArray, String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from hardware.execution.horizon import Point
from hardware.safety.states import ArmCommand, SafetyState
from robolearn.core import BadInput, check_choice
from robolearn.core.se3 import quat_to_matrix
from robots.stations import Contract
from robots.stations.parts import WRENCH_NAMES
from robots.stations.pictures import picture as picture  # beside its inverses
from robots.stations.values import FLOATS, POSE, TYPES

Array = NDArray[np.float64]
Values = Sequence[float] | Array


def message_type(name: str) -> Any:
    """The message class of a contract's type, `package/msg/Name`. Raises `BadInput`: a type that no topic of a contract
    may have."""
    known = {one: None for role, types in TYPES.items() if role != "gripper.action" for one in types}
    check_choice("message type", name, known)
    return installed_type(name)


def installed_type(name: str) -> Any:
    """The class `package/msg/Name` or `package/action/Name`, of any package that this Python finds. Raises `BadInput`:
    it is not installed here."""
    package, kind, rest = (*name.split("/", 2), "", "")[:3]
    try:
        return getattr(importlib.import_module(f"{package}.{kind}"), rest)
    except (ImportError, AttributeError):
        what = "action type" if kind == "action" else "message type"
        expected = f"the package {package}, which comes with the driver: source its workspace"
        raise BadInput(what, got=f"{name}, which is not installed", expected=expected) from None


# --- time ----------------------------------------------------------------------------------------------------


def seconds(stamp: Time | Duration) -> float:
    """A stamp or duration [s]."""
    return stamp.sec + 1e-9 * stamp.nanosec


def nanoseconds(stamp: Time) -> int:
    """A stamp [ns], exactly."""
    return stamp.sec * 1_000_000_000 + stamp.nanosec


def stamp_of(value_ns: int) -> Time:
    """The inverse of `nanoseconds`."""
    sec, nanosec = divmod(value_ns, 1_000_000_000)
    return Time(sec=sec, nanosec=nanosec)


def to_stamp(value: float) -> Time:
    """Seconds → stamp; negative and non-finite ones become 0, which receivers refuse."""
    sec, nanosec = _split(value)
    return Time(sec=sec, nanosec=nanosec)


def to_duration(value: float) -> Duration:
    """Seconds → duration."""
    sec, nanosec = _split(value)
    return Duration(sec=sec, nanosec=nanosec)


def _split(value: float) -> tuple[int, int]:
    if not math.isfinite(value) or value < 0:
        return 0, 0
    return divmod(round(value * 1e9), 1_000_000_000)


# --- who -----------------------------------------------------------------------------------------------------


def publisher(info: Mapping[str, Any]) -> bytes | None:
    """The identifier of the publisher of a message with this `MessageInfo`; None where rclpy reports none."""
    gid = info.get("publisher_gid")
    return None if gid is None else bytes(gid["data"])


# --- joints --------------------------------------------------------------------------------------------------


def joint_state(
    names: Sequence[str], positions: Values, stamp: float, velocities: Values = (), efforts: Values = ()
) -> JointState:
    """Names and positions (and velocities, and efforts) as a JointState."""
    message = JointState(
        name=list(names), position=_floats(positions), velocity=_floats(velocities), effort=_floats(efforts)
    )
    message.header.stamp = to_stamp(stamp)
    return message


def _floats(values: Values) -> array[float]:
    """As messages keep them: of a list they would look at each number."""
    return array("d", np.asarray(values, dtype=np.float64).tobytes())


def named(message: JointState) -> tuple[tuple[str, ...], Array]:
    """Names and positions as they are; they need not be equally many."""
    names: Any = message.name
    return tuple(names), np.asarray(message.position, dtype=np.float64)


def felt(message: JointState | WrenchStamped) -> tuple[tuple[str, ...], Array, Array]:
    """Names, torques [Nm] and positions [rad], not always equally many; or the components of a wrench [N], [Nm]."""
    if isinstance(message, WrenchStamped):
        f, m = message.wrench.force, message.wrench.torque
        return WRENCH_NAMES, np.array([f.x, f.y, f.z, m.x, m.y, m.z]), np.empty(0)
    names: Any = message.name
    effort, positions = (np.asarray(one, dtype=np.float64) for one in (message.effort, message.position))
    return tuple(names), effort, positions


def wrench(values: Values, stamp: float, frame: str = "base") -> WrenchStamped:
    """Force [N] and moment [Nm], (6,)."""
    message = WrenchStamped()
    message.header.stamp, message.header.frame_id = to_stamp(stamp), frame
    f, m = message.wrench.force, message.wrench.torque
    f.x, f.y, f.z, m.x, m.y, m.z = (float(x) for x in values)
    return message


def pick(message: JointState, names: Sequence[str]) -> Array:
    """(n,) positions of `names`, in that order, whatever the order in the message. Raises `BadInput`: one is missing,
    comes twice, or has no position."""
    have = list(message.name)
    if len(have) != len(message.position):
        raise BadInput("joint state", got=f"{len(message.position)} positions", expected=f"{len(have)}")
    index = {name: i for i, name in enumerate(have)}
    if len(index) != len(have):
        raise BadInput("joint state", got="a name twice", expected="each name once")
    missing = [name for name in names if name not in index]
    if missing:
        raise BadInput("joint state", got=f"no {missing[0]!r}", expected=", ".join(names), available=have)
    return np.array([message.position[index[name]] for name in names], dtype=np.float64)


# --- chunks and targets --------------------------------------------------------------------------------------

LONGEST_REASON = 400  # characters; it ends on an operator's status line


def _trajectory(names: Sequence[str], stamp: Time, points: Iterable[tuple[Values, Values, float]]) -> JointTrajectory:
    """Of points: positions, velocities, time from start [s]."""
    message = JointTrajectory(joint_names=list(names))
    message.header.stamp = stamp
    message.points = [
        JointTrajectoryPoint(positions=_floats(q), velocities=_floats(v), time_from_start=to_duration(t))
        for q, v, t in points
    ]
    return message


def chunk(names: Sequence[str], actions: NDArray, stamp: Time, period_s: float) -> JointTrajectory:
    """Actions (T, Da) of an observation taken at `stamp`, one every `period_s`."""
    return _trajectory(names, stamp, ((row, (), i * period_s) for i, row in enumerate(actions)))


def read_chunk(message: JointTrajectory) -> tuple[float, tuple[str, ...], Any, Array]:
    """Observation stamp [s], names, actions (T, Da) and times from start (T,) [s]; ragged actions stay a list."""
    rows = [np.asarray(point.positions, dtype=np.float64) for point in message.points]
    even = len({len(row) for row in rows}) == 1
    times = np.array([seconds(point.time_from_start) for point in message.points])
    return seconds(message.header.stamp), tuple(message.joint_names), np.array(rows) if even else rows, times


def target(names: Sequence[str], positions: Values, stamp: Time, after_s: float = 0.0) -> JointTrajectory:
    """One set-point per joint, made from the observation of `stamp` and sent so long after it."""
    return _trajectory(names, stamp, [(positions, (), after_s)])


def stop(reason: str, stamp: Time | None = None) -> JointTrajectory:
    """A target, or an action chunk of the observation of `stamp`, without points: stop, because of `reason`."""
    message = JointTrajectory()
    message.header.frame_id = reason
    if stamp is not None:
        message.header.stamp = stamp
    return message


def stop_reason(message: JointTrajectory) -> str:
    """The reason of an action chunk that is a stop, as one line; empty where it is none."""
    reason = "" if len(message.points) else message.header.frame_id
    return "".join(c if c.isprintable() else " " for c in reason[:LONGEST_REASON])


def trajectory(names: Sequence[str], positions: Values, reach_s: float) -> JointTrajectory:
    """A trajectory of one point, to be reached in `reach_s` from now (its stamp is 0, which means now)."""
    return _trajectory(names, Time(), [(positions, (), reach_s)])


def points(names: Sequence[str], due: Sequence[Point]) -> JointTrajectory:
    """A trajectory of set-points of `names`, in order, that are due at their times of the ROS clock."""
    begin = due[0].at
    return _trajectory(names, to_stamp(begin), ((p.positions, p.velocities, p.at - begin) for p in due))


def pose(position: Array, quaternion: Array, stamp: Time, frame: str = "base") -> PoseStamped:
    """A pose; `quaternion` is wxyz."""
    message = PoseStamped()
    message.header.stamp, message.header.frame_id = stamp, frame
    p, o = message.pose.position, message.pose.orientation
    p.x, p.y, p.z = (float(x) for x in position)
    o.w, o.x, o.y, o.z = (float(x) for x in quaternion)
    return message


def read_pose(message: PoseStamped) -> tuple[Array, Array]:
    """(3,) position [m] and (3, 3) rotation of a pose; of a quaternion without length, not numbers."""
    p, o = message.pose.position, message.pose.orientation
    quat = np.array([o.w, o.x, o.y, o.z])
    length = float(np.linalg.norm(quat))
    rotation = quat_to_matrix(quat / length) if length > 0.5 else np.full((3, 3), np.nan)
    return np.array([p.x, p.y, p.z]), rotation


# --- states --------------------------------------------------------------------------------------------------

LEVELS = {
    SafetyState.ARMED: DiagnosticStatus.OK,
    SafetyState.DISARMED: DiagnosticStatus.OK,
    SafetyState.BRAKING: DiagnosticStatus.WARN,
}


@dataclass(frozen=True)
class SafetyReport:
    """The report of the safety node: its state, the reason, and every value as text; tables and lists are JSON."""

    state: SafetyState
    reason: str
    values: Mapping[str, str]

    @property
    def arming(self) -> str:
        """Number of this arming, empty unless armed. A state between two armings may be missed, but not the number."""
        return self.values.get("arming", "?") if self.state is SafetyState.ARMED else ""


def safety_report(state: SafetyState, reason: str, values: Mapping[str, object], stamp: Time) -> DiagnosticArray:
    """The state of the safety node as diagnostics."""
    status = DiagnosticStatus(
        level=LEVELS.get(state, DiagnosticStatus.ERROR), name="safety", message=reason, hardware_id="robolearn"
    )
    status.values = [KeyValue(key=k, value=_text(v)) for k, v in {"state": state.value, **values}.items()]
    message = DiagnosticArray(status=[status])
    message.header.stamp = stamp
    return message


def _text(value: object) -> str:
    """A value of a report: tables and lists as JSON."""
    return json.dumps(value, default=str) if isinstance(value, dict | list | tuple) else str(value)


def read_safety_report(message: DiagnosticArray) -> SafetyReport | None:
    """The inverse of `safety_report`; None for diagnostics of something else, and for a state that there is not."""
    for status in message.status:
        if status.name == "safety":
            values = {item.key: item.value for item in status.values}
            state = values.pop("state", "")
            return SafetyReport(SafetyState(state), status.message, values) if state in set(SafetyState) else None
    return None


# --- images --------------------------------------------------------------------------------------------------


def image(picture: NDArray[np.uint8], stamp: float, frame: str = "") -> Image:
    """An HWC rgb picture as a raw image."""
    height, width = picture.shape[:2]
    message = Image(height=height, width=width, encoding="rgb8", is_bigendian=0, step=3 * width)
    message.data = np.ascontiguousarray(picture, dtype=np.uint8).tobytes()
    message.header.stamp, message.header.frame_id = to_stamp(stamp), frame
    return message


def compressed_image(picture: NDArray[np.uint8], stamp: float, frame: str = "", quality: int = 90) -> CompressedImage:
    """An HWC rgb picture as a JPEG."""
    import cv2

    done, data = cv2.imencode(".jpg", picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise BadInput("picture", got=f"shape {picture.shape}", expected="(H, W, 3) uint8")
    message = CompressedImage(format="rgb8; jpeg compressed bgr8", data=data.tobytes())
    message.header.stamp, message.header.frame_id = to_stamp(stamp), frame
    return message


def trigger(response: Trigger.Response, done: bool, message: str) -> Trigger.Response:
    """A filled-in answer of a service."""
    response.success, response.message = done, message
    return response


def text(value: str) -> String:
    """A String message."""
    return String(data=value)


# --- a command of the safety filter --------------------------------------------------------------------------


class ControllerMessages:
    """A command of the safety filter as the messages that the controllers of `contract` take; `now` is the stamp of one
    that has any, read when it is made."""

    def __init__(self, contract: Contract, now: Callable[[], Time]) -> None:
        self._contract, self._period, self._now = contract, 1.0 / contract.stream_hz, now

    def command(self, command: ArmCommand) -> Any:
        """For the arm's controller."""
        contract = self._contract
        if contract.command.type == FLOATS:
            data = command.positions.tolist()
            if contract.gripper_in_command:
                assert command.gripper is not None  # or it would not be armed
                data += contract.gripper_joint_positions(command.gripper)
            return Float64MultiArray(data=data)
        if contract.command.type == POSE:
            # Its frame is the robot's base; impedance controllers of the contracts take it without a transform.
            return pose(*command.pose, self._now(), contract.frames.base)
        return trajectory(contract.joints, command.positions, self._period)

    def posture(self, command: ArmCommand, stamp: Time) -> JointState:
        """For the nullspace of a Cartesian controller, beside the command of the same `stamp`."""
        message = joint_state(self._contract.joints, command.positions, 0.0, command.velocities)
        message.header.stamp = stamp
        return message

    def gripper(self, width: float) -> Any:
        """For the gripper's controller: an opening of `width` [m]."""
        contract = self._contract
        assert contract.gripper is not None
        values = contract.gripper_values(width)
        if contract.gripper.type == FLOATS:
            return Float64MultiArray(data=list(values))
        return trajectory(contract.gripper_joints, values, self._period)
