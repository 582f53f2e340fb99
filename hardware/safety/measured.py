"""Where the arm is measured: the newest joint state that can be used, its age, and whether the arm rests there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from numpy.typing import ArrayLike

from hardware.safety import checks
from hardware.safety.arming import JointOrder
from hardware.safety.checks import Refused
from hardware.safety.rest import Rest


class MeasuredArm:
    """The joint states of an arm.

    Args:
      joints: n names, base to tip.
      timeout: age at which a joint state is stale [s].

    Attributes:
      positions: n newest positions [rad], or None.
      at: when they arrived [s].
    """

    def __init__(self, joints: tuple[str, ...], timeout: float) -> None:
        self._order, self._rest, self._timeout = JointOrder(joints), Rest(joints, timeout), timeout
        self.positions: list[float] | None = None
        self.at = -math.inf
        self._problem = "none has arrived"

    def take(self, names: Sequence[str], positions: ArrayLike, now: float, *, armed: bool) -> None:
        """A joint state arrived at the time `now` [s]; while `armed` it is no sample of an arm at rest.

        Raises:
          Refused: it cannot be used.
        """
        try:
            self.positions = self._order.pick(tuple(names), positions)
        except Exception as error:
            refused = isinstance(error, Refused)
            self._problem = error.reason if refused else f"joint state: {type(error).__name__}: {error}"
            self._rest.begin()
            if refused:
                raise
            raise Refused("exception", self._problem) from error
        self.at, self._problem = now, ""
        if armed:
            self._rest.begin()
        else:
            self._rest.add(self.positions, now)

    def fresh(self, now: float) -> list[float]:
        """(n,) newest positions [rad].

        Raises:
          Refused: they are stale.
        """
        checks.fresh("joint state", "the joint state", now - self.at, self._timeout)
        assert self.positions is not None
        return self.positions

    def at_rest(self, now: float) -> list[float]:
        """(n,) positions [rad] where the arm rests.

        Raises:
          Refused: the newest joint state cannot be used or is stale, or the arm has not been at rest for long enough.
        """
        if self._problem:
            raise Refused("joint state", f"no joint state that can be used: {self._problem}")
        positions = self.fresh(now)
        self._rest.check(now)
        return positions
