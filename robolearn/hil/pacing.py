"""Control steps at their rate, and how regular they were."""

from __future__ import annotations

import time

import numpy as np

from robolearn.hil.board import Period

KEPT = 100_000  # periods that the percentiles are of: those at 20 Hz of an hour and a half


class Periods:
    """The times between control steps, as they came."""

    def __init__(self) -> None:
        self._kept: list[float] = []

    def add(self, seconds: float) -> None:
        """One more."""
        self._kept.append(seconds)
        del self._kept[:-KEPT]

    def measured(self) -> Period:
        """So far; any thread may ask."""
        if not self._kept:
            return Period(0.0, 0.0, 0)
        p50, p99 = np.percentile(np.array(self._kept), (50, 99)) * 1e3
        return Period(float(p50), float(p99), len(self._kept))


class Pacer:
    """Waits for the next control step.

    Args:
      hz: rate of the steps; None: they come as they come, and nothing is waited for or measured.
    """

    def __init__(self, hz: float | None) -> None:
        self._period_s = None if hz is None else 1.0 / hz
        self._next = self._last = 0.0
        self._periods = Periods()

    def begin(self) -> None:
        """An episode begins: its first step is due now."""
        self._next, self._last = time.perf_counter(), 0.0

    def tick(self) -> None:
        """Wait until the next step is due. After a delay of more than one period steps are not hurried."""
        if self._period_s is None:
            return
        now = time.perf_counter()
        if now < self._next:
            time.sleep(self._next - now)
            now = time.perf_counter()
        if self._last:
            self._periods.add(now - self._last)
        self._last = now
        self._next += self._period_s
        if self._next <= now:
            self._next = now + self._period_s

    def measured(self) -> Period:
        """So far."""
        return self._periods.measured()
