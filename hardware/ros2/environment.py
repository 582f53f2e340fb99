"""What has to be in the environment before rclpy is imported, with or without a sourced ROS 2."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from robolearn.core import BadInput

PROFILES = "FASTDDS_DEFAULT_PROFILES_FILE"
OURS = str(Path(__file__).with_name("fastdds.xml"))


def prepare() -> None:
    """Fill in what a sourced ROS 2 would have set; what is set already stays.

    The wheels do not set AMENT_PREFIX_PATH, where ROS looks for them. What got lost is sent again soon (`fastdds.xml`).
    Nodes find only those of their own machine by default: another robot on the same network must never receive our
    commands by accident.

    Raises:
      BadInput: rclpy is not there.
    """
    if importlib.util.find_spec("rclpy") is None:
        raise BadInput(
            "ROS 2",
            got="no rclpy",
            expected="rclpy",
            hint="Install the extra: pip install 'robolearn[ros]', or source your ROS 2",
        )
    os.environ.setdefault("AMENT_PREFIX_PATH", sys.prefix)
    os.environ.setdefault(PROFILES, OURS)
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
