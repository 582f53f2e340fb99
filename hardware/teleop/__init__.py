"""Teleoperators: keyboard, gamepad, SpaceMouse, browser, leader arm, script, recorded log.

Pure of ROS and of any simulator. A teleoperator is a file with a `TeleopConfig` and its `Device`, and a line in
`TELEOPERATORS`: the choices, flags and help of the commands and the arguments of the launch files come from there.
"""

from __future__ import annotations

import io
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.teleop.browser import BrowserConfig
from hardware.teleop.device import Device, EpisodeEvent, Flag, Sample, Status, TeleopConfig
from hardware.teleop.gamepad import GamepadConfig
from hardware.teleop.joined import JoinedDevices, arm_interfaces
from hardware.teleop.keyboard import KeyboardConfig
from hardware.teleop.leader import LeaderConfig
from hardware.teleop.recorded import Logged, RecordedConfig
from hardware.teleop.scripted import ScriptedConfig
from hardware.teleop.spacemouse import SpaceMouseConfig
from robolearn.core.errors import BadInput
from robolearn.core.plugins import Table, with_plugins
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots.pair import AnyRobot

SORTS = (KeyboardConfig, GamepadConfig, SpaceMouseConfig, BrowserConfig, LeaderConfig, ScriptedConfig, RecordedConfig)
NO_TERMINAL = -1  # a file descriptor that is none
TELEOPERATORS: Table[type[TeleopConfig]] = with_plugins(
    "teleoperators",
    {config.name: config for config in SORTS},
    TeleopConfig,
    own=("build",),
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
    name: str, interface: Interface, robot: AnyRobot, *, log: str | Path | None = None, **options: Any
) -> Device:
    """The device called `name` for the action of `interface` on `robot`, not yet opened; for two arms one each, as one
    device, unless it commands both.

    Args:
      log: a new file, into which all samples of the device are written; ``"recorded"`` plays it.
      options: fields of its config, and parts as `TeleopConfig.build` takes them.

    Raises:
      BadInput: there is no such device, or it cannot command this kind of action, or so many arms.
    """
    config = TELEOPERATORS.get(name)
    if config is None:
        raise BadInput("teleoperation device", got=name, available=TELEOPERATORS)
    settings = {one.name: options.pop(one.name) for one in fields(config) if one.name in options}
    arms = tuple(part.name for part in robot.parts)
    configs = config(**settings).for_arms(arms)
    if not configs:
        takers = [one for one, kind in TELEOPERATORS.items() if kind.for_arms is not TeleopConfig.for_arms]
        raise BadInput("teleoperation device", got=f"{name} for the arms {', '.join(arms)}", available=takers)
    if len(configs) == 1:
        whole: Any = robot  # of two arms only where the config takes them all
        device = configs[0].build(interface, whole, **options)
    else:
        device = _joined(configs, interface, robot, options)
    return device if log is None else Logged(device, interface, log)


def _joined(
    configs: tuple[TeleopConfig, ...], interface: Interface, robot: AnyRobot, options: dict[str, Any]
) -> Device:
    """The devices of all arms of `robot` as one; the first one alone has the terminal."""
    mute, made = {**options, "fd": NO_TERMINAL, "out": io.StringIO()}, dict[str, Device]()
    for part, config, own in zip(robot.parts, configs, arm_interfaces(interface, robot), strict=True):
        try:
            made[part.name] = config.build(own, part.robot, **(mute if made else options))
        except BadInput as error:
            raise BadInput(f"{part.name}: {error}") from error
    return JoinedDevices(made, robot)
