"""Cameras that have noise, learned at rest: such a camera never sends the very same picture twice.

While the arm is at rest two successive pictures of a camera with noise differ nearly everywhere: `SHARE` of their
values do, or something in most of their blocks, where compression has taken noise away. What moves in the scene changes
little, and a simulation without noise sends the same bytes. After `PAIRS` such pairs in a row, none the same, a camera
that sends the same bytes for `SAME` pictures and `SAME_S` is frozen, whether the arm moves or not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput

Array = NDArray[np.float64]
Picture = NDArray[np.uint8]

STILL_RAD = 0.004  # no joint is farther from where it was at the first picture: noise and steps of encoders
PAIRS = 20
SHARE, MOST = 0.3, 0.5  # of the values, of the blocks
BLOCK = 8  # [px], as JPEG has them
SAME, SAME_S = 4, 0.1


class PictureNoise:
    """Learns that a camera has noise, and then finds it frozen. `clock` is the steady time [s]."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._forget(None)

    def _forget(self, publisher: Hashable) -> None:
        self._publisher = publisher
        self._print: int | None = None  # of the newest picture
        self._since, self._newest, self._same = 0.0, 0.0, 0  # when it was new and came last, and how often it came
        self._before: Picture | None = None  # the picture before, while the arm is at rest
        self._at: Array | None = None  # (n,) where it rests
        self._pairs = 0
        self.learned = False

    def update(
        self, fingerprint: int, pixels: Callable[[], Picture], q: Array | None, publisher: Hashable = None
    ) -> None:
        """A picture of `publisher` arrived whose bytes have the checksum `fingerprint`, with the arm measured at q (n,)
        [rad]. `pixels` decodes it, which is asked for only at rest, until noise is learned."""
        if publisher != self._publisher:
            self._forget(publisher)
        now = self._newest = self._clock()
        if fingerprint == self._print:
            self._same, self._pairs = self._same + 1, 0
            return
        self._print, self._since, self._same = fingerprint, now, 1
        if not self.learned:
            self._learn(pixels, q)

    def frozen(self) -> str:
        """The way in which the camera is frozen, or nothing."""
        if not self.learned or not self.stands:
            return ""
        return f"the same picture for {self._newest - self._since:.2f} s from a camera that had noise at rest"

    @property
    def stands(self) -> bool:
        """True where the same bytes came `SAME` times over `SAME_S`, more than a driver repeats them."""
        return self._same >= SAME and self._newest - self._since >= SAME_S

    def _learn(self, pixels: Callable[[], Picture], q: Array | None) -> None:
        still = q is not None and self._at is not None and bool((np.abs(q - self._at) <= STILL_RAD).all())
        if not still:
            self._at, self._before, self._pairs = q, None, 0
            return
        before = self._before
        try:
            self._before = pixels()
        except BadInput:  # said where the picture is needed
            self._before = None
        if before is None or self._before is None:
            return
        self._pairs = self._pairs + 1 if _all_over(before, self._before) else 0
        if self._pairs >= PAIRS:
            self.learned, self._before = True, None


def _all_over(before: Picture, now: Picture) -> bool:
    """True where two pictures (H, W, 3) differ nearly everywhere."""
    if before.shape != now.shape:
        return False
    differs = (before != now).any(axis=2)
    if np.count_nonzero(before != now) >= SHARE * now.size:
        return True
    high, wide = (max(extent // BLOCK, 1) for extent in differs.shape)
    cut = differs[: high * BLOCK, : wide * BLOCK]
    blocks = cut.reshape(high, -1, wide, cut.shape[1] // wide)
    return float(blocks.any(axis=(1, 3)).mean()) > MOST
