"""A planner of somebody else's: it leads the tcp to and fro by poses, and can have another clock."""

from __future__ import annotations

import math
import time

import numpy as np
from geometry_msgs.msg import PoseStamped
from rclpy.duration import Duration
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64

from hardware.ros2 import qos, topics
from hardware.ros2.process import Background
from hardware.ros2.safety_client import SafetyClient
from robolearn.core.se3 import matrix_to_quat
from robots.stations import Contract

HZ = 50.0
REACH_M, PERIOD_S = 0.05, 2.0  # to one side and back: 0.16 m/s at most
OPENING_M = 0.08


class Planner:
    """Sends poses of the tcp and openings of the gripper, as rclpy without anything of ours would.

    While the arm is not armed they are those of the arm as it is measured; from arming on the tcp goes to and fro.

    Args:
      background: where its node spins, alone: a program of its own for the middleware.
      contract: the station.
      operator: reports if the arm is armed.
    """

    def __init__(self, background: Background, contract: Contract, operator: SafetyClient) -> None:
        self._contract, self._operator = contract, operator
        self._ahead, self._begun = 0.0, math.inf
        self._pose: tuple[np.ndarray, np.ndarray] | None = None  # position (3,) [m], quaternion (4,) wxyz
        node = self._node = background.add(Node("planner", namespace=topics.NAMESPACE, context=background.context))
        self._poses = node.create_publisher(PoseStamped, topics.TARGET_POSE, qos.TARGET)
        self._openings = node.create_publisher(Float64, topics.TARGET_OPENING, qos.CONTROLLER)
        node.create_subscription(JointState, contract.joint_states.topic, self._on_state, qos.sensor(1))
        node.create_timer(1.0 / HZ, self._send)

    def set_clock(self, ahead: float) -> float:
        """Let its clock go ahead by so much [s], behind if negative; when [s]."""
        at = time.monotonic()
        self._ahead = ahead
        return at

    def _on_state(self, message: JointState) -> None:
        if self._operator.state == "armed" or not set(self._contract.joints) <= set(message.name):
            return
        order = [list(message.name).index(joint) for joint in self._contract.joints]
        positions, rotations = self._contract.robot.chain.forward(np.array(message.position)[order][None])
        self._pose, self._begun = (positions[0], matrix_to_quat(rotations[0])), math.inf

    def _send(self) -> None:
        if self._pose is None:
            return
        (position, quaternion), now = self._pose, time.monotonic()
        if self._operator.state == "armed":
            self._begun = min(self._begun, now)
        phase = math.tau * max(now - self._begun, 0.0) / PERIOD_S
        message = PoseStamped()
        message.header.stamp = (self._node.get_clock().now() + Duration(seconds=self._ahead)).to_msg()
        message.header.frame_id = self._contract.frames.base
        p, o = message.pose.position, message.pose.orientation
        p.x, p.y, p.z = (position + np.array([0.0, REACH_M * math.sin(phase), 0.0])).tolist()
        o.w, o.x, o.y, o.z = quaternion.tolist()
        self._openings.publish(Float64(data=OPENING_M))
        self._poses.publish(message)
