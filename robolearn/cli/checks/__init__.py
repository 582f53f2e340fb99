"""The checks of `robolearn doctor` by purpose. Each check is a function of a `Machine`."""

from __future__ import annotations

from collections.abc import Callable

from robolearn.cli.checks import devices, software
from robolearn.cli.checks.machine import Check, Machine

SIMULATION = "Simulation and learning"

#: heading → its checks. What stands under the first heading has to be there; the rest is for those who need it.
CHECKS: dict[str, tuple[Callable[[Machine], list[Check]], ...]] = {
    SIMULATION: (software.python, software.program, software.processors, software.torch, software.worlds),
    "Faster, and with pictures": (software.gpu, software.cameras, software.bytecode),
    "ROS 2": (software.rclpy, software.dds, software.network, software.launch, software.images),
    "Plug-ins": (software.plugins,),
    "Real-time": (software.priority,),
    "Devices": (devices.gamepad, devices.spacemouse, devices.cameras, devices.serial),
}

__all__ = ["CHECKS", "SIMULATION", "Check", "Machine"]
