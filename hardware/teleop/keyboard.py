"""The keyboard of a terminal: W A S D R F move, U O I K J L turn, the space bar grips."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TextIO

from numpy.typing import NDArray

from hardware.teleop.confirm_twice import ConfirmTwice
from hardware.teleop.device import Sample, Status
from hardware.teleop.mapping import MOTIONS, Axis, MappingConfig, Motion
from hardware.teleop.terminal import EPISODE_HELP, EPISODE_KEYS, Keys, StatusLine, episode_events
from hardware.teleop.watchdog import Watchdog
from robolearn.core.specs import Interface
from robots import RobotSpec

# Key → motion and direction, in the frame of the base: x forward, y left, z up.
MOVES: dict[str, tuple[str, float]] = {
    "w": ("x", 1.0),
    "s": ("x", -1.0),
    "a": ("y", 1.0),
    "d": ("y", -1.0),
    "r": ("z", 1.0),
    "f": ("z", -1.0),
    "up": ("x", 1.0),
    "down": ("x", -1.0),
    "left": ("y", 1.0),
    "right": ("y", -1.0),
    "u": ("roll", -1.0),
    "o": ("roll", 1.0),
    "i": ("pitch", 1.0),
    "k": ("pitch", -1.0),
    "j": ("yaw", 1.0),
    "l": ("yaw", -1.0),
}
GRIP = "space"
HELP = (
    f"W/S forward/back · A/D left/right · R/F up/down · U/O roll · I/K pitch · J/L yaw · Space gripper · {EPISODE_HELP}"
)

# A key is all or nothing, so full speed is a gentle one: 8 mm and 0.04 rad a step.
CONFIG = MappingConfig(axes={motion: Axis(motion) for motion in MOTIONS}, dead_zone=0.0, expo=0.0, speed=0.4)

assert not {*MOVES, GRIP} & EPISODE_KEYS.keys()


class Keyboard:
    """A `Device` of the keys of a terminal; without a dead-man, engaged while the terminal is there.

    Args:
      interface, robot: whose action it speaks, and the arm.
      mapping: see `MappingConfig`; its axes are named as the motions.
      speed: share of full speed, instead of the mapping's.
      fd: terminal to read, by default standard input.
      out: where the keys and the state are shown, by default standard error.
      clock: steady seconds.
    """

    name = "keyboard"
    help = HELP

    def __init__(
        self,
        interface: Interface,
        robot: RobotSpec,
        *,
        mapping: MappingConfig = CONFIG,
        speed: float | None = None,
        fd: int | None = None,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._motion = Motion(self.name, interface, robot, mapping.at(speed))
        self._keys, self._screen = Keys(fd, clock), StatusLine(out, clock)
        self._watchdog, self._confirm = Watchdog(self.name, clock=clock), ConfirmTwice(clock)

    def open(self) -> None:
        """See `Device.open`."""
        self._keys.open()
        self._motion.restart()
        self._watchdog.start()
        self._screen.say(HELP)

    def close(self) -> None:
        """See `Device.close`; the terminal is as it was."""
        self._watchdog.fail("closed")
        self._screen.close()
        self._keys.close()

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """See `Device.sample`."""
        reports = self._keys.poll()
        if reports:
            self._watchdog.report()
        if self._keys.gone:
            self._watchdog.fail("the terminal is gone")
        events = self._confirm.events(episode_events(reports))
        toggles = sum(new and key == GRIP for key, new in reports)
        axes: dict[str, float] = dict.fromkeys(MOTIONS, 0.0)
        for key, (motion, direction) in MOVES.items():
            axes[motion] += direction * self._keys.held(key)
        engaged = self._watchdog.alive()
        action = self._motion.action(axes, observation, toggles=toggles) if engaged else None
        return Sample(action, engaged, events, self._watchdog.newest, self._watchdog.why or self._confirm.note)

    def prepared(self) -> None:
        """See `Device.prepared`."""
        self._motion.restart()

    def show(self, status: Status) -> None:
        """See `Device.show`."""
        self._confirm.follow(status)
        self._screen.show(status)
