"""The actions of the episodes that are running: with them a new worker brings its worlds to where others were."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Item = NDArray[np.float32] | None
"""An action (Da,) that was executed; None: the world's own expert was asked, which may remember that."""


class EpisodeLog:
    """Of N worlds, each: what was done since the running episode began; or, after `restored`, since the snapshot, until
    no episode of it runs any more.

    Attributes:
      snapshot: of all worlds, where they have to begin with it; else empty, and each begins its running episode.
    """

    def __init__(self, worlds: int) -> None:
        self.snapshot: dict[str, NDArray] = {}
        self._items: list[list[Item]] = [[] for _ in range(worlds)]
        self._begun = [0] * worlds  # number of the item that the running episode begins with
        self._new = np.ones(worlds, np.bool_)  # the running episode is none of the snapshot's

    def begin_all(self) -> None:
        """New episodes begin in all worlds."""
        self.__init__(len(self._items))

    def restored(self, snapshot: dict[str, NDArray]) -> None:
        """All worlds go on from `snapshot`."""
        self.__init__(len(self._items))
        self.snapshot = snapshot
        self._new[:] = False

    def demonstrated(self, active: NDArray[np.bool_]) -> None:
        """The experts of the worlds `active` (N,) were asked."""
        for w in np.flatnonzero(active).tolist():
            self._items[w].append(None)

    def executed(self, chunks: NDArray[np.float32], steps: NDArray[np.int64], ended: NDArray[np.bool_]) -> None:
        """The first `steps` (N,) actions of `chunks` (N, Ta, Da) were executed; episodes `ended` (N,) with them."""
        for w, items in enumerate(self._items):
            items.extend(chunks[w, : steps[w]].copy())
            if ended[w]:
                self._begun[w], self._new[w] = len(items), True
        if self._new.all():
            self.snapshot = {}
            self._items = [items[first:] for items, first in zip(self._items, self._begun, strict=True)]
            self._begun = [0] * len(self._items)

    @property
    def running(self) -> int:
        """Control steps that have to be repeated."""
        return sum(item is not None for items in self._items for item in items)

    def actions(self) -> Iterator[tuple[NDArray[np.float32] | None, NDArray[np.bool_]]]:
        """The items, one after the other: actions (N, Da), or None for the experts, and the worlds (N,) that they are
        for."""
        size = next((len(item) for items in self._items for item in items if item is not None), 0)
        for at in range(max(len(items) for items in self._items)):
            asked, moved = np.zeros((2, len(self._items)), np.bool_)
            actions = np.zeros((len(self._items), size), np.float32)
            for w, items in enumerate(self._items):
                if at < len(items):
                    item = items[at]
                    asked[w], moved[w] = item is None, item is not None
                    actions[w] = 0 if item is None else item
            if asked.any():
                yield None, asked
            if moved.any():
                yield actions, moved
