"""Near-limit joints: a joint at the end of its range cannot follow, and what was demonstrated there was not meant.

Frame t is near a limit when some joint j has

    min(q_j − lower_j, upper_j − q_j) < 0.02 · (upper_j − lower_j).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.data.quality.demonstrations import Array, Demonstrations

MARGIN = 0.02


def near_limits(demonstrations: Demonstrations) -> tuple[Array, NDArray[np.int64]]:
    """(E,) share of frames near a limit, and (E,) the joint that is there most; NaN and −1 without known limits."""
    d = demonstrations
    if d.limits is None:
        return np.full(d.episodes, np.nan), np.full(d.episodes, -1, np.int64)
    lower, upper = d.limits
    q = d.body[:, : len(lower)]
    near = np.minimum(q - lower, upper - q) < MARGIN * (upper - lower)
    share = d.mean(near.any(axis=1).astype(np.float64))
    per_joint = np.add.reduceat(near.astype(np.int64), d.starts, axis=0)
    return share, np.where(share > 0, per_joint.argmax(axis=1), -1)
