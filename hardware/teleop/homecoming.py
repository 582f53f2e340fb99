"""The arm's way home between two recorded episodes, while the operator holds the dead-man's switch.

The way is made in a thread of its own, which takes a few tenths of a second, and then followed tick by tick. A hand
that moves the device takes over at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from hardware.execution.homing import way_home
from hardware.execution.played_motion import ELSEWHERE
from robolearn.core import RobolearnError
from robots.stations import Contract

Array = NDArray[np.float64]


def in_thread(work: Callable[[], Array]) -> Future[Array]:
    """`work`, done in a thread of its own, which keeps no program from ending."""
    future: Future[Array] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="homing", daemon=True).start()
    return future


class Homecoming:
    """One way home after the other.

    Attributes:
      reason: why the last one was not made, or not to its end; or nothing.
    """

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._made: Future[Array] | None = None
        self._way: Array | None = None
        self._next = 0
        self.reason = ""

    @property
    def going(self) -> bool:
        """True from `begin` until the arm is home, or it was cancelled."""
        return self._made is not None or self._way is not None

    def begin(self, q: Array) -> None:
        """Make the way home from the posture `q` (n,) [rad], and then follow it."""
        self.cancel()
        start = q.copy()
        self._made = in_thread(lambda: way_home(self._contract, start))

    def cancel(self, reason: str = "") -> None:
        """Follow it no further."""
        self._made, self._way, self._next, self.reason = None, None, 0, reason

    def target(self, q: Array) -> Array | None:
        """(n + 1,) the target of this period [rad], [m] for an arm at `q` (n,); None where there is none."""
        if self._made is not None and self._made.done():
            made, self._made = self._made, None
            try:
                self._way = made.result()
            except RobolearnError as error:
                self.cancel(f"the arm does not go home: {error}")
                return None
            if np.abs(q - self._way[0, :-1]).max() > ELSEWHERE:
                self.cancel("the arm does not go home: it has moved since")
                return None
        if self._way is None:
            return None
        target, self._next = self._way[self._next], self._next + 1
        if self._next >= len(self._way):
            self.cancel()
        return target
