"""What is plugged in, and whether this user may use it."""

from __future__ import annotations

import os
import re

from robolearn.cli.checks.machine import Check, Machine

SPACEMOUSE_RULE = (
    """echo 'KERNEL=="hidraw*", ATTRS{idVendor}=="256f|046d", TAG+="uaccess"' """
    "| sudo tee /etc/udev/rules.d/70-spacemouse.rules && sudo udevadm control --reload && sudo udevadm trigger"
)


def gamepad(machine: Machine) -> list[Check]:
    """Game controllers."""
    return [_device(machine, "gamepad", machine.paths("/dev/input/js*"), _group("input"))]


def spacemouse(machine: Machine) -> list[Check]:
    """3Dconnexion devices among the raw HID devices."""
    found = []
    for device in machine.paths("/sys/class/hidraw/hidraw*"):
        about = machine.text(os.path.join(device, "device", "uevent"))
        # 256F is 3Dconnexion; older ones carry Logitech's number.
        if re.search(r"HID_ID=\w+:0*256F:|HID_NAME=.*(3Dconnexion|Space(Mouse|Navigator|Pilot))", about, re.IGNORECASE):
            found.append(f"/dev/{os.path.basename(device)}")
    return [_device(machine, "SpaceMouse", found, SPACEMOUSE_RULE)]


def cameras(machine: Machine) -> list[Check]:
    """Video devices."""
    return [_device(machine, "cameras", machine.paths("/dev/video*"), _group("video"))]


def serial(machine: Machine) -> list[Check]:
    """Serial ports, to which hobby arms such as the SO-101 and their leader arms are connected."""
    ports = machine.paths("/dev/ttyACM*") + machine.paths("/dev/ttyUSB*")
    return [_device(machine, "serial ports", ports, _group("dialout"))]


def _group(name: str) -> str:
    return f"sudo usermod -aG {name} $USER  # then log in again"


def _device(machine: Machine, name: str, paths: list[str], fix: str) -> Check:
    if not paths:
        return Check(name, False, "none")
    closed = [path for path in paths if not machine.usable(path)]
    if closed:
        return Check(name, False, f"{', '.join(closed)}, but this user may not use it", fix)
    return Check(name, True, ", ".join(paths))
