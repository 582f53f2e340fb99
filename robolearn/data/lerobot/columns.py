"""The one judge of a set's columns, its clocks and its vectors: what recording, validating, importing, training and
ranking refuse or name, they refuse and name alike.

    timestamp = frame_index / fps, always forwards
    rate      = (T − 1) / (stamp.action of the last frame − that of the first), near fps

Of a component x with the middle m = median x, low and high the ends of the middle 90% of all frames, so that a few wild
frames move none of the three, and d the distance beyond them, a frame is an outlier where

    d > `NEAR` · (high − low)    and d > `FAR` + 2 |m|        which is further than any unit or gripper goes, or
    d > `OUTLIER` · max(high − low, `LEAST`)   for `BRIEF` frames at most, then back: no arm moves so

A gripper that is open nearly always, and a joint that rests for most of the time and moves at last, are neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
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


NEAR, FAR = 20.0, 1000.0
OUTLIER, LEAST, BRIEF = 100.0, 0.01, 2
STILL = 1e-5  # of its size, at least 1: a component that goes less far hardly changes
WIDE = 256  # components; more are an array, such as a depth picture, whose values have no meaning each


@dataclass(frozen=True)
class Outlier:
    """The worst frame of a component in one episode, of `count` that are wild there."""

    episode: int
    frame: int
    component: int
    value: float
    count: int

    def __str__(self) -> str:
        others = f" (as are {self.count - 1} more frames)" if self.count > 1 else ""
        return f"component {self.component} is {self.value:.6g}, far beyond all others{others}"


def judged(episodes: Sequence[NDArray]) -> bool:
    """True where `episodes`, each (T, …), are vectors of finite numbers of one size, which can be judged."""
    sizes = {values.shape[1:] for values in episodes}
    return len(sizes) == 1 and math.prod(sizes.pop()) <= WIDE and all(np.isfinite(one).all() for one in episodes)


def outliers(episodes: Sequence[NDArray]) -> list[Outlier]:
    """The outliers of `episodes` (T, …), as `judged` lets through: one for each episode and component that has any."""
    vectors = [values.reshape(len(values), -1) for values in episodes]
    starts = np.cumsum([0, *(len(values) for values in vectors)])
    if not starts[-1] or np.result_type(*vectors).kind != "f":
        return []
    found: list[Outlier] = []
    for component in range(vectors[0].shape[1]):  # one after the other: all of them would be in memory once more
        x = np.concatenate([values[:, component] for values in vectors], dtype=np.float64)
        beyond, wild = _wild(x, starts[1:])
        for episode in np.unique(np.searchsorted(starts, np.flatnonzero(wild), side="right") - 1).tolist():
            mine = slice(starts[episode], starts[episode + 1])
            frame = int(np.where(wild[mine], beyond[mine], 0.0).argmax())
            value, count = float(x[mine][frame]), int(wild[mine].sum())
            found.append(Outlier(episode, frame, component, value, count))
    return found


def _wild(x: NDArray[np.float64], ends: NDArray) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(N,) distance of each frame beyond the middle 90%, and whether it is an outlier; episodes end at `ends`."""
    low, high = np.quantile(x, 0.05, method="higher"), np.quantile(x, 0.95, method="lower")
    beyond = np.maximum(low - x, x - high)
    wild = beyond > np.maximum(NEAR * (high - low), FAR + 2 * abs(np.median(x)))
    if high > low:
        for first, last in runs(beyond > OUTLIER * max(high - low, LEAST)):
            # A gripper may close in the last frames of an episode.
            wild[first : last + 1] |= last - first < BRIEF and last + 1 not in ends
    return beyond, wild


def extremes(episodes: Iterable[NDArray]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(D,) the least and (D,) the greatest of each component of `episodes` (T, …); of no frame at all D is 0."""
    vectors = [values.reshape(len(values), -1) for values in episodes if len(values)]
    if not vectors:
        return np.zeros(0), np.zeros(0)
    low, high = ([one(values, axis=0) for values in vectors] for one in (np.min, np.max))
    return np.min(low, axis=0).astype(np.float64), np.max(high, axis=0).astype(np.float64)


def still(low: NDArray[np.float64], high: NDArray[np.float64], names: Sequence[str] = ()) -> list[str]:
    """Components between `low` (D,) and `high` (D,) that never change, and those that hardly do, in half a sentence
    each."""
    reach, size = high - low, np.maximum(np.abs(low), np.abs(high))
    said = []
    for how, which in (("never", reach == 0), ("hardly", (reach > 0) & (reach <= STILL * np.maximum(size, 1.0)))):
        if which.any():
            far = f" (by {reach[which].max():.2g} at most)" if how == "hardly" else ""
            called = ", ".join(names[c] if names else str(c) for c in np.flatnonzero(which).tolist())
            said.append(f"{how} change: {called}{far}")
    return said
