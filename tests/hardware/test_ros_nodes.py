"""The nodes over real rclpy and DDS: a whole station in one process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rclpy.node import Node as PlainNode
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from hardware.ros2 import messages, qos, topics
from hardware.ros2.policy_node import PolicyNode
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from hardware.ros2.safety_node import SafetyNode
from hardware.ros2.streamer_node import StreamerNode
from hardware.safety.checks import GAP_S
from robolearn.core import ArraySpec, BadInput, RobolearnError
from robolearn.core.machine import HIGHEST, threads
from robolearn.data.video.encoder import VideoConfig, check_encodable
from robots.stations import load_contract

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from hosted import Hosted  # noqa: E402
from ros_station import Arm, SinePolicy  # noqa: E402
from stopping import at_rest, silence  # noqa: E402

pytestmark = pytest.mark.realtime

SIM = load_contract("sim")
# Joint states as late as a station may call normal: four nodes share this process with whatever else the machine does.
LATE_S = 0.2
CONTRACT = replace(
    SIM,
    joint_states=replace(SIM.joint_states, max_age_s=LATE_S),
    limits=SIM.limits.tightened(state_timeout_s=LATE_S),
)
BUSY = re.compile(r"\d s old|did not run|no heartbeat")  # why a machine that stands still for a moment stops the arm
NAMES = ("dx", "dy", "dz", "rx", "ry", "rz", "gripper")


class Station:
    """Arm, safety, streamer and policy node in threads, each with a context of its own as in processes."""

    def __init__(self) -> None:
        self.swing = SinePolicy(CONTRACT.with_cameras(()))
        self.hosted = [
            Hosted(lambda context: Arm(CONTRACT, context=context)),
            Hosted(lambda context: SafetyNode(contract=CONTRACT, context=context)),
            Hosted(lambda context: StreamerNode(contract=CONTRACT, context=context)),
            Hosted(lambda context: PolicyNode(lambda *_, **__: self.swing, contract=CONTRACT, context=context)),
        ]
        self.arm, self.safety, self.streamer, self.policy = (hosted.node for hosted in self.hosted)
        self.background = Background()
        self.operator = SafetyClient(self.background)
        self.operator.wait_ready(30)
        self.before = 0  # violations of the tests before

    def calm(self) -> None:
        """Disarmed, and nothing broken."""
        self.swing.__init__(CONTRACT.with_cameras(()))
        self.policy.predictor.fault = ""
        self.arm.talks = True
        if self.operator.state in ("armed", "braking"):
            self.operator.estop()
            self.operator.wait_for("latched")
        if self.operator.state == "latched":
            self.operator.reset()
        self.arm.monitor.new_motion()
        self.operator.wait_ready(10)

    @property
    def violations(self) -> int:
        """So far, of all tests."""
        return self.arm.monitor.summary()["violations"]

    def expect_no_violation(self) -> None:
        """In this test: what another one saw is not this one's."""
        assert self.violations == self.before, self.arm.monitor.summary()

    def move(self) -> None:
        """Armed and in motion; a machine that is too busy for a moment stops the arm, and then once more."""
        end = time.monotonic() + 30.0
        begun = len(self.arm.commands)
        while not self.arm.moved(begun) > 0.01:
            assert time.monotonic() < end, (self.operator.reports[-2:], self.safety.supervisor.filter.status())
            if self.operator.state == "latched":
                self.operator.reset()
            if self.operator.state == "disarmed":
                begun = len(self.arm.commands)
                with contextlib.suppress(RobolearnError):  # latched again before anybody saw it armed
                    self.operator.arm()
            time.sleep(0.01)

    def stopped_by(self, cause: Callable[[], None], why: str) -> None:
        """In motion, `cause` latches with this reason; where the machine stood still before it could, once more."""
        for _ in range(5):
            self.move()
            cause()
            reason = self.operator.wait_for("latched", 5).reason
            if why in reason or not BUSY.search(reason):
                break
            self.calm()
        self.expect_latched(why)

    def expect_latched(self, why: str) -> None:
        report = self.operator.wait_for("latched", 3)
        assert why in report.reason, report.reason
        with pytest.raises(RobolearnError, match="latched"):
            self.operator.arm(0.5)
        self.expect_no_violation()


@pytest.fixture(scope="module")
def the_station() -> Iterator[Station]:
    station = Station()
    yield station
    station.background.close()
    for hosted in station.hosted:
        hosted.close()
    assert not station.background.errors


@pytest.fixture
def station(the_station: Station) -> Station:
    the_station.before = the_station.violations
    the_station.calm()
    return the_station


