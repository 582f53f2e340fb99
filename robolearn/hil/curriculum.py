"""Schedule of the operator's help beyond corrections: free demonstrations at first, and starts that failed before.

    P(episode is steered from its start) = free · max(0, 1 − steps / free_steps)
    P(episode begins as one that failed) = revisit, while there are any

An operator who only corrects demonstrates nothing of the steps before a failure, and late corrections cannot save every
episode: so the task is demonstrated freely at first, from any start. Later episodes begin where the policy failed or
was helped, so that rare failures are seen often. With `help_after_s` or `help_at_loss` no clock says when the operator
steers, but a reward model's progress that has not gained for so long, or has fallen by so much
(`robolearn.rewards.online`): from there on, in any episode. Everything follows from the records and the seed: after a
kill the schedule goes on as it would have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from robolearn.data.replay import Record, ReplayStep
from robolearn.hil.settings import CURRICULUM, CurriculumConfig, episode_seed

REMEMBERED = 20  # failures that wait to be visited again


class Curriculum:
    """Start and operator of each episode.

    Args:
      seed, actor: of the episodes.
    """

    def __init__(self, config: CurriculumConfig, seed: int, actor: str) -> None:
        self._config, self._seed, self._actor = config, seed, actor
        self._steps = 0
        self._helped = self._alone = False  # in the running episode
        self._failed: deque[int] = deque(maxlen=REMEMBERED)
        self._starts = 0  # whose starts the running episode has

    def begin(self, episode: int) -> tuple[int, bool]:
        """(the episode whose starts are those of `episode`, whether an operator steers it from its start)."""
        rng = np.random.default_rng(episode_seed(self._seed, self._actor, episode, CURRICULUM))
        again, freely = rng.random(2)
        revisits = self._failed and again < self._config.revisit
        self._starts = self._failed.popleft() if revisits else episode
        self._helped = self._alone = False
        # P = free · max(0, 1 − steps / free_steps)
        by_clock = self._config.free_steps and not self._config.by_progress
        left = max(0.0, 1.0 - self._steps / self._config.free_steps) if by_clock else 0.0
        return self._starts, bool(freely < self._config.free * left)

    def take(self, record: Record) -> None:
        """Take the next record of the episode that was begun."""
        if isinstance(record, ReplayStep):
            self._steps += 1
            self._helped |= record.intervention
            self._alone |= not record.intervention
            return
        if self._alone and (self._helped or not record.success):
            self._failed.append(self._starts)

    def replay(self, records: Iterable[Record]) -> None:
        """Restore the schedule after whole episodes with these records."""
        for record in records:
            if isinstance(record, ReplayStep) and record.index == 0:
                self.begin(record.episode)
            self.take(record)
