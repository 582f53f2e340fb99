"""A recording beside a policy: it listens to what other nodes command and stores what was executed.

A row begins with each new target of the streamer: the observation then, and the action that leads from the joints
measured there to what the safety filter accepted of that target. Targets are sent once more before the next control
step, and acceptances change while an arm waits at a border: the last one before the next target counts.

    begin ──► targets and acceptances, while the arm is armed ──► at rest, and an outcome ──► stored
                                                                    without an outcome ──────► dropped
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hardware.execution.setpoints import SetPoints
from hardware.observing.observer import NotObserved, Observer
from hardware.recording.session import BEHIND_S, Storage, Writer
from robolearn.core import RobolearnError
from robolearn.core.types import RATE_NOTED, RATE_REFUSED, rate_fault

log = logging.getLogger(__name__)

SUCCESS, FAILURE, TIMEOUT, STOPPED = "success", "failure", "timeout", "stopped"
DROPPED, STORED = "an episode is not recorded: ", "an episode is recorded: "  # logged
REPEATED = 1.5  # control steps after which the same target is that of the next one
OUTCOMES = (SUCCESS, FAILURE, TIMEOUT, STOPPED)


@dataclass
class _Pending:
    observation: dict[str, NDArray]
    q: NDArray
    target: NDArray
    stamps: dict[str, float]
    accepted: NDArray | None = None


class RolloutRecording:
    """Records the episodes of a policy. One thread calls it.

    Args:
      observer: of the features of a row; fed by whoever receives messages.
      writer: where episodes go.
      task: in words.
      storage: where jobs of the writer are done.

    Attributes:
      recorded, dropped: episodes so far.
      error: of the writer; nothing is recorded any more.
    """

    def __init__(self, observer: Observer, writer: Writer, task: str, storage: Storage) -> None:
        self._observer, self._writer, self._task, self._storage = observer, writer, task, storage
        self._hz = observer.contract.control_hz
        self._set_points = SetPoints(observer.contract)
        self.recorded = self.dropped = 0
        self.error: RobolearnError | OSError | None = None
        self._clear()

    @property
    def running(self) -> bool:
        """True from `begin` to the outcome."""
        return self._begun

    def begin(self) -> None:
        """An episode begins: the arm will be armed for it."""
        if self._begun:
            self._drop("the next one began before it had an outcome")
        self._begun = True

    def armed(self, arming: bool) -> None:
        """The arm was armed, or is not armed any more."""
        if self._begun and arming and self._rested:
            self._drop("the arm was armed anew before it had an outcome")
            self._begun = True
        self._rested = self._begun and (self._rested or (self._armed and not arming))
        self._armed = self._begun and arming

    def missed(self, what: str, late_s: float) -> None:
        """Messages were sent and never read: `what`, in words, until `late_s` ago. An episode is not stored without."""
        if self._row is not None or self._why:  # which it explains
            self._why = f"the recorder was held up, {late_s:.2f} s behind, and missed {what}"

    def target(self, positions: NDArray, sent_s: float, old: str = "") -> None:
        """A target (n + arms,) of the streamer, sent at `sent_s`, in the time of other stamps, whenever it is read: the
        observer was fed with what had been sent before it, of which something is too `old`, in words."""
        if not self._armed or self.error is not None or self._why:
            return
        now = sent_s
        if self._row is not None and np.array_equal(positions, self._row.target):
            # Sent once more; that of the next step, too, where the arm stands and is asked for the same again.
            if (now - self._last) * self._hz < REPEATED:
                return
            now = self._last + 1.0 / self._hz
        try:
            observation = {key: value[0] for key, value in self._observer.observation().items()}
        except NotObserved as error:
            self._why = str(error)
            return
        if old:
            self._why = old
            return
        if self._storage.pending() > BEHIND_S * self._hz:
            self._why = f"images and rows are stored {BEHIND_S:g} s behind"
            return
        self._resolve()
        q = self._observer.joints.q
        assert q is not None
        self._first = now if self._count == 0 and self._row is None else self._first
        self._last = now
        stamps = {**self._observer.source_stamps(), "action": sent_s}
        self._row = _Pending(observation, q.copy(), np.array(positions, dtype=np.float64), stamps)

    def accepted(self, positions: NDArray) -> None:
        """The safety filter's answer (n + arms,) to the newest target."""
        if self._row is not None:
            self._row.accepted = np.array(positions, dtype=np.float64)

    def end(self, outcome: str) -> None:
        """The episode has this outcome, one of `OUTCOMES`; its arm is at rest, or about to be."""
        if not self._begun:
            return
        why = self._why or ("" if self._count else "it has no steps")
        why = why or rate_fault(self._count, self._last - self._first, self._hz, RATE_REFUSED)
        if why:
            self._drop(why)
            return
        if slow := rate_fault(self._count, self._last - self._first, self._hz, RATE_NOTED):
            log.warning("episode %d: %s", self.recorded, slow)
        assert self._row is not None  # the one that was not executed to its end: what was seen before it is the final
        final, success = self._row.observation, outcome == SUCCESS
        self._hand_over(float(success))
        ended = outcome in (SUCCESS, FAILURE)
        task = self._task

        def store() -> None:
            self._writer.end(success=success, terminated=ended, truncated=not ended, task=task, final=final)

        self._storage.put(store, ends=True)
        self.recorded += 1
        log.info("%s%s, %d steps", STORED, outcome, self._count)
        self._clear()

    def cancel(self, why: str) -> None:
        """Drop the running episode, where there is one."""
        if self._begun:
            self._drop(why)

    def look(self) -> None:
        """Take what the storage reports."""
        while self._storage.outcomes:
            error = self._storage.outcomes.popleft()
            self.error = self.error or error

    # --- rows ------------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        """The running row was executed: keep it until it is known whether another one follows."""
        row = self._row
        if row is None:
            return
        self._hand_over(0.0)
        if row.accepted is None:  # held up, or refused: the arm went on to what was accepted before, or stood
            accepted = np.full(len(row.target), np.nan) if self._goal is None else self._goal
        else:
            accepted = self._goal = row.accepted
        self._newest = row, self._set_points.action(row.q, reached(row.q, row.target, accepted))
        self._count += 1

    def _hand_over(self, reward: float) -> None:
        if self._newest is not None:
            row, action = self._newest
            self._storage.put(partial(self._writer.add, row.observation, action, reward, stamps=row.stamps))
            self._newest = None

    def _drop(self, why: str) -> None:
        log.warning("%s%s", DROPPED, why)
        self.dropped += 1
        self._storage.put(self._writer.discard)
        self._clear()

    def _clear(self) -> None:
        self._begun = self._armed = self._rested = False
        self._row: _Pending | None = None
        self._newest: tuple[_Pending, NDArray] | None = None  # the last of which it is; it gets the reward
        self._goal: NDArray | None = None  # what the filter last accepted
        self._count, self._why, self._first, self._last = 0, "", 0.0, 0.0


def reached(q: NDArray, target: NDArray, accepted: NDArray) -> NDArray:
    """(n + arms,) where the arm goes: what was `accepted` of a `target` (n + arms,) made at the joints `q` (n,); NaN in
    it: an opening that was not requested yet, or nothing was accepted."""
    return np.where(np.isnan(accepted), np.concatenate([q, target[len(q) :]]), accepted)
