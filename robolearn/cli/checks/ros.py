"""ROS 2: whether it is installed, messages pass between processes, who receives them, and `ros2 launch` finds us."""

from __future__ import annotations

import os

from robolearn.cli.checks.machine import Check, Machine

INDEX = os.path.join("share", "ament_index", "resource_index", "packages", "robolearn")


def rclpy(machine: Machine) -> list[Check]:
    """rclpy: a sourced ROS 2, or the wheels, but not both: their libraries do not fit each other."""
    wheels, sourced = machine.release("ros-kilted-rclpy"), machine.environ.get("ROS_DISTRO")
    if not machine.module("rclpy"):
        return [Check("rclpy", False, "no ROS 2 for this Python", machine.install("ros"))]
    if wheels and sourced:
        found = f"a sourced ROS 2 {sourced} and the wheels of ROS 2 kilted at once"
        return [Check("rclpy", False, found, "pip freeze | grep -i '^ros-' | xargs pip uninstall -y")]
    return [Check("rclpy", True, f"{wheels} from the wheels of ROS 2 kilted" if wheels else f"ROS 2 {sourced or ''}")]


def dds(machine: Machine) -> list[Check]:
    """Whether messages go from one process to another and back over DDS."""
    name = "two processes"
    if not machine.module("rclpy"):
        return [Check(name, False, "not tried without rclpy")]
    answer = machine.python("-m", "hardware.ros2.dds_check", timeout_s=60)
    if answer.code != 0:
        local = machine.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST") in ("LOCALHOST", "SUBNET")
        # With discovery as it should be, what is left is a firewall, or another RMW half installed.
        fix = (
            "export RMW_IMPLEMENTATION=rmw_fastrtps_cpp" if local else "export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST"
        )
        return [Check(name, False, answer.error.removeprefix("error: "), fix)]
    v = answer.values
    found = f"talk over {v['rmw']}: found each other in {v['wait_s']:.1f} s, {v['roundtrip_ms']:.1f} ms there and back"
    return [Check(name, True, found)]


def network(machine: Machine) -> list[Check]:
    """Who else hears our commands."""
    reach = machine.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE") or "LOCALHOST"
    domain = machine.environ.get("ROS_DOMAIN_ID") or "0"
    if reach == "SUBNET" and domain == "0":
        found = "the whole network, in the domain that everybody starts in (0)"
        return [Check("who hears us", False, found, "export ROS_DOMAIN_ID=42  # any number of your own up to 101")]
    who = {"LOCALHOST": "this machine only", "SUBNET": "the whole network", "OFF": "nobody"}.get(reach, reach)
    return [Check("who hears us", reach != "OFF", f"{who}, domain {domain}", "" if reach != "OFF" else
                  "export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST")]  # fmt: skip


def launch(machine: Machine) -> list[Check]:
    """Whether `ros2 launch robolearn …` would find our files."""
    if machine.which("ros2") is None:
        return [Check("ros2 launch", False, "no ros2 program; robolearn deploy starts the same nodes without it")]
    known = machine.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    if any(machine.paths(os.path.join(prefix, INDEX)) for prefix in known if prefix):
        return [Check("ros2 launch", True, "finds robolearn")]
    if machine.paths(os.path.join(machine.prefix, INDEX)):
        fix = f"export AMENT_PREFIX_PATH={machine.prefix}:$AMENT_PREFIX_PATH"
        return [Check("ros2 launch", False, "does not look where robolearn is installed", fix)]
    return [Check("ros2 launch", False, "does not find robolearn: an editable install", "make ros-index")]
