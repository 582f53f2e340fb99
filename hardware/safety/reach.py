"""From a pose of the tcp to joint positions, so that Cartesian targets pass the same stages as joint targets."""

from __future__ import annotations

import math

import numpy as np

from hardware.safety.checks import Refused, finite
from hardware.safety.types import PoseTarget
from robolearn.core.se3 import quat_to_matrix
from robots.ik import IKConfig, solve
from robots.spec import RobotSpec

# Well damped: near a singularity the joints shall follow calmly, and the pose be missed by a little.
CONFIG = IKConfig(iterations=8, damping=0.05, posture_gain=0.0)
POSITION_TOLERANCE = 0.01  # [m] by which the pose may be missed
ROTATION_TOLERANCE = 0.1  # [rad]


class Reach:
    """Inverse kinematics of one arm."""

    def __init__(self, robot: RobotSpec) -> None:
        self._chain, self._rest = robot.chain, np.asarray(robot.home)

    def joints(self, target: PoseTarget, start: list[float]) -> list[float]:
        """Joint positions [rad] of a pose, near `start`.

        Raises:
          Refused: numbers that are not finite, shapes, a quaternion that is not one, or a pose that is not reached.
        """
        position = finite("target position", target.position)
        quat = finite("target quaternion", target.quaternion)
        if len(position) != 3 or len(quat) != 4:
            raise Refused("names", f"target pose: {len(position)} and {len(quat)} numbers, expected 3 and 4 (wxyz)")
        norm = math.sqrt(sum(x * x for x in quat))
        if not abs(norm - 1.0) <= 0.01:
            raise Refused("names", f"target quaternion: length {norm:.3f}, expected 1")
        rot = quat_to_matrix(np.array(quat) / norm)
        q = solve(
            self._chain, np.array([start]), np.array([position]), rot[None], rest=self._rest, config=CONFIG
        )  # fmt: skip
        there, turned = (pose[0] for pose in self._chain.forward(q))
        missed = math.dist(there, position)
        # trace(RᵀR*) = 1 + 2 cos θ
        angle = math.acos(min(max(0.5 * (float(np.vdot(turned, rot)) - 1.0), -1.0), 1.0))
        if not (missed <= POSITION_TOLERANCE and angle <= ROTATION_TOLERANCE):
            raise Refused(
                "reach",
                f"target pose: the arm misses it by {missed:.3f} m and {angle:.3f} rad, "
                f"allowed {POSITION_TOLERANCE} m and {ROTATION_TOLERANCE} rad",
            )
        return q[0].tolist()
