"""The one judge of the column ``timestamp``: what validating, importing and training refuse, they refuse alike.

timestamp = frame_index / fps, always forwards
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GRID_S = 1e-4  # LeRobot's own tolerance [s]


def runs(wrong: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """(first, last) of every stretch of true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wrong, [False]]).astype(np.int8)))
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        yield int(first), int(end) - 1


@dataclass(frozen=True)
class ClockFault:
    """Frames `first` to `last` of an episode, and what is wrong there: ``"time goes back"`` or ``"off the grid"``."""

    first: int
    last: int
    check: str
    what: str


def clock_faults(timestamp: NDArray, fps: float, tolerance_s: float = GRID_S) -> Iterator[ClockFault]:
    """The faults of one episode's `timestamp` (T,) [s]; one that is no number is off the grid."""
    stamps = timestamp.astype(np.float64)
    back = np.diff(stamps, prepend=-np.inf) <= 0
    for first, last in runs(back):
        what = f"timestamp {stamps[first]:.4f} s after {stamps[first - 1]:.4f} s"
        yield ClockFault(first, last, "time goes back", what)
    expected = np.arange(len(stamps)) / fps
    # float32 itself is coarser than the tolerance after some minutes.
    allowed = tolerance_s + np.spacing(expected.astype(np.float32))
    for first, last in runs(~(np.abs(stamps - expected) <= allowed) & ~back):
        what = f"timestamp {stamps[first]:.4f} s, expected {expected[first]:.4f} s"
        yield ClockFault(first, last, "off the grid", what)
