"""What an action means: from [-1, 1] to joint set-points, for N arms at once. Simulator and real arm share it.

`tcp_delta` (default): the action is a small motion of the tcp in its own frame, plus the gripper opening,

    T*_base,tcp = T_base,tcp · [ exp(Δr) | Δp ],   Δp = a[0:3] · 0.02 m,   Δr = a[3:6] · 0.10 rad
    gripper opening = (a[6] + 1)/2 · max width

measured from where the tcp *is*, so that the same observation and action lead to the same motion whatever was
commanded before. `joint_position`: a[0:n] spans the joint limits, a[n] the gripper.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.core.se3 import rotvec_to_matrix
from robolearn.core.specs import ArraySpec
from robots.chain import Array
from robots.ik import solve
from robots.spec import RobotSpec

CONTROL_HZ = 20.0
DELTA_POS = 0.02  # [m] a step at full deflection
DELTA_ROT = 0.10  # [rad] a step at full deflection


class Control(Protocol):
    """Turns actions into joint set-points."""

    spec: ArraySpec

    def targets(self, q: Array, tcp: tuple[Array, Array] | None, action: NDArray) -> tuple[Array, Array]:
        """Joint set-points and gripper openings.

        Args:
          q: (N, n) measured joint positions [rad].
          tcp: (N, 3) and (N, 3, 3) pose of the tcp at `q`, if it is known already.
          action: (N, Da), clipped to [-1, 1].

        Returns:
          (N, n) [rad] and (N,) [m].
        """
        ...


class TcpDelta:
    """Motion of the tcp in its own frame, by inverse kinematics."""

    def __init__(self, robot: RobotSpec) -> None:
        self.robot = robot
        self.spec = ArraySpec((7,), names=("dx", "dy", "dz", "rx", "ry", "rz", "gripper"))
        self._rest = np.asarray(robot.home)
        self._max_step = np.asarray(robot.velocity) / CONTROL_HZ

    def targets(self, q: Array, tcp: tuple[Array, Array] | None, action: NDArray) -> tuple[Array, Array]:
        a = np.clip(action.astype(np.float64), -1.0, 1.0)
        tcp_pos, tcp_rot = self.robot.chain.forward(q) if tcp is None else tcp
        pos = tcp_pos + np.einsum("nij,nj->ni", tcp_rot, a[:, :3] * DELTA_POS)
        rot = tcp_rot @ rotvec_to_matrix(a[:, 3:6] * DELTA_ROT)
        goal = solve(self.robot.chain, q, pos, rot, rest=self._rest, max_step=self._max_step)
        return goal, 0.5 * (a[:, 6] + 1.0) * self.robot.gripper.max_width


class JointPosition:
    """Joint positions over their whole range."""

    def __init__(self, robot: RobotSpec) -> None:
        self.robot = robot
        self.spec = ArraySpec((len(robot.joints) + 1,), names=(*robot.joints, "gripper"))
        self._max_step = np.asarray(robot.velocity) / CONTROL_HZ

    def targets(self, q: Array, tcp: tuple[Array, Array] | None, action: NDArray) -> tuple[Array, Array]:
        a = np.clip(action.astype(np.float64), -1.0, 1.0)
        lower, upper = self.robot.lower, self.robot.upper
        goal = lower + 0.5 * (a[:, :-1] + 1.0) * (upper - lower)
        goal = q + np.clip(goal - q, -self._max_step, self._max_step)
        return goal, 0.5 * (a[:, -1] + 1.0) * self.robot.gripper.max_width


CONTROLS: dict[str, type[TcpDelta] | type[JointPosition]] = {"tcp_delta": TcpDelta, "joint_position": JointPosition}


def make_control(kind: str, robot: RobotSpec) -> Control:
    """The control called `kind`."""
    if kind not in CONTROLS:
        raise BadInput("action kind", got=kind, available=CONTROLS)
    return CONTROLS[kind](robot)
