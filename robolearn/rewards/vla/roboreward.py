"""RoboReward (Lee et al. 2026): a rating from 1 to 5 of where an episode ended, written after ``ANSWER:``.

    progress_k = (rating of the first k frames − 1) / 4      done: the best rating; confidence: probability of its token

The class is a Qwen3-VL; the answer is the most probable one, token by token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robolearn.core import RewardWithheld
from robolearn.rewards.vla.answers import rating
from robolearn.rewards.vla.critic import Question, VisionLanguageCritic
from robolearn.rewards.vla.frames import FrameScores, SampledFrames
from robolearn.rewards.vla.settings import RoboReward

BEST = 5


class RoboRewardCritic(VisionLanguageCritic):
    """See the module."""

    config: RoboReward
    kinds = {"qwen3_vl": "Qwen3VLForConditionalGeneration"}  # noqa: RUF012
    defaults = {  # noqa: RUF012
        "rubric": "<video>The robot arm in the video works on this task: {task}. Rate how things stand in its last "
        "picture by one whole number, written as ANSWER: <number>.\n1: nothing has changed towards the goal. 2: a "
        "small change, not enough. 3: much of it, but something that matters is wrong. 4: all but one small thing. "
        "5: everything that was asked for."
    }

    def read(self, clips: Sequence[SampledFrames], tasks: Sequence[str]) -> list[FrameScores]:
        """See `VisionLanguageCritic.read`."""
        found = []
        for clip, lengths, answers in self.of_beginnings(clips, tasks, "rubric", self._rate):
            ratings, sure = np.array(answers, np.float64).T
            progress = (ratings - 1.0) / (BEST - 1.0)
            found.append(FrameScores(clip.at[lengths - 1], progress, progress, sure))
        return found

    def _rate(self, questions: Sequence[Question]) -> list[tuple[int, float]]:
        found = []
        for answer in self.ask(questions):
            value = rating(answer, BEST)
            if value is None:
                raise RewardWithheld(f"{self.config.name}: {answer.text[:80]!r} is no ANSWER: 1 to {BEST}")
            found.append(value)
        return found
