"""The driver of an arm of bus servos: conditions of torque, checked set-points, and checked readings.

A servo follows its goal register by itself, as long as it has power, whatever becomes of the program. So:

- Torque comes on with the goal where the servo *is*. The register may hold a goal of last week.
- A set-point that is not finite, of another length, outside the limits or farther from the arm than `max_jump` is never
  written. One of two publishers is right, and which is unknown: then neither is followed.
- When set-points stop, the goal stays. An arm that has not come to it by then is blocked, and presses on with all it
  has: its goal becomes where it is. The gripper's stays: it holds what it has closed on.
- What cannot be read is not published, and never made up. Servos that are silent for `LOST_S` end the driver.
- At the end the servos keep their torque and their goal, unless `release` is asked for: an arm without torque falls.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import RobolearnError

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

SILENCE_S = 0.25  # without a set-point: the filter sends a hundred a second
BLOCKED_RAD = 0.15  # from its goal when set-points have stopped; gravity takes less from a servo without integral
LOST_S = 1.0
OUTSIDE_RAD = 0.01  # a set-point at a limit, through numbers of 12 bits
TRIES = 5  # reads at the beginning


class ServosLost(RobolearnError):
    """The servos do not answer any more."""


class Reading(NamedTuple):
    """(n,) positions of the servos [rad], and when the question was sent and the last answer was there [s]."""

    positions: Array
    began: float
    ended: float


class ServoBus(Protocol):
    """n servos on one bus; `hardware.servos.lerobot_bus.LeRobotBus` is one. Positions in radians, in a fixed order."""

    def open(self) -> None:
        """Open the port, find the servos, and set them up, with torque or without. Raises `BadInput`."""

    def read(self) -> Array:
        """(n,) where they are. Raises `OSError`."""
        ...

    def write(self, goal: Array) -> None:
        """Set (n,) goals. Raises `OSError`."""

    def torque(self, on: bool) -> None:
        """Raises `OSError`."""

    def close(self) -> None:
        """Close the port; the servos stay as they are."""


class ServoDriver:
    """Not thread-safe: one thread calls it.

    Args:
      joints: n names.
      lower, upper: (n,) positions that set-points may have [rad].
      max_jump: (n,) how far from where the joint is a set-point may be [rad]; infinite for a gripper, which closes
        until it meets something.
      limp: never give torque: the arm is moved by hand, and measured.
      clock: steady time [s].

    Attributes:
      read, lost: reads that were answered, and that were not.
      written, refused: set-points that were, and that were not.
      ended: the bus is closed.
    """

    def __init__(
        self,
        bus: ServoBus,
        joints: Sequence[str],
        lower: Array,
        upper: Array,
        max_jump: Array,
        *,
        limp: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus, self._joints, self._limp, self._clock = bus, tuple(joints), limp, clock
        self._lower, self._upper = np.asarray(lower) - OUTSIDE_RAD, np.asarray(upper) + OUTSIDE_RAD
        self._max_jump = np.asarray(max_jump, dtype=np.float64)
        self._measured: Array | None = None
        self._heard = self._told = -math.inf  # when the servos last answered, when a set-point last came
        self._goal: Array | None = None  # as last written
        self._wanted: Array | None = None  # to be written
        self._following = self._refusing = False  # set-points come, the newest was refused
        self.read = self.lost = self.written = self.refused = 0
        self.ended = False

    def begin(self) -> None:
        """Open the bus, and let the servos hold where they are; raises `BadInput`, and `ServosLost` if silent."""
        self._bus.open()
        try:
            self._take_hold()
        except BaseException:
            self._bus.close()
            raise

    def _take_hold(self) -> None:
        if not any(self._read() for _ in range(TRIES)) or self._measured is None:
            raise ServosLost(f"the servos do not answer; {TRIES} reads failed")
        try:
            if self._limp:
                self._bus.torque(False)
                return
            self._bus.write(self._measured)
            self._bus.torque(True)
        except OSError as error:
            raise ServosLost(f"the servos take no goal: {error}") from error
        self._goal = self._measured

    # --- set-points ------------------------------------------------------------------------------------------

    def command(self, values: Sequence[float], others: int = 0) -> bool:
        """A set-point arrived, (n,) [rad], with so many `others` that publish set-points; true if it is followed."""
        reason = self._against(values, others)
        if reason:
            self.refused += 1
            if not self._refusing:
                log.error("set-points are refused, the arm holds: %s", reason)
            self._wanted, self._refusing = None, True
            return False
        self._wanted, self._told = np.array(values, dtype=np.float64), self._clock()
        self._following, self._refusing = True, False
        return True

    def _against(self, values: Sequence[float], others: int) -> str:
        if self._limp:
            return "the servos have no torque (limp)"
        if others > 0:
            return f"{others + 1} publishers of set-points"
        if len(values) != len(self._joints):
            return f"{len(values)} numbers; expected {len(self._joints)}: {', '.join(self._joints)}"
        goal = np.asarray(values, dtype=np.float64)
        outside = ((goal < self._lower) | (goal > self._upper), "outside its limits")
        for bad, why in ((~np.isfinite(goal), "not finite"), outside):
            if bad.any():
                i = int(np.argmax(bad))
                return f"{self._joints[i]} at {goal[i]:.3f} rad: {why}"
        if self._measured is None or self._clock() - self._heard > SILENCE_S:
            return "the servos do not answer"
        away = np.abs(goal - self._measured)
        i = int(np.argmax(away / self._max_jump))
        if away[i] > self._max_jump[i]:
            return f"{self._joints[i]} {away[i]:.3f} rad from where it is, allowed {self._max_jump[i]:g}"
        return ""

    # --- once a period ---------------------------------------------------------------------------------------

    def tick(self) -> Reading | None:
        """Read the servos, and write what they are to do; None where they did not answer.

        Raises:
          ServosLost: they have not answered for `LOST_S`.
        """
        reading = self._read()
        now = self._clock()
        if reading is None and now - self._heard > LOST_S:
            raise ServosLost(f"the servos have been silent for {now - self._heard:.1f} s; they hold their last goal")
        if self._following and now - self._told > SILENCE_S:
            self._hold(reading)
        if self._wanted is not None:
            self._write(self._wanted)
        return reading

    def _hold(self, reading: Reading | None) -> None:
        """Set-points have stopped."""
        if reading is None or self._goal is None:
            return  # as soon as it is known where the arm is
        self._following = False
        arm = np.isfinite(self._max_jump)
        if np.abs(self._goal - reading.positions)[arm].max() > BLOCKED_RAD:
            log.warning("set-points have stopped and the arm is blocked: it holds where it is")
            self._wanted = np.where(arm, reading.positions, self._goal)

    def _write(self, goal: Array) -> None:
        try:
            self._bus.write(goal)
        except OSError as error:
            self.lost += 1
            log.debug("goal not written: %s", error)
            return  # again at the next period, unless a newer one comes
        self._goal, self._wanted = goal, None
        self.written += 1

    def _read(self) -> Reading | None:
        began = self._clock()
        try:
            positions = np.asarray(self._bus.read(), dtype=np.float64)
            if not np.isfinite(positions).all():
                raise OSError("not finite")
        except OSError as error:
            self.lost += 1
            log.debug("not read: %s", error)
            return None
        self._heard, self._measured = self._clock(), positions
        self.read += 1
        return Reading(positions, began, self._heard)

    def end(self, release: bool = False) -> None:
        """Close the bus. The servos hold their last goal, or lose their torque (`release`)."""
        self.ended = True
        try:
            if release:
                self._bus.torque(False)
        except OSError as error:
            log.error("the servos may still have torque: %s", error)
        finally:
            self._bus.close()
