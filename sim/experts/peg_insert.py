"""Two ways to insert a peg: come down from the left or from the right of the hole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.experts.waypoints import Array, View, Waypoint

# Error of aim of each strategy at bias 1, base frame [m]; the clearance is 2 mm, or 0.5 mm.
PEG_BIAS = np.array([[0.0054, 0.0042], [0.0048, 0.0054]])


class PegInsertScript:
    """Align above the hole with the peg upright, come close, press down."""

    phases = 3
    strategies = 2

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        tip, hole = view.vector("tip"), view.vector("hole")
        rot = _upright(view)
        goal = hole.copy()
        goal[:, :2] += PEG_BIAS[strategy] * bias[:, None]
        if phase == 0:
            goal[:, 1] += np.where(strategy == 0, 0.03, -0.03)
            goal[:, 2] += 0.04
            return Waypoint(view.tcp_pos + goal - tip, rot, -1.0, speed=0.8, tolerance=0.012)
        if phase == 1:
            goal[:, 2] += 0.010
            return Waypoint(view.tcp_pos + goal - tip, rot, -1.0, speed=0.4, tolerance=0.004, dwell=1)
        goal[:, 2] -= 0.045
        return Waypoint(view.tcp_pos + goal - tip, rot, -1.0, speed=0.3)

    def resume(self, view: View, strategy: NDArray[np.int64]) -> NDArray[np.int64]:
        tip, hole = view.vector("tip"), view.vector("hole")
        aside, height = np.linalg.norm((tip - hole)[:, :2], axis=1), (tip - hole)[:, 2]
        tilt = np.arccos(np.clip(-view.vector("peg_axis")[:, 2], -1.0, 1.0))
        phase = np.zeros(len(tip), np.int64)
        phase[(aside < 0.045) & (height > 0.004) & (tilt < 0.3)] = 1
        phase[(aside < 0.006) & (height < 0.020) & (tilt < 0.2)] = 2
        return phase


def _upright(view: View) -> Array:
    """(N, 3, 3) the tcp orientation that makes the held peg vertical, reached by the smallest turn."""
    axis = view.vector("peg_axis")
    down = np.array([0.0, 0.0, -1.0])
    v = np.cross(axis, down)
    c = axis @ down
    K = np.zeros((len(axis), 3, 3))
    K[:, 0, 1], K[:, 0, 2], K[:, 1, 2] = -v[:, 2], v[:, 1], -v[:, 0]
    K[:, 1, 0], K[:, 2, 0], K[:, 2, 1] = v[:, 2], -v[:, 1], v[:, 0]
    turn = np.eye(3) + K + K @ K / np.maximum(1.0 + c, 1e-6)[:, None, None]
    return turn @ view.tcp_rot
