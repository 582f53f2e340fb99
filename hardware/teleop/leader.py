"""LeRobot's SO-100 and SO-101 leader arms: the operator moves a small copy of the arm, joint by joint.

LeRobot drives the servos and keeps the calibration file; both call the joints the same and put their zeros in the
middle of the range, so degrees become radians and nothing else. A thread reads the bus, for a read takes milliseconds
and a lost packet longer. The arm follows only once the leader has been brought to where the arm is.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import termios
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.device import Device, Sample, Status, TeleopConfig, flag
from hardware.teleop.mapping import RobotState, check_action, joint_action
from hardware.teleop.operated import OperatedDevice, OperatorOptions
from hardware.teleop.terminal import EPISODE_HELP
from hardware.teleop.wrapped import reopened
from robolearn.core.errors import BadInput, check_choice, first_line
from robolearn.core.installation import install_command
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots import RobotSpec

KINDS = {"so100": "so100_leader", "so101": "so101_leader"}
SILENCE_S = 0.25
READ_S = 0.01  # between two reads of the bus
JUMP = 1.0  # [rad] from one sample to the next, 20 a second: no hand is so quick
LOOK_S, MOVED = 0.3, 0.03  # in so many seconds a hand that leads goes further than that [rad, of the opening]
HELP = f"bring the leader to where the arm is, then lead · {EPISODE_HELP}"


def lerobot_leader(kind: str, port: str, calibration: str) -> Any:
    """LeRobot's leader arm with the options of `LeaderConfig`, not yet connected; `BadInput` without LeRobot."""
    try:
        module = importlib.import_module("lerobot.teleoperators.so_leader")
        return module.SOLeader(module.SOLeaderTeleopConfig(port=port, id=calibration, use_degrees=True))
    except ImportError as error:
        raise BadInput(
            "leader", got=f"no LeRobot ({error})", expected="lerobot[feetech]", hint=install_command("lerobot")
        ) from error


@dataclass(frozen=True)
class LeaderConfig(TeleopConfig):
    """A leader arm of LeRobot.

    Attributes:
      port: serial port, as ``/dev/ttyACM0``.
      kind: ``"so100"`` or ``"so101"``.
      calibration: the ``--teleop.id`` that ``lerobot-calibrate`` was given.
      align: how near each joint of the leader has to come to the arm's before it is followed [rad].
      silence_s: how long its servos may not answer before it is taken for dead [s].
    """

    name: ClassVar[str] = "leader"
    help: ClassVar[str] = HELP
    needs_terminal: ClassVar[bool] = True
    station: ClassVar[str] = "so101"

    port: str = flag("leader_port", "/dev/ttyACM0", "Serial port of the leader arm; with a comma, of each arm's leader")
    kind: str = "so101"
    calibration: str = flag("leader_id", "leader", "Id of its calibration, lerobot-calibrate --teleop.id, or of each")
    align: float = 0.3
    silence_s: float = SILENCE_S

    def for_arms(self, arms: tuple[str, ...]) -> tuple[TeleopConfig, ...]:
        """A leader for each arm, its port and its calibration in the order of the arms, with commas in between."""
        if len(arms) == 1:
            return (self,)
        each = []
        for what, value in (("leader_port", self.port), ("leader_id", self.calibration)):
            found = [one.strip() for one in value.split(",")]
            if len(set(found) - {""}) != len(arms) or len(found) != len(arms):
                expected = f"{len(arms)} that differ, with a comma in between: those of {' and '.join(arms)}"
                raise BadInput(what, got=value, expected=expected)
            each.append(found)
        return tuple(replace(self, port=port, calibration=known) for port, known in zip(*each, strict=True))

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> Leader:
        return Leader(interface, robot, self, **parts)


