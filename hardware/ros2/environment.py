"""The environment that rclpy needs, with or without a sourced ROS 2, and room for pictures in shared memory.

With Fast DDS's default segment of 512 KiB, of 180 pictures of 640 × 480 sent 30 times a second 53 arrive, with 16 MiB
all. Only the process that publishes pictures needs the room, and it takes it at once: 16 MiB of /dev/shm, which in a
container is often no more than 64.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sys
from pathlib import Path

from robolearn.core import BadInput
from robolearn.core.installation import install_command

PROFILES = "FASTDDS_DEFAULT_PROFILES_FILE"
OURS = str(Path(__file__).with_name("fastdds.xml"))


def prepare() -> None:
    """Fill in what a sourced ROS 2 would have set; what is set already stays.

    The wheels do not set AMENT_PREFIX_PATH, where ROS looks for them. What got lost is sent again soon (`fastdds.xml`).
    Nodes find only those of their own machine by default: another robot on the same network must never receive our
    commands by accident. Raises `BadInput`: rclpy is not there.
    """
    if importlib.util.find_spec("rclpy") is None:
        raise BadInput(
            "ROS 2",
            got="no rclpy",
            expected="rclpy",
            hint=f"Install the extra: {install_command('ros')}, or source your ROS 2",
        )
    os.environ.setdefault("AMENT_PREFIX_PATH", sys.prefix)
    os.environ.setdefault(PROFILES, OURS)
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")


log = logging.getLogger(__name__)

WITH_ROOM = Path(__file__).with_name("fastdds_shm.xml")
SEGMENT = 16 * 1024 * 1024  # bytes, as in the file


def make_room_for_pictures(folder: Path = Path("/dev/shm")) -> bool:
    """Let this process and its children publish from a large segment; before the first node is made. A file of profiles
    that the user has set stays, and nothing is done where `folder` has too little left. Returns whether large pictures
    will go through."""
    if os.environ.get(PROFILES, OURS) != OURS:
        return True
    if not folder.is_dir() or (left := shutil.disk_usage(folder).free) < 2 * SEGMENT:
        room = f"{left / 2**20:.0f} MiB left" if folder.is_dir() else "not there"
        log.warning("%s: %s; uncompressed pictures may be lost: give it more, or use CompressedImage", folder, room)
        return False
    os.environ[PROFILES] = str(WITH_ROOM)
    return True
