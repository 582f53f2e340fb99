"""Whether an input is fresh: the steady time since its arrival, and whether its own stamps still advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BACK_S = 1.0  # so long after the newest stamp lower ones are a clock that was set back, no longer old messages


@dataclass
class Freshness:
    """Whether one input is fresh: when it last arrived, and when its stamp last moved."""

    name: str
    max_age_s: float
    clock: Callable[[], float]
    arrived: float | None = None
    moved: float = 0.0
    stamp: float = 0.0
    fault: str = ""

    def update(self, stamp: float) -> bool:
        """A message with this stamp arrived; whether it is newer than the others, and to be used."""
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
        """What is wrong, or nothing."""
        if self.arrived is None:
            return f"{self.name}: nothing arrived yet" + (f" ({self.fault})" if self.fault else "")
        if self.age > self.max_age_s:
            return f"{self.name}: silent for {self.age:.2f} s"
        if self.fault:
            return f"{self.name}: {self.fault}"
        frozen = self.clock() - self.moved
        if frozen > self.max_age_s:
            return f"{self.name}: frozen, its stamp has not risen for {frozen:.2f} s"
        return ""
