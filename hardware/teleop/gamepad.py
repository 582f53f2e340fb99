"""A gamepad, by SDL's game controllers (pygame): the same names of sticks and buttons whatever the make.

SDL runs without a window: the dummy video driver, and events although nothing of ours has the focus. The left shoulder
button is the dead-man: nothing moves unless it is held.

A pad reports only changes: one that is attached and whose dead-man is off was heard of when it was sampled. Where its
radio link dies and the receiver stays plugged in, all keep their last values: motion that no event renews ends after
`STILL_S`. A cable has no such link.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from hardware.teleop.device import EpisodeEvent, Sample
from hardware.teleop.mapping import PLUG_IN, Axis, AxisDevice, MappingConfig, MotionConfig
from hardware.teleop.wrapped import reopened
from robolearn.core.errors import BadInput, check_choice
from robolearn.core.installation import install_command
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots import RobotSpec

# Numbers of SDL_GameControllerAxis and SDL_GameControllerButton, which SDL keeps stable.
AXES = {"left_x": 0, "left_y": 1, "right_x": 2, "right_y": 3, "left_trigger": 4, "right_trigger": 5}
BUTTONS = {
    "a": 0, "b": 1, "x": 2, "y": 3, "back": 4, "start": 6, "left_shoulder": 9, "right_shoulder": 10,
    "dpad_up": 11, "dpad_down": 12, "dpad_left": 13, "dpad_right": 14,
}  # fmt: skip
DEADMAN = "left_shoulder"
GRIP = "right_shoulder"
EVENTS = {
    "start": EpisodeEvent.START, "a": EpisodeEvent.SUCCESS, "b": EpisodeEvent.FAILURE, "x": EpisodeEvent.DISCARD,
    "y": EpisodeEvent.REDO, "back": EpisodeEvent.QUIT,
}  # fmt: skip
HELP = (
    "hold LB · left stick forward/back/left/right · right stick up/down/yaw · pad pitch/roll · RB gripper · "
    "Start start · A success · B failure · X discard · Y try again · Back quit (Y, Back: twice)"
)

# Sticks are positive to the right and towards the operator; the base's x is forward, y left, z up.
STICKS = {"x": "left_y", "y": "left_x", "z": "right_y", "yaw": "right_x"}
PAD = {"pitch": Axis("dpad_y", -0.5), "roll": Axis("dpad_x", 0.5)}
CONFIG = MappingConfig(axes={motion: Axis(stick, -1.0) for motion, stick in STICKS.items()} | PAD)

# A thumb that holds a stick trembles, and every tremble is an event. A stick against its end, or the pad held down, may
# be silent although a person holds it: then the arm rests until something on the pad moves.
STILL_S = 2.0

EVENT_KINDS = ("AXISMOTION", "BUTTONDOWN", "BUTTONUP", "DEVICEADDED", "DEVICEREMOVED")

_HEADLESS = {
    "SDL_VIDEODRIVER": "dummy",
    "SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS": "1",
    "SDL_NO_SIGNAL_HANDLERS": "1",  # SIGTERM ends the program, not a window
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}


def start_sdl() -> tuple[Any, Any]:
    """SDL without a window: the modules `pygame` and `pygame._sdl2.controller`; `BadInput` without pygame."""
    for name, value in _HEADLESS.items():
        os.environ.setdefault(name, value)
    try:
        import pygame
        from pygame._sdl2 import controller
    except ImportError as error:
        raise BadInput("gamepad", got="no pygame", expected="pygame", hint=install_command("teleop")) from error
    pygame.display.init()  # the event queue lives there
    controller.init()
    return pygame, controller


@dataclass(frozen=True)
class GamepadConfig(MotionConfig):
    """A game controller."""

    name: ClassVar[str] = "gamepad"
    help: ClassVar[str] = HELP
    has_deadman: ClassVar[bool] = True

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> Gamepad:
        return Gamepad(interface, robot, index=self.index, speed=self.speed, **parts)


class Gamepad(AxisDevice):
    """A `Device` of a game controller; for its arguments see `AxisDevice`.

    A mapping's axes are named as in `AXES`, and ``dpad_x``, ``dpad_y``. With ``gripper="analog"`` the right trigger
    closes the gripper.
    """

    name = "gamepad"
    mapping = CONFIG
    reconnect = reopened

    def __init__(self, interface: Interface, robot: RobotSpec, **options: Any) -> None:
        super().__init__(interface, robot, **options)
        available = (*AXES, "dpad_x", "dpad_y")
        for axis in self._motion.config.axes.values():
            check_choice("gamepad: axis", axis.name, available)
        self._pygame: Any = None
        self._pad: Any = None
        self._instance, self._read_kinds, self._unread = -1, list[int](), list[int]()

    def open(self) -> None:
        self._connect()

    def _connect(self) -> None:
        self._pygame, controller = start_sdl()
        # Each pad is a plain joystick too, and pygame stumbles over the events of those that it did not open itself.
        # They cannot be blocked, for SDL makes its own of them: they are left in the queue, and cleared unread.
        kinds = {name: kind for name, kind in vars(self._pygame).items() if isinstance(kind, int)}
        self._unread = [kind for name, kind in kinds.items() if name.startswith("JOY")]
        self._read_kinds = [kinds[f"CONTROLLER{kind}"] for kind in EVENT_KINDS]
        self._pygame.event.pump()
        count = controller.get_count()
        pads = [i for i in range(count) if controller.is_controller(i)]
        unknown = ", ".join(str(controller.name_forindex(i)) for i in range(count) if i not in pads)
        hint = f"SDL has no layout of {unknown}: set SDL_GAMECONTROLLERCONFIG to its mapping" if unknown else PLUG_IN
        self._pad = controller.Controller(self._pick(pads, map(controller.name_forindex, pads), hint))
        self._instance = self._pad.as_joystick().get_instance_id()  # the pad's own `id` is its place in the list
        self._pygame.event.clear()  # what happened before is not meant for us
        self._begin(f"{self._pad.name}: {HELP}")

    def _disconnect(self) -> None:
        if self._pad is not None:
            self._pad.quit()
            self._pad = None

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        pressed = self._pressed()
        events = self._confirm.events(EVENTS[name] for name in pressed if name in EVENTS)
        alive = self._watchdog.alive()
        held = self._held(DEADMAN) if alive else False
        action, stale = None, False
        if held:
            axes = self._axes()
            stale = self._motion.moves(axes) and self._watchdog.clock() - self._watchdog.newest > STILL_S
        if held and not stale:
            pull = max(0.0, axes["right_trigger"])
            action = self._motion.action(axes, observation, toggles=pressed.count(GRIP), squeeze=pull)
        still = f"nothing new from the pad for {STILL_S:g} s: move the stick" if stale else ""
        note = self._watchdog.why or self._confirm.note or (still if held else "hold LB to move")
        stamp = self._watchdog.clock() if alive and not held else self._watchdog.newest
        return Sample(action, held, events, stamp, note, released=None if held else alive)

    def _pressed(self) -> list[str]:
        """Buttons that went down since the last call, in order; notices a pad that is gone."""
        if self._pad is None:
            return []
        names = {number: name for name, number in BUTTONS.items()}
        pressed = []
        queue = self._pygame.event
        for event in queue.get(self._read_kinds):
            if getattr(event, "instance_id", None) != self._instance:
                continue
            self._watchdog.report()
            if event.type == self._pygame.CONTROLLERBUTTONDOWN and event.button in names:
                pressed.append(names[event.button])
            elif event.type == self._pygame.CONTROLLERDEVICEREMOVED:
                self._watchdog.fail("unplugged")
        queue.clear(self._unread, pump=False)
        if not self._pad.attached():
            self._watchdog.fail("unplugged")
        return pressed

    def _held(self, button: str) -> bool:
        return bool(self._pad.get_button(BUTTONS[button]))

    def _axes(self) -> dict[str, float]:
        axes = {name: self._pad.get_axis(number) / 32767.0 for name, number in AXES.items()}
        axes["dpad_x"] = float(self._held("dpad_right")) - float(self._held("dpad_left"))
        axes["dpad_y"] = float(self._held("dpad_down")) - float(self._held("dpad_up"))
        return axes
