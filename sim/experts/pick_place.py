"""Two ways to pick and place: grasp from above or from the side, carry high or low."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.experts.lift import OPEN, LiftScript, held
from sim.experts.waypoints import Array, View, Waypoint, downward, yaw_of

# Error of aim on the disc of each strategy at bias 1, base frame [m].
PLACE_BIAS = np.array([[0.016, 0.010], [0.012, 0.016]])

CARRY = np.array([0.11, 0.07])  # height of the tcp on the way, of each strategy [m]


class PickPlaceScript:
    """Grasp as in lift, carry, lower, open, retreat."""

    phases = 7
    strategies = 2

    def __init__(self) -> None:
        self._lift = LiftScript()

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        if phase < 3:
            return self._lift.plan(phase, view, strategy, bias, memory)
        rot = downward(yaw_of(view.tcp_rot))
        # The tcp goes where the cube, wherever it sits in the gripper, comes to lie on the disc. A cube that was not
        # grasped is left behind: the demonstrator does not notice, and sets down nothing.
        goal = view.vector("target") + np.clip(view.tcp_pos - view.vector("cube"), -0.03, 0.03)
        goal[:, :2] += PLACE_BIAS[strategy] * bias[:, None]
        height = np.minimum(CARRY[strategy], view.ceiling)
        if phase == 3:
            up = memory.copy()
            up[:, 2] = height
            return Waypoint(up, rot, -1.0, tolerance=0.02)
        if phase == 4:
            goal[:, 2] = height
            return Waypoint(goal, rot, -1.0, tolerance=0.012)
        if phase == 5:
            goal[:, 2] = np.clip(view.tcp_pos[:, 2] - view.objects["cube_z"], -0.03, 0.03) + 0.021
            return Waypoint(goal, rot, -1.0, speed=0.7, tolerance=0.006, dwell=1)
        up = memory.copy()
        up[:, 2] += 0.06
        return Waypoint(np.where((view.width > 0.05)[:, None], up, view.tcp_pos), rot, 1.0, speed=0.5)

    def resume(self, view: View, strategy: NDArray[np.int64]) -> NDArray[np.int64]:
        cube = view.vector("cube")
        aside = np.linalg.norm((cube - view.vector("target"))[:, :2], axis=1)
        carried, high = held(view), view.tcp_pos[:, 2] > np.minimum(CARRY[strategy], view.ceiling) - 0.02
        phase = np.minimum(self._lift.resume(view, strategy), 2)
        phase[carried] = np.where(aside < 0.02, 5, np.where(high, 4, 3))[carried]
        phase[(aside < 0.03) & (cube[:, 2] < 0.027) & (view.width > OPEN)] = 6
        return phase
