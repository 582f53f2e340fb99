"""The actor on an arm: a recording whose steps go to the learner, with the learner's policy.

All motion goes the way of `hardware.recording`: the operator's device or the policy's chunks become set-points by the
same control, and the safety node passes them, changes them, or stops the arm. The accepted set-points are stored. So
the loop is the same on the simulated arm, on an emulated driver and on the real one.

    the success key, or the failure key   the episode ends with that label
    a reward model that calls it done     the same, as a success
    the clock                             it is truncated
    a stop, DISCARD, REDO                 it is cut: its steps are learned from, its outcome is unknown
    the learner does not answer           it is truncated; the arm holds, and none begins until it answers
    it is asked whether it succeeded      none begins until the success key or the failure key has said it
    this program dies                     no target and no heartbeat come any more: the safety node stops the arm
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.recording import Recording
from hardware.recording.episodes import EpisodeCommand, OperatorVerdict, Phase
from hardware.teleop.arm_link import Steps
from hardware.teleop.device import EpisodeEvent, Status
from robolearn.core import ActionChunk, Interface, Observation, Policy, RobolearnError
from robolearn.data.replay import End, Record, ReplayStep
from robolearn.hil.actor import Periods
from robolearn.hil.agent import DoubleBufferedPolicy
from robolearn.hil.link import Link
from robolearn.hil.operator_console import ActorStatus, OperatorCommand, OperatorConsole
from robolearn.hil.outbox import Outbox
from robolearn.hil.spot_labels import QUESTION, SpotLabels
from robolearn.rewards.online import OnlineDone

log = logging.getLogger(__name__)

ENDLESS = 10**9  # episodes of a session that the learner ends
ANSWER_S = 5.0  # for the learner to answer, after START
EVENTS = {
    OperatorCommand.SUCCESS: EpisodeEvent.SUCCESS,
    OperatorCommand.FAILURE: EpisodeEvent.FAILURE,
    OperatorCommand.RETURN: EpisodeEvent.DISCARD,
}
SILENT = "the learner does not answer"
STOPPED = "somebody pressed STOP on the page"
NEXT = "thank you. Put everything in its place, then press Start for the next"


class LearnedPolicy(Policy):
    """The newest weights as a policy; they are swapped between two chunks.

    Args:
      interface: of the policy that it was made from.
      steps: actions of a chunk.
    """

    def __init__(self, buffered: DoubleBufferedPolicy, interface: Interface, steps: int) -> None:
        self._buffered, self.interface, self.execute_steps = buffered, interface, steps

    def reset(self, seed: int) -> None:
        self._buffered.seed(seed)

    def act(self, observation: Observation) -> ActionChunk:
        self._buffered.swap()
        return self._buffered.act(observation)[None]


class OutboxWriter:
    """A `hardware.recording.session.Writer`: rows become records for the learner.

    The newest two rows are held back: the last one of an episode is its final observation, whose action has no observed
    result, and the one before it gets the reward.

    Args:
      features: of the observations.
      link: notified of each record.
      task: in words.

    Attributes:
      episodes, steps, interventions: written so far.
    """

    def __init__(self, outbox: Outbox, features: Sequence[str], link: Link, task: str = "") -> None:
        self._outbox, self._features, self._link, self._task = outbox, tuple(features), link, task
        number, first = outbox.tail()
        self._episode = number + (first < len(outbox))  # one that a kill cut short stays cut
        self._rows: list[tuple[dict[str, NDArray], NDArray[np.float32], bool]] = []
        self._index = 0
        self.episodes = self.steps = self.interventions = 0

    def add(
        self, observation: Mapping[str, ArrayLike], action: ArrayLike, *_: float, intervention: bool = False, **__: Any
    ) -> None:
        """See `Writer.add`; the reward is the verdict of `end`."""
        seen = {key: np.array(observation[key]) for key in self._features}
        self._rows.append((seen, np.array(action, np.float32), intervention))
        if len(self._rows) > 2:
            self._step(0.0)

    def end(self, *, success: bool, terminated: bool = False, truncated: bool = False, task: str = "", **_: Any) -> int:
        if len(self._rows) > 1:
            self._step(float(success))
        if self._index:
            seen = self._rows[-1][0]
            self._write(End(self._episode, self._index, seen, terminated, not terminated, success))
            self.episodes += 1
        self._rows, self._index, self._episode = [], 0, self._episode + 1
        return self._episode - 1

    def discard(self) -> None:
        """Cut the episode: it has no end, so its steps are learned from once the next begins, its outcome is unknown,
        and no data set has it."""
        self._rows, self._episode = [], self._episode + bool(self._index)
        self._index = 0

    def _step(self, reward: float) -> None:
        seen, action, intervention = self._rows.pop(0)
        words = "" if self._index else self._task
        self._write(ReplayStep(self._episode, self._index, seen, action, reward, intervention, words))
        self._index += 1
        self.steps += 1
        self.interventions += intervention

    def _write(self, record: Record) -> None:
        self._outbox.append(record)
        self._link.notify()


class HilRecording(Recording):
    """A recording whose episodes go to a learner.

    Args:
      link: to the learner.
      buffered: the policy of the session's device.
      hold: gives control to the operator's device, or back, beside its dead-man's switch.
      periods: of the control steps, added to.
      console: of the operator, or None.
      by_task: the simulated arm's own success ends an episode.
      done: a reward model that ends episodes as successes, or None.
      words: the task, for it.
      labels: the person's, by which that model is audited, or None.
    """

    _labels: SpotLabels | None = None  # before it is made there is a status

    def __init__(
        self,
        *recording: Any,
        link: Link,
        buffered: DoubleBufferedPolicy,
        hold: Callable[[bool], None],
        periods: Periods,
        console: OperatorConsole | None = None,
        by_task: bool = False,
        done: OnlineDone | None = None,
        words: str = "",
        labels: SpotLabels | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*recording, **named)
        self._link, self._buffered, self._hold = link, buffered, hold
        self._periods, self._console, self._by_task = periods, console, by_task
        self._done, self._words, self._labels = done, words, labels
        self._called = False  # the running episode is done, by the model
        self._commanded: NDArray | None = None  # the newest action of the running episode
        self._halted = False  # STOP was pressed, and not released
        self._needs_help = False  # by the progress of the reward model
        self._stepped = 0.0
        self._shown: ActorStatus | None = None

    def look(self) -> None:
        super().look()
        if self._link.finished:
            self.do(self.episodes.end("the learner is done"))
        elif self.episodes.phase is Phase.RECORDING and not self._link.alive:
            self.do(self.episodes.judged(OperatorVerdict(False, truncated=True)))
            self.episodes.message = f"{SILENT}: the arm holds. Press Start to go on when it does"
            log.warning("%s", self.episodes.message)

    def do(self, commands: list[EpisodeCommand]) -> None:
        if EpisodeCommand.BEGIN in commands and not self._link.alive:
            commands = self.episodes.put_off(SILENT)
        elif EpisodeCommand.BEGIN in commands and self._question:
            commands = self.episodes.put_off(self._question)
        if EpisodeCommand.BEGIN in commands:
            self._commanded, self._called = None, False
        super().do(commands)
        if EpisodeCommand.STORE in commands and self._labels is not None:
            verdict = self.episodes.verdict
            by_key = not (self._called or verdict.truncated)
            self._audit(self._labels, self._labels.ended(self._called, verdict.success if by_key else None))

    def before_step(self) -> None:
        for event in self.sample.events:
            self._answer(event)
        super().before_step()
        recording = self.episodes.phase is Phase.RECORDING
        by_task = self._by_task and self._outcome is not None and self._outcome["success"]
        # Before its first frame what the model says is of the episode before.
        by_model = self._done is not None and self._commanded is not None and self._done.solved
        if recording and (by_task or by_model):
            self._called = by_model
            self.do(self.episodes.judged(OperatorVerdict(True)))
        now = self.clock()
        if recording and self.step_count and self._stepped:
            self._periods.add(now - self._stepped)
        self._stepped = now if recording else 0.0
        if self._console is not None and self._shown is not None:
            if not recording:
                self._console.show(dataclasses.replace(self._shown, operator=None, question=self._question))
            for command in self._console.poll():
                self._obey(command)

    def add_row(
        self, observation: dict[str, NDArray], q: NDArray, target: NDArray, action: NDArray | None, stamp_ns: int
    ) -> None:
        super().add_row(observation, q, target, action, stamp_ns)
        if self._done is not None:
            if self._commanded is None:
                self._done.begin(self._words, observation)
            else:
                self._done.add(self._commanded, observation)
            self._commanded = (
                np.zeros(self.session.contract.interface.action.shape, np.float32) if action is None else action
            )
        reason = "" if self._done is None or self.sample.intervention else self._done.help_reason
        if reason and not self._needs_help:
            log.info("episode %d: %s, the person is asked to help", self.episodes.number, reason)
        self._needs_help = bool(reason)
        if self._console is None:
            return
        self._shown = ActorStatus(
            episode=self.episodes.number,
            step=self.step_count,
            observation={key: value[None] for key, value in observation.items()},
            operator=self.sample.intervention,
            version=self._buffered.version,
            period=self._link.period,
            linked=self._link.alive,
            unsent=0,
            progress=self._link.progress,
            executed=None,
            asks_help=self._needs_help,
        )
        self._console.show(self._shown)

    def place(self) -> Steps:
        yield from self._until(lambda: not self._halted, 0.0, STOPPED)
        yield from self._until(lambda: self._link.alive and self._buffered.loaded, ANSWER_S, SILENT)
        yield from super().place()

    def _make_status(self, observation: dict[str, NDArray]) -> Status:
        status = dataclasses.replace(super()._make_status(observation), episodes=0)
        return dataclasses.replace(status, message=self._question or status.message)

    def _obey(self, command: OperatorCommand) -> None:
        if command in (OperatorCommand.TAKE_OVER, OperatorCommand.HAND_BACK):
            self._hold(command == OperatorCommand.TAKE_OVER)
        elif command in (OperatorCommand.STOP, OperatorCommand.RELEASE):
            self._halted = command == OperatorCommand.STOP
            if self._halted:
                self.do(self.episodes.stopped(STOPPED))
        elif command == OperatorCommand.QUIT:
            self.do(self.episodes.end("ended by the person at the page"))
        elif not self._answer(EVENTS[command]):
            self.do(self.episodes.handle(EVENTS[command]))

    @property
    def _question(self) -> str:
        """That to the person which is open, or nothing."""
        return QUESTION if self._labels is not None and self._labels.open else ""

    def _answer(self, event: EpisodeEvent) -> bool:
        """Take `event` as the answer to an open question; true where it is one."""
        labels = self._labels
        if labels is None or not self._question or event not in (EpisodeEvent.SUCCESS, EpisodeEvent.FAILURE):
            return False
        self.episodes.message = NEXT
        self._audit(labels, labels.answer(event is EpisodeEvent.SUCCESS))
        return True

    def _audit(self, labels: SpotLabels, reason: str) -> None:
        """Keep the labels; end the run for this `reason`, if any."""
        self._storage.put(labels.save)
        if self._question:
            log.info("episode %d: %s", self.episodes.number, self._question)
        if reason:
            self.fail(RobolearnError(f"{reason}; the run ends here"))
