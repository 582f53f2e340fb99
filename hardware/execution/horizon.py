"""Set-points for a trajectory controller, sent ahead of the arm so that a late message ends no motion.

A trajectory controller follows the points of the newest message by the clock and stands still where they run out. With
one point a message, due when the next message is, each one that comes a millisecond late is a stop. So every set-point
is due one horizon after it was made, and a message holds all of those that are not yet due, with the one that the
arm is at: messages may be late, or missing, for the length of the horizon, and the arm follows that much later.

The filter moves the set-point by exactly one period a step, whenever the step is taken. The points are therefore due
one period apart, whenever they are sent, and that schedule is led back to one horizon so slowly that no joint feels it:
its rate 1 + r follows a critically damped spring, with e the distance to one horizon,

    r ← r + T (w² e − 2 w r),   |r| ≤ r_max

The last point has velocity 0, as joint_trajectory_controller demands: where points run out, the arm stands.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SPRING = 3.0  # w [1/s]
MOST_RATE = 0.02  # r_max


class Point(NamedTuple):
    """A position of the arm and its time."""

    at: float  # by the controller's clock [s]
    positions: Array  # (n,) [rad]
    velocities: Array  # (n,) [rad/s]


class Horizon:
    """The set-points that are not yet due.

    Args:
      period: time from one set-point to the next [s].
      seconds: how far ahead of the arm they are sent.
    """

    def __init__(self, period: float, seconds: float) -> None:
        self._period, self._seconds = period, seconds
        self._points: deque[Point] = deque()
        self._rate = 0.0  # r: of the schedule against the clock

    def begin(self) -> None:
        """A motion begins: what was sent before is done."""
        self._points.clear()
        self._rate = 0.0

    def ran_out(self, now: float) -> bool:
        """True where the arm has come to its last point in mid-motion, and so stands where it was not meant to.

        Args:
          now: by the controller's clock [s]. One that is set elsewhere counts as late, or is followed slowly.
        """
        return bool(self._points) and now > self._points[-1].at and bool(np.any(self._points[-1].velocities))

    def points(self, positions: ArrayLike, velocities: ArrayLike, now: float) -> list[Point]:
        """Points to send when the set-point `positions`, `velocities` (n,) is made: the first is due by `now`."""
        q, v = np.array(positions, dtype=np.float64), np.array(velocities, dtype=np.float64)
        goal = now + self._seconds
        if not self._points or now > self._points[-1].at:
            self.begin()
            self._points.append(Point(now, q, np.zeros_like(v)))
            at = goal
        else:
            at = self._points[-1].at + self._period
            self._rate += self._period * SPRING * (SPRING * (goal - at) - 2 * self._rate)
            self._rate = min(max(self._rate, -MOST_RATE), MOST_RATE)
            at += self._rate * self._period
        self._points.append(Point(at, q, v / (1 + self._rate)))
        while len(self._points) > 1 and self._points[1].at <= now:
            self._points.popleft()
        return [*list(self._points)[:-1], Point(at, q, np.zeros_like(v))]
