"""The servos of an SO-101 follower by LeRobot's bus, with the calibration file that `lerobot-calibrate` wrote.

LeRobot has the registers, the packets and the calibration. Its `SOFollower` is not used: its `connect` takes the
torque away, writes the settings and gives torque again with the goal that the registers happen to hold, and the garbage
collector takes the torque of one without references.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.servos.driver import ServoBus
from robolearn.core.errors import BadInput, first_line
from robolearn.core.installation import install_command
from robolearn.io.json_files import read_json
from robots import SO101
from robots.stations import Contract, Servos

log = logging.getLogger(__name__)

MODEL = "sts3215"
FOLLOWERS = ("so_follower", "so101_follower")  # folders of their calibration, now and in older versions of LeRobot
TRIES = 3
POSITION_MODE = 0
# As LeRobot sets its follower up: a softer proportional term than the servo's own, a gripper that does not burn out.
SETTINGS: Mapping[str, int] = {
    "Operating_Mode": POSITION_MODE, "P_Coefficient": 16, "I_Coefficient": 0, "D_Coefficient": 32,
    "Return_Delay_Time": 0, "Maximum_Acceleration": 254, "Acceleration": 254,
}  # fmt: skip
GRIPPER_SETTINGS: Mapping[str, int] = {"Max_Torque_Limit": 500, "Protection_Current": 250, "Overload_Torque": 25}


def lerobot_bus(contract: Contract, servos: Servos) -> LeRobotBus:
    """The bus of a contract's servos, not yet open."""
    return LeRobotBus(servos.port, servos.calibration, contract.gripper_range)


class LeRobotBus(ServoBus):
    """A `ServoBus` at a serial port: five joints, and the jaw at so many radians when closed and when open.

    Args:
      calibration: LeRobot's ``id``.
    """

    def __init__(self, port: str, calibration: str, jaw: tuple[float, float]) -> None:
        self._port, self._calibration, self._jaw = port, calibration, jaw
        self._bus: Any = None
        self._names: tuple[str, ...] = ()
        self._where = f"servos at {port}"
        self._run = f"Run: lerobot-calibrate --robot.type=so101_follower --robot.port={port} --robot.id={calibration}"

    def open(self) -> None:
        """See `ServoBus.open`: nothing is written, and no torque lost, where the settings are as they have to be."""
        try:
            self._bus = self._make()
            self._names = tuple(self._bus.motors)
            for tries_left in reversed(range(TRIES)):
                try:
                    with _as_os_error():
                        self._connect()
                    return
                except OSError:  # a lost packet, among some hundred
                    self.close()
                    if not tries_left:
                        raise
        except ImportError as error:
            raise BadInput(
                "servos", got=f"no LeRobot ({error})", expected="lerobot[feetech]", hint=install_command("lerobot")
            ) from error
        except BadInput:
            self.close()
            raise
        except (OSError, RuntimeError) as error:
            self.close()
            got, hint = first_line(error), "robolearn doctor lists the serial ports"
            raise BadInput(self._where, got=got, hint=hint) from error

    def _make(self) -> Any:
        motors = importlib.import_module("lerobot.motors")
        feetech = importlib.import_module("lerobot.motors.feetech")
        folder = importlib.import_module("lerobot.utils.constants").HF_LEROBOT_CALIBRATION / "robots"
        found = [path for name in FOLLOWERS if (path := folder / name / f"{self._calibration}.json").is_file()]
        if not found:
            expected = folder / FOLLOWERS[0] / f"{self._calibration}.json"
            got = f"no calibration called {self._calibration}"
            raise BadInput(self._where, got=got, expected=expected, hint=self._run)
        stored, names = read_json(found[0], what="calibration"), (*SO101.joints, *SO101.gripper.joints)
        if set(stored) != set(names):
            raise BadInput(f"calibration {found[0]}", got=", ".join(stored) or "nothing", expected=", ".join(names))
        try:
            calibration = {name: motors.MotorCalibration(**stored[name]) for name in names}
        except TypeError as error:
            got, expected = first_line(error), "what lerobot-calibrate writes"
            raise BadInput(f"calibration {found[0]}", got=got, expected=expected, hint=self._run) from error
        modes = dict.fromkeys(names, motors.MotorNormMode.DEGREES) | {names[-1]: motors.MotorNormMode.RANGE_0_100}
        made = {name: motors.Motor(calibration[name].id, MODEL, modes[name]) for name in names}
        return feetech.FeetechMotorsBus(self._port, made, calibration)

    def _connect(self) -> None:
        self._bus.connect()
        self._claim()
        if not self._bus.is_calibrated:
            raise BadInput(self._where, got="the calibration of another arm", hint=self._run)
        self._set_up()

    def _claim(self) -> None:
        """Two drivers on one bus would each take the other's answers for its own."""
        try:
            fcntl.flock(self._bus.port_handler.ser.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            expected = "none: end the other robolearn driver"
            raise BadInput(self._where, got="another driver", expected=expected) from None

    def _set_up(self) -> None:
        for name in self._names:
            wanted = {**SETTINGS, **(GRIPPER_SETTINGS if name == self._names[-1] else {})}
            other = {key: value for key, value in wanted.items() if self._bus.read(key, name, normalize=False) != value}
            if other:
                log.warning("servo %s is set up, without torque: %s", name, ", ".join(other))
                self._bus.disable_torque(name)  # it unlocks the memory, too
                for key, value in other.items():
                    self._bus.write(key, name, value, normalize=False)

    def read(self) -> NDArray[np.float64]:
        with _as_os_error():
            found = self._bus.sync_read("Present_Position")
        closed, opened = self._jaw
        *arm, jaw = (found[name] for name in self._names)
        return np.array([*(math.radians(one) for one in arm), closed + (opened - closed) * jaw / 100.0])

    def write(self, goal: NDArray[np.float64]) -> None:
        closed, opened = self._jaw
        share = 100.0 * (float(goal[-1]) - closed) / (opened - closed)
        values = [*np.degrees(goal[:-1]).tolist(), min(max(share, 0.0), 100.0)]
        with _as_os_error():
            self._bus.sync_write("Goal_Position", dict(zip(self._names, values, strict=True)))

    def torque(self, on: bool) -> None:
        with _as_os_error():
            (self._bus.enable_torque if on else self._bus.disable_torque)(num_retry=2)

    def close(self) -> None:
        if self._bus is not None and self._bus.is_connected:
            try:
                with _as_os_error():
                    self._bus.disconnect(disable_torque=False)
            except OSError as error:  # it was unplugged
                log.debug("servos: %s", error)


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Every failure of a serial port, one that was pulled out included, as an `OSError`."""
    try:
        yield
    except (OSError, ImportError, BadInput):
        raise
    except Exception as error:  # termios.error, and what a servo library makes of half a packet
        raise OSError(first_line(error)) from error
