"""Logic of the console's page, without a page: latched buttons, advice on when to help, thinned curves.

Each press latches until the loop shows its effect:

- STOP stays until it is released, by another button and two presses, neither of them close to STOP; meanwhile nothing
  else is passed on, and `poll` repeats it.
- TAKE OVER and HAND BACK are shown as asked for until control has changed.
- A label stays until the next episode; there is one per episode.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.hil.operator_console import CURVES, HilMetrics, HilStatus, InControl, OperatorCommand

SURE_S = 4.0  # for the second press: a slip of the finger must not release a stop
WANTED = {OperatorCommand.TAKE_OVER: InControl.PERSON, OperatorCommand.HAND_BACK: InControl.POLICY}
CALM_S = 1.0  # after STOP, in which a press of RELEASE does not count
LABELS = {
    OperatorCommand.SUCCESS: "Success",
    OperatorCommand.FAILURE: "Failure",
    OperatorCommand.RETURN: "Return to start",
}
TAKE, GIVE = ("Take over", "Taking over …"), ("Hand back", "Handing back …")  # and once it is asked for
_NAMES = {
    InControl.POLICY: "The policy moves the arm",
    InControl.PERSON: "You move the arm",
    InControl.NOBODY: "Nobody moves the arm",
}


@dataclass(frozen=True)
class ButtonView:
    """State of a button."""

    label: str
    enabled: bool
    latched: bool = False
    visible: bool = True


@dataclass(frozen=True)
class ConsoleView:
    """State of the page: the headline, whether the arm is stopped, and the buttons."""

    headline: str
    stopped: bool
    buttons: dict[OperatorCommand, ButtonView]


class Latches:
    """Shared by the threads of pages and of the loop.

    Args:
      clock: steady time [s].
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: list[OperatorCommand] = []
        self._status: HilStatus | None = None
        self._stop = False  # pressed here and not released
        self._stop_at = -float("inf")
        self._sure_until = -float("inf")
        self._wanted: InControl | None = None
        self._label: tuple[OperatorCommand, int] | None = None  # and of which episode

    def press(self, command: OperatorCommand) -> bool:
        """Press a button; true where it is passed on to the loop."""
        with self._lock:
            if command is OperatorCommand.STOP:
                self._stop, self._stop_at, self._sure_until = True, self._clock(), -float("inf")
                self._asked, self._wanted = [], None
                return True
            if command is OperatorCommand.RELEASE:
                return self._release()
            if self._stopped() or self._status is None or not self._buttons()[command].enabled:
                return False
            self._wanted = WANTED.get(command)
            if self._wanted is None:
                self._label = command, self._status.episode
            self._asked.append(command)
            return True

    def update(self, status: HilStatus) -> None:
        """Take a new status of the loop."""
        with self._lock:
            before, self._status = self._status, status
            if status.in_control is self._wanted or (before is not None and before.episode != status.episode):
                self._wanted = None
            if self._label is not None and self._label[1] != status.episode:
                self._label = None

    def poll(self) -> tuple[OperatorCommand, ...]:
        """See `robolearn.hil.operator_console.StatusPage.poll`."""
        with self._lock:
            asked, self._asked = self._asked, []
            return (OperatorCommand.STOP,) if self._stop else tuple(asked)

    def view(self) -> ConsoleView:
        """The view of now."""
        with self._lock:
            status, stopped = self._status, self._stopped()
            headline = "Waiting for the loop" if status is None else _NAMES[status.in_control]
            if stopped:
                why = "somebody pressed Stop on this page" if self._stop or status is None else status.stopped
                headline = f"STOPPED: {why}"
            return ConsoleView(headline, stopped, self._buttons())

    def _stopped(self) -> bool:
        return self._stop or (self._status is not None and bool(self._status.stopped))

    def _release(self) -> bool:
        if not self._stopped() or self._clock() < self._stop_at + CALM_S:
            return False
        if self._clock() > self._sure_until:
            self._sure_until = self._clock() + SURE_S
            return False
        self._stop, self._sure_until = False, -float("inf")
        self._asked.append(OperatorCommand.RELEASE)
        return True

    def _buttons(self) -> dict[OperatorCommand, ButtonView]:
        stopped, status = self._stopped(), self._status
        control = InControl.NOBODY if status is None or stopped else status.in_control
        taking, giving = self._wanted is InControl.PERSON, self._wanted is InControl.POLICY
        label = self._label[0] if self._label is not None else None
        sure = self._clock() <= self._sure_until
        free = control is not InControl.NOBODY and label is None
        asked = not stopped and status is not None and status.asks_label and label is None
        take, give = free and control is InControl.POLICY, free and control is InControl.PERSON
        stop = ButtonView("STOPPED" if self._stop else "STOP", not self._stop, self._stop)
        release = ButtonView("Sure? Release the stop" if sure else "Release the stop", stopped, sure, stopped)
        buttons = {OperatorCommand.STOP: stop, OperatorCommand.RELEASE: release}
        buttons[OperatorCommand.TAKE_OVER] = ButtonView(TAKE[taking], take and not taking, taking)
        buttons[OperatorCommand.HAND_BACK] = ButtonView(GIVE[giving], give and not giving, giving)
        for ending, words in LABELS.items():
            enabled = free or (asked and ending is not OperatorCommand.RETURN)
            buttons[ending] = ButtonView(words + (" ✓" if label is ending else ""), enabled, label is ending)
        return buttons


