"""What `robolearn doctor` looks at, by what it is needed for. Each check is a function of a `Machine`."""

from __future__ import annotations

from collections.abc import Callable

from robolearn.cli.checks import compute, devices, realtime, ros, shared_memory, simulation
from robolearn.cli.checks.machine import Check, Machine

SIMULATION = "Simulation and learning"

#: heading → its checks. What stands under the first heading has to be there; the rest is for those who need it.
CHECKS: dict[str, tuple[Callable[[Machine], list[Check]], ...]] = {
    SIMULATION: (compute.python, compute.processors, compute.torch, simulation.worlds),
    "Faster, and with pictures": (compute.gpu, simulation.cameras),
    "ROS 2": (ros.rclpy, ros.dds, ros.network, ros.launch, shared_memory.images),
    "Real-time": (realtime.priority,),
    "Devices": (devices.gamepad, devices.spacemouse, devices.cameras, devices.serial),
}

__all__ = ["CHECKS", "SIMULATION", "Check", "Machine"]
