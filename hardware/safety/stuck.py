"""Joint states that repeat the same values while the arm is commanded to go elsewhere.

A driver that has lost its arm may go on publishing the last values, with new stamps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

AWAY_RAD = 0.05  # a set-point that goes so far moves any arm by more than the resolution of its encoders
REPEATS = 3  # fewer may come from an arm that was held up together with the commands that wait for it


class Stuck:
    """Whether measured positions stay while set-points go.

    Args:
      delay: dead time of the arm and of its joint states [s]: for so long nothing follows a set-point.
    """

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self.begin()

    def begin(self) -> None:
        """The arm is armed: what was measured before does not count."""
        self._positions = self._set_point = np.zeros(0)  # measured last, and commanded when that was new
        self._repeats, self._left_at = 0, np.inf  # when the set-point was that far away for the first time

    def __call__(self, positions: NDArray[np.float64], set_point: NDArray[np.float64], now: float) -> bool:
        """Judge one joint state.

        Args:
          positions: (n,) measured joint positions [rad].
          set_point: (n,) set-point sent last [rad].
          now: steady time [s].
        """
        if not np.array_equal(positions, self._positions):
            self._positions, self._set_point, self._repeats, self._left_at = positions, set_point, 0, np.inf
            return False
        self._repeats += 1
        if float(np.abs(set_point - self._set_point).max()) > AWAY_RAD:
            self._left_at = min(self._left_at, now)
        return self._repeats >= REPEATS and now - self._left_at >= self._delay
