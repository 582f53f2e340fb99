"""Frames of an episode that a model looks at, what it says of them, and the score of every step that is made of it.

progress between two frames that were looked at is interpolated; *done* holds until the next one that was
reward_t = [done first at t] + γ Φ_t − Φ_{t−1}, Φ = progress (`robolearn.rewards.shaping`)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Score
from robolearn.rewards.shaping import score_of_frames


@dataclass(frozen=True, eq=False)
class SampledFrames:
    """Frames of an episode.

    Attributes:
      pictures: n of (H, W, 3), uint8.
      at: (n,) their places among all `total` frames of the window.
    """

    pictures: NDArray[np.uint8]
    at: NDArray[np.int64]
    total: int

    def __len__(self) -> int:
        return len(self.at)


@dataclass(frozen=True, eq=False)
class FrameScores:
    """Progress (n,) in [0, 1] and probability of done (n,) at the frames `at` (n,); `sure` (n,): of the verdict, by
    default the probability."""

    at: NDArray[np.int64]
    progress: NDArray[np.float64]
    done: NDArray[np.float64]
    sure: NDArray[np.float64] | None = None


def percents(frames: int) -> list[int]:
    """The shares of the time [%] of `frames` frames that are evenly spaced."""
    return [round(100 * i / max(frames - 1, 1)) for i in range(frames)]


def sampled(pictures: NDArray[np.uint8], frames: int) -> SampledFrames:
    """At most `frames` of `pictures` (P, H, W, 3), evenly spaced, the first and the last included."""
    at = np.unique(np.linspace(0, len(pictures) - 1, min(frames, len(pictures))).round().astype(np.int64))
    return SampledFrames(np.asarray(pictures)[at], at, len(pictures))


def score_of(clip: SampledFrames, reading: FrameScores, steps: int, threshold: float) -> Score:
    """The score of `steps` steps: each has the frame that it led to, where that is known."""
    frames = np.arange(clip.total)
    progress = np.interp(frames, reading.at, reading.progress).astype(np.float32)
    newest = np.searchsorted(reading.at, frames, side="right") - 1
    sure = None if reading.sure is None else reading.sure[newest]
    return score_of_frames(progress, reading.done[newest], steps, threshold, sure)
