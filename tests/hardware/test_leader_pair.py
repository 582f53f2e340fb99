"""Two leader arms over real rclpy and DDS: each leads its follower of `so101_pair`, through one safety filter."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from std_msgs.msg import Float64MultiArray

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.recording import Session, stamp_names
from hardware.recording.episodes import Phase
from hardware.ros2 import messages
from hardware.ros2.process import wait_until
from hardware.ros2.record_node import RecordNode
from hardware.ros2.safety_node import SafetyNode
from hardware.teleop import EpisodeEvent, make_device
from hardware.teleop.wrapped import Wrapped
from robolearn.data.reading.reader import Dataset
from robolearn.data.writing.writer import EpisodeWriter
from robots import SO101
from robots.stations import PairContract, load_pair

sys.path.insert(0, str(Path(__file__).parent))
from hosted import running
from ros_station import Arm

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 8
WAIT_S = 60.0
NAMES = (*SO101.joints, "gripper")
HOME = np.array(SO101.home)
PAN = 0
# As late as a busy machine's joint states may be: all nodes share this process.
LATE_S = 0.3


def slow_pair() -> PairContract:
    pair = load_pair("so101_pair")
    late = {
        name: replace(
            arm,
            joint_states=replace(arm.joint_states, max_age_s=LATE_S),
            limits=replace(arm.limits, state_timeout_s=LATE_S),
        )
        for name, arm in pair.arms.items()
    }
    return replace(pair, arms=late, limits=pair.limits.joined(pair.robot, [arm.limits for arm in late.values()]))


PAIR = slow_pair()


class LeaderArm:
    """LeRobot's `SOLeader`, as seen from outside, where a test holds it."""

    is_calibrated = True

    def __init__(self) -> None:
        self.q, self.share, self.answers = HOME.copy(), 50.0, True

    def connect(self, calibrate: bool = True) -> None: ...

    def disconnect(self) -> None: ...

    def get_action(self) -> dict[str, float]:
        if not self.answers:
            raise OSError("no status packet")
        return {f"{name}.pos": float(at) for name, at in zip(NAMES, (*np.degrees(self.q), self.share), strict=True)}


class Follower(Arm):
    """Goes where it is commanded, its jaw being the last number of a command."""

    def configure(self) -> None:
        self.jaw = self.contract.gripper_joint_positions(0.03)[0]
        super().configure()

    def _listen(self, deep: Any) -> list[Callable[[], None]]:
        return [self.poll(Float64MultiArray, self.contract.command.topic, self._on_both, deep)]

    def _on_both(self, message: Float64MultiArray, info: Any) -> None:
        *arm, self.jaw = message.data
        self._on_command(Float64MultiArray(data=arm), info)

    def _speak(self) -> None:
        now = 1e-9 * self.get_clock().now().nanoseconds
        self._states.publish(messages.joint_state((*self.contract.joints, "gripper"), (*self.q, self.jaw), now))