class Leader(OperatedDevice, Device):
    """A `Device` of a leader arm; without a dead-man, engaged while its servos answer.

    Args:
      interface, robot: whose action is commanded (``joint_position``), and the arm, with the joints of an SO-101.
      arm: a LeRobot teleoperator to use instead (`connect`, `is_calibrated`, `get_action`, `disconnect`).
      options: see `OperatedDevice`.
    """

    name = "leader"
    moving = False  # see `Clutch`

    def __init__(
        self,
        interface: Interface,
        robot: RobotSpec,
        config: LeaderConfig | None = None,
        *,
        arm: Any = None,
        **options: Unpack[OperatorOptions],
    ) -> None:
        from robots import SO101

        config = config or LeaderConfig()
        check_choice("leader: kind", config.kind, KINDS)
        if robot.joints != SO101.joints:
            raise BadInput("leader: robot", got=robot.name, expected=f"the joints {', '.join(SO101.joints)}")
        check_action(self.name, interface, robot, "joint_position")
        super().__init__(config.silence_s, **options)
        self.robot, self._config, self._given = robot, config, arm
        self._arm: Any = None
        self._newest: tuple[NDArray[np.float64], float] | None = None  # joints [rad], opening [m]
        self._error, self._aligned, self._state = "", False, ""
        self._led: NDArray[np.float64] | None = None  # (n,) where the arm was led last [rad], over whole turns
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._poses: deque[tuple[float, NDArray[np.float64]]] = deque()

    def open(self) -> None:
        self._connect()
        self.open_keys()
        self._screen.print(HELP)

    def reconnect(self) -> bool:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5 * READ_S)
            if self._thread.is_alive():
                return False  # its read of the bus has not come back
        return reopened(self)

    def _connect(self) -> None:
        kind, port, calibration = self._config.kind, self._config.port, self._config.calibration
        arm = self._given or lerobot_leader(kind, port, calibration)
        where = f"leader at {port}"
        try:
            arm.connect(calibrate=False)  # its calibration reads the terminal
        except ImportError as error:
            raise BadInput("leader", got=f"no servo library ({error})", hint=install_command("lerobot")) from error
        except (OSError, RuntimeError) as error:
            raise BadInput(where, got=first_line(error), hint="robolearn doctor lists the serial ports") from error
        if not arm.is_calibrated:
            arm.disconnect()
            command = f"lerobot-calibrate --teleop.type={KINDS[kind]} --teleop.port={port} --teleop.id={calibration}"
            raise BadInput(where, got="no calibration, or another arm's", hint=f"Run: {command}")
        self._arm, self._newest, self._aligned = arm, None, False
        self._poses.clear()
        self._watchdog.start()
        self._stop.clear()
        self._thread = threading.Thread(target=self._listen, name="leader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end()
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)
            self._thread = None
        self._disconnect()

    def _disconnect(self) -> None:
        arm, self._arm = self._arm, None
        if arm is not None:
            with contextlib.suppress(OSError, RuntimeError, termios.error):  # it was unplugged
                arm.disconnect()

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        events = self.key_events()
        if not self._watchdog.alive():
            why = self._watchdog.why + (f" ({self._error})" if self._error else "")
            return Sample(None, False, events, self._watchdog.newest, why)
        stamp, newest = self._watchdog.newest, self._newest
        if newest is None or observation is None:
            return Sample(None, True, events, stamp, self._confirm.note)
        q, width = self._unwrapped(newest[0]), newest[1]
        self.moving = self._moved(np.append(q, width / self.robot.gripper.max_width))
        note = "" if self._aligned else self._misaligned(q, RobotState(observation, self.robot).q)
        self._aligned = not note
        self._led = q if self._aligned else None
        action = joint_action(self.robot, q, width) if self._aligned else None
        return Sample(action, True, events, stamp, self._confirm.note or note)

    def prepared(self) -> None:
        self._aligned = False

    def _unwrapped(self, q: NDArray[np.float64]) -> NDArray[np.float64]:
        """Joints `q` (n,) [rad], which a servo reports within half a turn, on the turn on which they lead:

            q + 2π round((q_led − q) / 2π)

        A joint that is led past half a turn goes on, and its arm stays at the limit instead of going round the other
        way. One that jumps leads no more, until it is brought to where the arm is.
        """
        if self._led is None or not self._aligned:
            return q
        turned = q + 2 * math.pi * np.round((self._led - q) / (2 * math.pi))
        if np.abs(turned - self._led).max() <= JUMP:
            return turned
        self._aligned = False
        return q

    def show(self, status: Status) -> None:
        if status.state != self._state:
            self._aligned = False  # others may have moved the arm
        self._state = status.state
        super().show(status)

    def _moved(self, pose: NDArray[np.float64]) -> bool:
        """True if the leader is elsewhere than `LOOK_S` ago: joints [rad], opening 0 … 1."""
        now = self._watchdog.clock()
        self._poses.append((now, pose))
        while now - self._poses[0][0] > LOOK_S:
            self._poses.popleft()
        return float(np.abs(pose - self._poses[0][1]).max()) > MOVED

    def _misaligned(self, q: NDArray[np.float64], arm: NDArray[np.float64]) -> str:
        """Advice which joint of the leader to move where, or nothing."""
        # A leader may be turned further than the arm's joints go.
        off = np.clip(q, self.robot.lower, self.robot.upper) - arm
        worst = int(np.argmax(np.abs(off)))
        if abs(off[worst]) <= self._config.align:
            return ""
        goal, now = math.degrees(arm[worst]), math.degrees(q[worst])
        return f"bring the leader's {self.robot.joints[worst]} to {goal:.0f}° (now {now:.0f}°)"

    def _listen(self) -> None:
        arm = self._arm
        while not self._stop.is_set():
            try:
                read = arm.get_action()
                q = np.radians([read[f"{joint}.pos"] for joint in self.robot.joints])
                width = read["gripper.pos"] / 100.0 * self.robot.gripper.max_width
                if not np.isfinite([*q, width]).all():
                    raise ValueError("a position that is not finite")
            except Exception as error:  # one lost packet is nothing; if it lasts, the watchdog fails
                self._error = first_line(error)
            else:
                self._newest, self._error = (q, float(width)), ""
                self._watchdog.report()
            self._stop.wait(READ_S)
