"""The node `servos` over DDS, with servos of Python behind it: one vector in, joint states of when they were read."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rclpy.node import Node
from std_msgs.msg import Float64MultiArray

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos
from hardware.ros2.permissions import permissions
from hardware.ros2.process import Background, wait_until
from hardware.ros2.servos_node import ServosNode
from hardware.safety.supervisor import SafetySupervisor
from robolearn.core import BadInput
from robots import SO101
from robots.stations import load_contract

sys.path.insert(0, str(Path(__file__).parent))

pytestmark = pytest.mark.realtime

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 6
CONTRACT = load_contract("so101")
HOME = np.array([*SO101.home, 0.5])


class Bus:
    """Six servos that are where they were told to be; each answer takes its time."""

    def __init__(self) -> None:
        self.q, self.torques, self.closed = HOME.copy(), [], False
        self.asked: list[tuple[float, float]] = []  # time of day of question and answer [s]
        self.lock = threading.Lock()

    def open(self) -> None: ...

    def read(self) -> np.ndarray:
        began = time.time()
        time.sleep(0.04)
        self.asked.append((began, time.time()))
        return self.q.copy()

    def write(self, goal: np.ndarray) -> None:
        self.q = np.array(goal)

    def torque(self, on: bool) -> None:
        self.torques.append(on)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def rig() -> Iterator[tuple[Bus, ServosNode, Background]]:
    bus = Bus()
    with Background(DOMAIN) as ros:
        node = ServosNode(lambda contract, servos: bus, contract=CONTRACT, context=ros.context)
        node.start()
        ros.add(node)
        yield bus, node, ros
        assert not ros.errors


def test_one_vector_moves_arm_and_jaw_and_stamps_are_true(rig: tuple[Bus, ServosNode, Background]) -> None:
    bus, node, ros = rig
    seen: list[messages.JointState] = []
    other = ros.add(Node("other", context=ros.context))
    other.create_subscription(messages.JointState, CONTRACT.joint_states.topic, seen.append, qos.sensor(100))
    publisher = other.create_publisher(Float64MultiArray, CONTRACT.command.topic, qos.COMMAND)
    wait_until(lambda: len(seen) > 20 and publisher.get_subscription_count() == 1, 20, "the driver")
    assert list(seen[-1].name) == list(CONTRACT.command_joints)
    goal = HOME + np.array([0.1, -0.1, 0.05, 0.0, 0.2, 0.9])
    publisher.publish(Float64MultiArray(data=goal.tolist()))
    wait_until(lambda: np.allclose(seen[-1].position, goal), 5, "what was asked for")
    stamps = np.array([messages.seconds(message.header.stamp) for message in seen[-15:]])
    halfway = np.mean(bus.asked, axis=1)
    away = np.abs(stamps[:, None] - halfway).min(axis=1)
    assert np.median(away) < 0.008, "halfway between question and answer, 20 ms before it is published"
    publisher.publish(Float64MultiArray(data=[*goal[:5], float("nan")]))
    wait_until(lambda: node.driver is not None and node.driver.refused == 1, 5, "a refusal")
    np.testing.assert_array_equal(bus.q, goal)
    assert bus.torques == [True]
    allowed = permissions(CONTRACT)[f"{CONTRACT.namespace}/robolearn/servos"]
    assert allowed["subscribe"] == ("/parameter_events", CONTRACT.command.topic)
    assert allowed["publish"][-1] == CONTRACT.joint_states.topic and CONTRACT.command.topic not in allowed["publish"]


def test_the_node_ends_with_its_bus_closed_and_the_arm_held(rig: tuple[Bus, ServosNode, Background]) -> None:
    bus, node, _ = rig
    node.begin_stop("signal to end")
    assert bus.closed and bus.torques == [True]


def test_contracts_without_servos_are_refused() -> None:
    with Background(DOMAIN) as ros:
        for contract in (load_contract("sim"), replace(CONTRACT, servos=None), replace(CONTRACT, simulated=True)):
            node = ServosNode(lambda *_: Bus(), contract=contract, context=ros.context)
            with pytest.raises(BadInput, match="expected a real arm, and its servos"):
                node.start()
            node.destroy_node()


def test_the_jaw_begins_where_it_is_measured_and_goes_no_faster_than_it_may() -> None:
    """The supervisor's part of one vector: there is no command without a position of the jaw."""
    now = [10.0]
    core = SafetySupervisor(CONTRACT, lambda: now[0], lambda: now[0])
    core.streamers_alive(1, "targets")
    jaw = 0.9

    def hear(gripper: bool = True) -> None:
        now[0] += core.period
        names = CONTRACT.command_joints if gripper else CONTRACT.joints
        core.joint_state(names, [*SO101.home, jaw][: len(names)], now[0], "driver")
        core.deadman(True)

    for _ in range(40):
        hear(gripper=False)
    assert "no gripper joint 'gripper'" in core.refusal("targets")
    for _ in range(40):
        hear()
    assert core.refusal("targets") == ""
    core.arm()
    widths = []
    for k in range(60):
        hear()
        if k > 20:
            core.target((*CONTRACT.joints, "gripper"), [*SO101.home, 0.0], round(1e9 * now[0]))
        command = core.step()
        assert command is not None and command.gripper is not None, core.filter.reason
        core.filter.sent()
        widths.append(command.gripper)
    assert widths[:21] == pytest.approx([CONTRACT.gripper_width([jaw])] * 21)
    assert CONTRACT.gripper_joint_positions(widths[0])[0] == pytest.approx(jaw)
    steps = -np.diff(widths)
    assert steps.max() <= CONTRACT.limits.gripper_speed * core.period + 1e-12 and widths[-1] < widths[0] - 0.05
