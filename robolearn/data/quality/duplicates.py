"""Duplicated episodes: the same one twice, as after a merge or an import that was run again.

Two episodes are copies when, frame by frame, their states and actions differ nowhere by more than `TOLERANCE` standard
deviations, and up to `SHIFT` frames at either end are only in one of them. Demonstrations by hand and by noise never
come so close; a recording that was stored once more, trimmed or converted through another format, does. Only pairs
whose means and spreads are alike, which copies share, are compared frame by frame.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from robolearn.data.quality.demonstrations import Array, Demonstrations, scaled

TOLERANCE = 0.02
SHIFT = 3
_ALIKE = 0.25  # means and spreads of copies, trimmed ones too [standard deviations]


def duplicates(demonstrations: Demonstrations) -> NDArray[np.int64]:
    """(E,) the first episode that each one is a copy of, −1 for originals."""
    d = demonstrations
    frames = np.concatenate([scaled(d.state), scaled(d.action)], 1)
    parts = [frames[d.frames(e)] for e in range(d.episodes)]
    described = np.stack([np.concatenate([part.mean(axis=0), part.std(axis=0)]) for part in parts])
    out = np.full(d.episodes, -1, np.int64)
    for first, second in sorted(KDTree(described).query_pairs(_ALIKE, p=np.inf)):
        if out[second] < 0 and out[first] < 0 and _copies(parts[first], parts[second]):
            out[second] = first
    return out


def _copies(a: Array, b: Array) -> bool:
    """Whether (T, D) `a` and (T', D) `b` are one episode."""
    for shift in sorted(range(-SHIFT, SHIFT + 1), key=abs):
        left, right = a[max(shift, 0) :], b[max(-shift, 0) :]
        n = min(len(left), len(right))
        if n and max(len(left), len(right)) - n <= SHIFT and np.abs(left[:n] - right[:n]).max() <= TOLERANCE:
            return True
    return False
