"""Checks of what is installed: Python, torch, GPU, worlds and their cameras, ROS 2, shared memory, real-time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from robolearn.cli.checks.machine import Check, Machine


def python(machine: Machine) -> list[Check]:
    """The version that this runs with."""
    version = ".".join(map(str, machine.version))
    good = (3, 11) <= machine.version[:2] <= (3, 12)
    return [Check("Python", good, version, "" if good else "sudo apt install python3.11-venv")]


def program(machine: Machine) -> list[Check]:
    """robolearn itself: the checkout in which one works, where that is one, and no copy of it."""
    for folder in (machine.folder(), *machine.folder().parents):
        if 'name = "robolearn"' in machine.text(str(folder / "pyproject.toml")) and folder != machine.place():
            found = f"runs from {machine.place()}, not from the checkout {folder}: changes there have no effect"
            return [Check("robolearn", False, found, f"{sys.executable} -m pip install -e {folder}")]
    return [Check("robolearn", True, f"runs from {machine.place()}")]


def processors(machine: Machine) -> list[Check]:
    """CPUs that may be used; never a reason to refuse."""
    cpus = machine.cpus()
    return [Check("CPUs", True, f"{cpus}" if cpus > 1 else "1; with 2 the quickstart takes about half as long")]


def bytecode(machine: Machine) -> list[Check]:
    """Compiled libraries on disk: without them each program, and each node of an arm, compiles torch for itself."""
    forbidden = bool(machine.environ.get("PYTHONDONTWRITEBYTECODE"))
    if forbidden and not machine.paths(f"{machine.prefix}/lib/python3*/site-packages/torch/__pycache__/__init__*"):
        found = "PYTHONDONTWRITEBYTECODE is set: every program compiles torch before it starts, for seconds"
        return [Check("bytecode", False, found, "unset PYTHONDONTWRITEBYTECODE")]
    return [Check("bytecode", True, "kept on disk")]


def plugins(machine: Machine) -> list[Check]:
    """Variants that other packages bring."""
    found: list[Check] = []
    for one in machine.plugins():
        note = f"of {one.package}" + (f", left out: {one.fault}" if one.fault else "")
        found.append(Check(f"{one.name} ({one.room})", not one.fault, note))
    return found or [Check("plug-ins", True, "no package brings one")]


def torch(machine: Machine) -> list[Check]:
    """Import of torch, in a child process: a broken one may crash."""
    answer = machine.torch
    if answer.code != 0:
        return [Check("torch", False, answer.error, machine.install())]
    return [Check("torch", True, f"{answer.values['version']}, {answer.values['threads']} threads")]


def gpu(machine: Machine) -> list[Check]:
    """A GPU that torch computes on."""
    names = machine.torch.values.get("gpus", [])
    if names:
        return [Check("GPU", True, ", ".join(names))]
    if machine.which("nvidia-smi") and machine.succeeds(["nvidia-smi"]):
        fix = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128"
        return [Check("GPU", False, "an NVIDIA GPU, but this torch was built without CUDA", fix)]
    return [Check("GPU", False, "none; everything runs on the CPU as well")]


SOFTWARE = ("llvmpipe", "softpipe", "swrast")


def worlds(machine: Machine) -> list[Check]:
    """A world of `lift`, stepped."""
    values = machine.worlds.values
    if "mujoco" not in values:
        return [Check("MuJoCo", False, machine.worlds.error, machine.install())]
    return [
        Check("MuJoCo", True, f"{values['mujoco']}; a world steps {values['steps_per_s'] / 20:.0f} times real time")
    ]


def cameras(machine: Machine) -> list[Check]:
    """A picture of `lift`, rendered."""
    values = machine.worlds.values
    if "fps" not in values:
        found = machine.worlds.error if "mujoco" in values else "not tried, because MuJoCo does not work"
        return [Check("GL for cameras", False, found, "sudo apt install libegl1 libopengl0 libgl1-mesa-dri")]
    software = any(name in values["renderer"].lower() for name in SOFTWARE)
    how = f"{values['gl']}, {values['renderer'].split(' (')[0]}" if values["renderer"] else values["gl"]
    slow = ", on the CPU" if software else ""
    return [Check("GL for cameras", True, f"{how}{slow}; {values['fps']:.0f} pictures/s of 96×96")]


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
    """A round trip between two processes over DDS."""
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
    """Reach of our commands on the network."""
    reach = machine.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE") or "LOCALHOST"
    domain = machine.environ.get("ROS_DOMAIN_ID") or "0"
    if reach == "SUBNET" and domain == "0":
        found = "the whole network, in the domain that everybody starts in (0)"
        return [Check("who hears us", False, found, "export ROS_DOMAIN_ID=42  # any number of your own up to 101")]
    who = {"LOCALHOST": "this machine only", "SUBNET": "the whole network", "OFF": "nobody"}.get(reach, reach)
    return [Check("who hears us", reach != "OFF", f"{who}, domain {domain}", "" if reach != "OFF" else
                  "export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST")]  # fmt: skip


def launch(machine: Machine) -> list[Check]:
    """Lookup of our files by `ros2 launch robolearn …`."""
    if machine.which("ros2") is None:
        return [Check("ros2 launch", False, "no ros2 program; robolearn deploy starts the same nodes without it")]
    known = machine.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    if any(machine.paths(os.path.join(prefix, INDEX)) for prefix in known if prefix):
        return [Check("ros2 launch", True, "finds robolearn")]
    if machine.paths(os.path.join(machine.prefix, INDEX)):
        fix = f"export AMENT_PREFIX_PATH={machine.prefix}:$AMENT_PREFIX_PATH"
        return [Check("ros2 launch", False, "does not look where robolearn is installed", fix)]
    return [Check("ros2 launch", False, "does not find robolearn: an editable install", "make ros-index")]


#: Beside the node code, but found without importing it: that would want a ROS 2.
PROFILE = Path(__file__).parents[3] / "hardware" / "ros2" / "fastdds_shm.xml"
NEEDED = 256 * 2**20  # bytes: one segment of 16 MiB for each process, and room
NAME = "images over ROS 2"


def images(machine: Machine) -> list[Check]:
    """Space in /dev/shm, and the profile that lets Fast DDS use it."""
    rmw = machine.environ.get("RMW_IMPLEMENTATION") or "rmw_fastrtps_cpp"
    space, dead = machine.space("/dev/shm"), machine.left_behind()
    if dead >= NEEDED or (space is not None and space[1] < NEEDED <= space[1] + dead):
        found = f"{dead / 2**20:.0f} MiB in /dev/shm are left by nodes that were killed"
        return [Check(NAME, False, found, "rm /dev/shm/*fastdds_*  # while no node runs")]
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


ALLOW = 'echo "$USER - rtprio 80" | sudo tee /etc/security/limits.d/90-robolearn.conf  # then log in again'


def priority(machine: Machine) -> list[Check]:
    """Permission of this user to ask for SCHED_FIFO."""
    kernel = "a real-time kernel" if machine.text("/sys/kernel/realtime").strip() == "1" else "an ordinary kernel"
    if machine.which("chrt") is None:
        return [Check("priority", False, "no chrt to try it with", "sudo apt install util-linux")]
    if machine.succeeds(["chrt", "-f", "50", "true"]):
        return [Check("priority", True, f"SCHED_FIFO is allowed, {kernel}")]
    found = f"this user may not ask for SCHED_FIFO ({kernel}): commands may come late under load"
    return [Check("priority", False, found, ALLOW)]
