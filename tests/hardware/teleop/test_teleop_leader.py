"""The leader arm against an arm with LeRobot's interface that is not there."""

from __future__ import annotations

import io
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from hardware.teleop import Sample, Status
from hardware.teleop.leader import Leader, LeaderConfig
from robolearn.core import BadInput, Interface
from robots import SO101, make_control

pytestmark = pytest.mark.realtime

NAMES = (*SO101.joints, "gripper")


class Arm:
    """What LeRobot's `SOLeader` looks like from outside."""

    def __init__(self) -> None:
        self.is_calibrated, self.connected = True, False
        self.degrees = dict(zip(NAMES, (*np.degrees(SO101.home), 50.0), strict=True))
        self.fault: Exception | None = None
        self.refuses: Exception | None = None
        self.hangs = threading.Event()
        self.hangs.set()

    def connect(self, calibrate: bool = True) -> None:
        assert not calibrate, "that would ask questions"
        if self.refuses is not None:
            raise self.refuses
        self.connected = True

    def disconnect(self) -> None:
        self.connected = False

    def get_action(self) -> dict[str, float]:
        self.hangs.wait(5)
        if self.fault is not None:
            raise self.fault
        return {f"{name}.pos": value for name, value in self.degrees.items()}


@pytest.fixture
def arm() -> Arm:
    return Arm()


@pytest.fixture
def leader(so101_joints: Interface, arm: Arm, no_terminal: int) -> Iterator[Leader]:
    device = Leader(so101_joints, SO101, LeaderConfig(silence_s=1.0), arm=arm, fd=no_terminal, out=io.StringIO())
    device.open()
    yield device
    arm.hangs.set()
    device.close()


def until(ask: Callable[[], Sample], true: Callable[[Sample], bool]) -> Sample:
    deadline = time.monotonic() + 10
    while not true(sample := ask()):
        assert time.monotonic() < deadline, sample
        time.sleep(0.01)
    return sample


def lead(arm: Arm, leader: Leader, seen, begin: float, end: float) -> None:
    """At the pace of a hand."""
    for degrees in np.linspace(begin, end, 6):
        arm.degrees["shoulder_pan"] = float(degrees)
        until(lambda: leader.sample(seen), lambda s, at=degrees: abs(109.999 * s.action[0] - at) < 1.0)


def status(state: str) -> Status:
    return Status(state, "", 0, 1, 0, 0.0)


def test_degrees_become_the_joints_of_our_arm(leader: Leader, arm: Arm, observe) -> None:
    seen = observe(SO101)
    sample = until(lambda: leader.sample(seen), lambda sample: sample.action is not None)
    assert sample.engaged and time.monotonic() - sample.stamp < 1
    control = make_control("joint_position", SO101)
    goal, width = control.targets(np.asarray(SO101.home)[None], None, sample.action[None])
    np.testing.assert_allclose(goal[0], SO101.home, atol=1e-5)
    assert width[0] == pytest.approx(0.5 * SO101.gripper.max_width)
    arm.degrees["elbow_flex"] += 5.0
    arm.degrees["gripper"] = 100.0
    moved = until(lambda: leader.sample(seen), lambda sample: sample.action[5] > 0.99)
    goal, _ = control.targets(np.asarray(SO101.home)[None], None, moved.action[None])
    np.testing.assert_allclose(goal[0] - SO101.home, np.radians([0, 0, 5, 0, 0]), atol=1e-5)


def test_the_arm_follows_only_from_where_it_is(leader: Leader, arm: Arm, observe) -> None:
    seen = observe(SO101)
    until(lambda: leader.sample(seen), lambda sample: sample.action is not None)
    lead(arm, leader, seen, 0.0, 60.0)  # it leads, and may go anywhere
    leader.show(status("recording"))
    sample = leader.sample(seen)
    assert sample.engaged and sample.action is None
    assert sample.note == "bring the leader's shoulder_pan to 0° (now 60°)"
    arm.degrees["shoulder_pan"] = 3.0
    assert not until(lambda: leader.sample(seen), lambda sample: sample.action is not None).note
    lead(arm, leader, seen, 3.0, 60.0)
    leader.prepared()
    assert leader.sample(seen).action is None, "the arm was put elsewhere"


def wrapped(degrees: float) -> float:
    """As a servo of one turn reports it."""
    return (degrees + 180.0) % 360.0 - 180.0


def test_a_joint_that_is_led_past_half_a_turn_does_not_send_the_arm_round(leader: Leader, arm: Arm, observe) -> None:
    seen, limit, at = observe(SO101), math.degrees(SO101.upper[4]), math.degrees(SO101.home[4])
    until(lambda: leader.sample(seen), lambda sample: sample.action is not None)
    reached = []
    for goal in (120.0, 175.0, 190.0, 260.0, 170.0):
        while at != goal:  # at the pace of a hand
            at += float(np.clip(goal - at, -20.0, 20.0))
            arm.degrees["wrist_roll"] = wrapped(at)
            time.sleep(0.03)
            sample = leader.sample(seen)
            assert sample.action is not None, sample.note
        lower, upper = np.degrees([SO101.lower[4], SO101.upper[4]])
        reached.append(lower + (sample.action[4] + 1) / 2 * (upper - lower))
    np.testing.assert_allclose(reached, [120.0, limit, limit, limit, limit], atol=0.5)


