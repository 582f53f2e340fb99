"""`RobotSpec`: the facts of one embodiment in one frozen record, and what it observes of itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Protocol

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core import ArraySpec, BadInput
from robolearn.core.se3 import matrix_to_quat, quat_to_matrix, rot6d
from robots.chain import Array, Chain
from robots.ik import IKConfig
from robots.shapes import Piece, box_piece, read_pieces

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


class Gravity:
    """The torques that carry an arm at rest, by MuJoCo's inverse dynamics on its model and tool. Not thread-safe.

        τ = M(q) q̈ + c(q, q̇) + g(q) − τ_ext

    At rest the motors carry g(q) and what the world puts on the arm, so that is g(q) − τ. In motion inertia, Coriolis
    forces and friction are in the difference, too.

    Args:
      mjcf: its model, with gravity and the masses of its links.
      flange: origin of the flange in the frame of the last link [m].
      tool: what is mounted on it besides the model's own hand, or None.
    """

    def __init__(
        self, mjcf: Path, joints: Sequence[str], flange: tuple[float, float, float], tool: Tool | None
    ) -> None:
        spec = mujoco.MjSpec.from_file(str(mjcf))
        if tool is not None and tool.mass > 0.0:
            last = next(body for body in spec.bodies if any(joint.name == joints[-1] for joint in body.joints))
            body = last.add_body(name="robolearn_tool", pos=np.array(flange) + np.array(tool.centre))
            body.mass, body.inertia, body.ipos = tool.mass, np.full(3, 1e-6), np.zeros(3)
            body.explicitinertial = True
        self._model = spec.compile()
        self._data = mujoco.MjData(self._model)
        found = [self._model.joint(name) for name in joints]
        self._q, self._v = (np.array([getattr(joint, at)[0] for joint in found]) for at in ("qposadr", "dofadr"))
        self._out = np.zeros(self._model.nv)

    def torques(self, q: ArrayLike) -> Array:
        """(n,) g(q): what the motors have to give to carry the arm at `q` (n,) [rad], in Nm."""
        self._data.qpos[self._q] = q
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_comVel(self._model, self._data)
        mujoco.mj_rne(self._model, self._data, 0, self._out)
        return self._out[self._v].copy()

    def external(self, q: ArrayLike, effort: ArrayLike) -> Array:
        """(n,) torques that the world puts on the arm at rest at `q` (n,) whose motors give `effort` (n,) [Nm]."""
        return self.torques(q) - np.asarray(effort, dtype=np.float64)


POSITION_FIRST = 10.0  # 1 cm of the tcp's place counts as much as 0.1 rad of its orientation [1/m]


class GripperKind(StrEnum):
    """Kind of gripper: fingers that slide, one jaw that turns, or no gripper at all."""

    PARALLEL = "parallel"
    REVOLUTE = "revolute"
    NONE = "none"


@dataclass(frozen=True)
class GripperSpec:
    """A gripper.

    Raises:
      BadInput: the values do not fit the kind.
    """

    kind: GripperKind
    joints: tuple[str, ...] = ()  # its joint names in the MJCF: two fingers of a parallel gripper, one revolute jaw
    max_width: float = 0.0  # opening between the fingers [m]; a jaw's is taken as linear in its angle
    max_speed: float = 0.0  # of one finger, half that of the opening [m/s]
    max_force: float = 0.0  # grasp force [N]
    # angle of a revolute jaw when closed and when open [rad]; None for the other kinds
    jaw_range: tuple[float, float] | None = None
    # where the middle of a thing of 4 cm is when it is about to be gripped, in the frame of the tcp [m]: between two
    # fingers the tcp itself, beside the finger that stands still of one jaw
    grip: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        count = {GripperKind.PARALLEL: 2, GripperKind.REVOLUTE: 1, GripperKind.NONE: 0}[self.kind]
        if len(self.joints) != count:
            raise BadInput(f"joints of a {self.kind} gripper", got=self.joints, expected=f"{count} names")
        if (self.jaw_range is not None) != (self.kind is GripperKind.REVOLUTE):
            raise BadInput(f"jaw_range of a {self.kind} gripper", got=self.jaw_range, expected="that of a revolute jaw")
        values = (self.max_width, self.max_speed, self.max_force)
        if not all(value > 0 if count else value == 0 for value in values):
            expected = "more than 0" if count else "0"
            raise BadInput(f"width, speed and force of a {self.kind} gripper", got=values, expected=expected)

    @property
    def joint_range(self) -> tuple[float, float]:
        """Position of each joint when closed and when open: of a finger half the opening [m], of a jaw [rad]."""
        return self.jaw_range or (0.0, 0.5 * self.max_width)

    def joint_of(self, width: Array) -> Array:
        """Position of each joint [m, rad] at an opening [m], of any shape."""
        closed, opened = self.joint_range
        return closed + (opened - closed) / self.max_width * width

    def width_of(self, joints: Array) -> Array:
        """(N,) opening [m] from the positions (N, joints) of its joints [m, rad]."""
        closed, opened = self.joint_range
        return (joints - closed).mean(-1) / ((opened - closed) / self.max_width)


NO_GRIPPER = GripperSpec(GripperKind.NONE)


@dataclass(frozen=True)
class RobotSpec:
    """Facts of an arm: model, joint names and limits, tcp, home pose."""

    name: str
    mjcf: Path
    joints: tuple[str, ...]  # the n arm joints, base to tip
    tcp_site: str  # name of the site at the tool centre point (z forward, y along the finger travel)
    home: tuple[float, ...]  # (n,) joint positions [rad]
    velocity: tuple[float, ...]  # (n,) limits [rad/s]
    acceleration: tuple[float, ...]  # (n,) limits [rad/s²]
    jerk: tuple[float, ...]  # (n,) limits [rad/s³]
    effort: tuple[float, ...]  # (n,) limits [N·m]
    gripper: GripperSpec
    source: str  # where the numbers come from
    # its origin in the frame of the last link, whose axes are parallel [m]
    flange: tuple[float, float, float] = (0.0, 0.0, 0.0)
    tool: Tool | None = None  # what a station mounted on the flange; None: the tcp is the model's

    @cached_property
    def chain(self) -> Chain:
        """The kinematic chain base → tcp, read from the model (joint position limits included)."""
        chain = Chain.from_mjcf(self.mjcf, self.joints, self.tcp_site)
        if self.tool is None:
            return chain
        # T_n,tcp = T_n,flange · T_flange,tcp
        tcp = self.tool.tcp
        return replace(chain, tcp_pos=np.array(self.flange) + np.array(tcp.position), tcp_rot=tcp.rotation)

    @property
    def parts(self) -> tuple[ArmPart, ...]:
        """The arms that it consists of: itself."""
        return (ArmPart("", self),)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The joints of each part among those of the robot: all."""
        return (slice(0, len(self.joints)),)

    @property
    def fingers(self) -> tuple[str, ...]:
        """Names of the joints of its gripper in the MJCF."""
        return self.gripper.joints

    def model_spec(self) -> mujoco.MjSpec:
        """Its MJCF, to be added to and compiled."""
        return mujoco.MjSpec.from_file(str(self.mjcf))

    def forward(self, q: Array) -> tuple[Array, Array]:
        """(N, 3) [m] and (N, 3, 3) pose of the tcp at `q` (N, n) [rad], in the base frame."""
        return self.chain.forward(q)

    def width_of(self, fingers: Array) -> Array:
        """(N,) opening [m] from the positions (N, fingers) of the gripper's joints."""
        return self.gripper.width_of(fingers)

    def fingers_of(self, width: Array) -> Array:
        """(N, fingers) positions of the gripper's joints at openings (N,) [m]."""
        return np.repeat(self.gripper.joint_of(width)[..., None], len(self.fingers), axis=-1)

    def proprio(self, q: Array, width: Array, tcp_pos: Array, tcp_rot: Array) -> NDArray[np.float32]:
        """See `proprio`."""
        return proprio(q, width, tcp_pos, tcp_rot)

    @cached_property
    def gravity(self) -> Gravity:
        """Gravity torques of the arm and its tool at rest, read from the model."""
        return Gravity(self.mjcf, self.joints, self.flange, self.tool)

    @cached_property
    def flange_chain(self) -> Chain:
        """The chain base → flange."""
        return replace(self.chain, tcp_pos=np.array(self.flange), tcp_rot=np.eye(3))

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """Collision shapes of the arm and its tool, read from the model; the model's own hand stays."""
        found, n = read_pieces(self.mjcf, self.joints), len(self.joints)
        for box in () if self.tool is None else self.tool.boxes:
            lower, upper = np.array(box.lower), np.array(box.upper)
            centre = np.array(self.flange) + 0.5 * (lower + upper)
            found += (box_piece(box.name, n, 0.5 * (upper - lower), centre, np.eye(3)),)
        return found

    @property
    def ik(self) -> IKConfig:
        """Settings of its inverse kinematics: fewer than six joints give up the orientation, not the place."""
        return IKConfig() if len(self.joints) >= 6 else IKConfig(position_weight=POSITION_FIRST)

    @property
    def action_kind(self) -> str:
        """Default kind of action: with fewer than six joints their positions, which are always reached."""
        return "tcp_delta" if len(self.joints) >= 6 else "joint_position"

    @property
    def lower(self) -> NDArray[np.float64]:
        """(n,) lower joint position limits [rad]."""
        return self.chain.lower

    @property
    def upper(self) -> NDArray[np.float64]:
        """(n,) upper joint position limits [rad]."""
        return self.chain.upper


