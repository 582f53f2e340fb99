"""Which picture of a video is frame t of an episode: the one shown nearest to ``start + t / fps``.

Pictures are never counted: a video may lack some, have some twice, or be of another rate than its set. One that is
further away than the tolerance is no picture of that frame, as in LeRobot, which refuses it, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

TOLERANCE_S = 1e-4  # LeRobot's tolerance_s
ROUNDING_S = 1e-9  # pictures whose distances differ by no more are equally near


def nearest(
    shown: NDArray[np.float64], start: float, fps: float, rows: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The pictures of the frames `rows` (T,) of an episode that begins at `start` [s].

    Args:
      shown: (F,) when the pictures of the video are shown [s], ascending, at least one.

    Returns:
      (T,) which of them are nearest, the earlier of two that are equally near, and (T,) how much later than the frame
      they are shown [s], negative where they are earlier.
    """
    wanted = start + np.asarray(rows, np.float64) / fps
    after = np.minimum(np.searchsorted(shown, wanted), len(shown) - 1)
    before = np.maximum(after - 1, 0)
    chosen = np.where(np.abs(wanted - shown[before]) <= np.abs(shown[after] - wanted) + ROUNDING_S, before, after)
    return chosen, shown[chosen] - wanted


def misplaced(late: NDArray[np.float64], tolerance_s: float = TOLERANCE_S) -> NDArray[np.int64]:
    """Which of the frames of `nearest` have no picture, given how late the nearest ones are [s]."""
    return np.flatnonzero(~(np.abs(late) < tolerance_s))
