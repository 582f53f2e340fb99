"""Doubles of drivers as programs: `python -m robolearn.cli.node_driver_double franka_ros2 --contract FILE --task lift`.

The contract is one with `simulated: true`; `robolearn deploy --rehearse` makes it of a real station's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from robolearn.cli.node_sim_arm import FLAGS, make_world
from robolearn.core import BadInput
from robolearn.deploy.nodes import leave, run_node


def main(argv: Sequence[str] | None = None) -> int:
    """Spin the double of the driver that the first word names; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    found = {"franka_ros2": _franka, "ur_robot_driver": _ur}
    if not words or words[0] not in found:
        print(f"error: {BadInput('driver', got=words[0] if words else 'nothing', available=found)}", file=sys.stderr)
        return 2
    return run_node(found[words[0]], FLAGS, words[1:])


def _franka() -> Any:
    from hardware.ros2.doubles.franka import FrankaDouble

    return FrankaDouble(make_world)


def _ur() -> Any:
    from hardware.ros2.doubles.ur import UrDouble

    return UrDouble(make_world)


if __name__ == "__main__":
    leave(main())
