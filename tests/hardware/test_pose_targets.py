"""A planner of somebody else's sends poses of the tcp to the safety node; MuJoCo is the judge of where the arm ends."""

from __future__ import annotations

import re
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped
from rclpy.duration import Duration
from rclpy.node import Node as PlainNode
from std_msgs.msg import Float64

from hardware.ros2 import qos, topics
from hardware.ros2.permissions import policy_xml
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from hardware.ros2.safety_node import SafetyNode
from robolearn.core import BadInput, RobolearnError
from robots.stations import load_contract

sys.path.insert(0, str(Path(__file__).parent))
from hosted import running
from ros_station import Arm

pytestmark = pytest.mark.realtime

SIM = load_contract("sim")
BUSY = re.compile(r"\d s old|did not run|no heartbeat|late")  # a machine that stands still stops the arm
CONTRACT = replace(
    SIM,
    joint_states=replace(SIM.joint_states, max_age_s=0.2),
    limits=SIM.limits.tightened(state_timeout_s=0.2),
)


class Planner:
    """Sends a pose of the tcp 50 times a second, as rclpy without anything of ours would."""

    def __init__(self, node: PlainNode, pose: tuple[np.ndarray, np.ndarray]) -> None:
        self.position, self.quaternion, self.frame, self.quiet = *pose, CONTRACT.frames.base, False
        self.behind = 0.0  # its clock [s]
        self._node = node
        self._pose = node.create_publisher(PoseStamped, topics.TARGET_POSE, qos.TARGET)
        self.opening = node.create_publisher(Float64, topics.TARGET_OPENING, 1)
        node.create_timer(0.02, self._send)

    def _send(self) -> None:
        if self.quiet:
            return
        message = PoseStamped()
        stamp = self._node.get_clock().now() - Duration(seconds=self.behind)
        message.header.stamp, message.header.frame_id = stamp.to_msg(), self.frame
        p, o = message.pose.position, message.pose.orientation
        p.x, p.y, p.z = self.position.tolist()
        o.w, o.x, o.y, o.z = self.quaternion.tolist()
        self._pose.publish(message)


