"""Shared memory for images: raw ones do not fit into what Fast DDS takes by default."""

from __future__ import annotations

from pathlib import Path

from robolearn.cli.checks.machine import Check, Machine

#: Beside the node code, but found without importing it: that would want a ROS 2.
PROFILE = Path(__file__).parents[3] / "hardware" / "ros2" / "fastdds_shm.xml"
NEEDED = 256 * 2**20  # bytes: one segment of 16 MiB for each process, and room
NAME = "images over ROS 2"


def images(machine: Machine) -> list[Check]:
    """Space in /dev/shm, and the profile that lets Fast DDS use it."""
    rmw = machine.environ.get("RMW_IMPLEMENTATION") or "rmw_fastrtps_cpp"
    space = machine.space("/dev/shm")
    if space is None or space[1] < NEEDED:
        found = (
            "no /dev/shm" if space is None else f"{space[1] / 2**20:.0f} MiB free in /dev/shm of {NEEDED / 2**20:.0f}"
        )
        inside = machine.paths("/.dockerenv") or machine.paths("/run/.containerenv")
        fix = "docker run --shm-size=1g …" if inside else "sudo mount -o remount,size=1G /dev/shm"
        return [Check(NAME, False, found, fix)]
    room = f"{space[1] / 2**20:.0f} MiB of shared memory"
    if rmw != "rmw_fastrtps_cpp":
        return [Check(NAME, True, f"{room}, {rmw}")]
    profile = machine.environ.get("FASTDDS_DEFAULT_PROFILES_FILE")
    fix = f"export FASTDDS_DEFAULT_PROFILES_FILE={PROFILE}"
    if profile and not machine.paths(profile):
        return [Check(NAME, False, f"the Fast DDS profile {profile} is not there", fix)]
    # Our own nodes choose it themselves. With a sourced ROS 2 there may be camera drivers, which do not.
    if not profile and machine.environ.get("ROS_DISTRO"):
        found = f"{room}, of which a camera driver takes 0.5 MiB: most raw images of 640×480 get lost"
        return [Check(NAME, False, found, fix)]
    return [Check(NAME, True, f"{room}{f', profile {profile}' if profile else ''}")]
