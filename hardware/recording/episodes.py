"""The state machine of a recording: operator's events and arm's states in, commands out.

Pure: events go in, things to do come out; whoever does them reports when they are done.

    STARTING ──up──► WAITING ──START──► PREPARING ──prepared──► RECORDING ──SUCCESS, FAILURE──► WAITING …
                        ▲                                          │ stopped, DISCARD: the episode is dropped
                        └──────────────────────────────────────────┘ REDO: dropped, and PREPARING at once

A simulated arm puts everything in its place when an episode is prepared. A real one (`placing`) does not: there
PREPARING leads to READY, in which the operator moves the arm without being recorded, START begins the episode, and
SUCCESS, FAILURE and REDO lead back to READY, the arm still armed.

An episode is stored beside all this. Only the next one waits for it, and a START that comes meanwhile is kept, until
a stop or DISCARD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from hardware.teleop.device import EpisodeEvent

PRESS_START = "press Start (Enter on a keyboard)"


class Phase(StrEnum):
    """Phase of a recording."""

    STARTING = "starting"
    WAITING = "waiting"  # for START; the arm is not armed, or about to come to rest
    PREPARING = "preparing"  # everything is put in its place, and the arm is armed
    READY = "ready"  # armed and not recorded: the operator puts the arm in its place
    RECORDING = "recording"
    ENDED = "ended"


class EpisodeCommand(StrEnum):
    """A step to take now, in this order."""

    DROP = "drop"  # drop the running episode, then call `saved`
    STORE = "store"  # store it with the `verdict`, then call `saved`
    DISARM = "disarm"  # a planned stop
    PREPARE = "prepare"  # when the arm is at rest: reset, put in place, arm; then call `prepared` or `refused`
    BEGIN = "begin"  # record from now on
    END = "end"


@dataclass(frozen=True)
class OperatorVerdict:
    """The end of an episode."""

    success: bool
    truncated: bool = False  # by the clock


class EpisodeLifecycle:
    """The episodes of one session.

    Args:
      wanted, first: how many to record, and the number of the first one, from 0.
      placing: whether the operator puts the arm in its place before each episode.
      recording: False: the arm is moved, and never recorded.
      give_up: end after so many episodes in a row that were dropped or could not begin, as no operator is there to see
        to it; 0: never.

    Attributes:
      phase: where the session stands.
      message: one line for the operator.
      verdict: on the last episode that ended.
      saving, storing: an episode is being stored or dropped, stored.
      recorded, successes, dropped: so far.
      gave_up: why, after `give_up` episodes.
    """

    def __init__(
        self, wanted: int, first: int = 0, *, placing: bool = False, recording: bool = True, give_up: int = 0
    ) -> None:
        self.first = first
        self.wanted, self.placing, self.recording = wanted, placing or not recording, recording
        self.phase, self.message = Phase.STARTING, "starting"
        self.verdict = OperatorVerdict(False)
        self.saving = self.storing = False
        self.recorded = self.successes = self.dropped = 0
        self.gave_up = ""
        self._start = False  # START came while an episode was being saved
        self._give_up = give_up or math.inf
        self._in_vain = 0

    @property
    def armed(self) -> bool:
        """True while the operator moves the arm."""
        return self.phase in (Phase.READY, Phase.RECORDING)

    @property
    def number(self) -> int:
        """Of the episode at hand, or of the next, from 0."""
        return self.first + self.recorded + self.storing

    # --- what happens ---------------------------------------------------------------------------------------

    def up(self) -> list[EpisodeCommand]:
        """Everything that a recording needs is there."""
        if self.phase is not Phase.STARTING:
            return []
        if self.recording and self.wanted <= 0:
            return self.end("nothing left to record")
        return self._enter(Phase.WAITING, PRESS_START)

    def handle(self, event: EpisodeEvent) -> list[EpisodeCommand]:
        """An event of the operator; one that makes no sense now is ignored, with a `message`."""
        if self.phase is Phase.ENDED:
            return []
        if event is EpisodeEvent.QUIT:
            return self.end("ended by the operator")
        if self.phase is Phase.STARTING:
            return []
        if event is EpisodeEvent.START:
            return self._started()
        if event is EpisodeEvent.DISCARD or not self.recording:
            return self._discarded()
        if self.phase is not Phase.RECORDING:
            self.message = f"{event.value}: nothing is being recorded"
            return []
        if event is EpisodeEvent.REDO:
            return self._redo()
        return self.judged(OperatorVerdict(event is EpisodeEvent.SUCCESS))

    def prepared(self) -> list[EpisodeCommand]:
        """The arm is armed."""
        if self.phase is not Phase.PREPARING:
            return [EpisodeCommand.DISARM]  # the operator has discarded it meanwhile
        if self.placing:
            message = (
                "put the arm in its place, then press Start to record" if self.recording else "the arm follows you"
            )
            return self._enter(Phase.READY, message)
        return self._begin()

    def put_off(self, why: str) -> list[EpisodeCommand]:
        """The episode that has just begun cannot be recorded yet: nothing of it is there to be dropped."""
        if self.phase is not Phase.RECORDING:
            return []
        message = f"{why}. Press Start to try again"
        return self._enter(Phase.READY, message) if self.placing else self._rest(message)

    def refused(self, why: str) -> list[EpisodeCommand]:
        """The arm cannot be armed."""
        if self.phase is not Phase.PREPARING:
            return []
        return [*self._rest(f"{why}. Press Start to try again"), *self._vain(why)]

    def stopped(self, why: str) -> list[EpisodeCommand]:
        """The safety filter stopped the arm, or what the recording observes is not valid any more."""
        if not self.armed:
            return []
        self._start = False  # asked for before the stop: nothing arms itself again
        drop = self._drop()
        what = f"episode {self.number + 1} dropped: " if drop else ""
        commands = [*drop, *self._rest(f"{what}{why}. Press Start to go on")]
        return [*commands, *self._vain(why)] if drop else commands

    def judged(self, verdict: OperatorVerdict) -> list[EpisodeCommand]:
        """The running episode has ended: by the operator, the simulator or the clock."""
        if self.phase is not Phase.RECORDING:
            return []
        self.verdict, self.saving, self.storing = verdict, True, True
        word = "success" if verdict.success else "time is over" if verdict.truncated else "failure"
        return [EpisodeCommand.STORE, *self._between(word)]

    def lost(self) -> None:
        """Count the episode that was to be stored as dropped."""
        self.dropped += self.storing
        self.saving = self.storing = False

    def saved(self) -> list[EpisodeCommand]:
        """The episode at hand is stored, or dropped."""
        self.saving = False
        if self.storing:
            self.storing, self._in_vain = False, 0
            self.recorded += 1
            self.successes += self.verdict.success
            if self.recorded >= self.wanted:
                return self.end(f"all {self.wanted} episodes are recorded")
        if self._start:
            self._start = False
            return self._started()
        return []

    def end(self, message: str) -> list[EpisodeCommand]:
        """Nothing more is recorded; a running episode is dropped."""
        if self.phase is Phase.ENDED:
            return []
        return [*self._drop(), *self._enter(Phase.ENDED, message, EpisodeCommand.DISARM, EpisodeCommand.END)]

    # --- ways ------------------------------------------------------------------------------------------------

    def _started(self) -> list[EpisodeCommand]:
        if self.phase in (Phase.WAITING, Phase.READY) and self.saving:
            self._start = True
        elif self.phase is Phase.WAITING:
            return self._enter(Phase.PREPARING, "preparing", EpisodeCommand.PREPARE)
        elif self.phase is Phase.READY and self.recording:
            return self._begin()
        elif self.phase is Phase.RECORDING:
            self.message = "recording already"
        return []

    def _begin(self) -> list[EpisodeCommand]:
        return self._enter(Phase.RECORDING, f"recording episode {self.number + 1}", EpisodeCommand.BEGIN)

    def _drop(self) -> list[EpisodeCommand]:
        """Drop the running episode, where there is one."""
        if self.phase is not Phase.RECORDING:
            return []
        self.saving, self.dropped = True, self.dropped + 1
        return [EpisodeCommand.DROP]

    def _discarded(self) -> list[EpisodeCommand]:
        self._start = False
        if self.phase is Phase.WAITING:
            return []
        drop = self._drop()
        return [*drop, *self._rest("discarded. Press Start to begin anew" if drop else PRESS_START)]

    def _redo(self) -> list[EpisodeCommand]:
        drop = self._drop()
        if self.placing:
            return [*drop, *self._between("dropped")]
        self._start = True  # as soon as it is dropped
        return [*drop, *self._rest("once more")]

    def _between(self, word: str) -> list[EpisodeCommand]:
        """After an episode, as armed as the arm stays."""
        if self.placing:
            return self._enter(Phase.READY, f"{word}. Put everything in its place, then press Start to record")
        return self._rest(f"{word}. Press Start for the next")

    def _rest(self, message: str) -> list[EpisodeCommand]:
        return self._enter(Phase.WAITING, message, EpisodeCommand.DISARM)

    def _enter(self, phase: Phase, message: str, *commands: EpisodeCommand) -> list[EpisodeCommand]:
        self.phase, self.message = phase, message
        return [*commands]

    def _vain(self, why: str) -> list[EpisodeCommand]:
        self._in_vain += 1
        if self._in_vain < self._give_up:
            return []
        self.gave_up = why
        return self.end(f"given up: {why}")
