"""A gamepad that is not there: SDL's own virtual joystick, in the very library that pygame has loaded."""

from __future__ import annotations

import ctypes
from pathlib import Path

from hardware.teleop.gamepad import AXES, BUTTONS, start_sdl

_GAMECONTROLLER = 1  # SDL_JOYSTICK_TYPE_GAMECONTROLLER
_SUBSYSTEMS = 0x200 | 0x2000  # SDL_INIT_JOYSTICK | SDL_INIT_GAMECONTROLLER
_LARGEST = 32767


def _sdl() -> ctypes.CDLL:
    start_sdl()
    # pygame's wheels bring a library of their own; another one would have other joysticks.
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {line.split()[-1] for line in maps if "libSDL2-2" in line}
    (path,) = loaded
    sdl = ctypes.CDLL(path)
    sdl.SDL_JoystickOpen.restype = ctypes.c_void_p
    sdl.SDL_JoystickClose.argtypes = [ctypes.c_void_p]
    sdl.SDL_JoystickInstanceID.argtypes = [ctypes.c_void_p]
    sdl.SDL_JoystickSetVirtualAxis.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int16]
    sdl.SDL_JoystickSetVirtualButton.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint8]
    return sdl


class VirtualGamepad:
    """Plugged in while it is open (`with VirtualGamepad() as pad`); from then on `Gamepad.open` finds it.

    `index` is its place among the pads, behind those that are really there: `Gamepad(…, index=pad.index)`. Names of
    axes and buttons are those of `hardware.teleop.gamepad`. May be used from another thread than the one that samples
    the device.
    """

    def __init__(self) -> None:
        self._sdl = _sdl()
        self.index = -1
        self._pad: int | None = None

    def __enter__(self) -> VirtualGamepad:
        self.plug()
        return self

    def __exit__(self, *_: object) -> None:
        self.unplug()

    def plug(self) -> None:
        assert self._sdl.SDL_InitSubSystem(_SUBSYSTEMS) == 0
        index = self._sdl.SDL_JoystickAttachVirtual(_GAMECONTROLLER, len(AXES), 15, 0)
        assert index >= 0, "SDL has no virtual joysticks"
        self.index = sum(bool(self._sdl.SDL_IsGameController(i)) for i in range(index))
        self._pad = self._sdl.SDL_JoystickOpen(index)
        for trigger in ("left_trigger", "right_trigger"):
            self.axis(trigger, -1.0)  # released

    def unplug(self) -> None:
        if self._pad is None:
            return
        ours = self._sdl.SDL_JoystickInstanceID(self._pad)
        for index in range(self._sdl.SDL_NumJoysticks()):
            if self._sdl.SDL_JoystickGetDeviceInstanceID(index) == ours:
                assert self._sdl.SDL_JoystickDetachVirtual(index) == 0
                break
        self._sdl.SDL_JoystickClose(self._pad)
        self._pad = None

    def axis(self, name: str, value: float) -> None:
        """Move a stick to `value` in [-1, 1] (right and down are positive), or a trigger (-1 released, 1 pulled)."""
        assert self._sdl.SDL_JoystickSetVirtualAxis(self._pad, AXES[name], round(value * _LARGEST)) == 0
        self._sdl.SDL_JoystickUpdate()

    def press(self, name: str) -> None:
        self._button(name, 1)

    def release(self, name: str) -> None:
        self._button(name, 0)

    def tap(self, name: str) -> None:
        self.press(name)
        self.release(name)

    def _button(self, name: str, down: int) -> None:
        assert self._sdl.SDL_JoystickSetVirtualButton(self._pad, BUTTONS[name], down) == 0
        self._sdl.SDL_JoystickUpdate()
