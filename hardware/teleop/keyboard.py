"""The keyboard of a terminal: W A S D R F move, U O I K J L turn, the space bar grips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from hardware.teleop.device import Sample, TeleopConfig
from hardware.teleop.mapping import MOTIONS, Axis, AxisDevice, MappingConfig, MotionConfig
from hardware.teleop.terminal import EPISODE_HELP, EPISODE_KEYS, episode_events
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots import RobotSpec

# Key → motion and direction, in the frame of the base: x forward, y left, z up.
MOVES: dict[str, tuple[str, float]] = {
    "w": ("x", 1.0), "s": ("x", -1.0), "a": ("y", 1.0), "d": ("y", -1.0), "r": ("z", 1.0), "f": ("z", -1.0),
    "up": ("x", 1.0), "down": ("x", -1.0), "left": ("y", 1.0), "right": ("y", -1.0),
    "u": ("roll", -1.0), "o": ("roll", 1.0), "i": ("pitch", 1.0), "k": ("pitch", -1.0),
    "j": ("yaw", 1.0), "l": ("yaw", -1.0),
}  # fmt: skip
GRIP = "space"
HELP = (
    f"W/S forward/back · A/D left/right · R/F up/down · U/O roll · I/K pitch · J/L yaw · Space gripper · {EPISODE_HELP}"
)

# A key is all or nothing, so full speed is a gentle one: 8 mm and 0.04 rad a step.
CONFIG = MappingConfig(axes={motion: Axis(motion) for motion in MOTIONS}, dead_zone=0.0, expo=0.0, speed=0.4)

assert not {*MOVES, GRIP} & EPISODE_KEYS.keys()


@dataclass(frozen=True)
class KeyboardConfig(MotionConfig):
    """The keys of a terminal."""

    name: ClassVar[str] = "keyboard"
    help: ClassVar[str] = HELP
    needs_terminal: ClassVar[bool] = True

    for_arms = TeleopConfig.for_arms  # a second terminal is not read

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> Keyboard:
        return Keyboard(interface, robot, speed=self.speed, **parts)


class Keyboard(AxisDevice):
    """A `Device` of the keys of a terminal; without a dead-man, engaged while the terminal is there."""

    name = "keyboard"
    mapping = CONFIG
    moving = False  # see `Clutch`

    def open(self) -> None:
        self._keys.open()
        self._begin(HELP)

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
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
        self.moving = toggles > 0 or any(self._keys.held(key) for key in MOVES)
        engaged = self._watchdog.alive()
        action = self._motion.action(axes, observation, toggles=toggles) if engaged else None
        return Sample(action, engaged, events, self._watchdog.newest, self._watchdog.why or self._confirm.note)
