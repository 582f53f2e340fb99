"""Proprioception: one vector, the same from the simulator and from a real arm's joint states.

[ q (n) | gripper width | tcp position (3) | first two columns of the tcp's rotation (6) ]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.core.se3 import rot6d
from robolearn.core.specs import ArraySpec
from robots.chain import Array
from robots.spec import RobotSpec


def proprio_spec(robot: RobotSpec) -> ArraySpec:
    """Its size and the names of its components."""
    names = (*robot.joints, "gripper_width", *(f"tcp_{axis}" for axis in "xyz"), *(f"tcp_rot{i}" for i in range(6)))
    return ArraySpec((len(names),), names=names)


def proprio(q: Array, width: Array, tcp_pos: Array, tcp_rot: Array) -> NDArray[np.float32]:
    """(N, n + 10) from joint positions (N, n) [rad], openings (N,) [m] and poses (N, 3) [m], (N, 3, 3)."""
    return np.concatenate([q, width[:, None], tcp_pos, rot6d(tcp_rot)], -1).astype(np.float32)