class Station:
    def __init__(self, stack: ExitStack) -> None:
        self.arm = running(stack, lambda context: Arm(CONTRACT, context=context))
        self.safety = running(
            stack, lambda context: SafetyNode(contract=CONTRACT, context=context, overrides={"targets": "poses"})
        )
        planner_side = stack.enter_context(Background())
        self.node = planner_side.add(PlainNode("planner", namespace="/robolearn", context=planner_side.context))
        self.operator = SafetyClient(stack.enter_context(Background()))
        self.operator.wait_ready(30, policy=False)
        robot = CONTRACT.robot
        self.model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
        self.joints = [self.model.joint(name).qposadr[0] for name in robot.joints]
        self.planner = Planner(self.node, self.tcp())
        wait_until(lambda: self.safety.supervisor.streamers == 1, 10, "the planner")
        wait_until(lambda: self.planner.opening.get_subscription_count() == 1, 10, "who hears openings")

    def tcp(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the tcp is at the arm's joints, by MuJoCo: position [m] and quaternion wxyz in the base frame."""
        data = mujoco.MjData(self.model)
        data.qpos[self.joints] = self.arm.q
        mujoco.mj_kinematics(self.model, data)
        site, quaternion = data.site(CONTRACT.robot.tcp_site), np.empty(4)
        mujoco.mju_mat2Quat(quaternion, site.xmat)
        return site.xpos.copy(), quaternion

    def arm_again(self) -> None:
        """The planner stays where the arm is, and the arm is armed."""
        self.planner.position, self.planner.quaternion = self.tcp()
        self.planner.frame, self.planner.quiet, self.planner.behind = CONTRACT.frames.base, False, 0.0
        if self.operator.state == "latched":
            self.operator.reset()
        self.operator.wait_ready(10, policy=False)
        wait_until(lambda: self.safety.supervisor.streamers == 1, 10, "the planner")
        self.operator.arm()

    def stopped_by(self, cause: Callable[[], None], why: str) -> None:
        """Armed, `cause` latches by this pattern; where the machine stood still before it could, once more."""
        for _ in range(5):
            self.arm_again()
            time.sleep(0.3)
            cause()
            reason = self.operator.wait_for("latched", 5).reason
            if re.search(why, reason) or not BUSY.search(reason):
                break
        assert re.search(why, reason), reason

    def led_by(self, way: np.ndarray, seconds: float = 2.0) -> np.ndarray:
        """Armed, the planner leads the tcp along `way` (3,) [m], in steps: a jump is refused. Returns the goal (3,)."""
        for _ in range(5):
            self.arm_again()
            goal, begun = self.planner.position + way, time.monotonic()
            self.planner.opening.publish(Float64(data=0.01))
            while self.operator.state == "armed" and time.monotonic() - begun < seconds + 1.0:
                share = min((time.monotonic() - begun) / seconds, 1.0)
                self.planner.position = goal - (1 - share) * way
                time.sleep(0.01)
            if self.operator.state == "armed" or not BUSY.search(self.operator.reason):
                break
        assert self.operator.state == "armed", self.operator.reason
        return goal


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    with ExitStack() as stack:
        yield Station(stack)


@pytest.mark.long
def test_the_tcp_goes_to_the_pose(station: Station) -> None:
    goal = station.led_by(np.array([0.02, 0.06, -0.05]))
    position, quaternion = station.tcp()
    np.testing.assert_allclose(position, goal, atol=1e-3)
    assert abs(quaternion @ station.planner.quaternion) > 1 - 1e-5
    assert station.arm.width == pytest.approx(0.01, abs=1e-3)
    assert station.arm.monitor.summary()["violations"] == 0
    station.operator.disarm()


@pytest.mark.long
def test_what_no_pose_is_stops_the_arm(station: Station) -> None:
    planner = station.planner
    station.stopped_by(lambda: setattr(planner, "frame", "camera"), "in frame 'camera'; expected 'base'")
    station.stopped_by(lambda: setattr(planner, "position", np.array([np.nan, 0, 0])), "component 1 of 3 is nan")
    station.stopped_by(lambda: setattr(planner, "quaternion", np.array([2.0, 0, 0, 0])), "length 2.000")
    station.stopped_by(
        lambda: setattr(planner, "position", planner.position + np.array([0.0, 0.4, 0.0])), "from the measured"
    )
    # Whichever comes first: the middleware's deadline, or its age.
    station.stopped_by(lambda: setattr(planner, "quiet", True), "targets are late|the target is")


@pytest.mark.long
@pytest.mark.parametrize(("behind", "says"), [(10.0, "10.00 s ago"), (0.3, "0.30 s ago"), (-10.0, "s in the future")])
def test_poses_of_another_time_are_not_followed(station: Station, behind: float, says: str) -> None:
    station.stopped_by(
        lambda: setattr(station.planner, "behind", behind), rf"a target pose stamped .*{says}.*clock.*chronyc makestep"
    )


@pytest.mark.long
@pytest.mark.parametrize("behind", [0.5, -0.5])
def test_an_arm_whose_clock_is_off_is_not_armed(station: Station, behind: float) -> None:
    station.arm_again()
    station.operator.disarm()
    station.arm.behind = behind
    try:
        time.sleep(0.6)
        with pytest.raises(RobolearnError, match=r"clock of its sender.*chronyc makestep|frozen"):
            station.operator.arm()
    finally:
        station.arm.behind = 0.0
    time.sleep(1.5)  # a clock that was set back is believed after a second
    station.arm_again()
    station.operator.disarm()


@pytest.mark.long
def test_a_stranger_does_not_move_the_gripper(station: Station) -> None:
    """rclpy of its own: it finds the topic, and opens what the planner had closed."""
    station.led_by(np.array([0.0, 0.0, -0.01]), 0.5)  # the planner's opening is 1 cm
    assert station.arm.width == pytest.approx(0.01, abs=1e-3)
    stranger = PlainNode("stranger", context=station.node.context)
    opening = stranger.create_publisher(Float64, f"/robolearn/{topics.TARGET_OPENING}", 1)
    try:
        wait_until(lambda: opening.get_subscription_count() == 1, 10, "the safety node")
        opening.publish(Float64(data=0.08))
        report = station.operator.wait_for("latched", 5)
        assert "openings of the gripper: 2 publishers at once, /robolearn/planner and /stranger" in report.reason
        station.operator.reset()
        with pytest.raises(RobolearnError, match="2 publishers at once"):
            station.operator.arm()
        assert station.arm.width == pytest.approx(0.01, abs=1e-3)
    finally:
        stranger.destroy_node()


def test_joint_targets_are_not_taken_beside(station: Station) -> None:
    assert station.node.count_subscribers(topics.TARGET) == 0


def test_the_policy_for_poses_is_what_is_opened(station: Station) -> None:
    both = {("safety", "/robolearn"), ("planner", "/robolearn")}
    wait_until(lambda: both <= set(station.node.get_node_names_and_namespaces()), 10, "the names of both")
    for node, verb, ask in (
        ("safety", "subscribe", station.node.get_subscriber_names_and_types_by_node),
        ("planner", "publish", station.node.get_publisher_names_and_types_by_node),
    ):
        opened = {name for name, _ in ask(node, "/robolearn")}
        (enclave,) = (
            e
            for e in ET.fromstring(policy_xml(CONTRACT, poses=True)).iter("enclave")
            if e.get("path", "").endswith(node)
        )
        allowed = {
            t.text if t.text.startswith("/") else f"/robolearn/{t.text}"
            for group in enclave.iter("topics")
            if group.get(verb)
            for t in group
            if t.text
        }
        assert opened <= allowed and allowed - opened <= {"/parameter_events"}, (node, opened ^ allowed)


def test_other_targets_are_refused(station: Station) -> None:
    node = SafetyNode(contract=CONTRACT, context=station.node.context, overrides={"targets": "twists"})
    with pytest.raises(BadInput, match="got twists; available: joints, poses"):
        node.configure()
