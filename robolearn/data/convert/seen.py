"""Vectors that an import has seen, of which it says what is odd once all are there.

They wait in an unnamed file, and are looked at so many components at a time that `BYTES` are in memory, however many
frames there are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robolearn.data.lerobot.columns import Outlier, extremes, judged, outliers, still

BYTES = 1 << 26


@dataclass(frozen=True)
class _Episode:
    name: str
    shape: tuple[int, int]
    dtype: np.dtype
    ends: tuple[NDArray[np.float64], ...]  # (1, D) its least and (1, D) its greatest numbers


class SeenVectors:
    """One feature of episodes that come one after the other."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open for as long as this is there
        self._episodes: list[_Episode] = []

    def add(self, name: str, values: NDArray) -> None:
        """The `values` (T, …) of the episode `name`. What cannot be judged is refused elsewhere, or is no vector."""
        if not len(values) or not judged([values]):
            return
        values = np.ascontiguousarray(values.reshape(len(values), -1))
        self._file.write(values.tobytes())
        ends = tuple(one[None] for one in extremes([values]))
        self._episodes.append(_Episode(name, values.shape, values.dtype, ends))

    def remarks(self, feature: str, components: Sequence[str], sets: str = "") -> list[str]:
        """Remarks on `feature`, whose components are called `components`; `sets`: what an outlier does to it."""
        if len({episode.shape[1] for episode in self._episodes}) != 1:
            return []
        called = "the action" if feature == "action" else feature
        low, high = extremes([values for episode in self._episodes for values in episode.ends])
        said = [f"these components of {called} {line}" for line in still(low, high, components)]
        for one in self._outliers():
            where = f"{self._episodes[one.episode].name}: {feature} at frame {one.frame}"
            said.append(f"{where}, {one}{f': {sets}' if sets else ''}")
        return said

    def _outliers(self) -> Iterator[Outlier]:
        frames, size = sum(episode.shape[0] for episode in self._episodes), self._episodes[0].shape[1]
        step = max(1, BYTES // (8 * max(1, frames)))
        for first in range(0, size, step):
            self._file.seek(0)
            values = [self._next(episode)[:, first : first + step].copy() for episode in self._episodes]
            for one in outliers(values):
                yield replace(one, component=first + one.component)

    def _next(self, episode: _Episode) -> NDArray:
        content = self._file.read(episode.shape[0] * episode.shape[1] * episode.dtype.itemsize)
        return np.frombuffer(content, episode.dtype).reshape(episode.shape)
