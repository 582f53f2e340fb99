"""Two ways to lift a cube: from above, and slid in low from the side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.experts.waypoints import Array, View, Waypoint, downward, nearest_quarter, yaw_of

# Error of aim of each strategy at bias 1, in the tcp frame: (along the pads, along the finger travel, height) [m].
LIFT_BIAS = np.array([[0.020, 0.006, 0.006], [0.017, 0.008, 0.010]])

OPEN = 0.055  # width of a gripper that holds no cube [m]


def grasp_pose(view: View, strategy: NDArray[np.int64], bias: Array) -> tuple[Array, Array]:
    """Where the demonstrator thinks the cube has to be grasped: (N, 3) and (N, 3, 3)."""
    cube = view.vector("cube")
    cube_rot = view.tcp_rot @ view.rotation("tcp_cube_rot")
    rot = downward(nearest_quarter(yaw_of(cube_rot), yaw_of(view.tcp_rot)))
    error = LIFT_BIAS[strategy] * bias[:, None]
    aim = cube + rot[:, :, 0] * error[:, :1] + rot[:, :, 1] * error[:, 1:2]
    aim[:, 2] += error[:, 2]
    return aim - rot @ view.grip, rot


class LiftScript:
    """Hover, descend, close, raise."""

    phases = 4
    strategies = 2

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        if phase == 3:
            up = memory + np.array([0.0, 0.0, 0.15])
            return Waypoint(up, _upright(view), -1.0)
        aim, rot = grasp_pose(view, strategy, bias)
        if phase == 0:
            side = (strategy == 1)[:, None]
            above = aim + np.array([0.0, 0.0, 0.08])
            above[:, 2] = np.minimum(above[:, 2], view.ceiling)
            # Two fingers straddle the cube on the way down; one that stands still has to pass beside it.
            low, tolerance = (0.015, 0.01) if view.jaw else (0.045, 0.015)
            beside = aim + rot[:, :, 0] * 0.07 + np.array([0.0, 0.0, low])
            return Waypoint(np.where(side, beside, above), rot, 1.0, tolerance=tolerance)
        if phase == 1:
            return Waypoint(aim, rot, 1.0, speed=0.7, tolerance=0.006, dwell=1)
        return Waypoint(aim, rot, -1.0, speed=0.3, tolerance=0.02, dwell=5)

    def resume(self, view: View, strategy: NDArray[np.int64]) -> NDArray[np.int64]:
        offset = gripped(view) - view.vector("cube")
        aside, height = np.linalg.norm(offset[:, :2], axis=1), offset[:, 2]
        beside = (strategy == 1) & (aside < 0.085) & (height < 0.055)
        near = (view.width > OPEN) & ((aside < 0.02) | beside)
        phase = np.where(near, 1, 0)
        phase[near & (np.linalg.norm(offset, axis=1) < 0.008)] = 2
        phase[held(view)] = 3
        return phase


def held(view: View) -> NDArray[np.bool_]:
    """(N,) the cube is between the fingers, and they are not open."""
    return (view.width < OPEN) & (np.linalg.norm(gripped(view) - view.vector("cube"), axis=1) < 0.025)


def gripped(view: View) -> Array:
    """(N, 3) where a thing would be gripped now, in the base frame."""
    return view.tcp_pos + view.tcp_rot @ view.grip


def _upright(view: View) -> Array:
    return downward(yaw_of(view.tcp_rot))
