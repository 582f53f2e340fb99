"""The leader arm through LeRobot itself, its bus and its calibration file, down to servos on a pseudo-terminal."""

from __future__ import annotations

import importlib.util
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hardware.teleop.leader import Leader, LeaderConfig
from robolearn.core import BadInput, Interface
from robots import SO101, make_control
from robots.spec import proprio, proprio_spec

NAMES = (*SO101.joints, "gripper")
LOW, HIGH = 1000, 3000  # calibrated range of each servo [1/4096 turn]
DEGREE = 4095 / 360


def servos_module():
    spec = importlib.util.spec_from_file_location("virtual_servos", Path(__file__).with_name("virtual_servos.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SERVOS = servos_module()


@pytest.fixture
def servos() -> Iterator:
    with SERVOS.VirtualServos() as servos:
        for servo in servos.memory:
            servos.put(servo, SERVOS.MIN_POSITION, LOW)
            servos.put(servo, SERVOS.MAX_POSITION, HIGH)
        yield servos


@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LeRobot's calibration file of the arm called `blue`."""
    module = importlib.import_module("lerobot.teleoperators.teleoperator")
    monkeypatch.setattr(module, "HF_LEROBOT_CALIBRATION", tmp_path)
    folder = tmp_path / "teleoperators" / "so_leader"
    folder.mkdir(parents=True)
    servo = {"drive_mode": 0, "homing_offset": 0, "range_min": LOW, "range_max": HIGH}
    content = {name: {"id": i, **servo} for i, name in enumerate(NAMES, start=1)}
    (folder / "blue.json").write_text(json.dumps(content))


def make(port: str, name: str, no_terminal: int) -> Leader:
    action = make_control("joint_position", SO101).spec
    interface = Interface({"proprio": proprio_spec(SO101)}, action, 20.0, "so101", "joint_position")
    return Leader(
        interface, SO101, LeaderConfig(port=port, calibration=name, silence_s=1.0), fd=no_terminal, out=io.StringIO()
    )


def test_the_servos_move_the_joints_of_our_arm(servos, calibrated: None, no_terminal: int) -> None:
    goal = np.array([10.0, -20.0, 30.0, 40.0, -50.0])  # [°]
    for servo, degrees in enumerate(goal, start=1):
        servos.put(servo, SERVOS.PRESENT_POSITION, round((LOW + HIGH) / 2 + degrees * DEGREE))
    servos.put(6, SERVOS.PRESENT_POSITION, LOW + (HIGH - LOW) // 4)
    q = np.radians(goal)[None]
    seen = {"proprio": proprio(q, np.array([0.0]), *SO101.chain.forward(q))}
    device = make(servos.port, "blue", no_terminal)
    device.open()
    try:
        deadline = time.monotonic() + 10
        while (sample := device.sample(seen)).action is None:
            assert sample.engaged and time.monotonic() < deadline, sample
            time.sleep(0.02)
        joints, width = make_control("joint_position", SO101).targets(q, None, sample.action[None])
        np.testing.assert_allclose(np.degrees(joints[0]), goal, atol=0.1)
        assert width[0] == pytest.approx(0.25 * SO101.gripper.max_width, abs=1e-3)
        servos.unplug()
        deadline = time.monotonic() + 10
        while (sample := device.sample(seen)).engaged:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert "leader: silent for" in sample.note
    finally:
        device.close()


def test_an_arm_that_is_not_calibrated_is_named_with_the_command(servos, calibrated: None, no_terminal: int) -> None:
    with pytest.raises(BadInput, match=f"lerobot-calibrate .*--teleop.port={servos.port} --teleop.id=red"):
        make(servos.port, "red", no_terminal).open()
    servos.put(3, SERVOS.MAX_POSITION, HIGH + 1)  # calibrated anew on another computer
    with pytest.raises(BadInput, match="no calibration, or another arm's"):
        make(servos.port, "blue", no_terminal).open()


def test_no_arm_at_the_port_is_one_line(calibrated: None, no_terminal: int) -> None:
    with pytest.raises(BadInput, match=r"^leader at /dev/ttyNONE: got .*robolearn doctor lists the serial ports"):
        make("/dev/ttyNONE", "blue", no_terminal).open()
