"""What ros2_control's GripperActionController does with a Robotiq gripper, as a double.

Read in ros2_controllers (`gripper_controllers`) and in the configuration of ros2_robotiq_gripper, which leaves its
parameters at their defaults. Every goal is taken, and ends the one before. A goal succeeds within `goal_tolerance` of
its position, and is aborted, `stalled`, when the joint has stood for `stall_timeout`; the position goes on being held,
so that a thing between the fingers is. Cancelling holds the joint where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hardware.ros2.doubles.goals import Goals
from hardware.ros2.messages import installed_type
from robots.stations import GRIPPER_COMMAND

GOAL_TOLERANCE = 0.01  # [rad]
STALL_VELOCITY = 0.001  # [rad/s]
STALL_S = 1.0


class GripperController:
    """The action server.

    Args:
      node: that it belongs to.
      name: of the action, e.g. ``"/robotiq_gripper_controller/gripper_cmd"``.
      measured: the joint's position [rad].
      follow: sets the position that the joint holds [rad].

    Attributes:
      goals: position and effort of every goal that came.
      ended: how each of them ended, in order: succeed, abort or canceled.
    """

    def __init__(self, node: Any, name: str, measured: Callable[[], float], follow: Callable[[float], None]) -> None:
        self._kind = installed_type(GRIPPER_COMMAND)
        self._measured, self._follow = measured, follow
        self._target: float | None = None
        self._last, self._stood = measured(), 0.0
        self.goals: list[tuple[float, float]] = []
        self.ended: list[str] = []
        self._server = Goals(node, {name: self._kind}, self._begin, self._preempted)

    def close(self) -> None:
        """The driver ends."""
        self._server.close()

    def _begin(self, name: str, goal: Any) -> None:
        self.goals.append((goal.command.position, goal.command.max_effort))
        self._target, self._stood = goal.command.position, 0.0
        self._follow(goal.command.position)

    def _preempted(self, name: str) -> Any:
        self.ended.append("canceled" if self._server.cancelled else "abort")
        return self._kind.Result()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        position = self._measured()
        moving = abs(position - self._last) > STALL_VELOCITY * seconds
        self._last, self._stood = position, 0.0 if moving else self._stood + seconds
        if self._target is None:
            return
        reached = abs(self._target - position) < GOAL_TOLERANCE
        if self._server.cancelled:
            self._follow(position)
            self._end("canceled", self._kind.Result())
        elif reached or self._stood > STALL_S:
            result = self._kind.Result(position=position, reached_goal=reached, stalled=not reached)
            self._end("succeed" if reached else "abort", result)

    def _end(self, how: str, result: Any) -> None:
        self._target = None
        self.ended.append(how)
        self._server.end(how, result)

    def restarted(self) -> None:
        """The scene was put back."""
        if self._target is not None:
            self._end("abort", self._kind.Result())