MOST = 600  # points that are kept at least; twice as many, and every second one goes


class Curves:
    """Points of all curves over robot time, thinned so that hours stay light on a page: every n-th, and the newest."""

    def __init__(self) -> None:
        self._points: list[tuple[float, ...]] = []
        self._newest: HilMetrics | None = None
        self._count, self._every = 0, 1
        self._passing = False  # the last point is there because it is the newest

    def add(self, metrics: HilMetrics) -> bool:
        """Add a point; true where it is new. Robot time only grows: an earlier point is ignored."""
        last = self._newest
        if last is not None and not metrics.robot_minutes > last.robot_minutes:
            return False
        self._newest = metrics
        if self._passing:
            self._points.pop()
        self._points.append((metrics.robot_minutes, *(float(getattr(metrics, name)) for name in CURVES)))
        self._passing = self._count % self._every != 0
        self._count += 1
        if len(self._points) > 2 * MOST and not self._passing:
            # An odd number of them: the first and the newest stay.
            self._points, self._every = self._points[::2], 2 * self._every
        return True

    def curve(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(K,) robot time [min] and (K,) values of one of `CURVES`, where they are known."""
        points = np.array(self._points, dtype=np.float64).reshape(-1, 1 + len(CURVES))
        values = points[:, 1 + CURVES.index(name)]
        known = np.isfinite(values)
        return points[known, 0], values[known]


@dataclass(frozen=True)
class HelpSchedule:
    """Advice on when to intervene: freely at first, then only to correct.

    Long interventions that always end in success make the critics over-estimate the policy's actions before them. So
    help is generous only until there is something to learn from, and short afterwards.

    Attributes:
      free_minutes: of robot time in which every hesitation is worth an intervention [min].
      long_s: an intervention after them that lasts longer is too long [s].
    """

    free_minutes: float = 5.0
    long_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("free_minutes", "long_s"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise BadInput(f"help schedule: {name}", got=getattr(self, name), expected="0 or more")

    def sentence(self, status: HilStatus) -> str:
        """Advice to the operator."""
        if status.stopped:
            return "The arm is stopped. See that all is safe, then release the stop."
        if status.in_control is InControl.NOBODY:
            return "Wait: the arm is put back to its start."
        person = status.in_control is InControl.PERSON
        left = self.free_minutes - status.robot_minutes
        if left > 0:
            if person:
                return "Show it the way: straight to the goal, without haste. Then hand back."
            freely = "Help freely: take over whenever the arm hesitates or strays, and show it the way"
            return f"{freely} ({math.ceil(left)} more min)."
        if person and status.in_control_s > self.long_s:
            seconds = f"{status.in_control_s:.0f} s"
            return f"Hand back now: you have moved the arm for {seconds}, and it learns more by trying."
        if person:
            return "Only correct: bring it back on its way, then hand back at once."
        if status.asks_help:
            return "The policy is unsure: watch closely, and take over if it goes wrong."
        return "Let it try. Take over only just before a mistake that it cannot correct by itself."
