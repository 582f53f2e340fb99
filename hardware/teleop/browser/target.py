"""From a target pose of the tcp to the action of one control step, for either kind of action.

The inverse of `robots.control.TcpDelta`, clipped as a whole so that the tcp goes straight to its target:

    Δp = R_tcpᵀ (p* − p) / 0.02 m,    Δr = log(R_tcpᵀ R*) / 0.10 rad,    a ← a / max(1, ‖a‖_∞) for each of the two

The arm thereby follows a target that is dragged, at full deflection while it is far, and stops at it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.core.se3 import matrix_to_rotvec, rotvec_to_matrix
from robots import DELTA_POS, DELTA_ROT, RobotSpec, solve

Array = NDArray[np.float64]

KINDS = ("tcp_delta", "joint_position")


def action_towards(
    kind: str, robot: RobotSpec, q: Array, position: Array, rotation: Array, opening: float
) -> NDArray[np.float32]:
    """One control step from joint positions towards a pose.

    Args:
      kind: of the action, one of `KINDS`.
      robot: the arm.
      q: (n,) joint positions that the action is measured from [rad].
      position, rotation: (3,) [m] and (3, 3), the target of the tcp in the base frame.
      opening: of the gripper, 0 … 1.

    Returns:
      (Da,) in [-1, 1].
    """
    if kind not in KINDS:
        raise BadInput("kind of action", got=kind, available=KINDS)
    pos, rot = (array[0] for array in robot.chain.forward(q[None]))
    step = _shortened(rot.T @ (position - pos) / DELTA_POS)
    turn = _shortened(matrix_to_rotvec(rot.T @ rotation) / DELTA_ROT)
    grip = 2.0 * opening - 1.0
    if kind == "tcp_delta":
        return np.array([*step, *turn, grip], dtype=np.float32)
    goal = solve(
        robot.chain,
        q[None],
        (pos + rot @ step * DELTA_POS)[None],
        (rot @ rotvec_to_matrix(turn * DELTA_ROT))[None],
        rest=np.asarray(robot.home),
    )[0]
    # q = lower + (a + 1)/2 · (upper − lower)
    a = 2.0 * (goal - robot.lower) / (robot.upper - robot.lower) - 1.0
    return np.clip([*a, grip], -1.0, 1.0).astype(np.float32)


def _shortened(a: Array) -> Array:
    return a / max(1.0, float(np.abs(a).max()))
