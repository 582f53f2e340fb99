"""The bus of an SO-101 follower through LeRobot itself and its calibration file, to servos on a pseudo-terminal."""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from hardware.servos import ServoDriver, ServosLost
from hardware.servos.lerobot_bus import LeRobotBus
from robolearn.core import BadInput
from robots import SO101

sys.path.insert(0, str(Path(__file__).parent))
import so101_rig as rig

HOME = np.array([*SO101.home, 0.5])
COUNT = 1.1 / rig.COUNTS  # [rad]: a count, and what its rounding adds
TORQUE, GOAL = rig.SERVOS.TORQUE, rig.SERVOS.GOAL


@pytest.fixture
def servos() -> Iterator:
    with rig.arm() as servos:
        yield servos


@pytest.fixture(autouse=True)
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("lerobot.utils.constants"), "HF_LEROBOT_CALIBRATION", tmp_path)
    rig.calibrate(tmp_path)


def bus(servos, name: str = "blue") -> LeRobotBus:
    return LeRobotBus(servos.port, name, rig.JAW)


def driver(servos, **options: bool) -> ServoDriver:
    lower, upper = np.array([*SO101.lower, rig.JAW[0]]), np.array([*SO101.upper, rig.JAW[1]])
    jump = np.array([0.35] * 5 + [math.inf])
    made = ServoDriver(bus(servos), rig.NAMES, lower, upper, jump, **options)
    made.begin()
    return made


def test_radians_there_and_back(servos) -> None:
    made = bus(servos)
    made.open()
    try:
        np.testing.assert_allclose(made.read(), HOME, atol=COUNT)
        goal = np.array([0.3, -0.2, 0.4, 1.1, -0.6, 1.2])
        made.write(goal)
        wanted = rig.counts(goal[:5], goal[5])
        until(lambda: sum(address == GOAL for _, address, _ in servos.written()) == 6)
        assert [servos.get(servo, GOAL) for servo in servos.memory] == pytest.approx(wanted, abs=1)
        np.testing.assert_allclose(made.read(), HOME, atol=COUNT)  # no torque, no motion
        made.torque(True)
        until(lambda: np.allclose(made.read(), goal, atol=2 * COUNT))
    finally:
        made.close()


def test_the_goal_is_where_the_arm_is_before_there_is_torque(servos) -> None:
    begun = [servos.get(servo, rig.SERVOS.PRESENT_POSITION) for servo in servos.memory]
    made = driver(servos)
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            made.tick()
        now = [servos.get(servo, rig.SERVOS.PRESENT_POSITION) for servo in servos.memory]
        assert now == pytest.approx(begun, abs=1) and all(servos.has_torque(servo) for servo in servos.memory)
        for servo in servos.memory:
            events = [(address, value) for one, address, value in servos.written() if one == servo]
            assert (GOAL, pytest.approx(begun[servo - 1], abs=1)) in events[: events.index((TORQUE, 1))]
    finally:
        made.end()
    assert all(servos.has_torque(servo) for servo in servos.memory), "an arm that is left holds"


def test_a_driver_that_is_started_again_does_not_drop_the_arm(servos) -> None:
    driver(servos).end()
    servos.forget()
    again = driver(servos)
    again.end(release=True)
    taken = [value for _, address, value in servos.written() if address == TORQUE]
    assert taken == [1] * 6 + [0] * 6, "torque on, and off only where it is asked for"
    assert not any(servos.has_torque(servo) for servo in servos.memory)


def test_settings_of_somebody_else_are_put_right(servos) -> None:
    servos.memory[2][21] = 32  # P coefficient
    driver(servos).end()
    assert servos.memory[2][21] == 16 and servos.get(6, 16) == 500, "and the gripper's torque is limited"


def test_servos_that_fall_silent(servos) -> None:
    made = driver(servos)
    servos.deaf(True)
    assert made.tick() is None and made.lost == 1
    servos.deaf(False)
    until(lambda: made.tick() is not None)
    servos.unplug()
    with pytest.raises(ServosLost, match="silent for 1"):
        while True:
            made.tick()
    made.end(release=True)  # nobody takes it, and nothing is raised


def test_two_drivers_on_one_bus(servos) -> None:
    made = driver(servos)
    try:
        with pytest.raises(BadInput, match=f"servos at {servos.port}: got another driver, expected none: end"):
            bus(servos).open()
        assert made.tick() is not None
    finally:
        made.end()


def test_an_arm_without_its_calibration_is_named_with_the_command(servos) -> None:
    command = f"lerobot-calibrate --robot.type=so101_follower --robot.port={servos.port} --robot.id="
    with pytest.raises(BadInput, match=f"got no calibration called red, expected .*red.json.*{command}red"):
        bus(servos, "red").open()
    servos.put(3, rig.SERVOS.MAX_POSITION, rig.HIGH + 1)  # calibrated anew on another computer
    with pytest.raises(BadInput, match=f"got the calibration of another arm.*{command}blue"):
        bus(servos).open()
    assert not any(servos.has_torque(servo) for servo in servos.memory)


def test_no_arm_at_the_port_is_one_line() -> None:
    with pytest.raises(BadInput, match=r"^servos at /dev/ttyNONE: got .*robolearn doctor lists the serial ports"):
        LeRobotBus("/dev/ttyNONE", "blue", rig.JAW).open()


def until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while True:
        with suppress(ConnectionError):  # a packet that was lost is nothing, as it is for the servos' node
            if condition():
                return
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
