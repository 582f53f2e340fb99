"""The node `servos`: driver and controller of an arm of bus servos, in place of those of ros2_control.

It publishes the contract's joint states, stamped when the bus was read, and follows its command: one vector of the
arm's joints and the gripper's. What is followed and what is not, `hardware.servos.driver` decides. No period is made up
for: joint states that could not be read are missing, and the safety filter stops the arm.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from hardware.ros2 import messages, qos
from hardware.ros2.runtime import Node
from hardware.servos import Reading, ServoBus, ServoDriver
from robolearn.core import BadInput
from robots.stations import Contract, Servos

log = logging.getLogger(__name__)

COMMANDS = 10  # that wait for a tick; the newest counts


class ServosNode(Node):
    """One arm. `make_bus` makes the bus of a contract's servos, not yet open. Args: see `Node`."""

    def __init__(self, make_bus: Callable[[Contract, Servos], ServoBus], **station: Any) -> None:
        super().__init__("servos", **station)
        self._make_bus = make_bus
        self.when_open: Callable[[], None] = lambda: None
        self.driver: ServoDriver | None = None

    def configure(self) -> None:
        c = self.contract = self.station()
        if c.servos is None or c.simulated:
            got = "simulated: true" if c.simulated else "no servos"
            raise BadInput(
                f"contract {c.name} for the driver of servos", got=got, expected="a real arm, and its servos"
            )
        servos = dataclasses.replace(c.servos, port=self.value("port") or c.servos.port)
        jaw = sorted(c.gripper_range)
        driver = ServoDriver(
            self._make_bus(c, servos),
            c.command_joints,
            np.append(c.limits.lower, jaw[0]),
            np.append(c.limits.upper, jaw[1]),
            np.append(np.full(len(c.joints), c.limits.max_jump), math.inf),
            limp=self.value("limp"),
        )
        driver.begin()
        self.driver = driver
        self._states = self.create_publisher(JointState, c.joint_states.topic, qos.sensor())
        profile = qos.stream(lease_s=None, depth=COMMANDS)
        self.hear(Float64MultiArray, c.command.topic, self._on_command, profile)
        log.info("%s at %s: %s", c.name, servos.port, "limp" if self.value("limp") else "holds")
        self.when_open()

    def activate(self) -> None:
        self._still = self.beat(1.0 / self.contract.stream_hz, self._tick)

    def deactivate(self) -> None:
        self._still()

    def cleanup(self) -> None:
        self.destroy_publisher(self._states)
        self.unhear(self.contract.command.topic)
        self._end()

    def begin_stop(self, reason: str) -> None:
        self._end()

    def destroy_node(self) -> None:
        self._end()
        super().destroy_node()

    def _end(self) -> None:
        self.active = False
        if self.driver is not None and not self.driver.ended:
            self.driver.end(self.value("release"))

    def _on_command(self, message: Float64MultiArray, info: MessageInfo) -> None:
        assert self.driver is not None
        self.driver.command(list(message.data), self.count_publishers(self.contract.command.topic) - 1)

    def _tick(self) -> None:
        if self.driver is None or self.driver.ended:
            return
        self.take_all()
        reading = self.driver.tick()
        if reading is not None:
            self._states.publish(self._message(reading))

    def _message(self, reading: Reading) -> Any:
        # The question goes to all servos at once and their answers come one after the other.
        since = time.monotonic() - 0.5 * (reading.began + reading.ended)
        stamp = 1e-9 * self.get_clock().now().nanoseconds - since
        return messages.joint_state(self.contract.command_joints, reading.positions, stamp)
