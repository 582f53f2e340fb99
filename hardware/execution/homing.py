"""The way home between episodes: the gripper opens where the arm is, the tool rises, the arm goes to its home."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hardware.calibration.motion import PerfectArm, drive
from hardware.execution.played_motion import way_from
from robots.ik import solve
from robots.stations import Contract

Array = NDArray[np.float64]
OPENING_S = 1.0  # for the gripper, before anything moves
RISE_M = 0.05  # of the tcp, so that the fingers leave what they held
SPEED = 0.2  # share of the joints' speed


def way_home(contract: Contract, q: Array) -> Array:
    """(T, n + 1) targets of the joints [rad] and of the gripper's opening [m] from the posture `q` (n,) home, one a
    period of the stream. The tool rises no higher than the workspace.

    Raises:
      RobolearnError: the station's safety filter does not let it pass; its reason.
    """
    chain, limits, home = contract.robot.chain, contract.limits, np.array(contract.robot.home)
    pos, rot = chain.forward(q[None])
    above = pos.copy()
    above[0, 2] += RISE_M
    if limits.workspace is not None:
        above[0, 2] = max(pos[0, 2], min(above[0, 2], limits.workspace[1, 2] - 0.01))
    risen = solve(chain, q[None], above, rot, rest=home)[0]
    still = np.tile(q, (round(OPENING_S * contract.stream_hz), 1))
    ways = (still, way_from(q, risen[None], contract, SPEED), way_from(risen, home[None], contract, SPEED))
    way = np.concatenate(ways)
    drive(PerfectArm(contract.joints, q), contract, way)
    return np.concatenate([way, np.full((len(way), 1), limits.gripper_max)], axis=1)
