"""What the learner shows its actors, and hears from them: shared between its threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from robolearn.core import RobolearnError


@dataclass(frozen=True)
class Progress:
    """How far learning is; NaN where nothing is known yet.

    Attributes:
      env_steps: control steps that are learned from.
      updates: of the critics.
      success: share of the last intervention-free episodes that solved the task.
      intervention_rate: share of the steps of the last episodes that an operator commanded.
      q: mean value of what was executed.
    """

    env_steps: float = 0
    updates: float = 0
    success: float = float("nan")
    intervention_rate: float = float("nan")
    q: float = float("nan")


@dataclass(frozen=True)
class Period:
    """How regular an actor's control steps are.

    Attributes:
      p50, p99: time between two control steps [ms].
      count: of so many.
    """

    p50: float
    p99: float
    count: int


class Board:
    """See the module.

    Attributes:
      finished: the run is over.
      heard: actor → when its last beat came, on the monotonic clock [s].
      told: actors that know that the run is over.
      periods: actor → as it said last.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._version, self._weights = -1, b""
        self._processed: dict[str, int] = {}
        self.progress = Progress()
        self.finished = False
        self.heard: dict[str, float] = {}
        self.told: set[str] = set()
        self.periods: dict[str, Period] = {}

    @property
    def version(self) -> int:
        """Of the newest weights; −1: there are none yet."""
        return self._version

    def weights(self) -> bytes:
        """The newest, as a message.

        Raises:
          RobolearnError: there are none yet.
        """
        with self._changed:
            if self._version < 0:
                raise RobolearnError("no weights yet")
            return self._weights

    def publish(self, version: int, weights: bytes) -> None:
        """Show new weights."""
        with self._changed:
            self._version, self._weights = version, weights
            self._changed.notify_all()

    def process(self, actor: str, records: int) -> None:
        """So many records of `actor` have been taken, and what they led to was done."""
        with self._changed:
            self._processed[actor] = records
            self._changed.notify_all()

    def show(self, **progress: float) -> None:
        """Replace some of the numbers of `progress`."""
        self.progress = replace(self.progress, **progress)

    def finish(self, processed: Mapping[str, int]) -> None:
        """The run is over; so many records of each actor were taken."""
        with self._changed:
            self._processed.update(processed)
            self.finished = True
            self._changed.notify_all()

    def processed(self, actor: str, wait_for: int, timeout_s: float) -> int:
        """How many records of `actor` were taken; waits until they are `wait_for`, but no longer than that."""
        with self._changed:
            self._changed.wait_for(lambda: self._processed.get(actor, 0) >= wait_for or self.finished, timeout_s)
            return self._processed.get(actor, 0)

    def hear(self, actor: str, period: Period) -> None:
        """A beat of `actor`."""
        self.heard[actor] = time.monotonic()
        if period.count:
            self.periods[actor] = period
        if self.finished:
            self.told.add(actor)
