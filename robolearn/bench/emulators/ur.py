"""Emulator of ur_robot_driver with a UR5e: joint order, status topics, and the states that refuse commands.

- `joint_states` name the elbow first.
- `io_and_status_controller/robot_program_running`, `robot_mode` and `safety_mode` are published on change and kept for
  those who come later; `speed_scaling_state_broadcaster/speed_scaling` [%] comes 100 times a second. Modes whose
  message types are not installed here are left out, and logged.
- A gripper with a section `action` is a Robotiq's behind its GripperActionController (`emulators.grippers`);
  where the action's type is not installed, the emulator follows the contract's gripper topic itself, and logs that.
- forward_position_controller hands every set-point on as it comes. While the External Control program does not play, or
  in a protective stop, the arm stands where it is, and what it was told meanwhile is lost.

`fault` switches the states: `driver:program_stopped`, `driver:protective_stop`, `driver:slow`. Real: 500 Hz joint
states; here `joint_hz`.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from hardware.ros2 import messages, qos
from hardware.ros2.faults import Sample
from hardware.ros2.gripper_node import has_actions
from hardware.ros2.sim_driver import SimDriver
from robolearn.bench.emulators.grippers import GripperController
from robolearn.core import BadInput, RobolearnError
from robots.stations import GRIPPER_COMMAND

log = logging.getLogger(__name__)

STATUS = "io_and_status_controller"
SPEED = "speed_scaling_state_broadcaster/speed_scaling"
SPEED_HZ = 100.0  # state_publish_rate of ur_controllers.yaml
RUNNING = 7  # ur_dashboard_msgs/msg/RobotMode
NORMAL, PROTECTIVE_STOP = 1, 3  # ur_dashboard_msgs/msg/SafetyMode
SLOW = 50.0  # [%]
STOPPED = ("program_stopped", "protective_stop")


class UrEmulator(SimDriver):
    """The arm's driver with its forward position controller. Args: see `SimDriver`."""

    def __init__(self, *arm: Any, **named: Any) -> None:
        super().__init__(*arm, **named)
        self._status: dict[str, tuple[Any, str, Any]] = {}  # topic → publisher, field, value as last published
        node, place = self.node, self.contract.namespace
        for name, kind, field in (
            ("robot_program_running", "std_msgs/msg/Bool", "data"),
            ("robot_mode", "ur_dashboard_msgs/msg/RobotMode", "mode"),
            ("safety_mode", "ur_dashboard_msgs/msg/SafetyMode", "mode"),
        ):
            try:
                made = node.create_publisher(messages.installed_type(kind), f"{place}/{STATUS}/{name}", qos.latched())
            except RobolearnError as error:
                log.warning("%s is not published: %s", name, error)
            else:
                self._status[name] = (made, field, None)
        self._gripper = self._gripper_controller()
        self._speed_type = messages.installed_type("std_msgs/msg/Float64")
        self._speed = node.create_publisher(self._speed_type, f"{place}/{SPEED}", qos.stream(lease_s=None))

    def activate(self) -> None:
        self._timer = self.node.every(1 / SPEED_HZ, self._publish_status)

    def deactivate(self) -> None:
        self.node.destroy_timer(self._timer)

    def close(self) -> None:
        super().close()
        if self._gripper is not None:
            self._gripper.close()
        for publisher in (self._speed, *(made for made, _, _ in self._status.values())):
            self.node.destroy_publisher(publisher)

    def _gripper_controller(self) -> GripperController | None:
        gripper = self.contract.gripper
        if gripper is None or gripper.action is None:
            return None
        if gripper.action.type != GRIPPER_COMMAND or not has_actions(self.contract):
            log.warning("%s is not installed: openings on %s are followed", gripper.action.type, gripper.topic)
            return None
        self.hear_no_openings()
        return GripperController(self.node, gripper.action.name, self._knuckle, self._close_to)

    def _knuckle(self) -> float:
        """Position of the gripper's joint, in the contract's unit."""
        return self.contract.gripper_joint_positions(self.opening())[0]

    def _close_to(self, position: float) -> None:
        self.node.world.command(None, self.contract.gripper_width([position]), self.number)

    def restarted(self) -> None:
        super().restarted()
        if self._gripper is not None:
            self._gripper.restarted()

    def follow(self, q: Any, width: float | None) -> None:
        if q is not None and self.fault("driver") in STOPPED:
            return
        super().follow(q, width)

    def pass_time(self, seconds: float) -> None:
        stopped = self.fault("driver") in STOPPED
        if stopped and not self._stopped:
            self.node.world.command(self.arm()[0], arm=self.number)  # it stands where it is
        self._stopped = stopped
        if self._gripper is not None:
            self._gripper.advance(seconds)

    _stopped = False

    def _publish_status(self) -> None:
        what = self.fault("driver")
        speed = {"": 100.0, "slow": SLOW}.get(what, 0.0)
        self._speed.publish(self._speed_type(data=speed))
        values = {
            "robot_program_running": what != "program_stopped",
            "robot_mode": RUNNING,
            "safety_mode": PROTECTIVE_STOP if what == "protective_stop" else NORMAL,
        }
        for name, (publisher, field, last) in self._status.items():
            if values[name] != last:
                publisher.publish(publisher.msg_type(**{field: values[name]}))
                self._status[name] = (publisher, field, values[name])

    def publish_joints(self, sample: Sample) -> None:
        names, q, v, at = sample
        first = next((i for i, name in enumerate(names) if name.endswith("elbow_joint")), None)
        if first is None:
            raise BadInput(f"contract {self.contract.name} for ur_robot_driver", got=names, expected="an elbow_joint")
        order = [first, *(i for i in range(len(names)) if i != first)]
        self.send((tuple(names[i] for i in order), np.asarray(q)[order], np.asarray(v)[order], at))
