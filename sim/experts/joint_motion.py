"""From a motion of the tcp to joint positions: what a demonstrator does on an arm whose actions are those."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robots import RobotSpec, make_control
from robots.chain import Array

OPEN = 0.08  # a demonstrator opens no gripper wider than this: a jaw that is wide open is long on its way back [m]


class JointMotion:
    """Actions of ``joint_position`` that do what actions of ``tcp_delta`` say.

    Args:
      robot: the arm.
      control_hz: rate of its actions.
    """

    def __init__(self, robot: RobotSpec, control_hz: float) -> None:
        self._tcp = make_control("tcp_delta", robot, control_hz)
        self._joints = make_control("joint_position", robot, control_hz)
        self._opening = min(1.0, OPEN / robot.gripper.max_width)

    def __call__(self, q: Array, motion: NDArray) -> NDArray[np.float32]:
        """(N, n + 1) actions from joint positions (N, n) [rad] and motions (N, 7) of the tcp in [-1, 1]."""
        goal, width = self._tcp.targets(q, None, motion)
        return self._joints.actions(q, goal, self._opening * width).astype(np.float32)
