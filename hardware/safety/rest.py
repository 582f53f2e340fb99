"""Whether an arm has been measured in one place for long enough to be armed there.

One joint state proves nothing: it may be another sender's, or a moment of a motion. Within a window every sample must
agree with the first; one that does not, one that cannot be used, and a pause between two begin the window anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from hardware.safety.checks import Refused

REST_S = 0.2  # length of the window
REST_RAD = 0.004  # within it no joint is measured farther from its first position: 0.02 rad/s, or 2 steps of 12 bits
REST_SAMPLES = 3  # the slowest joint states that are fresh, 10 Hz, are as many in a window


class Rest:
    """The samples of a window.

    Args:
      joints: n names.
      pause: longest time between two samples of one window [s].
    """

    def __init__(self, joints: Sequence[str], pause: float) -> None:
        self._joints, self._pause = tuple(joints), pause
        self.begin()

    def begin(self) -> None:
        """What was measured before does not count."""
        self._first: list[float] = []
        self._since = self._last = 0.0
        self._samples = 0
        self._moved = ""  # what began this window

    def add(self, positions: list[float], now: float) -> None:
        """The arm was measured at `positions` (n,) [rad] at the time `now` [s]."""
        moved = self._away(positions)
        if moved or not 0.0 <= now - self._last <= self._pause or not self._first:
            self.begin()
            self._first, self._since, self._moved = list(positions), now, moved
        self._last = now
        self._samples += 1

    def check(self, now: float) -> None:
        """Refuse unless the arm has been at rest up to `now` [s]."""
        seconds = now - self._since
        if self._samples >= REST_SAMPLES and seconds >= REST_S:
            return
        why = f": {self._moved}" if self._moved else ""
        raise Refused(
            "rest",
            f"the arm has been measured at rest for {seconds:.2f} s in {self._samples} joint states, expected "
            f"{REST_S:.2f} s{why}",
        )

    def _away(self, positions: list[float]) -> str:
        """Which joint is not where the window began, in words."""
        for name, q, first in zip(self._joints, positions, self._first, strict=bool(self._first)):
            if not abs(q - first) <= REST_RAD:
                return f"{name} went from {first:.3f} to {q:.3f} rad"
        return ""
