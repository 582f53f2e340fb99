"""Teleoperators: keyboard, gamepad, SpaceMouse, browser, leader arm, script, recorded log.

Pure of ROS and of any simulator. A teleoperator is a file with a `TeleopConfig` and its `Device`, and a line in
`TELEOPERATORS`: the choices, flags and help of the commands and the arguments of the launch files come from there.
"""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.teleop.browser import BrowserConfig
from hardware.teleop.device import Device, EpisodeEvent, Flag, Sample, Status, TeleopConfig
from hardware.teleop.gamepad import GamepadConfig
from hardware.teleop.keyboard import KeyboardConfig
from hardware.teleop.leader import LeaderConfig
from hardware.teleop.recorded import Logged, RecordedConfig
from hardware.teleop.scripted import ScriptedConfig
from hardware.teleop.spacemouse import SpaceMouseConfig
from robolearn.core.errors import BadInput
from robolearn.core.plugins import Table, with_plugins
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots import RobotSpec

SORTS = (KeyboardConfig, GamepadConfig, SpaceMouseConfig, BrowserConfig, LeaderConfig, ScriptedConfig, RecordedConfig)
TELEOPERATORS: Table[type[TeleopConfig]] = with_plugins(
    "teleoperators",
    {config.name: config for config in SORTS},
    TeleopConfig,
)

__all__ = [
    "TELEOPERATORS", "Device", "EpisodeEvent", "Sample", "Status", "TeleopConfig", "make_device", "people",
    "teleop_flags",
]  # fmt: skip


def people() -> tuple[str, ...]:
    """Names of the devices that a person holds."""
    return tuple(name for name, config in TELEOPERATORS.items() if config.is_person and config.has_flags)


def teleop_flags() -> dict[str, Flag]:
    """Flag → type, default and help, of all devices that the commands offer."""
    takers: dict[str, list[tuple[str, Field[Any]]]] = {}
    for name, config in TELEOPERATORS.items():
        for flag, field in config.flags().items() if config.has_flags else ():
            takers.setdefault(flag, []).append((name, field))
    made = {}
    for flag, found in takers.items():
        first, who = found[0][1], ", ".join(name for name, _ in found)
        made[flag] = Flag(type(first.default), first.default, f"{first.metadata['help']} ({who}).")
    return made


def make_device(
    name: str, interface: Interface, robot: RobotSpec, *, log: str | Path | None = None, **options: Any
) -> Device:
    """The device called `name` for the action of `interface` on `robot`, not yet opened.

    Args:
      log: a new file, into which all samples of the device are written; ``"recorded"`` plays it.
      options: fields of its config, and parts as `TeleopConfig.build` takes them.

    Raises:
      BadInput: there is no such device, or it cannot command this kind of action.
    """
    config = TELEOPERATORS.get(name)
    if config is None:
        raise BadInput("teleoperation device", got=name, available=TELEOPERATORS)
    settings = {one.name: options.pop(one.name) for one in fields(config) if one.name in options}
    device = config(**settings).build(interface, robot, **options)
    return device if log is None else Logged(device, interface, log)
