"""When commands leave, and what a stall between two of them means for the motion.

A controller holds the last command. While no other leaves, the arm comes to stand there, whatever velocity the
set-point had: to go on at that velocity is a step that no limit of the set-point sees. Nothing can be done about the
stop; the way on begins at rest.

A command leaves at some time between the last look at the clock before its publishing and the first one after. Where
those two are far apart, the arm may have got it at once and stand there ever since, so the earlier one counts.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

STALL_PERIODS = 3.5  # longer between two commands, three were missed, and the arm stands or is about to
PUBLISHING_PERIODS = 3.0  # longer in publishing, and when the command left is not known
STALL_SHARE = 0.6  # of the horizon: the same for an arm that set-points are sent ahead of


class Sending:
    """Measures the time since the last command left.

    Args:
      period: between two commands [s].
      clock: steady time [s].
      horizon: how far ahead of the arm set-points are sent [s].

    Attributes:
      stalls: how often the set-point was put at rest after a stall.
    """

    def __init__(self, period: float, clock: Callable[[], float], horizon: float = 0.0) -> None:
        self._clock, self._most = clock, max(STALL_PERIODS * period, STALL_SHARE * horizon)
        self._publishing = PUBLISHING_PERIODS * period
        self._at = self._before = -math.inf
        self._leaves: float | None = None  # when the last look before publishing was
        self.stalls = 0

    def leaves(self) -> None:
        """A command is about to be published. Without a clock, which `gap` reports, nothing changes."""
        with contextlib.suppress(Exception):
            self._leaves = self._clock()

    def left(self) -> None:
        """A command has left, or the first one is about to. Without a clock, which `gap` reports, nothing changes."""
        with contextlib.suppress(Exception):
            now, leaves = self._clock(), self._leaves
            at = leaves if leaves is not None and now - leaves > self._publishing else now
            self._before, self._at, self._leaves = self._at, at, None

    def gap(self) -> float:
        """Since the last one left [s]; negative where the clock went back. Raises what the clock raises."""
        return self._clock() - self._at

    def gap_before(self) -> float:
        """From the command before the last to now [s], as long as the last one is not published; 0 without a clock."""
        try:
            return self._clock() - self._before
        except Exception:  # reported by `gap`
            return 0.0

    def stalled(self, gap: float) -> bool:
        """Whether the arm stands at the last command after a gap [s] like that."""
        return gap > self._most
