"""Generative value learning (Ma et al. 2024): frames in random order, each given a percentage by a model that chats.

    the first frame is shown as 0%; the others follow shuffled, so that a clock has nothing to say
    progress_i = percentage of frame i / 100

No weights of its own: any class of transformers that takes pictures in a chat. The order is drawn from the pictures and
the words themselves: the same episode has the same score. The answer has every frame once, or there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robolearn.core import RewardWithheld
from robolearn.io.hashes import sha256
from robolearn.rewards.vla.answers import percentages
from robolearn.rewards.vla.critic import Question, VisionLanguageCritic
from robolearn.rewards.vla.frames import FrameScores, SampledFrames
from robolearn.rewards.vla.settings import GvlReward


class GvlCritic(VisionLanguageCritic):
    """See the module."""

    config: GvlReward
    defaults = {  # noqa: RUF012
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
            text = self.say("start", task=task) + frames + self.say("end", task=task)
            questions.append(Question(text, [clip.pictures[0], *clip.pictures[order]]))
        found = []
        for clip, order, answer in zip(clips, orders, self.ask(questions), strict=True):
            values = percentages(answer.text, len(order))
            if values is None:
                raise RewardWithheld(f"{self.config.name}: {answer.text[:80]!r} is not Frame 1: …% to {len(order)}: …%")
            progress = np.zeros(len(clip))
            progress[order] = np.array(values) / 100.0
            found.append(FrameScores(clip.at, progress, progress, np.ones(len(clip))))
        return found

    def order(self, clip: SampledFrames, task: str) -> np.ndarray:
        """The frames after the first one in the order in which they are shown."""
        seed = int(sha256(np.ascontiguousarray(clip.pictures), task)[:16], 16)
        return 1 + np.random.default_rng(seed).permutation(len(clip) - 1)
