"""Generative value learning (Ma et al. 2024): frames in random order, each given a percentage by a model that chats.

    the first frame is shown as 0%; the others follow shuffled, so that a clock has nothing to say
    progress_i = percentage of frame i / 100

One-shot: the frames of a reference stand before, in an order of their own, each with its share of the reference's time.

No weights of its own: any class of transformers that takes pictures in a chat. The order is drawn from the pictures and
the words themselves: the same episode has the same score. The answer has every frame once, or there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robolearn.core import RewardWithheld
from robolearn.io.hashes import sha256
from robolearn.rewards.reference import Reference
from robolearn.rewards.vla.answers import percentages
from robolearn.rewards.vla.critic import Question, VisionLanguageCritic
from robolearn.rewards.vla.frames import FrameScores, SampledFrames, percents
from robolearn.rewards.vla.settings import GvlReward


class GvlCritic(VisionLanguageCritic):
    """See the module."""

    config: GvlReward
    defaults = {  # noqa: RUF012
        "reference": "Picture of another attempt, which did the task {task}: <image> {percent}%\n",
        "start": "A robot arm works on this task: {task}. This picture is of the beginning, 0% of the task: <image>\n"
        "The pictures that follow are in random order.\n",
        "frame": "Frame {n}: <image>\n",
        "end": "For each of them say how much of the task is done, from 0% to 100%, a line each: Frame 1: …%",
    }

    def read(self, clips: Sequence[SampledFrames], tasks: Sequence[str]) -> list[FrameScores]:
        """See `VisionLanguageCritic.read`."""
        orders = [self.order(clip, task) for clip, task in zip(clips, tasks, strict=True)]
        questions = []
        for clip, task, order in zip(clips, tasks, orders, strict=True):
            frames = "".join(self.say("frame", n=n) for n in range(1, len(order) + 1))
            beside, shown = self._beside(task)
            text = beside + self.say("start", task=task) + frames + self.say("end", task=task)
            questions.append(Question(text, [*shown, clip.pictures[0], *clip.pictures[order]]))
        found = []
        for clip, order, answer in zip(clips, orders, self.ask(questions), strict=True):
            values = percentages(answer.text, len(order))
            if values is None:
                raise RewardWithheld(f"{self.config.name}: {answer.text[:80]!r} is not Frame 1: …% to {len(order)}: …%")
            progress = np.zeros(len(clip))
            progress[order] = np.array(values) / 100.0
            found.append(FrameScores(clip.at, progress, progress, np.ones(len(clip))))
        return found

    def show(self, reference: Reference) -> None:
        """Show `reference` before what is scored. Raises `BadInput`: it lacks the camera."""
        self.shown = self._clip(reference.window)

    def _beside(self, task: str) -> tuple[str, Sequence[NDArray[np.uint8]]]:
        """The words and the pictures of the reference, if any: the first, and the others shuffled."""
        if self.shown is None:
            return "", ()
        places, percent = [0, *self.order(self.shown, task)], percents(len(self.shown))
        text = "".join(self.say("reference", task=task, percent=percent[place]) for place in places)
        return text, [*self.shown.pictures[places]]

    def order(self, clip: SampledFrames, task: str) -> np.ndarray:
        """The frames after the first one in the order in which they are shown."""
        seed = int(sha256(np.ascontiguousarray(clip.pictures), task)[:16], 16)
        return 1 + np.random.default_rng(seed).permutation(len(clip) - 1)
