"""A stand-in for arm, controller and policy. As a program: one node, for tests that kill it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from rclpy.qos import QoSProfile
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from hardware.node_parameters import NodeParameters
from hardware.observing.monitor import LimitMonitor
from hardware.ros2 import messages, qos
from hardware.ros2.process import spin
from hardware.ros2.runtime import Node
from hardware.ros2.senders import sent_at
from robolearn.bench.faults.sine_policy import SinePolicy
from robots.stations import Contract, load_contract


class Arm(Node):
    """Goes where it is told at once, says so at 200 Hz, and watches what it is told."""

    def __init__(self, contract: Contract, **options) -> None:
        super().__init__("arm", NodeParameters(), contract=contract, **options)
        self.contract = contract
        self.monitor = LimitMonitor.of(contract.robot, 1.0 / contract.stream_hz)
        self.q = np.array(contract.robot.home)
        self.width = 0.04
        self.commands: list[tuple[float, np.ndarray]] = []
        self.talks, self.behind = True, 0.0  # its clock [s]

    def configure(self) -> None:
        self._states = self.create_publisher(JointState, self.contract.joint_states.topic, qos.sensor())
        self._taken = self._listen(qos.stream(lease_s=None, depth=100))  # every command, even when it is held up
        self.beat(0.005, self._tick)

    def _listen(self, deep: QoSProfile) -> list[Callable[[], None]]:
        c = self.contract
        assert c.gripper is not None
        return [
            self.poll(Float64MultiArray, c.command.topic, self._on_command, deep),
            self.poll(Float64MultiArray, c.gripper.topic, self._on_gripper, deep),
        ]

    def moved(self, begun: int) -> float:
        """How far a joint went since command number `begun` [rad]."""
        found = np.array([q for _, q in self.commands[begun:]])
        return float(np.ptp(found, axis=0).max()) if len(found) else 0.0

    def _on_command(self, message: Float64MultiArray, info: MessageInfo) -> None:
        now = sent_at(info)
        self.q = np.array(message.data)
        self.commands.append((now, self.q))
        self.monitor.command(self.q, now)

    def _on_gripper(self, message: Float64MultiArray, info: MessageInfo) -> None:
        self.width = message.data[0]

    def _tick(self) -> None:
        for take in self._taken:
            take()
        self._speak()

    def _speak(self) -> None:
        if self.talks:
            c = self.contract
            now = 1e-9 * self.get_clock().now().nanoseconds - self.behind
            # Backwards: nobody may rely on the order.
            names, values = (*c.gripper_joints, *c.joints[::-1]), (self.width / 2, self.width / 2, *self.q[::-1])
            self._states.publish(messages.joint_state(names, values, now))


def main(role: str, *args: str) -> int:
    contract = load_contract("sim")
    if role == "policy":
        from hardware.ros2.policy_node import PolicyNode

        return spin(
            lambda: PolicyNode(lambda *_, **__: SinePolicy(contract.with_cameras(())), contract=contract), [role, *args]
        )
    if role == "arm":
        return spin(lambda: Arm(contract), [role, *args])
    from robolearn.deploy.nodes import main

    return main(role, ["--contract", "sim", *args])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
