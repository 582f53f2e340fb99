"""What the devices that move the arm by axes share: keyboard, gamepad and SpaceMouse."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TextIO, TypedDict

from hardware.teleop.confirm_twice import ConfirmTwice
from hardware.teleop.device import Status
from hardware.teleop.mapping import MappingConfig, Motion
from hardware.teleop.terminal import StatusLine
from hardware.teleop.watchdog import Watchdog
from robolearn.core.specs import Interface
from robots import RobotSpec


class MotionOptions(TypedDict, total=False):
    """Options of every such device, see `MotionDevice`."""

    speed: float | None
    out: TextIO | None
    clock: Callable[[], float]


class MotionDevice:
    """Axes become a motion, the state is shown in a terminal, and what drops an episode is asked back.

    Args:
      interface, robot: whose action is commanded, and the arm.
      mapping: see `MappingConfig`; the names of its axes are the device's.
      silence_s: without a report for longer, the dead-man is off [s].
      speed: share of full speed, instead of the mapping's.
      out: where keys or buttons and the state are shown, by default standard error.
      clock: steady seconds.
    """

    name = ""
    help = ""

    def __init__(
        self,
        interface: Interface,
        robot: RobotSpec,
        mapping: MappingConfig,
        silence_s: float = math.inf,
        *,
        speed: float | None = None,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._motion = Motion(self.name, interface, robot, mapping.at(speed))
        self._screen, self._watchdog = StatusLine(out, clock), Watchdog(self.name, silence_s, clock)
        self._confirm = ConfirmTwice(clock)

    @property
    def gone(self) -> str:
        """What the device died of; empty while it lives."""
        return self._watchdog.why

    def prepared(self) -> None:
        """See `Device.prepared`."""
        self._motion.restart()

    def show(self, status: Status) -> None:
        """See `Device.show`."""
        self._confirm.follow(status)
        self._screen.show(status)

    def _begin(self, line: str) -> None:
        """The device is open: motion starts anew, the watchdog counts from now, `line` is shown."""
        self._motion.restart()
        self._watchdog.start()
        self._screen.print(line)

    def _end(self) -> None:
        """The device is closed."""
        self._watchdog.fail("closed")
        self._screen.close()
