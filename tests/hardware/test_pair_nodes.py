"""Two arms over real rclpy and DDS: one filter, one streamer, one policy, and a controller of each arm."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
from rclpy.node import Node as PlainNode
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from hardware.ros2 import messages, qos, topics
from hardware.ros2.policy_node import PolicyNode
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from hardware.ros2.safety_node import SafetyNode
from hardware.ros2.streamer_node import StreamerNode
from robolearn.core import ActionChunk, Interface, Observation, Policy, RobolearnError
from robots.stations import PairContract, load_pair

sys.path.insert(0, str(Path(__file__).parent))
from hosted import running
from ros_station import Arm
from stopping import silence

pytestmark = pytest.mark.realtime

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 8
WAIT_S = 30.0
# Joint states as late as a station may call normal: all nodes share this process with whatever else the machine does.
LATE_S = 0.15


def slow_pair() -> PairContract:
    pair = load_pair("panda_pair")
    late = {
        name: replace(
            arm,
            stream_hz=100.0,
            joint_states=replace(arm.joint_states, max_age_s=LATE_S),
            limits=arm.limits.tightened(state_timeout_s=LATE_S),
        )
        for name, arm in pair.arms.items()
    }
    return replace(pair, arms=late, limits=pair.limits.joined(pair.robot, [arm.limits for arm in late.values()]))


PAIR = slow_pair()


class Swing(Policy):
    """Moves both tcps to and fro, or towards each other. Both arms look along x, the left one is on the left."""

    execute_steps = 4

    def __init__(self) -> None:
        sees = PAIR.interface
        self.interface = Interface(
            {"proprio": sees.observation["proprio"]}, sees.action, sees.control_hz, sees.embodiment, sees.action_kind
        )
        self.calls, self.together = 0, False

    def reset(self, seed: int) -> None:
        self.calls = 0

    def act(self, observation: Observation) -> ActionChunk:
        self.calls += 1
        actions = np.zeros((1, 4, 14), np.float32)
        if self.together:  # the tcps look down: y of theirs is against that of the base
            actions[..., 1], actions[..., 8] = 1.0, -1.0
        else:
            actions[..., [0, 7]] = 0.3 if self.calls % 8 < 4 else -0.3
        return actions


class Station:
    """Two arms with a controller each, and one of every other node."""

    def __init__(self, stack: ExitStack) -> None:
        self.swing = Swing()
        self.arms = {
            name: running(stack, lambda context, arm=arm: Arm(arm, context=context), DOMAIN)
            for name, arm in PAIR.arms.items()
        }
        self.safety = running(stack, lambda context: SafetyNode(contract=PAIR, context=context), DOMAIN)
        running(stack, lambda context: StreamerNode(contract=PAIR, context=context), DOMAIN)
        self.policy = running(
            stack, lambda context: PolicyNode(lambda *_, **__: self.swing, contract=PAIR, context=context), DOMAIN
        )
        self.background = stack.enter_context(Background(DOMAIN))
        self.operator = SafetyClient(self.background)
        self.operator.wait_ready(WAIT_S)

    def calm(self) -> None:
        """At home, disarmed, and nothing broken."""
        if self.operator.state in ("armed", "braking"):
            self.operator.estop()
            self.operator.wait_for("latched")
        self.swing.together = False
        for arm in self.arms.values():
            arm.talks, arm.q = True, np.array(arm.contract.robot.home)
            arm.monitor.new_motion()
            arm.commands.clear()
        if self.operator.state == "latched":
            self.operator.reset()
        self.operator.wait_ready(WAIT_S)

    def move(self) -> None:
        """Armed, and both in motion; a machine that is too busy for a moment stops them, and then once more."""
        for _ in range(5):
            self.operator.hold()
            if self.operator.state == "latched":
                self.operator.reset()
            self.operator.arm(WAIT_S)
            begun = {name: len(arm.commands) for name, arm in self.arms.items()}
            try:
                wait_until(
                    lambda b=begun: all(arm.moved(b[name]) > 0.01 for name, arm in self.arms.items()), 6, "motion"
                )
                return
            except RobolearnError:
                continue
        raise AssertionError([f"{report.state}: {report.reason}" for report in self.operator.reports])

    @property
    def violations(self) -> int:
        return sum(arm.monitor.summary()["violations"] for arm in self.arms.values())

    def stopped_by(self, act: Callable[[], object]) -> tuple[str, float]:
        """The reason for which both arms stop, and the time from `act` to the last command that moves either [s]."""
        act()
        at = time.monotonic()
        report = self.operator.wait_for("latched", 5)
        last = []
        for arm in self.arms.values():
            count = silence(arm.commands)
            moves = [t for (t, q), (_, before) in zip(arm.commands[1:count], arm.commands, strict=False)
                     if np.abs(q - before).max() > 1e-6]  # fmt: skip
            last.append(max(moves, default=at))
        return report.reason, max(last) - at


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    with ExitStack() as stack:
        yield Station(stack)


@pytest.fixture(autouse=True)
def _calm(station: Station) -> None:
    station.calm()


def contacts(commands: dict[str, list[tuple[float, np.ndarray]]]) -> int:
    """Moments at which MuJoCo finds a contact of one arm with the other, each where it was commanded to last."""
    spec = PAIR.robot.model_spec()
    for geom in spec.geoms:
        geom.contype, geom.conaffinity = (1, 2) if geom.parent.name.startswith("left_") else (2, 1)
    model = spec.compile()
    data = mujoco.MjData(model)
    side = [model.body(int(body)).name.partition("_")[0] for body in model.geom_bodyid]
    at = {name: [model.joint(f"{name}_{joint}").qposadr[0] for joint in arm.robot.joints]
          for name, arm in PAIR.arms.items()}  # fmt: skip
    moments = sorted((t, name, q) for name, sent in commands.items() for t, q in sent)
    for name, arm in PAIR.arms.items():
        data.qpos[at[name]] = arm.robot.home
    met = 0
    for _, name, q in moments:
        data.qpos[at[name]] = q
        mujoco.mj_fwdPosition(model, data)
        met += any(side[c.geom1] != side[c.geom2] for c in data.contact[: data.ncon])
    return met


def test_the_judge_sees_arms_that_meet() -> None:
    left, right = np.array(PAIR.arms["left"].robot.home), np.array(PAIR.arms["right"].robot.home)
    inwards = 1.2 * np.eye(7)[0]
    assert contacts({"left": [(0.0, left - inwards)], "right": [(0.1, right)]}) == 0
    assert contacts({"left": [(0.0, left - inwards)], "right": [(0.1, right + inwards)]}) == 1


def heard(station: Station) -> dict[str, list[tuple[float, np.ndarray]]]:
    return {name: list(arm.commands) for name, arm in station.arms.items()}


@pytest.mark.long
def test_one_policy_moves_both_arms_and_one_stop_stops_both(station: Station) -> None:
    station.move()
    time.sleep(1.0)
    reason, took = station.stopped_by(station.operator.estop)
    assert "e-stop" in reason and took < 0.5
    counts = [len(arm.commands) for arm in station.arms.values()]
    assert abs(counts[0] - counts[1]) <= 1, counts
    assert contacts(heard(station)) == station.violations == 0


@pytest.mark.long
def test_arms_that_a_policy_leads_into_each_other_do_not_meet(station: Station) -> None:
    station.swing.together = True
    station.move()
    end = time.monotonic() + 30.0
    while "arms" not in (found := "".join(report.reason for report in station.operator.reports[-3:])):
        assert time.monotonic() < end, found
        if station.operator.state == "latched":
            if "would come" in station.operator.reason:
                break
            station.move()
        time.sleep(0.05)
    assert "left" in station.operator.reason and "right" in station.operator.reason, station.operator.reason
    nearer = [arm.commands[-1][1] for arm in station.arms.values()]
    assert np.abs(np.concatenate(nearer) - np.array(PAIR.robot.home)).max() > 0.05, "they were on their way"
    assert contacts(heard(station)) == station.violations == 0


@pytest.mark.long
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_silence_of_one_arm_stops_both(station: Station, side: str) -> None:
    station.move()
    reason, took = station.stopped_by(lambda: setattr(station.arms[side], "talks", False))
    assert "joint state" in reason
    # So long joint states may be late here, and then both brake.
    assert took < LATE_S + 0.2
    assert contacts(heard(station)) == station.violations == 0


@pytest.mark.long
@pytest.mark.parametrize("side", ["left", "right"])
def test_somebody_else_at_the_controller_of_one_arm(station: Station, side: str) -> None:
    station.move()
    topic = PAIR.arms[side].command.topic
    stranger = station.background.add(PlainNode("stranger", context=station.background.context))
    publisher = stranger.create_publisher(Float64MultiArray, topic, qos.COMMAND)
    report = station.operator.wait_for("latched", 5)
    assert report.reason.endswith(f"publishes to {topic} too: only the safety node may")
    station.operator.reset()
    station.operator.hold()
    with pytest.raises(RobolearnError, match="only the safety node may"):
        station.operator.arm(3.0)
    stranger.destroy_publisher(publisher)
    wait_until(lambda: station.safety.count_publishers(topic) == 1, WAIT_S, "the stranger to go")


@pytest.mark.long
def test_a_second_driver_of_one_arm(station: Station) -> None:
    station.move()
    other = station.background.add(PlainNode("relay", context=station.background.context))
    publisher = other.create_publisher(JointState, PAIR.arms["right"].joint_states.topic, qos.sensor())
    arm = station.arms["right"]

    def speak() -> None:
        now = 1e-9 * other.get_clock().now().nanoseconds
        publisher.publish(messages.joint_state(arm.contract.joints, arm.q, now))

    timer = other.create_timer(0.02, speak)
    report = station.operator.wait_for("latched", 5)
    assert "joint states on /right/joint_states: 2 publishers at once" in report.reason
    other.destroy_timer(timer)
    other.destroy_publisher(publisher)
    time.sleep(1.2)  # then it has ended


@pytest.mark.long
def test_a_target_of_another_arm_is_refused(station: Station) -> None:
    """A stranger's streamer beside ours is one too many; ours speaks for a moment of arms that there are not."""
    station.move()
    streamer = station.background.add(
        PlainNode("streamer_2", namespace="/robolearn", context=station.background.context)
    )
    publisher = streamer.create_publisher(JointTrajectory, topics.TARGET, qos.TARGET)
    names = tuple(f"middle_{joint}" for joint in PAIR.arms["left"].joints)
    stamp = streamer.get_clock().now().to_msg()
    publisher.publish(messages.target(names, np.zeros(7), stamp))
    report = station.operator.wait_for("latched", 5)
    assert "unknown: middle_panda_joint1" in report.reason or "2 publishers of" in report.reason
    streamer.destroy_publisher(publisher)
    wait_until(lambda: station.safety.supervisor.streamers == 1, WAIT_S, "one streamer")
    assert contacts(heard(station)) == station.violations == 0


def test_what_the_policy_sees_is_each_arm_in_its_own_base(station: Station) -> None:
    (seen,) = station.policy.observer.observation()["proprio"]
    left, right = np.split(seen, 2)
    np.testing.assert_array_equal(left, right)  # both are at home, 70 cm apart
    np.testing.assert_allclose(left[8:11], [0.50, 0.0, 0.28], atol=5e-3)
