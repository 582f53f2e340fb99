"""Emulator of joint_trajectory_controller: from point to point by the clock, and then it holds.

As ros2_controllers 4.42 (ROS 2 Jazzy) does: messages without a stamp begin when they are first looked at; before the
first point the way leads from where the arm is *measured* (`from_desired`: from the last command); between two points
it is a cubic where both have velocities, else a straight line; behind the last it stays there. The command is that of
the next period. Its habits:

- A cancelled goal, an error beyond `tolerance` or a silence of `timeout_s` behind the last point end in a hold at the
  *measured* position: the command steps back by the following error, and its velocity is gone within a period.
- `abort` leaves the last velocity, as versions before ros2_controllers' pull request 558 did where they commanded
  velocities: nothing is commanded any more. Commanded by positions an arm stays at the last.
- Its clock runs on while the arm is held back; by `speed` it runs slower, until the next message begins at real time.

Later versions (6.9) blend a message with the one before unless `allow_trajectory_replacement` is false; this one does
not. `tests/programs/controller_sources.py` compares it with the controller's own sources.
"""

from __future__ import annotations

import bisect
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
      tolerance: `constraints.<joint>.trajectory`, between what is desired and what is measured [rad]; 0: none.
      timeout_s: `cmd_timeout`, behind the last point [s]; 0: none.

    Attributes:
      desired: (n,) its last command [rad].
      speed: speed scaling, as by a slider; 1: its clock runs as fast as ours.
    """

    def __init__(
        self,
        joints: tuple[str, ...],
        positions: Array,
        *,
        from_desired: bool = False,
        tolerance: float = 0.0,
        timeout_s: float = 0.0,
    ) -> None:
        self._joints, self._from_desired = joints, from_desired
        self._tolerance, self._timeout_s = tolerance, timeout_s
        self.speed = 1.0
        self._sampled: float | None = None  # when it was last sampled [s]
        self.hold(positions)

    def hold(self, positions: Array) -> None:
        """It is activated anew where the arm is, or its goal is cancelled there."""
        self.desired = np.array(positions, dtype=np.float64)
        self._velocity = np.zeros(len(self._joints))
        self._runs_on = False
        self._points: list[TrajectoryPoint] = []
        self._times: list[float] = []  # of the points, by its clock [s]; none before it has begun
        self._begin: float | None = None
        self._before: TrajectoryPoint | None = None  # `after` is a time of the clock here

    def abort(self) -> None:
        """Its goal is aborted, and what it commands is a velocity, which nobody takes back."""
        self._points, self._begin, self._before, self._runs_on = [], None, None, True

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
        self._begin, self._before, self._times = begin or None, None, []
        return ""

    def sample(self, now: float, measured: Array, velocity: Array) -> Array:
        """(n,) its command at `now` [s] for a period later; the arm is at `measured` (n,) [rad], with `velocity` (n,)
        [rad/s]."""
        last, self._sampled = now if self._sampled is None else self._sampled, now
        if not self._points:
            if self._runs_on:
                self.desired = self.desired + (now - last) * self._velocity
            return self.desired
        first = self._before is None
        if self._before is None:
            here = (last, self.desired, self._velocity) if self._from_desired else (now, measured, velocity)
            self._before, self._time = TrajectoryPoint(*here), now
        else:
            self._time += self.speed * (now - last)
        if self._begin is None:
            self._begin = self._time
        if not self._times:
            self._times = [self._begin + p.after for p in self._points]
        ends = self._times[-1]
        moving = self._time + PERIOD_S < ends
        if self._tolerance and (moving or first):
            error = np.abs(self._at(self._time, self._before)[0] - measured).max()
            if error > self._tolerance:
                kept = self.desired
                self.hold(measured)
                return kept  # what it holds is commanded a period later
        self.desired, self._velocity = self._at(self._time + PERIOD_S, self._before)
        if self._timeout_s and not moving and self._time - ends > self._timeout_s:
            kept = self.desired
            self.hold(measured)
            return kept
        return self.desired

    def _at(self, time: float, before: TrajectoryPoint) -> tuple[Array, Array]:
        """(n,) positions [rad] and velocities [rad/s] of its trajectory at `time` of its clock [s]."""
        times = self._times
        if time >= times[-1]:
            return self._points[-1].positions, np.zeros(len(self._joints))
        i = bisect.bisect_right(times, time)
        a, t_a = (before, before.after) if i == 0 else (self._points[i - 1], times[i - 1])
        return _between(a, t_a, self._points[i], times[i], time)


def _between(a: TrajectoryPoint, t_a: float, b: TrajectoryPoint, t_b: float, time: float) -> tuple[Array, Array]:
    length, s = t_b - t_a, (time - t_a) / (t_b - t_a)
    way = b.positions - a.positions
    if a.velocities is None or b.velocities is None:
        return a.positions + s * way, way / length
    v_a, v_b = length * a.velocities, length * b.velocities
    c, d = 3 * way - 2 * v_a - v_b, v_a + v_b - 2 * way
    return a.positions + s * (v_a + s * (c + s * d)), (v_a + s * (2 * c + 3 * s * d)) / length
