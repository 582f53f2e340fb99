"""Simulated arms and driver emulators as one program: `python -m robolearn.bench.emulators.node [SECONDS] FLAGS`.

Without a contract it is the simulated arm `sim`: `--task lift --seed 0`, or `--ros-args -p task:=lift`. Arms of a
contract with the key `driver` and `simulated: true` (`robolearn deploy --rehearse` makes it of a real station's) are
behind emulators of their drivers. SECONDS is the longest episode there: the limits of a station make its arm slower
than that of the simulated task.
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
from robolearn.core.machine import leave
from robolearn.deploy.nodes import run_node

if TYPE_CHECKING:
    from robots.stations import AnyContract
    from sim.realtime import RealtimeWorld

FLAGS = (*parameter_names(SimArmParameters), "fault")
EMULATORS = {
    "ros2_control": "robolearn.bench.emulators.ros2_control:Ros2ControlEmulator",
    "franka_ros2": "robolearn.bench.emulators.franka:FrankaEmulator",
    "ur_robot_driver": "robolearn.bench.emulators.ur:UrEmulator",
}
"""Driver → class of its emulator; imported when the node is started, as it needs ROS."""


def main(argv: Sequence[str] | None = None, make: Callable[..., RealtimeWorld] | None = None) -> int:
    """Spin the node, with episodes as long as the first word, where that is no flag, in a world that `make` makes as
    `make_world`, the default; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    make = make or make_world
    if words and not words[0].startswith("-"):
        make, words = partial(make, limit_s=float(words[0])), words[1:]
    with suppress(BadInput):  # no rclpy: `run_node` says so
        from hardware.ros2.environment import make_room_for_pictures

        make_room_for_pictures()
    return run_node(partial(_node, make), FLAGS, words)


def make_world(
    contract: AnyContract, task: str, seed: int, dynamics: str = "none", limit_s: float | None = None,
    kind: type[RealtimeWorld] | None = None,
) -> RealtimeWorld:  # fmt: skip
    """The world behind a contract: its robot, its cameras at the largest of their sizes. `kind` is its class."""
    from sim.realtime import RealtimeWorld

    edges = [edge for camera in contract.cameras.values() for edge in camera.size]
    cameras, edge = tuple(contract.cameras), max(edges, default=84)
    return (kind or RealtimeWorld)(task, seed, cameras, edge, robot=contract.robot, dynamics=dynamics, limit_s=limit_s)


def _node(make: Callable[..., RealtimeWorld]) -> Any:
    from hardware.ros2.sim_arm_node import SimArmNode

    return SimArmNode(make, {driver: resolve_name(place) for driver, place in EMULATORS.items()})


if __name__ == "__main__":
    leave(main())
