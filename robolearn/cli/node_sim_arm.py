"""The simulated arm as a program: `robolearn-sim-arm --task lift --seed 0`, or with `--ros-args -p task:=lift`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from robolearn.core import RobolearnError
from robolearn.deploy.nodes import leave

if TYPE_CHECKING:
    from robots.stations import Contract
    from sim.realtime import RealtimeWorld

FLAGS = ("contract", "task", "seed", "joint_hz", "camera_hz", "fault", "realtime_priority")


def main(argv: Sequence[str] | None = None) -> int:
    """Spin the simulated arm until it is told to end; the exit code."""
    try:
        from hardware.ros2.arguments import ros_arguments
        from hardware.ros2.process import spin
        from hardware.ros2.shared_memory import make_room_for_pictures

        make_room_for_pictures()
        return spin(_node, ros_arguments(sys.argv[1:] if argv is None else argv, FLAGS))
    except RobolearnError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def make_world(contract: Contract, task: str, seed: int, limit_s: float | None = None) -> RealtimeWorld:
    """The world behind a contract: its robot, its cameras at the largest of their sizes."""
    from sim.realtime import RealtimeWorld

    edges = [edge for camera in contract.cameras.values() for edge in camera.size]
    cameras, edge = tuple(contract.cameras), max(edges, default=84)
    return RealtimeWorld(task, seed, cameras, edge, robot=contract.robot, limit_s=limit_s)


def _node() -> Any:
    from hardware.ros2.sim_arm_node import SimArmNode

    return SimArmNode(make_world)


if __name__ == "__main__":
    leave(main())
