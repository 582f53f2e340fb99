"""Doubles of drivers as programs: `python -m robolearn.cli.node_driver_double franka_ros2 30 --contract FILE`.

The contract is one with `simulated: true`; `robolearn deploy --rehearse` makes it of a real station's. The number is
the longest episode [s]: the limits of a station make its arm slower than that of the simulated task. `sim` is no double
but the simulated arm itself, with longer episodes than its task's, as people need them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from robolearn.cli.node_sim_arm import FLAGS, make_world
from robolearn.core import BadInput
from robolearn.deploy.nodes import leave, run_node


def main(argv: Sequence[str] | None = None) -> int:
    """Spin the double of the driver that the first word names, with episodes as long as the second; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    found = {"sim": _sim, "franka_ros2": _franka, "ur_robot_driver": _ur}
    if not words or words[0] not in found:
        print(f"error: {BadInput('driver', got=words[0] if words else 'nothing', available=found)}", file=sys.stderr)
        return 2
    return run_node(partial(found[words[0]], partial(make_world, limit_s=float(words[1]))), FLAGS, words[2:])


def _sim(make: Callable[..., Any]) -> Any:
    from hardware.ros2.sim_arm_node import SimArmNode

    return SimArmNode(make)


def _franka(make: Callable[..., Any]) -> Any:
    from hardware.ros2.doubles.franka import FrankaDouble

    return FrankaDouble(make)


def _ur(make: Callable[..., Any]) -> Any:
    from hardware.ros2.doubles.ur import UrDouble

    return UrDouble(make)


if __name__ == "__main__":
    leave(main())
