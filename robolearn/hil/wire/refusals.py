"""What is refused at the door is said once, and then no more often than every few seconds."""

from __future__ import annotations

import logging
import threading
import time

log = logging.getLogger(__name__)

EVERY_S = 10.0


class Refusals:
    """Logs refusals, at most one line in `EVERY_S`; the next one says how many came in between.

    Attributes:
      count: all of them.
    """

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s, self._lock = every_s, threading.Lock()
        self._last, self._silent = -float("inf"), 0
        self.count = 0

    def __call__(self, who: str, why: str) -> None:
        """Note that `who` was refused, and `why`: the words of a stranger may be in there."""
        with self._lock:
            self.count += 1
            now = time.monotonic()
            if now - self._last < self._every_s:
                self._silent += 1
                return
            more = f" ({self._silent} more since the last line)" if self._silent else ""
            self._last, self._silent = now, 0
        line = "".join(c if c.isprintable() else "?" for c in f"{who}: {why}"[:400])
        log.warning("refused %s%s", line, more)
