"""A reward model that a training asks: once for the same steps, over all its resumptions; and what comes of no answer.

    steps and words ─► log of scores ─► model, for those that are not there ─► log ─► learned from

A score that is withheld stands in no log: it is asked for again. The training goes on without what would have been
scored, and counts it; `IN_A_ROW` of them say that none will come, and end it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robolearn.core import RewardModel, RewardWithheld, RobolearnError, Score, Window
from robolearn.data.replay import EpisodeKey, ScoreLog, StoredScore
from robolearn.io.hashes import sha256
from robolearn.rewards.scoring import scores_of

log = logging.getLogger(__name__)

IN_A_ROW = 10  # withheld scores that end a training


class LoggedScores:
    """A reward model whose scores are kept in `folder`, and read there in place of asking it again.

    Args:
      name: identity of the model; scores by another one are not read.
      folder: made with the first score.
    """

    def __init__(self, model: RewardModel, name: str, folder: Path) -> None:
        self._model, self._name, self._folder = model, name, folder
        self._log: ScoreLog | None = None
        self.reads: tuple[str, ...] = getattr(model, "reads", ())

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        """See `robolearn.core.RewardModel`; raises as the model does, and `BadInput` as `scores_of` does."""
        if self._log is None:
            self._log = ScoreLog(self._folder)
        keys = [_key(window, prompt) for window, prompt in zip(windows, prompts, strict=True)]
        stored = {key: self._log.find(key, self._name) for key in keys}
        fresh = [i for i, key in enumerate(keys) if stored[key] is None]
        if fresh:
            scores = scores_of(self._model, [windows[i] for i in fresh], [prompts[i] for i in fresh])
            for i, score in zip(fresh, scores, strict=True):
                stored[keys[i]] = found = StoredScore(keys[i], self._name, score)
                self._log.append(found)
        found = [stored[key] for key in keys]
        return [one.score for one in found if one is not None and one.score is not None]

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()


class WithheldCount:
    """Scores that are withheld.

    Attributes:
      in_a_row: since the newest score.
    """

    def __init__(self) -> None:
        self.in_a_row = 0

    def scores(self, model: RewardModel, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score | None]:
        """The score of each window, None where it is withheld: of several, those that are not scored on their own.

        Raises:
          BadInput: see `scores_of`.
          RobolearnError: `IN_A_ROW` were withheld.
        """
        try:
            found = scores_of(model, windows, prompts)
        except RewardWithheld as why:
            if len(windows) > 1:
                pairs = zip(windows, prompts, strict=True)
                return [score for window, prompt in pairs for score in self.scores(model, [window], [prompt])]
            if not self.in_a_row:
                log.warning("reward withheld, the episode is not learned from: %s", why)
            self.in_a_row += 1
            if self.in_a_row >= IN_A_ROW:
                raise RobolearnError(f"the rewards of {IN_A_ROW} episodes in a row are withheld: {why}") from None
            return [None]
        self.in_a_row = 0
        return [*found]


def _key(window: Window, prompt: str) -> EpisodeKey:
    """The identity of steps wherever they are asked for: what the model may look at."""
    seen = (part for name, value in sorted(window.observation.items()) for part in (name, np.ascontiguousarray(value)))
    return EpisodeKey(sha256(*seen, np.ascontiguousarray(window.action)), 0, len(window), prompt)
