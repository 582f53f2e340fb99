"""The controllers of one arm, as the safety node publishes to them; nothing else does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from builtin_interfaces.msg import Time
from rclpy.serialization import serialize_message

from hardware.execution.horizon import Point
from hardware.ros2 import messages
from hardware.safety import ArmCommand
from robots.stations import Contract, Topic

GRIPPER_REFRESH_S = 0.1  # an unchanged gripper command is repeated this often: a gripper may have been switched on late


class ArmControllers:
    """Those of the arm and of its gripper.

    Args:
      contract: the arm's.
      at: its joints among those of the filter.
      publisher: makes that of a topic, or None where nothing is sent there.
      now: the stamp of a message.

    Attributes:
      topics: where commands go: those of others there stop the arm.
      command, posture, gripper: the publishers, or None.
    """

    def __init__(
        self, contract: Contract, at: slice, publisher: Callable[[Topic | None], Any], now: Callable[[], Time]
    ) -> None:
        posture = contract.command.posture
        self._joints, self._at = contract.joints, at
        self._messages = messages.ControllerMessages(contract, now)
        self.topics = (contract.command.topic, *((posture.topic,) if posture else ()))
        self.command = publisher(contract.command)
        self.posture, self.gripper = publisher(posture), publisher(contract.gripper)
        self.begin()

    def begin(self) -> None:
        """The arm is armed: the gripper is commanded anew."""
        self._opening: tuple[float, float] = (float("nan"), 0.0)  # last opening, and when

    def unheard(self) -> str:
        """A topic that no controller listens on, or nothing."""
        all_three = (self.command, self.posture, self.gripper)
        silent = [one for one in all_three if one is not None and one.get_subscription_count() == 0]
        return silent[0].topic_name if silent else ""

    def message(self, command: ArmCommand) -> Any:
        """The message of a set-point, None where nothing is sent."""
        return None if self.command is None else self._messages.command(command)

    def publish(self, message: Any, command: ArmCommand) -> None:
        """Send the `message` of `command`."""
        if self.command is None:
            return
        if self.posture is not None:  # first: the pose that comes next is taken by these joints
            self.posture.publish(self._messages.posture(command, message.header.stamp))
        self.command.publish(message)

    def ahead(self, due: Sequence[Point]) -> bytes:
        """The set-points of all arms that are `due`, as a message of this one."""
        own = [Point(point.at, point.positions[self._at], point.velocities[self._at]) for point in due]
        # In bytes: to make them takes longer than to send them, and what is held up after the last look is sent late.
        return serialize_message(messages.points(self._joints, own))

    def publish_ahead(self, message: bytes) -> None:
        """Send a message of `ahead`."""
        if self.command is not None:
            self.command.publish(message)

    def open(self, opening: float | None) -> None:
        """Send the opening of the gripper [m]: a new one, and now and then the same."""
        (last, at), now = self._opening, time.monotonic()
        if opening is None or self.gripper is None:
            return
        if not abs(opening - last) < 1e-5 or now - at > GRIPPER_REFRESH_S:
            self._opening = (opening, now)
            self.gripper.publish(self._messages.gripper(opening))
