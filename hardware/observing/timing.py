"""Time of what arrives: the freshness of an input, the silence of the safety node, latencies.

An input is fresh by the steady time since its arrival, and while its own stamps advance. The safety node reports ten
times a second; one that hangs ends without a word.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robolearn.core import RobolearnError

BACK_S = 1.0  # so long after the newest stamp lower ones are a clock that was set back, no longer old messages


@dataclass
class Freshness:
    """One input: the times of its last arrival and of the last change of its stamp."""

    name: str
    max_age_s: float
    clock: Callable[[], float]
    arrived: float | None = None
    moved: float = 0.0
    stamp: float = 0.0
    fault: str = ""

    def update(self, stamp: float) -> bool:
        """A message with this stamp arrived; true where it is newer than the others, and to be used."""
        now = self.clock()
        if stamp <= 0:
            self.fault = "its messages have no stamp"
            return False
        # A clock that was set back: by now `problem` has long reported that the stamp stands.
        newer = self.arrived is None or stamp > self.stamp or (stamp < self.stamp and now - self.moved > BACK_S)
        if newer:
            self.moved, self.stamp, self.fault = now, stamp, ""
        self.arrived = now
        return newer

    @property
    def age(self) -> float:
        """Since the last arrival [s]; infinite before the first."""
        return float("inf") if self.arrived is None else self.clock() - self.arrived

    def problem(self) -> str:
        """The problem, or nothing."""
        if self.arrived is None:
            return f"{self.name}: nothing arrived yet" + (f" ({self.fault})" if self.fault else "")
        return self.silence() or (self.fault and f"{self.name}: {self.fault}")

    def silence(self) -> str:
        """The problem of an input that has sent nothing new for too long; or nothing, as before the first message, and
        where something else is wrong with what it sends."""
        if self.arrived is None:
            return ""
        if self.age > self.max_age_s:
            return f"{self.name}: silent for {self.age:.2f} s"
        frozen = self.clock() - self.moved
        if frozen > self.max_age_s and not self.fault:
            return f"{self.name}: frozen, its stamp has not risen for {frozen:.2f} s"
        return ""


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


SILENT_S = 0.6  # six reports: by then a node that goes on has latched, because it did not run
STEP_S = 0.1  # most that one look counts
SILENT = f"the safety node is silent for more than {SILENT_S:g} s: use the hardware emergency stop"


class SafetySilent(RobolearnError):
    """The safety node does not report any more."""


class Silence:
    """The time since the last report, as far as the listener ran: a report may wait while it did not. By the steady
    time [s] of `clock`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked, self._seconds, self._ever = clock(), 0.0, False

    def heard(self) -> None:
        """A report has arrived."""
        self._looked, self._seconds, self._ever = self._clock(), 0.0, True

    def look(self) -> str:
        """The problem, or nothing; called often. Before the first report nothing is wrong."""
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
