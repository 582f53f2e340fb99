"""Simulated arm and driver emulators as one program: `python -m robolearn.bench.emulators.node [DRIVER SECONDS] FLAGS`.

Without a driver it is the simulated arm of the contract `sim`: `--task lift --seed 0`, or `--ros-args -p task:=lift`.
With one, the contract has `simulated: true` (`robolearn deploy --rehearse` makes it of a real station's), and SECONDS
is the longest episode: the limits of a station make its arm slower than that of the simulated task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from hardware.node_parameters import SimArmParameters, parameter_names
from robolearn.core import BadInput
from robolearn.deploy.nodes import leave, run_node

if TYPE_CHECKING:
    from robots.stations import AnyContract
    from sim.realtime import RealtimeWorld

FLAGS = (*parameter_names(SimArmParameters), "fault")
EMULATORS = {
    "sim": "hardware.ros2.sim_arm_node:SimArmNode",
    "ros2_control": "robolearn.bench.emulators.ros2_control:Ros2ControlEmulator",
    "franka_ros2": "robolearn.bench.emulators.franka:FrankaEmulator",
    "ur_robot_driver": "robolearn.bench.emulators.ur:UrEmulator",
}
"""Driver → class of its node; imported when it is started, as it needs ROS."""


def main(argv: Sequence[str] | None = None) -> int:
    """Spin the emulator that the first word names, with episodes as long as the second; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    name, make = "sim", make_world
    if words and not words[0].startswith("-"):
        name, seconds, *words = words
        make = partial(make_world, limit_s=float(seconds))
    if name not in EMULATORS:
        print(f"error: {BadInput('driver', got=name, available=EMULATORS)}", file=sys.stderr)
        return 2
    with suppress(BadInput):  # no rclpy: `run_node` says so
        from hardware.ros2.environment import make_room_for_pictures

        make_room_for_pictures()
    return run_node(partial(_node, name, make), FLAGS, words)


def make_world(
    contract: AnyContract, task: str, seed: int, dynamics: str = "none", limit_s: float | None = None
) -> RealtimeWorld:
    """The world behind a contract: its robot, its cameras at the largest of their sizes."""
    from sim.realtime import RealtimeWorld

    edges = [edge for camera in contract.cameras.values() for edge in camera.size]
    cameras, edge = tuple(contract.cameras), max(edges, default=84)
    return RealtimeWorld(task, seed, cameras, edge, robot=contract.robot, dynamics=dynamics, limit_s=limit_s)


def _node(name: str, make: Callable[..., RealtimeWorld]) -> Any:
    return resolve_name(EMULATORS[name])(make)


if __name__ == "__main__":
    leave(main())