@pytest.mark.long
def test_chunks_become_commands_and_a_planned_stop_does_not_latch(station: Station) -> None:
    begun = len(station.arm.commands)
    station.move()
    chunks = station.policy.chunks
    wait_until(lambda: station.policy.chunks > chunks + 4, 5, "chunks")
    station.operator.disarm()
    silence(station.arm.commands)
    commands = station.arm.commands[begun:]
    seconds = commands[-1][0] - commands[0][0]
    assert 50 < len(commands) / seconds < 220  # 200 Hz, less what a busy machine leaves to four nodes in one process
    station.expect_no_violation()
    assert at_rest(commands, CONTRACT), commands[-3:]
    assert station.arm.width == pytest.approx(0.08, abs=0.001)
    assert station.operator.reason.startswith("disarmed")
    values = station.operator.reports[-1].values
    assert 0 < float(values["latency_p50_ms"]) < 100 and int(values["latency_count"]) >= 4
    station.operator.arm()  # without a reset
    station.operator.disarm()


@pytest.mark.long
def test_chunks_follow_one_another_by_their_observations(station: Station) -> None:
    stamps: list[float] = []
    node = station.background.add(
        PlainNode("eavesdropper", namespace=topics.NAMESPACE, context=station.background.context)
    )
    node.create_subscription(
        JointTrajectory,
        topics.ACTION_CHUNK,
        lambda m: stamps.append(messages.read_chunk(m)[0]),
        qos.stream(lease_s=None),
    )
    station.move()
    wait_until(lambda: len(stamps) > 6, 5, "chunks")
    station.operator.disarm()
    gaps = np.diff(stamps)
    # 4 actions at 20 Hz; never earlier, and late by a joint state or two
    assert gaps.min() > 0.199 and np.median(gaps) < 0.215, gaps


def test_a_slow_policy_is_a_stop(station: Station) -> None:
    station.stopped_by(lambda: setattr(station.swing, "think", lambda: time.sleep(0.5)), "ran out")


def test_a_policy_that_fails_is_a_stop(station: Station) -> None:
    def fail() -> None:
        raise RobolearnError("lost its mind")

    station.stopped_by(lambda: setattr(station.swing, "think", fail), "lost its mind")
    wait_until(lambda: "lost its mind" in station.operator.policy.get("reason", ""), 3, "the reason")


def test_actions_that_are_not_finite_are_a_stop(station: Station) -> None:
    station.stopped_by(lambda: setattr(station.swing, "corrupt", lambda actions: actions * np.nan), "not finite")


def test_silent_joint_states_are_a_stop(station: Station) -> None:
    station.move()
    station.arm.talks = False
    report = station.operator.wait_for("latched", 3)
    assert "joint state" in report.reason
    station.arm.talks = True
    station.expect_no_violation()


@pytest.mark.long
@pytest.mark.parametrize("held_s", [0.05, 0.4])
def test_a_command_whose_publishing_is_held_up(
    station: Station, monkeypatch: pytest.MonkeyPatch, held_s: float
) -> None:
    """The middleware has sent it, and then the process does not run: the arm stands at it, and starts from rest."""
    station.move()
    publisher = station.safety.controllers[0].command
    publish, last, held, reasons = publisher.publish, [station.arm.q], [], []

    def held_up(message: Float64MultiArray) -> None:
        publish(message)
        fast = np.abs(message.data - last[0]).max() > 0.001
        last[0] = np.array(message.data)
        if fast and time.monotonic() - (held[-1] if held else 0.0) > 0.5:
            time.sleep(held_s)
            held.append(time.monotonic())

    monkeypatch.setattr(publisher, "publish", held_up)
    for k in range(1, 5):
        wait_until(lambda k=k: len(held) >= k, 10, "a command that is held up")
        if held_s > GAP_S:
            reasons.append(station.operator.wait_for("latched", 3).reason)
        if station.operator.state == "latched":  # or because joint states are too old by then
            station.operator.reset()
        station.move()
    monkeypatch.undo()
    assert held_s < GAP_S or any("did not run" in reason for reason in reasons), reasons
    station.expect_no_violation()


def test_the_dead_man_released(station: Station) -> None:
    station.move()

    def refusals() -> Counter[str]:
        assert station.operator.report is not None
        return Counter(json.loads(station.operator.report.values["refusals"]))

    before = refusals()
    station.operator.release()
    report = station.operator.wait_for("latched", 3)
    assert "dead-man" in station.operator.reason
    assert refusals() - before == {"dead-man": 1}
    assert report.values["deadman_held"] == "False"
    station.operator.reset()
    done, message = station.operator.call(topics.ARM)
    assert not done and "dead-man" in message


@pytest.mark.long
def test_a_terminal_beside_it_and_a_second_operator(station: Station) -> None:
    with SafetyClient(name="onlooker") as other:  # a context of its own, as another program has
        other.wait_ready(20, policy=False)
        station.move()
        time.sleep(0.5)
        assert station.operator.state == "armed", station.operator.reason
        other.hold()
        report = station.operator.wait_for("latched", 5)
        assert "2 dead-man's switches are held at once" in report.reason and "/onlooker" in report.reason
        other.release()
        for service in (topics.RESET, topics.ARM):
            done, message = other.call(service)
            assert not done and "/operator holds the dead-man's switch, and another node calls" in message, message
        station.operator.reset()
        station.move()
        other.estop()
        station.expect_latched("e-stop")