@dataclass(frozen=True)
class Base:
    """Place of an arm's base in its station: upright, turned about the vertical.

        T_station,base = [ Rz(yaw) | position ]

    Raises:
      BadInput: a number is not finite.
    """

    position: Triple = (0.0, 0.0, 0.0)  # [m]
    yaw: float = 0.0  # [rad]

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (*self.position, self.yaw))):
            raise BadInput("base", got=(*self.position, self.yaw), expected="finite numbers")

    @property
    def rotation(self) -> NDArray[np.float64]:
        """(3, 3) rotation matrix."""
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class ArmPart:
    """An arm as a part of a robot.

    Attributes:
      name: its name there, ``"left"``; empty where the robot is that arm alone.
      robot: the arm.
      base: where it stands.
    """

    name: str
    robot: RobotSpec
    base: Base = Base()

    def named(self, name: str) -> str:
        """Name of something of the arm among those of the robot: ``"left_shoulder_pan"``."""
        return f"{self.name}_{name}" if self.name else name

    @cached_property
    def chain(self) -> Chain:
        """The arm's chain, which knows where its base stands."""
        if self.base == Base():
            return self.robot.chain
        return replace(self.robot.chain, base_pos=np.array(self.base.position), base_rot=self.base.rotation)


class Parted(Protocol):
    """A robot of one arm or of several."""

    @property
    def parts(self) -> tuple[ArmPart, ...]: ...


def proprio_spec(robot: Parted) -> ArraySpec:
    """Proprioception, the same from the simulator and from a real arm: the joints, the opening of the gripper, position
    of the tcp in the arm's base frame, and the first two columns of its rotation; of several arms one after the
    other."""
    rest = ("gripper_width", *(f"tcp_{axis}" for axis in "xyz"), *(f"tcp_rot{i}" for i in range(6)))
    names = tuple(part.named(name) for part in robot.parts for name in (*part.robot.joints, *rest))
    return ArraySpec((len(names),), names=names)


def proprio(q: Array, width: Array, tcp_pos: Array, tcp_rot: Array) -> NDArray[np.float32]:
    """(N, n + 10) from joint positions (N, n) [rad], openings (N,) [m] and poses (N, 3) [m], (N, 3, 3)."""
    return np.concatenate([q, width[:, None], tcp_pos, rot6d(tcp_rot)], -1).astype(np.float32)
