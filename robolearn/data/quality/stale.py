"""Stale frames: what was stored as new and had been seen before, detected by raw stamps that do not advance.

A source slower than the control rate repeats its stamp now and then, as a 15 Hz camera under a 20 Hz policy. So a frame
is stale when the stamp of a source has stood for more than `PATIENCE` times as long as it usually stands, and at least
one frame longer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.data.quality.demonstrations import Array, Demonstrations

PATIENCE = 1.5


def stale(demonstrations: Demonstrations) -> tuple[Array, list[str]]:
    """(E,) share of stale frames, NaN where no stamps were recorded, and (E) the source that is stale most often."""
    d = demonstrations
    if not d.stamps:
        return np.full(d.episodes, np.nan), [""] * d.episodes
    names = list(d.stamps)
    marked = np.stack([_stale_frames(np.asarray(d.stamps[name], np.float64), d) for name in names], 1)
    counts = np.add.reduceat(marked.astype(np.int64), d.starts, axis=0)
    share = d.mean(np.asarray(marked.any(axis=1), np.float64))
    return share, [names[int(row.argmax())] if row.any() else "" for row in counts]


def _stale_frames(stamp: Array, d: Demonstrations) -> NDArray[np.bool_]:
    """(N,) whether the stamp has stood for longer than it does in most frames of the set."""
    fresh = np.ones(len(stamp), bool)
    fresh[1:] = stamp[1:] > stamp[:-1]
    fresh[1:] |= stamp[1:] < stamp[:-1] - 1.0  # a clock that was set back
    fresh[d.starts] = True
    last = np.maximum.accumulate(np.where(fresh, np.arange(len(stamp)), 0))
    stood = np.arange(len(stamp)) - last  # frames since the stamp advanced
    begins = np.flatnonzero(fresh)
    usual = float(np.median(np.diff(np.concatenate([begins, [len(stamp)]])))) if len(begins) else 1.0
    return stood >= max(PATIENCE * usual, usual + 1.0)