def test_emergency_stop_in_mid_motion_and_while_braking(station: Station) -> None:
    station.move()
    station.operator.call(topics.DISARM)
    station.operator.estop()
    wait_until(lambda: station.operator.state in ("latched", "disarmed"), 3, "rest")
    station.operator.estop()
    station.expect_latched("e-stop")
    begun = silence(station.arm.commands)
    time.sleep(0.2)
    assert len(station.arm.commands) == begun


def test_two_policies_at_once(station: Station) -> None:
    station.move()
    background = station.background
    node = background.add(PlainNode("second_policy", namespace=topics.NAMESPACE, context=background.context))
    publisher = node.create_publisher(JointTrajectory, topics.ACTION_CHUNK, qos.CHUNK)
    wait_until(lambda: publisher.get_subscription_count() > 0, 5, "a match")
    publisher.publish(messages.chunk(NAMES, np.zeros((4, 7)), node.get_clock().now().to_msg(), 0.05))
    station.expect_latched("policies at once")
    node.destroy_publisher(publisher)


def test_somebody_else_at_the_controller(station: Station) -> None:
    station.move()
    background = station.background
    node = background.add(PlainNode("intruder", context=background.context))
    station.safety.looking.cancel()  # noticed by the tick, not by a look now and again
    publisher = node.create_publisher(Float64MultiArray, CONTRACT.command.topic, qos.CONTROLLER)
    report = station.operator.wait_for("latched", 5)
    station.safety.looking.reset()
    assert "/intruder publishes to" in report.reason
    station.operator.reset()
    done, message = station.operator.call(topics.ARM)
    assert not done and "/intruder" in message
    node.destroy_publisher(publisher)
    station.operator.arm(5)
    station.operator.disarm()


@pytest.mark.long
def test_a_second_publisher_of_joint_states(station: Station) -> None:
    """A forgotten joint_state_publisher at 10 Hz: not armed beside it, stopped by it, and not once believed."""
    background = station.background
    node = background.add(PlainNode("joint_state_publisher", context=background.context))
    publisher = node.create_publisher(JointState, CONTRACT.joint_states.topic, 10)
    wait_until(lambda: publisher.get_subscription_count() > 0, 5, "a match")

    def publish() -> None:
        now = 1e-9 * node.get_clock().now().nanoseconds
        publisher.publish(messages.joint_state(CONTRACT.joints, station.arm.q + 0.3, now))

    station.operator.hold()
    # Its name may come later than itself.
    words = "2 publishers, and nothing was heard of /joint_state_publisher"
    wait_until(lambda: words in station.operator.call(topics.ARM)[1], 15, "a refusal")
    assert station.operator.state == "disarmed"
    timer = node.create_timer(0.1, publish)
    time.sleep(0.5)
    for _ in range(5):
        done, message = station.operator.call(topics.ARM)
        assert not done and "2 publishers at once" in message and "/joint_state_publisher" in message, message
        assert station.operator.state == "disarmed"
        time.sleep(0.05)
    timer.cancel()
    station.move()
    publish()
    report = station.operator.wait_for("latched", 3)
    assert "2 publishers at once" in report.reason and "/joint_state_publisher" in report.reason
    station.expect_no_violation()
    node.destroy_publisher(publisher)


def test_incompatible_qos_is_refused_before_arming(station: Station) -> None:
    background = station.background
    node = background.add(PlainNode("picky_controller", context=background.context))
    picky = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    subscription = node.create_subscription(Float64MultiArray, CONTRACT.command.topic, print, picky)
    wait_until(lambda: station.safety.problems, 5, "the event")
    done, message = station.operator.call(topics.ARM)
    assert not done and "transient local" in message
    assert "/picky_controller cannot receive from /robolearn/safety" in message
    node.destroy_subscription(subscription)
    station.operator.arm(5)
    station.operator.disarm()


def test_the_middleware_does_not_inherit_an_encoders_priority() -> None:
    check_encodable("images.front", ArraySpec((64, 64, 3), "uint8"), 20.0, VideoConfig())
    with Background() as background:
        background.add(PlainNode("plain", context=background.context))
        found = {thread: os.sched_getparam(thread).sched_priority for thread in threads()}
    assert max(found.values()) < HIGHEST, found


def test_parameters_are_fixed(station: Station) -> None:
    for node in (station.safety, station.streamer, station.policy):
        (answer,) = node.set_parameters([Parameter("contract", value="fr3")])
        assert not answer.successful and "fixed" in answer.reason


def test_a_policy_for_another_arm_does_not_start() -> None:
    swing = SinePolicy(load_contract("ur5e"))
    with Background() as background:
        node = background.add(PolicyNode(lambda *_, **__: swing, contract=CONTRACT, context=background.context))
        with pytest.raises(BadInput, match="made for ur5e"):
            node.start()
