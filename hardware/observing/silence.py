"""Whether the safety node still speaks: it reports ten times a second, and one that hangs ends without a word."""

from __future__ import annotations

import time
from collections.abc import Callable

from robolearn.core import RobolearnError

SILENT_S = 0.6  # six reports: by then a node that goes on has latched, because it did not run
STEP_S = 0.1  # most that one look counts
SILENT = f"the safety node is silent for more than {SILENT_S:g} s: use the hardware emergency stop"


class SafetySilent(RobolearnError):
    """The safety node does not report any more."""


class Silence:
    """The time since the last report, as far as the listener ran: a report may wait while it did not.

    Args:
      clock: steady time [s].
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked, self._seconds, self._ever = clock(), 0.0, False

    def heard(self) -> None:
        """A report has arrived."""
        self._looked, self._seconds, self._ever = self._clock(), 0.0, True

    def look(self) -> str:
        """What is wrong, or nothing; called often. Before the first report nothing is wrong."""
        now = self._clock()
        self._seconds += min(max(now - self._looked, 0.0), STEP_S)
        self._looked = now
        if not self._ever or self._seconds <= SILENT_S:
            return ""
        return SILENT

    def check(self) -> None:
        """Raise `SafetySilent` if anything is wrong."""
        if problem := self.look():
            raise SafetySilent(problem)
