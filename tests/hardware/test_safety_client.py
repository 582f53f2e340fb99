"""The client of the safety node, beside one of which a test decides what it reports."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from std_srvs.srv import Trigger

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos, topics
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from hardware.safety.states import SafetyState
from robolearn.core import RobolearnError

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 9
pytestmark = [pytest.mark.realtime, pytest.mark.long]


class Safety:
    """A safety node that arms, and reports `state` of the arming `number` then."""

    def __init__(self, ros: Background) -> None:
        self.node = ros.add(Node("safety", namespace=topics.namespace_of_nodes(""), context=ros.context))
        self.reports = self.node.create_publisher(DiagnosticArray, topics.SAFETY_STATE, qos.latched())
        self.state, self.number, self.reason = SafetyState.DISARMED, 4, ""
        self.becomes: tuple[SafetyState, int] = (SafetyState.ARMED, 5)
        self.node.create_service(Trigger, topics.ARM, self.arm)
        self.node.create_timer(0.1, self.report)

    def report(self) -> None:
        now = self.node.get_clock().now().to_msg()
        self.reports.publish(messages.safety_report(self.state, self.reason, {"arming": self.number}, now))

    def arm(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        (self.state, self.number), self.reason = self.becomes, "singularity"
        return messages.trigger(response, True, "armed")


@pytest.fixture
def both() -> Iterator[tuple[Safety, SafetyClient]]:
    with Background(DOMAIN) as ros:
        safety, client = Safety(ros), SafetyClient(ros)
        wait_until(lambda: client.report, 10.0, "a report")
        yield safety, client


@pytest.mark.parametrize("state", [SafetyState.ARMED, SafetyState.BRAKING, SafetyState.LATCHED])
def test_an_arm_that_is_stopped_before_it_is_seen_to_be_armed_was_armed(
    both: tuple[Safety, SafetyClient], state: SafetyState
) -> None:
    safety, client = both
    safety.becomes = (state, 5)
    client.arm()
    assert (client.state, client.reason) == (state, "singularity")


@pytest.mark.parametrize("becomes", [(SafetyState.DISARMED, 5), (SafetyState.LATCHED, 4)])
def test_what_was_not_armed_is_not_armed(both: tuple[Safety, SafetyClient], becomes: tuple[SafetyState, int]) -> None:
    """It is disarmed again, or what is latched is the arming before."""
    safety, client = both
    safety.becomes = becomes
    with pytest.raises(RobolearnError, match=f"to be armed; it is {becomes[0]}: singularity"):
        client.arm()
