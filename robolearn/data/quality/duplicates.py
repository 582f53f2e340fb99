"""Duplicated episodes: the same one twice, as after a merge or an import that was run again.

Two episodes are copies when their states and actions, at `POINTS` moments from begin to end, differ nowhere by more
than `TOLERANCE` standard deviations. Demonstrations by hand and by noise never come so close; a recording that was
stored once more, trimmed by a frame or converted through another format, does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from robolearn.data.quality.demonstrations import Demonstrations, scaled

POINTS = 24
TOLERANCE = 0.02
LENGTHS = 0.02  # copies may differ in length by this share


def duplicates(demonstrations: Demonstrations) -> NDArray[np.int64]:
    """(E,) the first episode that each one is a copy of, −1 for originals."""
    d = demonstrations
    frames = np.concatenate([scaled(d.state), scaled(d.action)], 1)
    at = np.linspace(0.0, 1.0, POINTS)
    rows = d.starts[:, None] + np.round(at * (d.lengths[:, None] - 1)).astype(np.int64)
    described = frames[rows].reshape(d.episodes, -1)
    out = np.full(d.episodes, -1, np.int64)
    for first, second in sorted(cKDTree(described).query_pairs(TOLERANCE, p=np.inf)):
        alike = abs(d.lengths[first] - d.lengths[second]) <= max(1, LENGTHS * d.lengths[first])
        if alike and out[second] < 0:
            out[second] = first if out[first] < 0 else out[first]
    return out
