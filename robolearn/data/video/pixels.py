"""Statistics of a camera's images, as LeRobot takes them: of some hundred frames, thinned, per channel in [0, 1].

A histogram of the 256 values per frame and channel gives everything exactly: extremes, mean, deviation, quantiles.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from robolearn.data.lerobot.statistics import QUANTILES, Stats

FRAMES = 100  # of an episode are looked at, or up to twice as many
LARGE = 300  # pixels; larger images are thinned to about half of that
_VALUES = np.arange(256) / 255.0


class PixelStatistics:
    """Takes frames one by one, without their number in advance.

    Every s-th frame is looked at; when those have become 2 `FRAMES`, every second one is forgotten and s doubles.
    """

    def __init__(self) -> None:
        self._histograms: list[NDArray[np.int64]] = []
        self._stride = 1
        self._seen = 0

    def add(self, frame: NDArray[np.uint8]) -> None:
        """The next frame (H, W, C)."""
        if self._seen % self._stride == 0:
            self._histograms.append(_histogram(frame))
            if len(self._histograms) == 2 * FRAMES:
                self._histograms = self._histograms[::2]
                self._stride *= 2
        self._seen += 1

    def stats(self) -> Stats:
        """Statistic → (C,); ``count`` is of the frames that were looked at."""
        counts = np.stack(self._histograms).sum(axis=0)  # (C, 256)
        total = int(counts[0].sum())
        mean = counts @ _VALUES / total
        stats: Stats = {
            "min": _VALUES[(counts > 0).argmax(axis=1)],
            "max": _VALUES[255 - (counts[:, ::-1] > 0).argmax(axis=1)],
            "mean": mean,
            "std": np.sqrt(np.maximum(0.0, counts @ _VALUES**2 / total - mean**2)),
            "count": np.array([len(self._histograms)], np.int64),
        }
        ordered = np.cumsum(counts, axis=1)
        for name, q in QUANTILES.items():
            # Between the two nearest of the sorted pixels, as `statistics.describe` does.
            below = int(q * (total - 1))
            low, high = (
                np.array([_VALUES[np.searchsorted(row, rank, side="right")] for row in ordered])
                for rank in (below, min(below + 1, total - 1))
            )
            stats[name] = low + (q * (total - 1) - below) * (high - low)
        return stats


def describe_frames(frames: Iterable[NDArray[np.uint8]]) -> Stats:
    """`PixelStatistics` of frames (H, W, C)."""
    statistics = PixelStatistics()
    for frame in frames:
        statistics.add(frame)
    return statistics.stats()


def _histogram(frame: NDArray[np.uint8]) -> NDArray[np.int64]:
    """(C, 256) how many pixels have each value."""
    import cv2

    largest = max(frame.shape[:2])
    step = largest // (LARGE // 2) if largest >= LARGE else 1
    thinned = np.ascontiguousarray(frame[::step, ::step])
    channels = range(thinned.shape[2])
    counts = [cv2.calcHist([thinned], [c], None, [256], [0, 256]).reshape(256) for c in channels]
    return np.stack(counts).astype(np.int64)
