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
    paths = machine.paths("/dev/input/js*")
    names = {path: machine.text(f"/sys/class/input/{os.path.basename(path)}/device/name") for path in paths}
    return [_device(machine, "gamepad", names, _group("input"), ("pygame",))]


def spacemouse(machine: Machine) -> list[Check]:
    """3Dconnexion devices among the raw HID devices."""
    found = {}
    for device in machine.paths("/sys/class/hidraw/hidraw*"):
        about = machine.text(os.path.join(device, "device", "uevent"))
        # 256F is 3Dconnexion; older ones carry Logitech's number.
        if re.search(r"HID_ID=\w+:0*256F:|HID_NAME=.*(3Dconnexion|Space(Mouse|Navigator|Pilot))", about, re.IGNORECASE):
            name = re.search(r"HID_NAME=(.*)", about)
            found[f"/dev/{os.path.basename(device)}"] = name[1] if name else ""
    return [_device(machine, "SpaceMouse", found, SPACEMOUSE_RULE, ("hidraw", "pyspacemouse"))]


def cameras(machine: Machine) -> list[Check]:
    """Video devices."""
    paths = machine.paths("/dev/video*")
    names = {path: machine.text(f"/sys/class/video4linux/{os.path.basename(path)}/name") for path in paths}
    return [_device(machine, "cameras", names, _group("video"))]


def serial(machine: Machine) -> list[Check]:
    """Serial ports, to which hobby arms such as the SO-101 and their leader arms are connected."""
    names = {}
    for path in machine.paths("/dev/ttyACM*") + machine.paths("/dev/ttyUSB*"):
        # The port is an interface of the USB device that has the name, or of an interface of it.
        about = f"/sys/class/tty/{os.path.basename(path)}/device"
        names[path] = machine.text(f"{about}/../product") or machine.text(f"{about}/../../product")
    return [_device(machine, "serial ports", names, _group("dialout"))]


def _group(name: str) -> str:
    return f"sudo usermod -aG {name} $USER  # then log in again"


def _device(machine: Machine, name: str, found: dict[str, str], fix: str, modules: tuple[str, ...] = ()) -> Check:
    """The check of the devices `found` (path → what it calls itself) that need `modules` of the extra `teleop`."""
    if not found:
        return Check(name, False, "none")
    closed = [path for path in found if not machine.usable(path)]
    if closed:
        return Check(name, False, f"{', '.join(closed)}, but this user may not use it", fix)
    every = ", ".join(f"{path} ({about.strip()})" if about.strip() else path for path, about in found.items())
    missing = [module for module in modules if not machine.module(module)]
    if missing:
        return Check(name, False, f"{every}, but without {' and '.join(missing)}", machine.install("teleop"))
    return Check(name, True, every)
