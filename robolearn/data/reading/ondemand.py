"""Frames decoded when they are asked for: what stands in for the frame cache where that is off, and lazy episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core.cpus import available_cpus

NEAR = 8  # frames between two that are wanted are decoded, too, rather than looked for anew


class Decodes(Protocol):
    """What `OnDemand` needs of a `FrameReader`."""

    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def lengths(self) -> NDArray[np.int64]: ...
    def decode(self, episode: int, first: int = 0, count: int | None = None) -> NDArray[np.uint8]: ...


class OnDemand:
    """Looks like the array (N, H, W, 3) of a camera's frames: `len`, `shape`, `dtype`, and indexing by the first axis.

    Nothing is kept: every access decodes, what lies apart on all CPUs side by side.

    Args:
      near: frames that are no further apart than this are decoded in one go, with those between them.
    """

    def __init__(self, reader: Decodes, near: int = NEAR) -> None:
        self._reader, self._near = reader, near
        self._starts = np.concatenate([[0], np.cumsum(reader.lengths)])
        self.shape: tuple[int, ...] = (int(self._starts[-1]), *reader.shape)
        self.dtype = np.dtype(np.uint8)
        self._pool = ThreadPoolExecutor(available_cpus(), "pictures")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice | NDArray | list[int]) -> NDArray[np.uint8]:
        chosen = np.arange(len(self))[rows]
        return self.take(chosen.reshape(-1)).reshape(*chosen.shape, *self.shape[1:])

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> NDArray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Frames `rows` (n,) → (n, H, W, 3)."""
        wanted, where = np.unique(rows, return_inverse=True)
        frames = np.empty((len(wanted), *self.shape[1:]), np.uint8)
        episode = np.searchsorted(self._starts, wanted, side="right") - 1
        breaks = np.flatnonzero((np.diff(episode) > 0) | (np.diff(wanted) > self._near)) + 1
        runs = [run for run in np.split(np.arange(len(wanted)), breaks) if len(run)]

        def decode(run: NDArray[np.int64]) -> None:
            own = int(episode[run[0]])
            local = wanted[run] - self._starts[own]
            got = self._reader.decode(own, int(local[0]), int(local[-1] - local[0] + 1))
            frames[run] = got[local - local[0]]

        for _ in self._pool.map(decode, runs) if len(runs) > 1 else map(decode, runs):
            pass
        return frames[where]


class LazyObservation(Mapping[str, NDArray]):
    """Feature → array, some of which are made when they are first asked for."""

    def __init__(self, ready: Mapping[str, NDArray], made: Mapping[str, Callable[[], NDArray]]) -> None:
        self._ready, self._made = dict(ready), dict(made)

    def __getitem__(self, key: str) -> NDArray:
        if key not in self._ready and key in self._made:
            self._ready[key] = self._made[key]()
        return self._ready[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._ready.keys() - self._made.keys()
        yield from self._made

    def __len__(self) -> int:
        return len(self._ready.keys() | self._made.keys())
