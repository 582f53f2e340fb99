"""VLAC (Zhai et al. 2025): how much closer to the goal the later one of two pictures is, and whether one shows it done.

    c_i = ± expected number of the answer to two neighbouring frames                 [%] of what was left
    v_0 = 0,   v ← v + (100 − v) c/100                    c ≥ 0
               v ← v + v c/100                            c < 0, v ≤ 50
               v ← max(10, 100 − max(100 − v, 1) / (1 + c/100))      c < 0, v > 50: the way back of the first line
    done_i = expected number of the answer, 0 or 1, to frame i alone

One-shot: before each pair stand the frames of a reference, each with its share of the reference's time in percent, and
the first frame of the episode itself as 0%: they are read once for all pairs. *done* is asked as ever.

The class is an InternVL of transformers' own. The published weights bring code of their own, which is not run: convert
them first (transformers has a script for InternVL). An expectation is taken over the ten most probable tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from robolearn.core import RewardWithheld
from robolearn.rewards.reference import Reference
from robolearn.rewards.vla.answers import expected_number
from robolearn.rewards.vla.critic import Question, VisionLanguageCritic
from robolearn.rewards.vla.frames import FrameScores, SampledFrames, percents
from robolearn.rewards.vla.settings import VlacReward


def accumulated(changes: Iterable[float]) -> list[float]:
    """Values [%] after each change [% of what was left], from 0 at the start; one more than there are changes."""
    values = [0.0]
    for c in changes:
        v = values[-1]
        if c >= 0.0:
            v += (100.0 - v) * c / 100.0
        elif v <= 50.0:
            v += v * c / 100.0
        else:
            v = max(10.0, 100.0 - max(100.0 - v, 1.0) / max(1.0 + c / 100.0, 1e-9))
        values.append(v)
    return values


class VlacCritic(VisionLanguageCritic):
    """See the module."""

    config: VlacReward
    kinds = {"internvl": "InternVLForConditionalGeneration"}  # noqa: RUF012
    defaults = {  # noqa: RUF012
        "system": "You look at pictures of a robot arm at work and answer exactly.",
        "progress": "Image-1: <image>\nImage-2: <image>\nBy how many percent of what was left is the second picture "
        "closer to the goal of the task than the first? Negative where it is further away.\n"
        "<task> {task} </task> <score>",
        "reference": "{percent}% <image>\n",
        "reference_end": "These pictures are of an attempt that did the task <task> {task} </task>.\n0% <image>\nThis "
        "picture is of the beginning of another attempt, which the next two are of.\n",
        "done": "<image>\nIs the task done in this picture? 1 for yes, 0 for no. <task> {task} </task> <done>",
    }
    options = {"crop_to_patches": False}  # noqa: RUF012

    def read(self, clips: Sequence[SampledFrames], tasks: Sequence[str]) -> list[FrameScores]:
        """See `VisionLanguageCritic.read`."""
        pictures = [[self._picture(frame) for frame in clip.pictures] for clip in clips]
        shown = [] if self.shown is None else [self._picture(frame) for frame in self.shown.pictures]
        beside = "".join(self.say("reference", percent=percent) for percent in percents(len(shown)))
        pairs = [
            Question(
                (beside + self.say("reference_end", task=task) if shown else "") + self.say("progress", task=task),
                [*shown, *frames[:1][: len(shown)], earlier, later],
                self.texts["system"],
                len(shown) + 1 if shown else 0,
            )
            for frames, task in zip(pictures, tasks, strict=True)
            for earlier, later in pairwise(frames)
        ]
        ends = [
            Question(self.say("done", task=task), [frame], self.texts["system"])
            for frames, task in zip(pictures, tasks, strict=True)
            for frame in frames
        ]
        changes, done = iter(self.numbers(pairs, -100.0, 100.0)), iter(self.numbers(ends, 0.0, 1.0))
        found = []
        for clip in clips:
            values = accumulated([next(changes) for _ in range(len(clip) - 1)])
            found.append(FrameScores(clip.at, np.array(values) / 100.0, np.array([next(done) for _ in values])))
        return found

    def show(self, reference: Reference) -> None:
        """Show `reference` beside what is scored. Raises `BadInput`: it lacks the camera."""
        self.shown = self._clip(reference.window)

    def numbers(self, questions: Sequence[Question], low: float, high: float) -> list[float]:
        """The expected numbers of the answers. Raises `RewardWithheld`: an answer is none from `low` to `high`."""
        found = []
        for answer in self.ask(questions):
            value = expected_number(answer.tokens)
            if value is None or not low <= value <= high:
                raise RewardWithheld(f"{self.config.name}: {answer.text[:80]!r} is no number from {low:g} to {high:g}")
            found.append(value)
        return found

    def _picture(self, frame: NDArray[np.uint8]) -> Image.Image:
        height, width = self.model.config.vision_config.image_size
        return Image.fromarray(frame).resize((width, height), Image.Resampling.LANCZOS)