def test_a_joint_that_jumps_leads_no_more(leader: Leader, arm: Arm, observe) -> None:
    seen = observe(SO101)
    until(lambda: leader.sample(seen), lambda sample: sample.action is not None)
    arm.degrees["shoulder_pan"] = 80.0
    sample = until(lambda: leader.sample(seen), lambda sample: sample.action is None)
    assert sample.engaged and sample.note == "bring the leader's shoulder_pan to 0° (now 80°)"
    arm.degrees["shoulder_pan"] = 0.0
    until(lambda: leader.sample(seen), lambda sample: sample.action is not None)


def test_a_lost_packet_is_nothing_and_silence_is_the_end(leader: Leader, arm: Arm, observe) -> None:
    seen = observe(SO101)
    until(lambda: leader.sample(seen), lambda sample: sample.action is not None)
    arm.fault = ConnectionError("Failed to sync read 'Present_Position'\n[TxRxResult] no status packet")
    sample = until(lambda: leader.sample(seen), lambda sample: not sample.engaged)
    assert sample.action is None
    assert "leader: silent for" in sample.note and sample.note.endswith("(Failed to sync read 'Present_Position')")
    arm.fault = None
    time.sleep(0.05)
    assert not leader.sample(seen).engaged


def test_a_bus_that_hangs_is_silent_too(leader: Leader, arm: Arm, observe) -> None:
    until(lambda: leader.sample(observe(SO101)), lambda sample: sample.action is not None)
    arm.hangs.clear()
    start = time.monotonic()
    until(lambda: leader.sample(observe(SO101)), lambda sample: not sample.engaged)
    assert time.monotonic() - start < 4.5, "sampling does not wait for the bus"


def test_a_position_that_is_not_finite_is_not_followed(leader: Leader, arm: Arm, observe) -> None:
    arm.degrees["wrist_flex"] = float("nan")
    until(lambda: leader.sample(observe(SO101)), lambda sample: not sample.engaged)


def test_what_is_wrong_is_said_in_one_line(so101_joints: Interface, arm: Arm, no_terminal, monkeypatch) -> None:
    device = Leader(so101_joints, SO101, LeaderConfig(port="/dev/ttyACM3", calibration="blue"), arm=arm, fd=no_terminal)
    arm.is_calibrated = False
    command = "lerobot-calibrate --teleop.type=so101_leader --teleop.port=/dev/ttyACM3 --teleop.id=blue"
    with pytest.raises(BadInput, match=r"^leader at /dev/ttyACM3: got no calibration, or another arm's") as error:
        device.open()
    assert command in str(error.value) and not arm.connected
    arm.refuses = ConnectionError("Could not connect on port '/dev/ttyACM3'.\nMake sure")
    with pytest.raises(BadInput, match=r"Could not connect on port '/dev/ttyACM3'\.\. robolearn doctor") as error:
        device.open()
    assert "\n" not in str(error.value)
    arm.refuses = ImportError("No module named 'scservo_sdk'")
    with pytest.raises(BadInput, match=r"scservo_sdk.*pip install .*\[lerobot\]'"):
        device.open()
    monkeypatch.setitem(sys.modules, "lerobot", None)
    with pytest.raises(BadInput, match=r"leader: got no LeRobot .*pip install .*\[lerobot\]'"):
        Leader(so101_joints, SO101).open()
    with pytest.raises(BadInput, match=r"leader: kind: got so102; available: so100, so101"):
        Leader(so101_joints, SO101, LeaderConfig(kind="so102"))


@pytest.mark.long
def test_unplugged_and_back_it_is_opened_at_the_first_look(leader: Leader, arm: Arm, observe) -> None:
    """Whatever its thread is doing just then: it reads a hundred times a second."""
    seen = observe(SO101)
    until(lambda: leader.sample(seen), lambda sample: sample.action is not None)
    for _ in range(5):
        arm.fault = arm.refuses = ConnectionError("Could not connect")
        until(lambda: leader.sample(seen), lambda sample: not sample.engaged)
        assert not leader.reconnect() and leader.gone
        arm.fault = arm.refuses = None
        assert leader.reconnect() and not leader.gone
        until(lambda: leader.sample(seen), lambda sample: sample.action is not None)


def test_a_read_that_hangs_is_not_waited_for(leader: Leader, arm: Arm, observe) -> None:
    until(lambda: leader.sample(observe(SO101)), lambda sample: sample.action is not None)
    arm.hangs.clear()
    until(lambda: leader.sample(observe(SO101)), lambda sample: not sample.engaged)
    start = time.monotonic()
    assert not leader.reconnect() and time.monotonic() - start < 0.5
