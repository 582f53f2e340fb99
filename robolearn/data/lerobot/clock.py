"""The one judge of a set's clocks: what recording, validating, importing and training refuse, they refuse alike.

timestamp = frame_index / fps, always forwards
rate      = (T − 1) / (stamp.action of the last frame − that of the first), near fps
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core.types import rate_fault

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


def stamped_rate(stamps: NDArray[np.float64]) -> float:
    """Control steps a second of an episode whose actions were executed at `stamps` (T,) [s]; 0 where that says none."""
    taken = float(stamps[-1] - stamps[0]) if len(stamps) else 0.0
    return (len(stamps) - 1) / taken if taken > 0 else 0.0


def stamped_rate_fault(stamps: NDArray[np.float64], fps: float, tolerance: float) -> str:
    """`rate_fault` of an episode whose actions were executed at `stamps` (T,) [s]."""
    return rate_fault(len(stamps) - 1, float(stamps[-1] - stamps[0]), fps, tolerance)