class Pressed(Wrapped):
    """The leaders, and the keys that a test presses."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self.events: list[EpisodeEvent] = []

    def sample(self, observation: Any) -> Any:
        sample = super().sample(observation)
        pressed, self.events = tuple(self.events), []
        return replace(sample, events=(*sample.events, *pressed))


class Station:
    """Two leaders, the recording, the filter and two followers."""

    def __init__(self, stack: ExitStack, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leaders = {"left": LeaderArm(), "right": LeaderArm()}
        ports = {f"/dev/{side}": arm for side, arm in self.leaders.items()}
        monkeypatch.setattr("hardware.teleop.leader.lerobot_leader", lambda kind, port, calibration: ports[port])
        self.followers = {
            side: running(stack, lambda context, arm=arm: Follower(arm, context=context), DOMAIN)
            for side, arm in PAIR.arms.items()
        }
        self.safety = running(stack, lambda context: SafetyNode(contract=PAIR, context=context), DOMAIN)
        options = {"port": "/dev/left,/dev/right", "calibration": "one,two", "silence_s": LATE_S}
        self.joined = make_device("leader", PAIR.interface, PAIR.robot, **options)
        self.device = Pressed(self.joined)
        self.device.open()
        names = stamp_names(PAIR.interface)
        self.writer = stack.enter_context(
            EpisodeWriter(out, PAIR.interface, stamps=names, task="fold", real_time=False)
        )
        session = Session(PAIR, self.device, PAIR.interface, self.writer, "fold", 2)
        self.node = running(
            stack, lambda context: RecordNode(lambda _: session, contract=PAIR, context=context), DOMAIN
        )
        wait_until(lambda: self.node.session and self.node.episodes.phase is Phase.WAITING, WAIT_S, "everything")

    def press(self, event: EpisodeEvent) -> None:
        self.device.events.append(event)

    def until(self, phase: Phase) -> None:
        """START, as often as it takes: a machine that stands still latches the filter."""
        end = time.monotonic() + WAIT_S
        while self.node.episodes.phase is not phase:
            assert time.monotonic() < end, self.node.session.status  # type: ignore[union-attr]
            if self.node.episodes.phase in (Phase.WAITING, Phase.READY) and not self.device.events:
                self.press(EpisodeEvent.START)
            time.sleep(0.3)

    def lead(self, side: str, pan: float) -> None:
        """At the pace of a hand, from where the leader is [rad]."""
        leader = self.leaders[side]
        for at in np.linspace(leader.q[PAN], pan, 15):
            leader.q[PAN] = at
            time.sleep(0.05)

    def mend(self) -> None:
        """All leaders answer, where their followers are."""
        for name, leader in self.leaders.items():
            leader.q, leader.answers = self.followers[name].q.copy(), True
        assert self.joined.reconnect()  # type: ignore[attr-defined]

    @property
    def note(self) -> str:
        return self.node.session.sample.note  # type: ignore[union-attr]


@pytest.fixture
def station(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Station]:
    with ExitStack() as stack:
        yield Station(stack, tmp_path / "set", monkeypatch)


def test_each_leads_its_own_arm_and_what_both_did_is_recorded(station: Station, tmp_path: Path) -> None:
    station.leaders["right"].q[PAN] = 0.8
    station.until(Phase.READY)
    wait_until(lambda: station.note, WAIT_S, "advice")
    assert station.note.startswith("right: bring the leader's shoulder_pan to 0° (now 46°)")
    station.lead("left", 0.2)
    left, right = (station.followers[side] for side in ("left", "right"))
    assert np.abs(left.q - HOME).max() < 0.01, "neither follows before both leaders are where their arms are"
    station.lead("left", 0.0)
    station.lead("right", 0.0)
    wait_until(lambda: not station.note, WAIT_S, "both to be there")
    station.until(Phase.RECORDING)
    station.lead("left", 0.3)
    station.lead("right", -0.2)
    station.leaders["right"].share = 100.0
    wait_until(lambda: abs(left.q[PAN] - 0.3) < 0.03 and abs(right.q[PAN] + 0.2) < 0.03, WAIT_S, "both to follow")
    time.sleep(0.5)
    station.press(EpisodeEvent.SUCCESS)
    wait_until(lambda: station.writer.episodes == 1, WAIT_S, "the episode")
    for arm in (left, right):
        assert arm.monitor.summary()["violations"] == 0, arm.monitor.summary()
    station.press(EpisodeEvent.QUIT)
    station.press(EpisodeEvent.QUIT)
    wait_until(lambda: station.node.done, WAIT_S, "the end")
    station.writer.close()
    data = Dataset.open(tmp_path / "set")
    assert data.interface.action.names[:2] == ("left_shoulder_pan", "left_shoulder_lift")
    proprio, n = data.observation["proprio"], len(SO101.joints)
    assert proprio.shape[1] == 2 * (n + 10) and data.action.shape[1] == 2 * (n + 1)
    assert proprio[-1, PAN] == pytest.approx(0.3, abs=0.05) and proprio[-1, n + 10 + PAN] == pytest.approx(
        -0.2, abs=0.05
    )
    assert data.action[-1, [n, 2 * n + 1]] == pytest.approx([0.0, 1.0], abs=0.02), "jaws half open, and open"
    pan = SO101.lower[PAN] + 0.5 * (data.action[-1, [PAN, n + 1 + PAN]] + 1.0) * (SO101.upper - SO101.lower)[PAN]
    assert pan == pytest.approx([0.3, -0.2], abs=0.02)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_leader_that_falls_silent_stops_both(station: Station, side: str) -> None:
    for _ in range(5):
        station.until(Phase.RECORDING)
        station.lead("left", 0.1)
        station.lead("right", 0.1)
        station.leaders[side].answers = False
        for leader in station.leaders.values():  # they go on
            leader.q[PAN] = 0.5
        wait_until(lambda: station.node.report.state in ("latched", "disarmed"), WAIT_S, "rest")
        wait_until(lambda: f"{side}: leader: silent for" in station.note, WAIT_S, "its silence to be noticed")
        if "dead-man" in station.node.report.reason:
            break
        station.mend()  # a machine that stands still stops the arms by itself
    assert "dead-man" in station.node.report.reason
    rest = {name: arm.q.copy() for name, arm in station.followers.items()}
    time.sleep(1.0)
    for name, arm in station.followers.items():
        np.testing.assert_array_equal(arm.q, rest[name])
        assert arm.monitor.summary()["violations"] == 0
    assert station.writer.episodes == 0
