"""One fault of a data set, and where it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Finding:
    """A fault.

    Attributes:
      check: the kind of fault, such as ``"nan"`` or ``"frozen camera"``.
      what: the fault in words, with what was found and what was expected.
      file: relative to the set, where one file is at fault.
      episode, frame: where it begins.
    """

    check: str
    what: str
    file: str = ""
    episode: int | None = None
    frame: int | None = None

    @property
    def where(self) -> str:
        """Place in words: ``episode 3, frame 17, data/chunk-000/file-000.parquet``."""
        parts = [] if self.episode is None else [f"episode {self.episode}"]
        parts += [] if self.frame is None else [f"frame {self.frame}"]
        return ", ".join([*parts, *([self.file] if self.file else [])]) or "the set"


@dataclass(frozen=True)
class Limits:
    """What still passes.

    Attributes:
      decode: whether videos are decoded, every frame of them.
      frozen_s: a camera may show one picture for this long while the arm moves [s].
      gap_s: a raw timestamp may stand still, or jump, by this much [s], and by three periods at least.
      back_s: a raw timestamp may be this much before the one of the frame before [s]: where a stamp of one clock is
        stored by another, the time between two readings comes in.
      grid_s: a timestamp may be off the frame rate's grid by this much [s]; LeRobot's own tolerance.
    """

    decode: bool = True
    frozen_s: float = 1.0
    gap_s: float = 0.25
    back_s: float = 1e-3
    grid_s: float = 1e-4


def runs(wrong: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """(first, last) of every stretch of true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wrong, [False]]).astype(np.int8)))
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        yield int(first), int(end) - 1


def frames_text(first: int, last: int) -> str:
    """``""`` for one frame, ``" (until frame 40)"`` for more."""
    return "" if first == last else f" (until frame {last})"
