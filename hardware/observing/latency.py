"""Latencies as they are reported: the median and the 99th percentile of the last few thousand."""

from __future__ import annotations

from collections import deque

import numpy as np


class Latencies:
    """Keeps the newest `size` latencies [s]."""

    def __init__(self, size: int = 5000) -> None:
        self._values: deque[float] = deque(maxlen=size)

    def add(self, seconds: float) -> None:
        """One more."""
        self._values.append(seconds)

    def __len__(self) -> int:
        return len(self._values)

    def summary_ms(self) -> dict[str, float]:
        """``{"p50", "p99"}`` [ms], to a hundredth; empty while there are none."""
        if not self._values:
            return {}
        p50, p99 = np.percentile(np.fromiter(self._values, dtype=np.float64), (50, 99)) * 1e3
        return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}
