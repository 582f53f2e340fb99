"""Stamps of another machine against the clock of this one: the one judge of the nodes and of `robolearn doctor`.

With the age a = now − stamp of each message at its arrival, over a window of messages

    late: min a > oldest      ahead: max a < −FUTURE_S

so that one message that waited proves nothing, and all of them do. A sender whose clock is behind and one whose
messages are late cannot be told apart, and neither may lead an arm: what it reports is where the arm was, or nothing
that a chunk of actions could be ordered by.
"""

from __future__ import annotations

import math
from collections.abc import Callable

WINDOW_S = 0.1  # while armed a clock is found out after one to two of them
FUTURE_S = 0.05  # clocks of two machines that are disciplined may differ by this much
MEND = "set both clocks: sudo chronyc makestep (chronyc tracking shows the offset)"


def clock_problem(youngest: float, oldest_seen: float, oldest: float) -> str:
    """Problem of messages whose ages at arrival lie between `youngest` and `oldest_seen` [s], in words, where `oldest`
    are allowed; empty when there is none."""
    if oldest_seen < -FUTURE_S:
        return f"stamped {-oldest_seen:.2f} s in the future: the clock of its sender is ahead of this machine's; {MEND}"
    if youngest > oldest:
        return (
            f"stamped {youngest:.2f} s ago when it arrives, more than {oldest:g} s: the clock of its sender is behind "
            f"this machine's, or it comes late; {MEND}"
        )
    return ""


class SenderClock:
    """The stamps of one input.

    Args:
      oldest: age that is allowed at arrival [s].
      clock: steady time [s].
      wall: the clock that stamps are compared with [s].
    """

    def __init__(self, oldest: float, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._oldest, self._clock, self._wall = oldest, clock, wall
        self._begun = -math.inf
        # least and greatest age in this window, and in the one before
        self._least = self._before_least = math.inf
        self._most = self._before_most = -math.inf

    def update(self, stamp: float) -> None:
        """A message with this stamp has arrived."""
        now, age = self._clock(), self._wall() - stamp
        if now - self._begun > WINDOW_S:
            whole = now - self._begun <= 2 * WINDOW_S  # otherwise there was a pause, and nothing before it counts
            self._before_least = self._least if whole else math.inf
            self._before_most = self._most if whole else -math.inf
            self._begun, self._least, self._most = now, math.inf, -math.inf
        self._least, self._most = min(self._least, age), max(self._most, age)

    def problem(self) -> str:
        """The problem, or nothing; without a message nothing is wrong."""
        least, most = min(self._least, self._before_least), max(self._most, self._before_most)
        return clock_problem(least, most, self._oldest) if least < math.inf else ""
