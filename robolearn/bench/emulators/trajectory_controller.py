"""Emulator of joint_trajectory_controller: from point to point by the clock, and then it holds.

As ros2_controllers 4.42 (ROS 2 Jazzy) does: messages without a stamp begin when they are first looked at; before the
first point the way leads from where the arm is *measured* (`from_desired`: from the last desired position); between
two points it is a cubic where both have velocities, else a straight line; behind the last it stays there. Later
versions (6.9) blend a message with the one before unless `allow_trajectory_replacement` is false; this one does not.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PERIOD_S = 0.001  # of the controller manager of franka_ros2


@dataclass(frozen=True, eq=False)
class TrajectoryPoint:
    """A point of a trajectory.

    Attributes:
      after: from the start of the trajectory [s].
      positions: (n,) [rad].
      velocities: (n,) [rad/s], or None.
    """

    after: float
    positions: Array
    velocities: Array | None


class TrajectoryController:
    """One joint_trajectory_controller, without ROS.

    Args:
      joints: n names.
      positions: (n,) where it holds at first [rad].
      from_desired: its parameter `interpolate_from_desired_state`.
    """

    def __init__(self, joints: tuple[str, ...], positions: Array, *, from_desired: bool = False) -> None:
        self._joints, self._from_desired = joints, from_desired
        self.hold(positions)

    def hold(self, positions: Array) -> None:
        """It is activated anew where the arm is."""
        self.desired = np.array(positions, dtype=np.float64)
        self._velocity = np.zeros(len(self._joints))
        self._points: list[TrajectoryPoint] = []
        self._begin: float | None = None
        self._before: TrajectoryPoint | None = None  # `after` is a time of the clock here

    def accept(self, joints: tuple[str, ...], points: list[TrajectoryPoint], begin: float, now: float) -> str:
        """A message arrived.

        Args:
          joints: its names.
          points: in the order of `joints`.
          begin: its stamp [s]; 0 means at once.
          now: the controller's clock [s].

        Returns:
          Why it is refused; empty when it is followed from now on.
        """
        n = len(self._joints)
        if sorted(joints) != sorted(self._joints):
            return f"joints {', '.join(joints)} are not the controller's"
        if not points:
            return "no points"
        last = points[-1]
        if last.velocities is not None and np.abs(last.velocities).max() > np.finfo(np.float32).eps:
            return "the last point has a velocity"
        if begin and begin + last.after < now:
            return f"it ends {1e3 * (now - begin - last.after):.0f} ms in the past"
        if any(b.after <= a.after for a, b in itertools.pairwise(points)):
            return "its times do not rise"
        if any(len(p.positions) != n or (p.velocities is not None and len(p.velocities) != n) for p in points):
            return "a point of another length"
        order = [joints.index(name) for name in self._joints]
        self._points = [
            TrajectoryPoint(p.after, p.positions[order], None if p.velocities is None else p.velocities[order])
            for p in points
        ]
        self._begin, self._before = begin or None, None
        return ""

    def sample(self, now: float, measured: Array, velocity: Array) -> Array:
        """(n,) where the arm is to be at `now`; it is at `measured` (n,) [rad], with `velocity` (n,) [rad/s]."""
        if not self._points:
            return self.desired
        if self._before is None:
            here = (self.desired, self._velocity) if self._from_desired else (measured, velocity)
            self._before = TrajectoryPoint(now, *here)
        if self._begin is None:
            self._begin = now
        times = [self._begin + p.after for p in self._points]
        if now < times[0]:
            self._between(self._before, self._before.after, self._points[0], times[0], now)
        elif now >= times[-1]:
            self.desired, self._velocity = self._points[-1].positions, np.zeros(len(self._joints))
        else:
            i = int(np.searchsorted(times, now, side="right")) - 1
            self._between(self._points[i], times[i], self._points[i + 1], times[i + 1], now)
        return self.desired

    def _between(self, a: TrajectoryPoint, t_a: float, b: TrajectoryPoint, t_b: float, now: float) -> None:
        length, s = t_b - t_a, (now - t_a) / (t_b - t_a)
        way = b.positions - a.positions
        if a.velocities is None or b.velocities is None:
            self.desired, self._velocity = a.positions + s * way, way / length
            return
        v_a, v_b = length * a.velocities, length * b.velocities
        c, d = 3 * way - 2 * v_a - v_b, v_a + v_b - 2 * way
        self.desired = a.positions + s * (v_a + s * (c + s * d))
        self._velocity = (v_a + s * (2 * c + 3 * s * d)) / length
