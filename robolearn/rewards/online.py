"""The end of a running episode by a reward model, as SERL's success classifier has it.

    verdict   the newest frame is done with at least the given confidence, by all models
    solved    k verdicts in a row, none of them of another episode (`robolearn.rewards.done`)
    stalled   (t − t*) / hz ≥ s    t*: the last verdict with Φ_t* ≥ max_{t < t*} Φ_t + GAIN, else the beginning, where
                                   Φ = 0; Φ: the first model's progress, s: the seconds without a gain
    fallen    Φ_t ≤ Φ_t* − loss, by k verdicts in a row

Verdicts come at a rate, on a thread that looks at the newest frame alone: control never waits for one, and what a slow
model has missed it does not see. Where a simulated clock waits anyway, each verdict is waited for, so that the end of
an episode depends on its frames alone. A model that fails gives no verdict, and the count begins anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from robolearn.core import RewardModel, Score, Window
from robolearn.core.errors import first_line
from robolearn.rewards.done import CONFIDENT, DoneRule, patience
from robolearn.rewards.scoring import Agreed, scores_of

log = logging.getLogger(__name__)

NICE = 10  # of the thread, beside the control loop
GAIN = 0.02  # of progress; what a picture's noise changes is less
SILENT_S = 10.0  # a model that takes longer for a verdict is said to

Frame = Mapping[str, NDArray]


class OnlineDone:
    """See the module.

    Args:
      models: all of them have to agree.
      control_hz, verdict_hz: rates of the frames and of the verdicts.
      frames: verdicts in a row.
      threshold: least confidence of a *done*.
      waits: each verdict is waited for, and comes each control_hz / verdict_hz frames.
      help_after_s: seconds without a gain of progress after which the episode needs help; 0: it does not.
      help_at_loss: progress lost from the best with which it does; 0: none.

    Attributes:
      verdicts: number of all that were made.
    """

    def __init__(
        self,
        models: Sequence[RewardModel],
        control_hz: float,
        verdict_hz: float,
        *,
        frames: int = 3,
        threshold: float = CONFIDENT,
        waits: bool = False,
        help_after_s: float = 0.0,
        help_at_loss: float = 0.0,
    ) -> None:
        self._model, self._waits = Agreed(models), waits
        self._rule, self._period_s = DoneRule.at(control_hz, verdict_hz, frames, threshold), 1.0 / verdict_hz
        # Models that judge each frame beside the first one alone need no others.
        self._two = self._model.frame_by_frame
        self._changed = threading.Condition()
        self._seen: list[Frame] = []
        self._actions: list[NDArray] = []
        self._task, self._episode, self._steps, self._judged = "", 0, 0, 0
        self._found: list[bool] = []  # the verdicts of this episode
        self._best = 0.0  # progress
        self._risen = self._known = 0  # steps of its last gain, and of the newest verdict
        self._patience, self._loss = patience(help_after_s, control_hz), help_at_loss
        self._fallen = 0  # verdicts in a row
        self._asked_at = 0.0
        self._solved = self._closed = self._failed = self._slow = False
        self._fault = ""
        self.verdicts = 0
        if not waits:
            threading.Thread(target=self._work, name="online-done", daemon=True).start()  # may hang in the model

    @property
    def solved(self) -> bool:
        """True once the running episode is done."""
        return self._solved

    @property
    def settled(self) -> bool:
        """True where the newest frame has its verdict."""
        with self._changed:
            return self._judged >= self._steps and not self._asked_at

    @property
    def fault(self) -> str:
        """Why the model gave no verdict on a frame of the running episode; empty where it gave all."""
        return self._fault

    @property
    def help_reason(self) -> str:
        """The reason why the running episode needs help, by the newest verdicts; empty where it needs none."""
        if 0 < self._patience <= self._known - self._risen:
            return "the progress stands still"
        return "the progress has fallen" if self._fallen >= self._rule.frames else ""

    def begin(self, task: str, observation: Frame) -> None:
        """Begin an episode with its first frame; verdicts that are still being made count no more."""
        with self._changed:
            self._seen, self._actions, self._task = [observation], [], task
            self._episode, self._steps, self._judged = self._episode + 1, 0, 0
            self._found, self._solved = [], False
            self._fault = ""
            self._best = 0.0
            self._risen = self._known = self._fallen = 0
            late = self._asked_at and time.monotonic() - self._asked_at > SILENT_S
        if late and not self._slow:
            self._slow = True
            log.warning("the reward model has given no verdict for %g s: it ends no episode meanwhile", SILENT_S)

    def add(self, action: NDArray, observation: Frame) -> None:
        """The next frame, and the action that led to it; both are kept. Waits for a verdict where those are."""
        with self._changed:
            if self._two and self._actions:
                self._seen[1], self._actions[0] = observation, action
            else:
                self._seen.append(observation)
                self._actions.append(action)
            self._steps += 1
            self._changed.notify_all()
        if self._waits and self._steps % self._rule.every == 0:
            self._judge()

    def close(self) -> None:
        """End the thread once the model has returned, but do not wait for it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        torch.set_num_threads(1)
        with contextlib.suppress(OSError, AttributeError):  # of this thread alone, on Linux
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._steps > self._judged)
                if self._closed:
                    return
            begun = time.monotonic()
            self._judge()
            time.sleep(max(0.0, begun + self._period_s - time.monotonic()))

    def _judge(self) -> None:
        with self._changed:
            episode, steps, task = self._episode, self._steps, self._task
            self._judged = steps
            seen, actions = list(self._seen), list(self._actions)
            if not actions:  # the next episode has begun since the thread awoke
                return
            self._asked_at = time.monotonic()
        window = Window({key: np.stack([frame[key] for frame in seen]) for key in seen[0]}, np.stack(actions))
        score, fault = self._score(window, task)
        with self._changed:
            self._asked_at = 0.0
            self.verdicts += 1
            if episode == self._episode:
                self._fault = fault or self._fault
                self._found.append(score is not None and bool(self._rule.sure(score)[-1]))
                self._known = steps
                # Φ_t ≥ max Φ + GAIN; where no verdict came nobody knows that it stands still
                if score is None or score.progress[-1] >= self._best + GAIN:
                    self._risen = steps
                    self._best = self._best if score is None else float(score.progress[-1])
                lost = 0.0 if score is None else self._best - float(score.progress[-1])
                self._fallen = self._fallen + 1 if 0 < self._loss <= lost else 0
                self._solved |= self._rule.first(self._found) is not None

    def _score(self, window: Window, task: str) -> tuple[Score | None, str]:
        """The score, or None and why."""
        try:
            (score,) = scores_of(self._model, [window], [task])
        except BaseException as error:  # a model may do anything: control goes on
            if not self._failed:
                self._failed = True
                log.warning("the reward model gives no verdict, and ends no episode then: %s", first_line(error))
            return None, first_line(error)
        return score, ""
