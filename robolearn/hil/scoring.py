"""Scores of closed episodes by a reward model, on a thread of its own: late, and before anything is learned from them.

    closed ─► pending (bounded, in the order of closing) ─► model ─► log of scores ─► learned from, in the same order

Neither updates nor records wait for the model; only where `QUEUED` episodes are pending no more records are taken, so
that they stay with their receiver and with the actors. A score is in the log before it is learned from, and is read
there after a kill: the model is asked once. What the model does not answer in time, or answers by an exception, by
numbers that are not finite or by the end of the process, is withheld: that stands in the log, too, and is not asked for
again.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from robolearn.core import RewardModel, RobolearnError
from robolearn.core.errors import first_line
from robolearn.data.replay import EpisodeKey, PlayedEpisode, ScoreLog, StoredScore
from robolearn.hil.experience import ClosedEpisode
from robolearn.rewards.scoring import scores_of, window_of

log = logging.getLogger(__name__)

DEATHS = 3  # a model that the process has ended with so often for one episode is not asked for it again
QUEUED = 16  # episodes that are closed and not scored yet
DEMONSTRATIONS = "demonstrations "  # and the digest of their set: their actor in the log; no actor has such a name


@dataclass(eq=False)
class _Job:
    key: EpisodeKey
    closed: ClosedEpisode
    result: StoredScore | None = None
    first_at: float | None = None  # since when it is the oldest one that is pending, monotonic [s]


class EpisodeScoring:
    """See the module.

    Args:
      model: asked by the thread alone.
      name: identity of the model; scores by another one are made again.
      scores: the log.
      words: the task of episodes that bring none.
      timeout_s: longest wait for the score of the oldest pending episode.
      arrived: called by the thread when a score is there.
      stop: ends what waits for a score.

    Attributes:
      made: number of the scores that were not in the log.
    """

    def __init__(
        self,
        model: RewardModel,
        name: str,
        scores: ScoreLog,
        timeout_s: float,
        words: str = "",
        arrived: Callable[[], None] = lambda: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._model, self._name, self._scores = model, name, scores
        self._timeout_s, self._words, self._arrived, self._stop = timeout_s, words, arrived, stop
        self._pending: deque[_Job] = deque()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._failure: OSError | None = None
        self._closed = False
        self._withheld = False  # one was, and it has been said
        self.made = 0
        if scores.models and name not in scores.models:
            log.warning("the reward model is another one than before: what it scored is scored again")
        self._thread = threading.Thread(target=self._work, name="hil-scoring", daemon=True)  # may hang in the model
        self._thread.start()

    @property
    def busy(self) -> bool:
        """True where an episode is pending."""
        return bool(self._pending)

    @property
    def full(self) -> bool:
        """True where no further episode is to be submitted."""
        return len(self._pending) >= QUEUED

    def submit(self, closed: ClosedEpisode) -> None:
        """Have an episode scored after those that are pending; never waits."""
        episode = closed.episode
        job = _Job(EpisodeKey(closed.actor, closed.number, len(episode), episode.task or self._words), closed)
        job.result = self._scores.find(job.key, self._name)
        self._pending.append(job)
        if job.result is None:
            self._jobs.put(job)

    def next(self) -> tuple[ClosedEpisode, StoredScore] | None:
        """The oldest pending episode once its score is there, or withheld; None where there is none yet.

        Raises:
          RobolearnError: the log cannot be written.
        """
        if self._failure is not None:
            raise RobolearnError(f"the log of scores cannot be written: {self._failure.strerror}")
        if not self._pending:
            return None
        job = self._pending[0]
        if job.result is None:
            now = time.monotonic()
            job.first_at = now if job.first_at is None else job.first_at
            if now - job.first_at > self._timeout_s:
                self._finish(job, StoredScore(job.key, self._name, None, f"no score within {self._timeout_s:g} s"))
        if job.result is None:
            return None
        self._pending.popleft()
        return job.closed, job.result

    def score_now(self, closed: ClosedEpisode) -> StoredScore:
        """The score of an episode while none is pending; waits for it.

        Raises:
          KeyboardInterrupt: `stop` is true.
        """
        assert not self.busy
        self.submit(closed)
        while (found := self.next()) is None:
            if self._stop():
                raise KeyboardInterrupt
            time.sleep(0.002)
        return found[1]

    def score_demonstration(self, content: str, number: int, episode: PlayedEpisode) -> StoredScore:
        """The score of demonstration `number` of the set with the digest `content`; waits for it."""
        return self.score_now(ClosedEpisode(DEMONSTRATIONS + content, number, 0, False, episode))

    def sync(self) -> None:
        """Make the scores survive a power cut."""
        self._scores.sync()

    def close(self) -> None:
        """End the thread once the model has returned, but do not wait for it."""
        self._jobs.put(None)
        with self._lock:
            self._closed = True
            self._scores.close()

    def _work(self) -> None:
        torch.set_num_threads(1)
        while (job := self._jobs.get()) is not None:
            if job.result is None and self._failure is None:
                try:
                    before = self._scores.asked(job.key, self._name)
                except OSError as error:
                    self._failure = error
                    continue
                why = f"the process ended {before} times while the model was asked"
                died = StoredScore(job.key, self._name, None, why) if before >= DEATHS else None
                self._finish(job, died or self._asked(job))
                self._arrived()

    def _asked(self, job: _Job) -> StoredScore:
        try:
            (score,) = scores_of(self._model, [window_of(job.closed.episode)], [job.key.task])
        except BaseException as error:  # a model may do anything: it ends neither the thread nor the learner
            return StoredScore(job.key, self._name, None, f"{type(error).__name__}: {first_line(error)}")
        return StoredScore(job.key, self._name, score)

    def _finish(self, job: _Job, stored: StoredScore) -> None:
        """Store a score, unless the episode has one: a late one of an episode that was withheld is dropped."""
        with self._lock:
            if job.result is not None or self._closed or self._failure is not None:
                return
            try:
                self._scores.append(stored)
            except OSError as error:
                self._failure = error
                return
            self.made += 1
            job.result = stored
        if stored.score is None and not self._withheld:
            self._withheld = True
            log.warning("reward withheld, episode %d of %s is not learned from: %s", job.key.number, job.key.actor,
                        stored.withheld)  # fmt: skip
