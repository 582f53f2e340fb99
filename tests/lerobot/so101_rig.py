"""An SO-101 follower for tests: its servos on a pseudo-terminal, LeRobot's calibration file, and its contract."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import numpy as np

from robots import SO101
from robots.stations import CONTRACTS

_spec = importlib.util.spec_from_file_location("virtual_servos", Path(__file__).with_name("virtual_servos.py"))
assert _spec is not None and _spec.loader is not None
SERVOS = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(SERVOS)

NAMES = (*SO101.joints, "gripper")
LOW, HIGH = 900, 3200  # calibrated range of each servo [1/4096 turn]
COUNTS = 4095 / (2 * math.pi)  # a radian
HOMING = 77  # offset of each servo
JAW = (-0.174533, 1.74533)


def counts(q: np.ndarray, jaw: float) -> list[int]:
    """Where the servos are with the arm at `q` (5,) [rad] and the jaw at `jaw` [rad], by hand."""
    share = (jaw - JAW[0]) / (JAW[1] - JAW[0])
    return [*(round((LOW + HIGH) / 2 + one * COUNTS) for one in q), round(LOW + share * (HIGH - LOW))]


def arm(q: np.ndarray | None = None, jaw: float = 0.5):
    """Calibrated servos at `q`, by default home, with old goals in their registers; to be entered."""
    servos = SERVOS.VirtualServos()
    for servo, at in enumerate(counts(np.array(SO101.home) if q is None else q, jaw), start=1):
        servos.put(servo, SERVOS.MIN_POSITION, LOW)
        servos.put(servo, SERVOS.MAX_POSITION, HIGH)
        servos.put(servo, SERVOS.OFFSET, HOMING)
        servos.put(servo, SERVOS.PRESENT_POSITION, at)
        servos.put(servo, SERVOS.GOAL, HIGH)
    return servos


def calibrate(folder: Path, name: str = "blue") -> None:
    """LeRobot's calibration file of the follower called `name`, below `folder`."""
    place = folder / "robots" / "so_follower"
    place.mkdir(parents=True)
    servo = {"drive_mode": 0, "homing_offset": HOMING, "range_min": LOW, "range_max": HIGH}
    content = {joint: {"id": i, **servo} for i, joint in enumerate(NAMES, start=1)}
    (place / f"{name}.json").write_text(json.dumps(content))


def contract(folder: Path, port: str, name: str = "blue") -> Path:
    """The shipped contract with that port and calibration."""
    text = (CONTRACTS / "so101.yaml").read_text()
    old = "servos: {port: /dev/ttyACM0, calibration: follower}"
    assert text.count(old) == 1
    path = folder / "so101.yaml"
    path.write_text(text.replace(old, f"servos: {{port: {port}, calibration: {name}}}"))
    return path
