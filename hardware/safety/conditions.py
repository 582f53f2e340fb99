"""Whether the robot's own controller permits motion: the conditions of a contract, by what is heard of them.

An arm whose program was stopped, or that is in a protective stop, takes no commands: to send some means that it jumps
when the program is started again. So arming is refused, and an arm that is armed is stopped and latched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from time import monotonic

from robots.stations import Condition


class Conditions:
    """The newest value of every condition.

    Args:
      conditions: of the contract.
      clock: steady time [s].
    """

    def __init__(self, conditions: Collection[Condition], clock: Callable[[], float] = monotonic) -> None:
        self._conditions = {one.name: one for one in conditions}
        self._clock = clock
        self._values: dict[str, tuple[float, float]] = {}  # name → value and when it came

    def heard(self, name: str, value: float) -> None:
        """A value of the condition `name` arrived."""
        self._values[name] = (float(value), self._clock())

    def problem(self) -> str:
        """Why the arm must not move, and what to do about it; empty when it may."""
        now = self._clock()
        silent = ""
        for name, condition in self._conditions.items():
            value, at = self._values.get(name, (math.nan, -math.inf))
            if math.isinf(at) or (not condition.latched and now - at > condition.max_age_s):
                silent = silent or condition.silent(now - at)
            elif not condition.permits(value):
                return condition.report(value)
        return silent
