"""Base of the devices on the operator's desk: keyboard, gamepad, SpaceMouse and leader arm.

A device that failed or went silent is dead until it is opened anew: the arm must not move again because a cable found
its socket. Keys and buttons that drop a running episode lie beside others, and are asked for twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TextIO, TypedDict

from hardware.teleop.device import RECORDING, EpisodeEvent, Status
from hardware.teleop.terminal import Keys, StatusLine, episode_events

CONFIRM_S = 4.0
DROPS = {EpisodeEvent.QUIT: "quit", EpisodeEvent.REDO: "try again"}
"""Events that drop a running episode although another key may have been meant; DISCARD means just that."""


class ConfirmTwice:
    """Passes events on, but QUIT and REDO while an episode is recorded only when they come twice within `CONFIRM_S`.

    Args:
      clock: steady seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state = ""
        self._asked: EpisodeEvent | None = None
        self._at = -math.inf

    def follow(self, status: Status) -> None:
        """Note whether an episode is recorded; a question about another one is no longer open."""
        if status.state != self._state:
            self._asked = None
        self._state = status.state

    def events(self, events: Iterable[EpisodeEvent]) -> tuple[EpisodeEvent, ...]:
        """Those that are meant, in order."""
        meant = []
        for event in events:
            if event in DROPS and self._state == RECORDING and event is not self._open:
                self._asked, self._at = event, self._clock()
            else:
                self._asked = None
                meant.append(event)
        return tuple(meant)

    @property
    def note(self) -> str:
        """The question, for the operator; empty without one."""
        asked = self._open
        return f"once more drops this episode: {DROPS[asked]}" if asked is not None else ""

    @property
    def _open(self) -> EpisodeEvent | None:
        return self._asked if self._clock() - self._at <= CONFIRM_S else None


class Watchdog:
    """Alive from `start` until `fail`, or until the device was silent for too long while it had to report.

    Args:
      device: its name, for `why`.
      silence_s: how long it may be silent [s]; infinite for devices that report only changes.
      clock: steady seconds.

    Attributes:
      newest: when the device last reported [s].
      why: reason of its death, in one line; empty while it lives.
    """

    def __init__(self, device: str, silence_s: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self.device, self.silence_s, self.clock = device, silence_s, clock
        self.newest = clock()
        self.why = f"{device}: not open"

    def start(self) -> None:
        """The device was opened."""
        self.newest, self.why = self.clock(), ""

    def report(self) -> None:
        """A report of the device has arrived."""
        self.newest = self.clock()

    def fail(self, why: str) -> None:
        """The device is gone; the first reason stays."""
        self.why = self.why or f"{self.device}: {why}"

    def alive(self, *, must_speak: bool = True) -> bool:
        """True while the device lives.

        Args:
          must_speak: whether silence counts now; a SpaceMouse at rest sends nothing.
        """
        silent = self.clock() - self.newest
        if must_speak and silent > self.silence_s:
            self.fail(f"silent for {silent:.2f} s")
        return not self.why


class OperatorOptions(TypedDict, total=False):
    """Options of every such device, see `OperatedDevice`."""

    fd: int | None
    out: TextIO | None
    clock: Callable[[], float]


class OperatedDevice:
    """State in a terminal, episode keys from it, a latch for a device that died, and confirmation of what drops an
    episode.

    Args:
      silence_s: without a report for longer, the dead-man is off [s].
      fd: terminal to read, by default standard input.
      out: where keys or buttons and the state are shown, by default standard error.
      clock: steady seconds.
    """

    name = ""

    def __init__(
        self,
        silence_s: float = math.inf,
        *,
        fd: int | None = None,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fd = fd
        self._keys, self._screen = Keys(fd, clock), StatusLine(out, clock)
        self._watchdog, self._confirm = Watchdog(self.name, silence_s, clock), ConfirmTwice(clock)

    @property
    def gone(self) -> str:
        """Reason of the device's death; empty while it lives."""
        return self._watchdog.why

    def prepared(self) -> None:
        """See `Device.prepared`."""

    def show(self, status: Status) -> None:
        """See `Device.show`."""
        self._confirm.follow(status)
        self._screen.show(status)

    def _begin(self, line: str) -> None:
        """The device is open: motion starts anew, the watchdog counts from now, `line` is shown."""
        self.prepared()
        self._watchdog.start()
        self._screen.print(line)

    def open_keys(self) -> None:
        """Listen to the terminal, where there is one."""
        if Keys.available(self._fd):
            self._keys.open()

    def key_events(self) -> tuple[EpisodeEvent, ...]:
        """Confirmed events from the keys of the terminal."""
        return self._confirm.events(episode_events(self._keys.poll()))

    def _end(self) -> None:
        """The device is closed, the terminal as it was."""
        self._watchdog.fail("closed")
        self._screen.close()
        self._keys.close()
