"""Who was in the same place: for a frame, the nearest frames of *other* episodes, one from each.

Frames of one episode are almost copies of each other, so they are no evidence that two demonstrations agree; nor are
those of its copies. They are looked for in the leading principal components of the scaled values z. Their distances are
Euclidean over all of z, in units of the distance of two frames drawn at random:

    h_ij = |z_i − z_j| / √(2 Σ_c var z_c)

A frame that is further than `NEAR` from all others has no neighbours: nobody else was there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from robolearn.data.quality.demonstrations import Array, scaled

NEIGHBOURS = 8
NEAR = 0.4  # h up to which two frames may be compared
VARIANCE = 0.95  # of the scaled components, that the principal ones keep
COMPONENTS = 10  # at most: trees do not help in more
MAX_FRAMES = 20_000  # more are thinned out evenly: the answer changes little, the time a lot
_CANDIDATES = 96
_BLOCK = 2_000


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For Q frames, up to K frames of other episodes.

    Attributes:
      frame: (Q,) the frames whose neighbours these are.
      index: (Q, K) their neighbours, about nearest first; −1 where there are fewer, or one is too far.
      distance: (Q, K) h; infinite where there is none.
    """

    frame: NDArray[np.int64]
    index: NDArray[np.int64]
    distance: Array

    def mean(self, values: Array) -> Array:
        """(Q, D) mean of (N, D) `values` over the neighbours; NaN for a frame without any."""
        there = (self.index >= 0)[:, :, None]
        total = np.where(there, values[np.maximum(self.index, 0)], 0.0).sum(axis=1)
        count = there.sum(axis=1)
        return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def principal(z: Array) -> Array:
    """(N, D) → (N, d): the leading principal components of scaled values."""
    variance, axes = np.linalg.eigh(z.T @ z / max(len(z), 1))
    order = np.argsort(variance)[::-1]
    share = np.cumsum(variance[order]) / max(float(variance.sum()), 1e-12)
    count = min(int(np.searchsorted(share, VARIANCE)) + 1, COMPONENTS, len(order))
    return z @ axes[:, order[:count]]


def neighbours(values: Array, episode: NDArray[np.int64], k: int = NEIGHBOURS, limit: float = math.inf) -> Neighbours:
    """The `k` nearest frames of other episodes, at most one of each.

    Args:
      values: (N, D) what near means.
      episode: (N,) the episode of each frame; copies have the number of their original.
      k: how many.
      limit: h beyond which nothing is near.
    """
    total = len(values)
    chosen = np.unique(np.linspace(0, total - 1, min(total, MAX_FRAMES)).round().astype(np.int64))
    z = scaled(values)
    points, owner = principal(z)[chosen], episode[chosen]
    index = np.full((len(chosen), k), -1, np.int64)
    distance = np.full((len(chosen), k), np.inf)
    tree = KDTree(points)
    for begin in range(0, len(chosen), _BLOCK):
        rows = np.arange(begin, min(begin + _BLOCK, len(chosen)))
        wanted = min(_CANDIDATES, len(chosen))
        while len(rows):
            far, near = _nearest(tree, points[rows], wanted)
            good = _one_each(owner[near], owner[rows])
            found = good.sum(axis=1)
            others = np.unique(owner).size - 1
            # Long rests fill the candidates with frames of one episode: such frames need more.
            done = (found >= min(k, others)) | (wanted >= len(chosen))
            _fill(index, distance, rows[done], chosen[near[done]], far[done], good[done], k)
            rows, wanted = rows[~done], min(wanted * 4, len(chosen))
    unit = math.sqrt(2 * float(z.var(axis=0).sum())) or 1.0
    for k_th in range(k):  # the components that the search left out count, too
        there = index[:, k_th] >= 0
        distance[there, k_th] = np.linalg.norm(z[chosen[there]] - z[index[there, k_th]], axis=1) / unit
    far = distance > limit
    index[far], distance[far] = -1, np.inf
    return Neighbours(chosen, index, distance)


def _nearest(tree: KDTree, points: Array, count: int) -> tuple[Array, NDArray[np.int64]]:
    """(B, count) distances and indices; the tree drops the last axis for a single one."""
    far, near = tree.query(points, k=count)
    return np.reshape(far, (len(points), count)), np.reshape(near, (len(points), count))


def _one_each(owner: NDArray[np.int64], own: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(B, C) the first candidate of every episode but the frame's own."""
    order = np.argsort(owner, axis=1, kind="stable")
    ordered = np.take_along_axis(owner, order, axis=1)
    first = np.ones_like(ordered, bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    out = np.empty_like(first)
    np.put_along_axis(out, order, first, axis=1)
    return out & (owner != own[:, None])


def _fill(
    index: NDArray[np.int64],
    distance: Array,
    rows: NDArray[np.int64],
    near: NDArray[np.int64],
    far: Array,
    good: NDArray[np.bool_],
    k: int,
) -> None:
    order = np.argsort(~good, axis=1, kind="stable")[:, :k]
    kept = np.take_along_axis(good, order, axis=1)
    width = order.shape[1]
    index[rows, :width] = np.where(kept, np.take_along_axis(near, order, axis=1), -1)
    distance[rows, :width] = np.where(kept, np.take_along_axis(far, order, axis=1), np.inf)
