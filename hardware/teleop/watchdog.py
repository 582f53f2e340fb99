"""One latch for all devices: a device that failed or went silent is dead until it is opened anew.

The arm must not begin to move again because a cable found its socket: somebody has to open the device, and so to look.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Watchdog:
    """Alive from `start` until `fail`, or until the device was silent for too long while it had to report.

    Args:
      device: its name, for `why`.
      silence_s: how long it may be silent [s]; infinite for devices that report only changes.
      clock: steady seconds.

    Attributes:
      newest: when the device last reported [s].
      why: what it died of, in one line; empty while it lives.
    """

    def __init__(self, device: str, silence_s: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self.device, self.silence_s, self.clock = device, silence_s, clock
        self.newest = clock()
        self.why = f"{device}: not open"

    def start(self) -> None:
        """The device was opened."""
        self.newest, self.why = self.clock(), ""

    def report(self) -> None:
        """A report of the device has arrived."""
        self.newest = self.clock()

    def fail(self, why: str) -> None:
        """The device is gone; the first reason stays."""
        self.why = self.why or f"{self.device}: {why}"

    def alive(self, *, must_speak: bool = True) -> bool:
        """Whether the device still lives.

        Args:
          must_speak: whether silence counts now; a SpaceMouse at rest sends nothing.
        """
        silent = self.clock() - self.newest
        if must_speak and silent > self.silence_s:
            self.fail(f"silent for {silent:.2f} s")
        return not self.why
