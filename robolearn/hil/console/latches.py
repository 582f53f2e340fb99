"""What was pressed and what became of it, without a page: each press latches until the loop shows that it was heard.

- STOP stays until it is released, by another button and two presses, neither of them close to STOP; meanwhile nothing
  else is passed on, and `poll` repeats it.
- TAKE OVER and HAND BACK are shown as asked for until the one who shall be in control is.
- A label stays until the next episode; there is one per episode.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from robolearn.hil.status import HilCommand, HilStatus, InControl

SURE_S = 4.0  # for the second press: a slip of the finger must not release a stop
CALM_S = 1.0  # after STOP, in which a press of RELEASE is one of somebody in haste
ENDINGS = (HilCommand.SUCCESS, HilCommand.FAILURE, HilCommand.RETURN)
LABELS = {HilCommand.SUCCESS: "Success", HilCommand.FAILURE: "Failure", HilCommand.RETURN: "Return to start"}
_NAMES = {
    InControl.POLICY: "The policy moves the arm",
    InControl.PERSON: "You move the arm",
    InControl.NOBODY: "Nobody moves the arm",
}


@dataclass(frozen=True)
class ButtonView:
    """How a button looks: whether it can be pressed, whether what it asks for is latched, whether it is there."""

    label: str
    enabled: bool
    latched: bool = False
    visible: bool = True


@dataclass(frozen=True)
class ConsoleView:
    """What is shown: who is in control, in words, whether the arm is stopped, and the buttons."""

    headline: str
    stopped: bool
    buttons: dict[HilCommand, ButtonView]


class Latches:
    """Shared by the threads of pages and of the loop.

    Args:
      clock: steady time [s].
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: list[HilCommand] = []
        self._status: HilStatus | None = None
        self._stop = False  # pressed here and not released
        self._stop_at = -float("inf")
        self._sure_until = -float("inf")
        self._wanted: InControl | None = None
        self._label: tuple[HilCommand, int] | None = None  # and of which episode

    def press(self, command: HilCommand) -> bool:
        """Somebody pressed this; whether it is passed on to the loop."""
        with self._lock:
            if command is HilCommand.STOP:
                self._stop, self._stop_at, self._sure_until = True, self._clock(), -float("inf")
                self._asked, self._wanted = [], None
                return True
            if command is HilCommand.RELEASE:
                return self._release()
            if self._stopped() or self._status is None or not self._buttons()[command].enabled:
                return False
            if command is HilCommand.TAKE_OVER:
                self._wanted = InControl.PERSON
            elif command is HilCommand.HAND_BACK:
                self._wanted = InControl.POLICY
            else:
                self._label, self._wanted = (command, self._status.episode), None
            self._asked.append(command)
            return True

    def update(self, status: HilStatus) -> None:
        """The loop has shown itself."""
        with self._lock:
            before, self._status = self._status, status
            if status.in_control is self._wanted or (before is not None and before.episode != status.episode):
                self._wanted = None
            if self._label is not None and self._label[1] != status.episode:
                self._label = None

    def poll(self) -> tuple[HilCommand, ...]:
        """See `robolearn.hil.status.Console.poll`."""
        with self._lock:
            asked, self._asked = self._asked, []
            return (HilCommand.STOP,) if self._stop else tuple(asked)

    def view(self) -> ConsoleView:
        """How it is shown now."""
        with self._lock:
            status, stopped = self._status, self._stopped()
            if self._stop:
                headline = "STOPPED: somebody pressed Stop on this page"
            elif status is None:
                headline = "Waiting for the loop"
            elif status.stopped:
                headline = f"STOPPED: {status.stopped}"
            else:
                headline = _NAMES[status.in_control]
            return ConsoleView(headline, stopped, self._buttons())

    # -----------------------------------------------------------------------------------------------------------

    def _stopped(self) -> bool:
        return self._stop or (self._status is not None and bool(self._status.stopped))

    def _release(self) -> bool:
        if not self._stopped() or self._clock() < self._stop_at + CALM_S:
            return False
        if self._clock() > self._sure_until:
            self._sure_until = self._clock() + SURE_S
            return False
        self._stop, self._sure_until = False, -float("inf")
        self._asked.append(HilCommand.RELEASE)
        return True

    def _buttons(self) -> dict[HilCommand, ButtonView]:
        stopped, status = self._stopped(), self._status
        able = status is not None and not stopped and status.in_control is not InControl.NOBODY
        mine = able and status is not None and status.in_control is InControl.PERSON
        taking, giving = self._wanted is InControl.PERSON, self._wanted is InControl.POLICY
        label = self._label[0] if self._label is not None else None
        sure = self._clock() <= self._sure_until
        free = able and label is None
        return {
            HilCommand.STOP: ButtonView("STOPPED" if self._stop else "STOP", not self._stop, self._stop),
            HilCommand.RELEASE: ButtonView(
                "Sure? Release the stop" if sure else "Release the stop", stopped, sure, stopped
            ),
            HilCommand.TAKE_OVER: ButtonView(
                "Taking over …" if taking else "Take over", free and not mine and not taking, taking
            ),
            HilCommand.HAND_BACK: ButtonView(
                "Handing back …" if giving else "Hand back", free and mine and not giving, giving
            ),
            **{
                ending: ButtonView(LABELS[ending] + (" ✓" if label is ending else ""), free, label is ending)
                for ending in ENDINGS
            },
        }
