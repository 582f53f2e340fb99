"""Warnings that anybody can cause: the first at once, the others counted and told now and then."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

EVERY_S = 30.0


class RareLog:
    """Writes at most one line per `EVERY_S` to `log`.

    Args:
      log: where to.
      clock: seconds that only grow.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._told, self._untold = -math.inf, 0

    def warning(self, what: str, *values: object) -> None:
        """Write `what` % `values`, or count it."""
        now = self._clock()
        if now - self._told < EVERY_S:
            self._untold += 1
            return
        more = f" ({self._untold} more refused since the last line)" if self._untold else ""
        self._log.warning(what + "%s", *values, more)
        self._told, self._untold = now, 0
