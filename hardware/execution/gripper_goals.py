"""An opening that is wanted many times a second, as goals of an action that takes its time for each.

Grippers that take only actions move to one width at a time. While the opening that is wanted is on its way, the goal is
all the way in its direction; when it has come to rest, the goal is that. One that is under way is given up for another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic

BAND_M = 0.003  # openings that differ by less are the same
NOISE_M = 0.001  # so little is no motion: a policy's openings are never quite the same
STEADY_S = 0.1  # unchanged for so long: it has come to rest
AGAIN_S = 0.5  # after which a goal that was refused is asked again
MOVING_S = 0.06  # on its way for so long: the gripper goes, too


class GripperGoals:
    """Schedule of a gripper's goals.

    Args:
      most: greatest opening [m].
      clock: steady time [s].

    Attributes:
      goal: opening of the goal under way or done last [m]; NaN before the first, and after one that failed to start.
      busy: one is under way.
    """

    def __init__(self, most: float, clock: Callable[[], float] = monotonic) -> None:
        self._most, self._clock = most, clock
        self._wanted = math.nan
        self._from = math.nan  # where it last stood
        self._changed = self._left = -math.inf  # when it last changed, and when it left there
        self._not_before = -math.inf
        self.goal = math.nan
        self.busy = False

    def want(self, width: float) -> None:
        """An opening [m] is wanted; one that is not finite is passed over."""
        if not math.isfinite(width):
            return
        now, width = self._clock(), min(max(width, 0.0), self._most)
        if math.isnan(self._wanted):
            self._wanted, self._from, self._changed, self._left = width, width, now, now
        elif abs(width - self._wanted) >= NOISE_M:
            if now - self._changed >= STEADY_S:
                self._from, self._left = self._wanted, now
            self._wanted, self._changed = width, now

    def _differs(self, width: float) -> bool:
        return math.isfinite(width) and not abs(width - self.goal) < BAND_M

    @property
    def due(self) -> bool:
        """True where another goal than the present one is wanted by now."""
        now = self._clock()
        if now < self._not_before:
            return False
        if now - self._changed >= STEADY_S:
            return self._differs(self._wanted)
        return now - self._left >= MOVING_S and self._differs(self._ahead())

    def _ahead(self) -> float:
        """All the way in the direction of what is wanted, against the goal."""
        if abs(self._wanted - self._from) < BAND_M:
            return self.goal
        return 0.0 if self._wanted < self._from else self._most

    def begin(self, measured: float) -> tuple[float, bool]:
        """Take the goal that is due: its opening [m], and True where that closes a gripper at `measured` [m]."""
        before = next((width for width in (measured, self.goal) if math.isfinite(width)), self._most)
        moving = self._clock() - self._changed < STEADY_S
        self.goal = self._ahead() if moving else self._wanted
        self.busy = True
        return self.goal, bool(self.goal < before)

    def done(self, *, started: bool = True) -> None:
        """The goal under way has ended; one that was never `started` is wanted again after a while."""
        self.busy = False
        if not started:
            self.goal, self._not_before = math.nan, self._clock() + AGAIN_S
