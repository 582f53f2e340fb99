"""Joint states that say the same values again and again while the arm is commanded to go elsewhere.

A driver that has lost its arm may go on publishing the last values, with new stamps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

AWAY_RAD = 0.05  # a set-point that goes so far moves any arm by more than the resolution of its encoders
REPEATS = 3  # fewer may come from an arm that was held up together with the commands that wait for it


class Stuck:
    """Whether measured positions stay while set-points go."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The arm is armed: what was measured before says nothing."""
        self._positions = self._set_point = np.zeros(0)  # measured last, and commanded when that was new
        self._repeats = 0

    def __call__(self, positions: NDArray[np.float64], set_point: NDArray[np.float64]) -> bool:
        """Judge one joint state.

        Args:
          positions: (n,) measured joint positions [rad].
          set_point: (n,) set-point sent last [rad].
        """
        if not np.array_equal(positions, self._positions):
            self._positions, self._set_point, self._repeats = positions, set_point, 0
            return False
        self._repeats += 1
        return self._repeats >= REPEATS and float(np.abs(set_point - self._set_point).max()) > AWAY_RAD
