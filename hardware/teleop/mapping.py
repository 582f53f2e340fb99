"""From the axes of a device to an action: dead zone, curve, signs, frame, gripper.

A device axis a in [-1, 1] becomes a share of full speed,

    u = sign(a) · max(0, |a| − d) / (1 − d)          dead zone d
    v = scale · ((1 − e) u + e u³)                   expo e: fine near the middle, full at the end

Six of them are a motion of the tcp, along and about x (forward), y (left), z (up) of the base: the operator thinks in
the room, not in the hand. A `tcp_delta` action is in the tcp's own frame, R_base,tcpᵀ v. A `joint_position`
action is of joints: the same motion by the same inverse kinematics, written over the range of the joints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.device import Device, TeleopConfig, flag
from hardware.teleop.operated import OperatedDevice, OperatorOptions
from robolearn.core.errors import BadInput, check_choice
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots import RobotSpec

MOTIONS = ("x", "y", "z", "roll", "pitch", "yaw")
PLUG_IN = "Plug one in; robolearn doctor shows what this user may use"


class Axis(NamedTuple):
    """The device axis that drives a motion: its name there, e.g. ``"left_y"``, sign and share of full speed."""

    name: str
    scale: float = 1.0


@dataclass(frozen=True)
class MappingConfig:
    """Mapping of a device's axes to motions of the arm.

    Attributes:
      axes: motion (one of `MOTIONS`) → device axis; a motion that is not named stays zero.
      dead_zone: d, in [0, 1).
      expo: e, in [0, 1].
      speed: share of full speed of all motions, in (0, 1].
      frame: ``"base"``, or ``"tool"``: along and about the tcp's own axes.
      gripper: ``"toggle"``: a button opens and closes it; ``"analog"``: a trigger sets how far it is closed.
    """

    axes: Mapping[str, Axis] = field(default_factory=dict)
    dead_zone: float = 0.1
    expo: float = 0.5
    speed: float = 1.0
    frame: str = "base"
    gripper: str = "toggle"

    def __post_init__(self) -> None:
        choices = [("frame", self.frame, ("base", "tool")), ("gripper", self.gripper, ("toggle", "analog"))]
        for name, value, allowed in [*(("motion", motion, MOTIONS) for motion in self.axes), *choices]:
            check_choice(f"mapping: {name}", value, allowed)
        for name, value, fits, expected in (
            ("dead_zone", self.dead_zone, 0 <= self.dead_zone < 1, "0 to less than 1"),
            ("expo", self.expo, 0 <= self.expo <= 1, "0 to 1"),
            ("speed", self.speed, 0 < self.speed <= 1, "more than 0, at most 1"),
        ):
            if not fits:
                raise BadInput(f"mapping: {name}", got=value, expected=expected)

    def at(self, speed: float) -> MappingConfig:
        """The same at another speed; 0 leaves it."""
        return replace(self, speed=speed) if speed else self


@dataclass(frozen=True)
class MotionConfig(TeleopConfig):
    """Base of the configs of devices that move the arm by axes.

    Attributes:
      index: which gamepad or SpaceMouse, where several are plugged in.
    """

    speed: float = flag("speed", 0.0, "Share of full speed, up to 1; 0: that of the device")
    index: int = 0

    def for_arms(self, arms: tuple[str, ...]) -> tuple[TeleopConfig, ...]:
        """One for each arm, from `index` on in the order in which they are found."""
        return tuple(replace(self, index=self.index + number) for number in range(len(arms)))


def curve(a: float, dead_zone: float, expo: float) -> float:
    """A device axis in [-1, 1] → a share of full speed in [-1, 1], zero within the dead zone."""
    a = float(np.clip(a, -1.0, 1.0))
    u = np.sign(a) * max(0.0, abs(a) - dead_zone) / (1.0 - dead_zone)
    return float((1.0 - expo) * u + expo * u**3)


def joint_action(robot: RobotSpec, q: NDArray[np.float64], width: float) -> NDArray[np.float32]:
    """(n + 1,) the `joint_position` action that means joints `q` (n,) [rad] and an opening of `width` [m]."""
    from robots import make_control

    q = np.asarray(q, dtype=np.float64)
    return make_control("joint_position", robot).actions(q[None], q[None], np.array([width]))[0].astype(np.float32)


def shortened(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """A motion, longer than the longest step or not, within [-1, 1] and in its direction."""
    return a / max(1.0, float(np.abs(a).max()))


def resting_opening(width: float, max_width: float, commanded: float) -> float:
    """1.0 or 0.0, the command with which a gripper open by `width` of `max_width` [m] stays as it is.

    One that was closed may be held open by what it holds: only one that stands all but fully open has let go.

    Args:
      commanded: the last command, 0 closed to 1 open.
    """
    return float(width > (0.5 if commanded >= 0.5 else 0.9) * max_width)


def check_action(device: str, interface: Interface, robot: RobotSpec, *kinds: str) -> None:
    """Raise `BadInput` unless the interface is of this robot, its action one of the `kinds`, and it has proprio."""
    from robots.spec import proprio_spec

    if interface.action_kind not in kinds:
        raise BadInput(f"{device}: action kind", got=interface.action_kind, expected=" or ".join(kinds))
    if interface.embodiment != robot.name:
        raise BadInput(f"{device}: embodiment", got=interface.embodiment, expected=robot.name)
    found, needed = interface.observation.get("proprio"), proprio_spec(robot)
    if found is None or found.shape != needed.shape:
        got = "nothing" if found is None else tuple(found.shape)
        raise BadInput(f"{device}: observation 'proprio'", got=got, expected=f"{needed.shape} of {robot.name}")


class RobotState:
    """The robot state in one observation (with a world axis of 1, or without).

    Attributes:
      q, width: (n,) joint positions [rad] and opening of the gripper [m].
      rot: (3, 3) orientation of the tcp in the base frame.
    """

    def __init__(self, observation: Mapping[str, NDArray], robot: RobotSpec) -> None:
        vector = np.asarray(observation["proprio"], dtype=np.float64).reshape(-1)
        n = len(robot.joints)
        self.q, self.width = vector[:n], float(vector[n])
        x, y = vector[n + 4 : n + 7], vector[n + 7 : n + 10]
        self.rot = np.stack([x, y, np.cross(x, y)], -1)  # R_base,tcp


class AxisMotion:
    """Turns device axes into actions; holds what has to be remembered: the gripper, and the last joint goal.

    Args:
      device: its name, for errors.
      interface: its action is ``tcp_delta`` or ``joint_position``.

    Raises:
      BadInput: the action is of another kind, or the interface of another arm.
    """

    def __init__(self, device: str, interface: Interface, robot: RobotSpec, config: MappingConfig) -> None:
        from robots import make_control

        check_action(device, interface, robot, "tcp_delta", "joint_position")
        self.config, self.robot = config, robot
        self._joints = interface.action_kind == "joint_position"
        self._tcp_delta = make_control("tcp_delta", robot, interface.control_hz)
        self._opening, self._fresh = 1.0, True  # commanded, 0 closed to 1 open; fresh: as the arm has it
        self._goal: NDArray[np.float64] | None = None

    def restart(self) -> None:
        """The arm may have been moved: take gripper and joints from the next observation, so that nothing jumps."""
        self._fresh, self._goal = True, None

    def action(
        self,
        axes: Mapping[str, float],
        observation: Mapping[str, NDArray] | None,
        *,
        toggles: int = 0,
        squeeze: float | None = None,
    ) -> NDArray[np.float32] | None:
        """(Da,) float32, the action for the axes as they are now; None without an observation to move from.

        Args:
          axes: device axis → its value in [-1, 1].
          toggles: how often the gripper button was pressed since the last call.
          squeeze: how far the trigger is pulled, 0 to 1, for ``gripper="analog"``.
        """
        if observation is None:
            return None
        state = RobotState(observation, self.robot)
        opening, twist = self._grip(state, toggles, squeeze), np.array([self._share(axes, m) for m in MOTIONS])
        if self.config.frame == "base":
            twist = np.concatenate([state.rot.T @ twist[:3], state.rot.T @ twist[3:]])
        twist = np.concatenate([shortened(twist[:3]), shortened(twist[3:])])
        action = np.append(twist, 2.0 * opening - 1.0).astype(np.float32)
        return self._as_joints(state, action, opening) if self._joints else action

    def moves(self, axes: Mapping[str, float]) -> bool:
        """True if an axis that drives a motion is beyond its dead zone."""
        return any(self._share(axes, motion) for motion in MOTIONS)

    def _share(self, axes: Mapping[str, float], motion: str) -> float:
        axis = self.config.axes.get(motion)
        if axis is None:
            return 0.0
        return axis.scale * self.config.speed * curve(axes.get(axis.name, 0.0), self.config.dead_zone, self.config.expo)

    def _grip(self, state: RobotState, toggles: int, squeeze: float | None) -> float:
        if self.config.gripper == "analog" and squeeze is not None:
            return 1.0 - float(np.clip(squeeze, 0.0, 1.0))
        if self._fresh:
            self._opening = resting_opening(state.width, self.robot.gripper.max_width, self._opening)
            self._fresh = False
        if toggles % 2:
            self._opening = 1.0 - self._opening
        return self._opening

    def _as_joints(self, state: RobotState, action: NDArray[np.float32], opening: float) -> NDArray[np.float32]:
        # At rest the last goal is held: a goal taken from the measured joints anew each time would sag with the arm.
        goal = state.q if self._goal is None else self._goal
        if action[:6].any():
            goal = self._tcp_delta.targets(state.q[None], None, action[None])[0][0]
        self._goal = goal
        return joint_action(self.robot, goal, opening * self.robot.gripper.max_width)


class AxisDevice(OperatedDevice, Device):
    """Base of the devices that move the arm by axes.

    Args:
      interface, robot: whose action is commanded, and the arm.
      mapping: in place of the device's own.
      speed: share of full speed; 0: the mapping's.
      index: which one, where several are plugged in.
      silence_s, options: see `OperatedDevice`.
    """

    mapping: ClassVar[MappingConfig]

    def __init__(
        self,
        interface: Interface,
        robot: RobotSpec,
        *,
        mapping: MappingConfig | None = None,
        speed: float = 0.0,
        index: int = 0,
        silence_s: float = math.inf,
        **options: Unpack[OperatorOptions],
    ) -> None:
        super().__init__(silence_s, **options)
        self._motion = AxisMotion(self.name, interface, robot, (mapping or self.mapping).at(speed))
        self.index = index

    def close(self) -> None:
        self._end()
        self._disconnect()

    def prepared(self) -> None:
        self._motion.restart()

    def _disconnect(self) -> None:
        """Let go of the hardware, where there is any beside the terminal."""

    def _pick(self, found: Sequence[Any], names: Iterable[object], hint: str = PLUG_IN) -> Any:
        """The one of `found` that `index` means; raises `BadInput` with the `names` where there are fewer."""
        if self.index >= len(found):
            got, expected = ", ".join(map(str, names)) or "nothing", f"at least {self.index + 1}"
            raise BadInput(self.name, got=got, expected=expected, hint=hint)
        return found[self.index]
