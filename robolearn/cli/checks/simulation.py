"""Worlds and their cameras."""

from __future__ import annotations

from robolearn.cli.checks.machine import Check, Machine

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
        return [Check("GL for cameras", False, found, "sudo apt install libegl1 libgl1-mesa-dri")]
    software = any(name in values["renderer"].lower() for name in SOFTWARE)
    how = f"{values['gl']}, {values['renderer'].split(' (')[0]}" if values["renderer"] else values["gl"]
    slow = ", on the CPU" if software else ""
    return [Check("GL for cameras", True, f"{how}{slow}; {values['fps']:.0f} pictures/s of 96×96")]
