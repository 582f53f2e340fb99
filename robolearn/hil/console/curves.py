"""The curves of a run, thinned so that hours of it stay light on a page."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.hil.status import CURVES, HilMetrics

Array = NDArray[np.float64]

MOST = 600  # points that are kept at least; twice as many, and every second one goes


class Curves:
    """Points of all curves over robot time: every so-manieth, and the newest."""

    def __init__(self) -> None:
        self._points: list[tuple[float, ...]] = []
        self._newest: HilMetrics | None = None
        self._count, self._every = 0, 1
        self._passing = False  # the last point is there because it is the newest

    def add(self, metrics: HilMetrics) -> bool:
        """Take a point in; whether it is a new one. Robot time only grows: an earlier point is none."""
        last = self._newest
        if metrics is last or (last is not None and not metrics.robot_minutes > last.robot_minutes):
            return False
        self._newest = metrics
        if self._passing:
            self._points.pop()
        self._points.append((metrics.robot_minutes, *(float(getattr(metrics, name)) for name in CURVES)))
        self._passing = self._count % self._every != 0
        self._count += 1
        if len(self._points) > 2 * MOST and not self._passing:
            # An odd number of them: the first and the newest stay.
            self._points, self._every = self._points[::2], 2 * self._every
        return True

    def curve(self, name: str) -> tuple[Array, Array]:
        """(K,) robot time [min] and (K,) values of one of `CURVES`, where it is known."""
        points = np.array(self._points, dtype=np.float64).reshape(-1, 1 + len(CURVES))
        values = points[:, 1 + CURVES.index(name)]
        known = np.isfinite(values)
        return points[known, 0], values[known]
