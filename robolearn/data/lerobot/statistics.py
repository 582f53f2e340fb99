"""Statistics of features: of one array exactly, of many episodes from their parts, of a camera's images.

The names and shapes are LeRobot's: ``min max mean std q01 q10 q50 q90 q99`` of D components and ``count`` (1,). Of
images some hundred frames are taken, thinned, per channel in [0, 1]; a histogram of the 256 values per frame and
channel gives extremes, mean, deviation and quantiles exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 1 << 22  # numbers that are described side by side
QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}

Stats = dict[str, NDArray]
"""Statistic → (D,), or (E, D) where E parts are stacked; ``count`` → (1,) or (E, 1) int64."""

BOUNDS = (
    "quantiles of pictures are made of the episodes': q01 and q10 the least, q90 and q99 the greatest, q50 the mean of "
    "theirs; all other statistics are exact"
)
"""Of a set of several episodes, by `aggregate`."""


def describe(frames: NDArray) -> Stats:
    """The exact statistics of `frames` (T, D), T ≥ 1.

    Quantiles interpolate linearly between the two nearest of the sorted frames. Of many frames a component at a time is
    in memory once more, in order.
    """
    if frames.size > AT_ONCE and frames.shape[1] > 1:
        return joined([describe(frames[:, c : c + 1]) for c in range(frames.shape[1])])
    frames = np.asarray(frames, dtype=np.float64)
    count = len(frames)
    ordered = np.sort(frames, axis=0)
    mean = frames.mean(axis=0)
    stats: Stats = {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "std": np.sqrt(np.mean((frames - mean) ** 2, axis=0)),
        "count": np.array([count], dtype=np.int64),
    }
    for name, q in QUANTILES.items():
        below = int(q * (count - 1))
        above = min(below + 1, count - 1)
        stats[name] = ordered[below] + (q * (count - 1) - below) * (ordered[above] - ordered[below])
    return stats


def describe_many(frames: Mapping[str, NDArray]) -> dict[str, Stats]:
    """`describe` for several features (T, D) or (T,) of the same frames, in one pass over them together."""
    columns = {name: array.reshape(len(array), -1) for name, array in frames.items()}
    together = describe(np.concatenate(list(columns.values()), axis=1, dtype=np.float64))
    return split(together, {name: array.shape[1] for name, array in columns.items()})


def joined(parts: Sequence[Stats]) -> Stats:
    """The statistics of all components, side by side, of those of some of them in each of `parts`."""
    together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return together | {"count": parts[0]["count"]}


def split(together: Stats, sizes: Mapping[str, int]) -> dict[str, Stats]:
    """Statistics (…, Σ D) of features side by side → feature → (…, D), D from `sizes`."""
    stats: dict[str, Stats] = {}
    start = 0
    for name, size in sizes.items():
        part = slice(start, start + size)
        stats[name] = {key: value if key == "count" else value[..., part] for key, value in together.items()}
        start += size
    return stats


def weighted_quantiles(frames: NDArray, weight: NDArray) -> Stats:
    """The quantiles of `frames` (T, D), T ≥ 1, that count by their `weight` (T,) > 0: statistic → (D,).

    The i-th of the sorted frames stands at C_i − w_i / 2, C_i = Σ_{j ≤ i} w_j, moved and scaled so that the first is at
    0 and the last at 1; between two, linearly. With equal weights they are those of `describe`.
    """
    frames, weight = np.asarray(frames, np.float64), np.asarray(weight, np.float64)
    order = np.argsort(frames, axis=0, kind="stable")
    ordered, share = np.take_along_axis(frames, order, axis=0), weight[order]
    place = np.cumsum(share, axis=0) - share / 2
    place = (place - place[0]) / np.maximum(place[-1] - place[0], np.finfo(np.float64).tiny)
    columns = range(frames.shape[1])
    return {
        name: np.array([np.interp(q, place[:, c], ordered[:, c]) for c in columns]) for name, q in QUANTILES.items()
    }


def aggregate(parts: Stats, weight: NDArray | None = None) -> Stats:
    """Statistics of the union of E parts, each statistic of `parts` stacked as (E, …).

    With the weights w_e = n_e / Σ n, or `weight` (E,) > 0, which sum to 1:

        mean = Σ w_e mean_e,    std² = Σ w_e (std_e² + (mean_e − mean)²)

    which are exact. Of quantiles no part keeps enough: q01 and q10 are the least of the parts', q90 and q99 the
    greatest, so that between them lies what should, or more; q50 is their weighted mean. `describe` over all frames is
    exact.
    """
    count, ndim = parts["count"], parts["mean"].ndim
    weight = (count[:, 0] / count.sum() if weight is None else weight).reshape(-1, *[1] * (ndim - 1))
    mean = (weight * parts["mean"]).sum(axis=0)
    stats: Stats = {
        "min": parts["min"].min(axis=0),
        "max": parts["max"].max(axis=0),
        "mean": mean,
        "std": np.sqrt((weight * (parts["std"] ** 2 + (parts["mean"] - mean) ** 2)).sum(axis=0)),
        "count": count.sum(axis=0),
    }
    for name, q in QUANTILES.items():
        part = parts[name]
        stats[name] = part.min(axis=0) if q < 0.5 else part.max(axis=0) if q > 0.5 else (weight * part).sum(axis=0)
    return stats


def merge(a: Stats, b: Stats) -> Stats:
    """`aggregate` of two parts that are not stacked."""
    return aggregate({name: np.stack([a[name], b[name]]) for name in a})


FRAMES = 100  # of an episode are looked at, or up to twice as many
LARGE = 300  # pixels; larger images are thinned to about half of that
_VALUES = np.arange(256) / 255.0


class PixelStatistics:
    """Takes frames one by one, without their number in advance.

    Every s-th frame is looked at; when those have become 2 `FRAMES`, every second one is forgotten and s doubles.
    """

    def __init__(self) -> None:
        self.histograms: list[NDArray[np.int64]] = []
        self._stride = 1
        self._seen = 0

    def add(self, frame: NDArray[np.uint8]) -> None:
        """The next frame (H, W, C)."""
        if self._seen % self._stride == 0:
            self.histograms.append(_histogram(frame))
            if len(self.histograms) == 2 * FRAMES:
                self.histograms = self.histograms[::2]
                self._stride *= 2
        self._seen += 1

    def stats(self) -> Stats:
        """Statistic → (C,); ``count`` is of the frames that were looked at."""
        counts = np.stack(self.histograms).sum(axis=0)  # (C, 256)
        total = int(counts[0].sum())
        mean = counts @ _VALUES / total
        stats: Stats = {
            "min": _VALUES[(counts > 0).argmax(axis=1)],
            "max": _VALUES[255 - (counts[:, ::-1] > 0).argmax(axis=1)],
            "mean": mean,
            "std": np.sqrt(np.maximum(0.0, counts @ _VALUES**2 / total - mean**2)),
            "count": np.array([len(self.histograms)], np.int64),
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
