"""A command of the safety filter as the messages that the controllers of a contract take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from hardware.ros2 import messages
from hardware.safety import ArmCommand
from robots.stations import Contract


class ControllerMessages:
    """The messages to the controllers of `contract`.

    Args:
      now: the stamp of a message that has one, read when it is made.
    """

    def __init__(self, contract: Contract, now: Callable[[], Time]) -> None:
        self._contract, self._period, self._now = contract, 1.0 / contract.stream_hz, now

    def command(self, command: ArmCommand) -> Any:
        """For the arm's controller."""
        contract = self._contract
        kind = messages.message_type(contract.command.type)
        if kind is Float64MultiArray:
            data = command.positions.tolist()
            if contract.gripper_in_command:
                assert command.gripper is not None  # or it would not be armed
                data += contract.gripper_joint_positions(command.gripper)
            return Float64MultiArray(data=data)
        if kind is PoseStamped:
            # Its frame is the robot's base; impedance controllers of the contracts take it without a transform.
            return messages.pose(*command.pose, self._now(), contract.frames.base)
        return messages.trajectory(contract.joints, command.positions, self._period)

    def posture(self, command: ArmCommand, stamp: Time) -> JointState:
        """For the nullspace of a Cartesian controller, beside the command of the same `stamp`."""
        message = messages.joint_state(self._contract.joints, command.positions, 0.0, command.velocities)
        message.header.stamp = stamp
        return message

    def gripper(self, width: float) -> Any:
        """For the gripper's controller: an opening of `width` [m]."""
        contract = self._contract
        assert contract.gripper is not None
        values = contract.gripper_values(width)
        if messages.message_type(contract.gripper.type) is Float64MultiArray:
            return Float64MultiArray(data=list(values))
        return messages.trajectory(contract.gripper_joints, values, self._period)
