"""As in lift, then straight to where the cube is to come."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.experts.lift import LiftScript
from sim.experts.waypoints import Array, View, Waypoint, downward, yaw_of


class LiftToScript:
    """Hover, descend, close, bring."""

    phases = 4
    strategies = 2

    def __init__(self) -> None:
        self._lift = LiftScript()

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        if phase < 3:
            return self._lift.plan(phase, view, strategy, bias, memory)
        # The tcp goes where the cube, wherever it sits in the gripper, comes to its goal.
        goal = view.vector("target") + np.clip(view.tcp_pos - view.vector("cube"), -0.03, 0.03)
        return Waypoint(goal, downward(yaw_of(view.tcp_rot)), -1.0)

    def resume(self, view: View, strategy: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._lift.resume(view, strategy)
