"""Teleoperation devices: keyboard, gamepad, SpaceMouse, browser, leader arm, script, recorded log.

Pure of ROS and of any simulator. Each is a `Device`; `make_device` opens none, it only builds.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from hardware.teleop.device import Device, EpisodeEvent, Sample, Status
from hardware.teleop.recorded import Logged
from robolearn.core.errors import BadInput
from robolearn.core.specs import Interface
from robots import RobotSpec

# Name → module and class; a module is imported when its device is asked for, for each needs a library of its own.
DEVICES: dict[str, tuple[str, str]] = {
    "keyboard": ("hardware.teleop.keyboard", "Keyboard"),
    "gamepad": ("hardware.teleop.gamepad", "Gamepad"),
    "spacemouse": ("hardware.teleop.spacemouse", "SpaceMouse"),
    "browser": ("hardware.teleop.browser", "Browser"),
    "leader": ("hardware.teleop.leader", "Leader"),
    "scripted": ("hardware.teleop.scripted", "Scripted"),
    "recorded": ("hardware.teleop.recorded", "Recorded"),
}

__all__ = ["DEVICES", "Device", "EpisodeEvent", "Sample", "Status", "make_device"]


def make_device(
    name: str, interface: Interface, robot: RobotSpec, *, log: str | Path | None = None, **options: Any
) -> Device:
    """The device called `name`, not yet opened.

    Every class is built as ``Class(interface, robot, **options)``.

    Args:
      name: one of `DEVICES`.
      interface: whose action the device commands.
      robot: the arm that it moves.
      log: a new file, into which all samples of the device are written; ``"recorded"`` plays it.
      options: of that device, e.g. ``teleoperator`` for ``"scripted"``, ``path`` for ``"recorded"``.

    Raises:
      BadInput: there is no such device, or it cannot command this kind of action.
    """
    if name not in DEVICES:
        raise BadInput("teleoperation device", got=name, available=DEVICES)
    module, cls = DEVICES[name]
    device = getattr(importlib.import_module(module), cls)(interface, robot, **options)
    return device if log is None else Logged(device, interface, log)
