"""Reward models that look good by one figure and are none: what an evaluation has to catch; and pictures to judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robolearn.core import ArraySpec, Episode, Interface, RewardWithheld, Score, Window
from robolearn.data.writing.writer import EpisodeWriter

EDGE = 48
PICTURES = Interface({"images.front": ArraySpec((EDGE, EDGE, 3), "uint8")}, ArraySpec((1,)), 20.0)
TASK, OTHER = "push the square to the right", "open the drawer"


class Control:
    """A reward model that says what `said` says of T steps."""

    def __init__(self, interface: Interface | None = None) -> None:
        pass

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        return [self.one(window, prompt) for window, prompt in zip(windows, prompts, strict=True)]

    def one(self, window: Window, prompt: str) -> Score:
        progress = np.clip(self.said(window, prompt), 0.0, 1.0).astype(np.float32)
        done = progress >= 0.9
        return Score(progress, progress, done, np.where(done, progress, 1.0 - progress).astype(np.float32))

    def said(self, window: Window, prompt: str) -> np.ndarray:
        raise NotImplementedError


class AlwaysOne(Control):
    def said(self, window: Window, prompt: str) -> np.ndarray:
        return np.ones(len(window))


class Constant(Control):
    """The same progress throughout, never done."""

    def said(self, window: Window, prompt: str) -> np.ndarray:
        return np.full(len(window), 0.5)


class Clock(Control):
    """A frame counter: all that comes late is good."""

    def said(self, window: Window, prompt: str) -> np.ndarray:
        return np.arange(1, len(window) + 1) / 20


class FirstFrame(Control):
    """Looks at the start alone."""

    def said(self, window: Window, prompt: str) -> np.ndarray:
        return np.full(len(window), where(window)[0])


class Truth(Control):
    """Where the square is, if the words are the right ones."""

    def said(self, window: Window, prompt: str) -> np.ndarray:
        return where(window) if prompt == TASK else np.zeros(len(window))


class Unsure(Truth):
    """Says nothing of what ends in the left half, unless it `dares`."""

    dares = False
    asked = 0

    def one(self, window: Window, prompt: str) -> Score:
        Unsure.asked += 1
        if where(window)[-1] < 0.5 and not Unsure.dares:
            raise RewardWithheld("too far to the left")
        return super().one(window, prompt)


class Failing(Truth):
    """Fails where the square ends in the left half; with `rubbish` it answers NaN there."""

    rubbish = False

    def one(self, window: Window, prompt: str) -> Score:
        score = super().one(window, prompt)
        if where(window)[-1] < 0.5:
            if not self.rubbish:
                raise ValueError("too far to the left\nand more")
            score.reward[:] = np.nan
        return score


class Rubbish(Failing):
    rubbish = True


def where(window: Window) -> np.ndarray:
    """(T,) how far right the square is, in [0, 1]."""
    red = window.observation["images.front"][:, :, :, 0].max(1) > 128
    return (red.argmax(1) + 0.0) / (EDGE - 12)


def film(x: np.ndarray, seed: int = 0) -> np.ndarray:
    """(T, 48, 48, 3) a red square at the places x (T,) in [0, 1], at a height of its own."""
    rng = np.random.default_rng(seed)
    row, shade = int(rng.integers(6, EDGE - 18)), int(rng.integers(20, 60))
    frames = np.full((len(x), EDGE, EDGE, 3), shade, np.uint8)
    for t, place in enumerate(x):
        column = round(float(place) * (EDGE - 12))
        frames[t, row : row + 12, column : column + 12] = (220, 40, 40)
    return frames


def episode(success: bool, seed: int = 0, failure: str = "") -> Episode:
    """A square that is pushed to the right edge in 14 to 18 steps, or stops halfway and stays there for longer."""
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(14, 19))
    x = np.linspace(0.0, 1.0, steps)
    if not success:
        stop = rng.uniform(0.15, 0.45)
        x = np.minimum(np.linspace(0.0, 1.4, steps + 8), stop)
    length = len(x)
    return Episode(
        {"images.front": film(x, seed)}, np.zeros((length, 1), np.float32), np.zeros(length, np.float32),
        success, success, not success, TASK, failure=failure,
    )  # fmt: skip


def write(path: Path, successes: int, failures: int, seed: int = 0) -> Path:
    """A data set of such episodes."""
    with EpisodeWriter(path, PICTURES, failures=True) as writer:
        writer.write_all(episode(True, seed + i) for i in range(successes))
        writer.write_all(episode(False, seed + 1000 + i, "frozen") for i in range(failures))
    return path
