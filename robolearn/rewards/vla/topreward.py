"""TOPReward (Chen et al. 2026): how likely the model holds it that what it saw so far completes the task.

    progress_k = P("True" | first k frames, statement)         the last token of a text that ends with the answer

No weights of its own: any Qwen3-VL reads the statement. The paper orders the frames of one episode by log P and brings
each episode to [0, 1] by its least and greatest value. Here the probability itself is the progress: on a scale of each
episode's own the best frames of a failure and of a success both have 1, and a score depends on later steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from robolearn.core import BadInput
from robolearn.rewards.vla.critic import Question, VisionLanguageCritic
from robolearn.rewards.vla.frames import FrameScores, SampledFrames
from robolearn.rewards.vla.settings import TopReward

ANSWER = "True"


class TopRewardCritic(VisionLanguageCritic):
    """See the module."""

    config: TopReward
    kinds = {"qwen3_vl": "Qwen3VLForConditionalGeneration"}  # noqa: RUF012
    defaults = {  # noqa: RUF012
        "statement": "<video>The video above is of a robot arm that brings this task to its end: {task}. Is this "
        "statement True or False? The answer is: True"
    }

    def read(self, clips: Sequence[SampledFrames], tasks: Sequence[str]) -> list[FrameScores]:
        """See `VisionLanguageCritic.read`."""
        found = []
        for clip, lengths, answers in self.of_beginnings(clips, tasks, "statement", self.log_probability):
            probability = np.exp(np.array(answers))
            found.append(FrameScores(clip.at[lengths - 1], probability, probability))
        return found

    def log_probability(self, questions: Sequence[Question]) -> list[float]:
        """log P of the last token of each row, which is the answer."""
        found: list[float] = []
        for rows in self.batches(questions):
            inputs = self.encode(rows, side="left", fps=self.config.fps, cap_pixels_per_frame=True)
            last = inputs["input_ids"][:, -1]
            if self.processor.tokenizer.decode(last[:1]).strip() != ANSWER:
                got = repr(self.processor.tokenizer.decode(last[:1]))
                raise BadInput(f"{self.what} last token of the statement", got=got, expected=f"{ANSWER} as one token")
            logits = self.model(**inputs, logits_to_keep=2).logits[:, -2].float()
            found += torch.log_softmax(logits, -1).gather(1, last[:, None])[:, 0].tolist()
        return found

    def _finish(self, text: str) -> str:
        # The answer is the last token: what ends the user's turn is cut off.
        return text[: text.rfind(self.processor.tokenizer.eos_token)]
