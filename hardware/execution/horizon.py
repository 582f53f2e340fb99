"""Set-points for a trajectory controller, sent ahead of the arm so that a late message ends no motion.

A trajectory controller follows the points of the newest message by the clock and stands still where they run out. With
one point a message, due when the next message is, each one that comes a millisecond late is a stop. So every set-point
is due one horizon after it was made, and a message holds all of those that are not yet due, with the one that the
arm is at: messages may be late, or missing, for the length of the horizon, and the arm follows that much later.

The filter moves the set-point by exactly one period a step, whenever the step is taken. The points are therefore due
one period apart, whenever they are sent, and that schedule is led back to one horizon so slowly that no joint feels it:
its rate 1 + r follows a critically damped spring, with e the distance to one horizon,

    r ← r + T (w² e − 2 w r),   |r| ≤ r_max

and at rest at once: a motion begins one horizon ahead, however late the tick is in which it does. It begins where the
arm is measured, and leads there from where the controller holds it.

Behind them lies the way on which the arm comes to rest if nothing more is sent, braked as the filter would: a node that
is held up, or killed, leaves the controller with a motion that ends well. Where commands come so late that a message
might reach the controller after it began to brake, no more are sent until it has come to rest.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SPRING = 3.0  # w [1/s]
MOST_RATE = 0.02  # r_max
SPARE = 0.4  # of the horizon: what a message may take to the controller
LEAD_S = 0.06  # in which a controller is led from where it holds an arm to where the arm is measured
NEAR_RAD = 0.0015  # an arm at rest so far from where it is held sags there; farther, somebody has moved it


class Point(NamedTuple):
    """A position of the arm and its time."""

    at: float  # by the controller's clock [s]
    positions: Array  # (n,) [rad]
    velocities: Array  # (n,) [rad/s]


class Knots(NamedTuple):
    """A motion of constant jerk between knots: a cubic through position and velocity is that motion exactly."""

    times: Array  # (m,) from the state that is braked [s], rising
    positions: Array  # (m, n) [rad]
    velocities: Array  # (m, n) [rad/s]; of the last knot 0


class Horizon:
    """The set-points that are not yet due.

    Args:
      period: time from one set-point to the next [s].
      seconds: how far ahead of the arm they are sent.
    """

    def __init__(self, period: float, seconds: float) -> None:
        self._period, self._seconds = period, seconds
        self._points: deque[Point] = deque()
        self._made: tuple[Point, Point] | None = None  # last set-point, and rest, of what was made last
        self._sent: tuple[Point, Point] | None = None  # the same, of the newest message
        self._left = False  # the controller is left to come to rest
        self._rate = 0.0  # r: of the schedule against the clock
        self._holds: Array | None = None  # where the controller holds, by what was sent to it last

    def begin(self) -> None:
        """A motion begins: what was sent before is done."""
        if self._sent is not None:
            self._holds = self._sent[1].positions
        self._points.clear()
        self._made, self._sent, self._left, self._rate = None, None, False, 0.0

    def late(self, now: float) -> Point | None:
        """Where and when the arm comes to rest, once it is too late to send more before it begins to; else None. Asked
        before points are made, and right before they are sent: a process may be held up in between.

        Args:
          now: by the controller's clock [s]. One that is set elsewhere counts as late, or is followed slowly.
        """
        if self._left or self._sent is None or not np.any(self._sent[0].velocities):
            return None
        last, rest = self._sent
        self._left = last.at - now <= SPARE * self._seconds
        return rest if self._left else None

    def sent(self) -> None:
        """The points that were made last are on their way."""
        if not self._left:
            self._sent = self._made

    def points(self, positions: ArrayLike, velocities: ArrayLike, rest: Knots, now: float) -> list[Point]:
        """Points to send when the set-point `positions`, `velocities` (n,) is made, from which the arm would brake by
        `rest`: the first is due by `now`. Nothing while the arm is left to come to rest."""
        q, v = np.array(positions, dtype=np.float64), np.array(velocities, dtype=np.float64)
        goal = now + self._seconds
        if self._sent is None or now > self._sent[1].at:
            stands = q if self._sent is None else self._sent[1].positions
            self.begin()
            self._points += self._from_hold(stands, now, goal - self._period)
            at = max(goal, self._points[-1].at + self._period)
        elif self._left:
            return []
        elif goal - self._points[-1].at > 2 * self._period and not np.any(self._points[-1].velocities):
            # With less, a message that is late would find that the motion has begun without it.
            self._points.append(self._points[-1]._replace(at=goal - self._period))
            self._rate, at = 0.0, goal
        elif self._points[-1].at > goal and not np.any(v) and np.array_equal(q, self._points[-1].positions):
            at = -np.inf  # it rests there
        else:
            at = self._points[-1].at + self._period
            self._rate += self._period * SPRING * (SPRING * (goal - at) - 2 * self._rate)
            self._rate = min(max(self._rate, -MOST_RATE), MOST_RATE)
            at += self._rate * self._period
        pace = 1 + self._rate
        braked = [Point(at + pace * t, q_t, v_t / pace) for t, q_t, v_t in zip(*rest, strict=True)]
        if at > self._points[-1].at:
            self._points.append(Point(at, q, v / pace if braked else np.zeros_like(v)))
        self._made = self._points[-1], (braked or self._points)[-1]
        while len(self._points) > 1 and self._points[1].at <= now:
            self._points.popleft()
        return [*self._points, *braked]

    def _from_hold(self, q: Array, now: float, end: float) -> list[Point]:
        """Points until `end` on which a controller holds an arm at `q` (n,). Where it holds it a little beside, by what
        it was sent last, it stays there for as long as the message may take, and is led to q then, with s from 0 to 1
        by 10 s³ − 15 s⁴ + 6 s⁵ of the way."""
        way = np.zeros_like(q) if self._holds is None else q - self._holds
        if not 0.0 < np.abs(way).max() <= NEAR_RAD:
            return [Point(t, q, np.zeros_like(q)) for t in (now, end)]
        begin, points = now + SPARE * self._seconds, [Point(now, q - way, np.zeros_like(q))]
        for s in np.linspace(0.0, 1.0, round(LEAD_S / self._period) + 1):
            share, rate = s**3 * (10 - 15 * s + 6 * s**2), 30 * s**2 * (1 - s) ** 2 / LEAD_S
            points.append(Point(begin + s * LEAD_S, q - (1 - share) * way, rate * way))
        return points
