"""Emulator of franka_ros2 with the Franka FrankaHand: topics published and followed, faults that go unnoticed.

- `franka/joint_states` is the driver's own. `joint_states` is a relay's, joint_state_publisher: at a rate of its own,
  with a stamp of *now* on whatever came last, so a driver that died looks alive there.
- A contract whose command is a trajectory has its arm led by joint_trajectory_controller (`emulators.ros2_control`).
- One whose command is a pose has CRISP's Cartesian impedance controller (`emulators.impedance`). The limit monitor
  judges the postures that come with the poses.
- `franka_gripper/joint_states` comes 50 times a second. The hand follows actions; where their types are not installed
  the emulator follows the contract's gripper topic itself, and logs that it does.

Real: 1 kHz joint states; here `joint_hz`.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.ros2 import messages, qos
from hardware.ros2.faults import Sample
from hardware.ros2.gripper_node import has_actions
from hardware.ros2.senders import sent_at
from robolearn.bench.emulators.grippers import FrankaHand
from robolearn.bench.emulators.impedance import ImpedanceController
from robolearn.bench.emulators.ros2_control import EmulatedController, Ros2ControlEmulator
from robolearn.core import BadInput
from robots.stations import POSE, TRAJECTORY

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

RELAY = "joint_states"
RELAY_HZ = 30.0  # joint_state_rate of franka.launch.py
GRIPPER_HZ = 50.0  # state_publish_rate of franka_gripper_node.yaml


class _Impedance:
    """CRISP's cartesian_impedance_controller, which takes no pose while several publish them."""

    def __init__(self, driver: FrankaEmulator) -> None:
        self._driver, c = driver, driver.contract
        self._controller = ImpedanceController(c.robot, driver.arm()[0])
        if c.command.posture is not None:
            driver.hear(messages.JointState, c.command.posture.topic, self._on_posture)

    def _on_posture(self, message: Any, info: Any) -> None:
        q = messages.pick(message, self._driver.contract.joints)
        self._driver.monitor.command(q, sent_at(info))
        if np.isfinite(q).all():
            self._controller.posture(q)

    def take(self, message: Any, now: float) -> str:
        if self._driver.node.count_publishers(self._driver.contract.command.topic) > 1:
            return "poses of several publishers"
        position, rotation = messages.read_pose(message)
        if not (np.isfinite(position).all() and np.isfinite(rotation).all()):
            return "a pose that is not finite"
        self._controller.pose(position, rotation)
        return ""

    def step(self, now: float, q: Array, v: Array, *, begun: bool) -> None:
        if begun:
            self._driver.node.world.push(self._controller.sample(q, v), self._driver.number)

    def hold(self, q: Array) -> None:
        self._controller.begin(q)

    def abort(self) -> None:
        """It has no goals."""

    def scale(self, speed: float) -> None:
        """Poses have no clock."""


class FrankaEmulator(Ros2ControlEmulator):
    """The arm's driver, its controller, relay and hand. Args: see `SimDriver`."""

    commands = (TRAJECTORY, POSE)

    def __init__(self, *arm: Any, **named: Any) -> None:
        super().__init__(*arm, **named)
        c, node = self.contract, self.node
        if c.gripper_states is None:
            raise BadInput(f"contract {c.name} for franka_ros2", got="no gripper.states", expected="gripper.states")
        self._last_state: Sample | None = None
        self._relay = node.create_publisher(messages.JointState, f"{c.namespace}/{RELAY}", qos.stream(lease_s=None))
        self._hand: FrankaHand | None = None
        if c.gripper is not None and c.gripper.action is not None:
            if has_actions(c):
                self.hear_no_openings()
                self._hand = FrankaHand(
                    node, c.gripper.action.name, c.robot.gripper.max_width, self.opening, self._fingers
                )
            else:
                log.warning("%s is not installed: openings on %s are followed", c.gripper.action.type, c.gripper.topic)
        self._hand_states = node.create_publisher(messages.JointState, c.gripper_states.topic, qos.stream(lease_s=None))

    def activate(self) -> None:
        self._publishing = [
            self.node.every(1 / RELAY_HZ, self._publish_relay),
            self.node.every(1 / GRIPPER_HZ, self._publish_hand),
        ]

    def deactivate(self) -> None:
        for timer in self._publishing:
            self.node.destroy_timer(timer)

    def close(self) -> None:
        super().close()
        self.node.destroy_publisher(self._relay)
        self.node.destroy_publisher(self._hand_states)
        if self._hand is not None:
            self._hand.close()

    def controller(self) -> EmulatedController | None:
        return _Impedance(self) if self.contract.command.type == POSE else super().controller()

    # --- the hand ---------------------------------------------------------------------------------------------

    def _fingers(self, width: float) -> None:
        if self._begun:
            self.node.world.command(None, width, self.number)

    def pass_time(self, seconds: float) -> None:
        if self._hand is not None:
            self._hand.advance(seconds)
        super().pass_time(seconds)

    def restarted(self) -> None:
        super().restarted()
        if self._hand is not None:
            self._hand.restarted()

    # --- what is published ---------------------------------------------------------------------------------

    def publish_joints(self, sample: Sample) -> None:
        names, q, v, at = sample
        n = len(self.contract.joints)
        self.send((names[:n], q[:n], v[:n], at))
        if self.fault("joint_states") != "stop":  # what the relay has heard
            self._last_state = sample

    def _publish_relay(self) -> None:
        if self._last_state is not None:
            names, q, v, _ = self._last_state
            self._relay.publish(messages.joint_state(names, q, self._now(), v))

    def _publish_hand(self) -> None:
        if self._last_state is not None:
            n = len(self.contract.joints)
            names, q, _, _ = self._last_state
            self._hand_states.publish(messages.joint_state(names[n:], q[n:], self._now(), np.zeros(len(names) - n)))

    def _now(self) -> float:
        return self.node.stamp(self.fault("clock"))
