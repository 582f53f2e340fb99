"""Checks of devices: which are plugged in and may be used by this user, and a live view of one."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from robolearn.cli.checks.machine import Check, Machine
from robolearn.core import check_choice

SPACEMOUSE_RULE = (
    """echo 'KERNEL=="hidraw*", ATTRS{idVendor}=="256f|046d", TAG+="uaccess"' """
    "| sudo tee /etc/udev/rules.d/70-spacemouse.rules && sudo udevadm control --reload && sudo udevadm trigger"
)


def gamepad(machine: Machine) -> list[Check]:
    """Game controllers."""
    names = _named(machine, "/dev/input/js*", "/sys/class/input/{}/device/name")
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
    names = _named(machine, "/dev/video*", "/sys/class/video4linux/{}/name")
    return [_device(machine, "cameras", names, _group("video"))]


def _named(machine: Machine, pattern: str, about: str) -> dict[str, str]:
    """Path → the name in the file `about` it."""
    return {path: machine.text(about.format(os.path.basename(path))) for path in machine.paths(pattern)}


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


SHOWN_S = 0.2  # between two lines


def listen(name: str, say: Callable[[str], None], *, port: str = "", seconds: float = 5.0) -> dict[str, Any]:
    """Open the device `name` as for an arm that stands at home, and say what it says.

    Args:
      name: of a device that is no page.
      say: is given a line for people, at most five a second, each time something changed.
      port: the serial port of a leader arm, if not the usual one.
      seconds: how long.

    Returns:
      ``{"device", "samples", "engaged", "events", "low", "high"}``; `low` and `high` by the action's components.

    Raises:
      BadInput: there is no such device, or it is not plugged in.
    """
    from hardware.teleop import TELEOPERATORS, make_device
    from robots.spec import proprio
    from robots.stations import load_contract

    local = [one for one, config in TELEOPERATORS.items() if config.shows_in_terminal]
    check_choice("--device", name, local)
    config = TELEOPERATORS[name]
    contract = load_contract(config.station)
    robot, interface = contract.robot, contract.interface
    home = np.asarray(robot.home)[None]
    observation = {"proprio": proprio(home, np.array([robot.gripper.max_width]), *robot.chain.forward(home))[0]}
    options = {"port": port} if port and "leader_port" in config.flags() else {}
    device = make_device(name, interface, robot, **options)
    actions, events, samples, engaged = [], [], 0, 0
    device.open()
    try:
        start = now = time.monotonic()
        shown, shown_at = "", -np.inf
        while now - start < seconds:
            sample = device.sample(observation)
            samples, engaged = samples + 1, engaged + sample.engaged
            events += map(str, sample.events)
            line = "holds still" if sample.engaged else "not engaged"
            if sample.action is not None:
                actions.append(sample.action)
                named = zip(interface.action.names, sample.action, strict=True)
                line = "  ".join(f"{part} {value:+.2f}" for part, value in named)
            line += f"  {sample.note}" if sample.note else ""
            line += "".join(f"  [{event}]" for event in sample.events)
            if line != shown and (sample.events or now - shown_at >= SHOWN_S):
                say(line)
                shown, shown_at = line, now
            time.sleep(max(0.0, start + samples / interface.control_hz - time.monotonic()))
            now = time.monotonic()
    finally:
        device.close()
    spread = np.array(actions).reshape(-1, interface.action.size)
    ends = (spread.min(0), spread.max(0)) if actions else ()
    low, high = ([round(float(v), 4) for v in end] for end in ends) if actions else (None, None)
    return {
        "device": name,
        "samples": samples,
        "engaged": engaged,
        "events": events,
        "low": low,
        "high": high,
    }
