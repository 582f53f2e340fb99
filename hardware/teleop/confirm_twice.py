"""Confirmation before a running episode is dropped: the keys and buttons that do it lie beside others, and a dropped
episode is lost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from hardware.teleop.device import RECORDING, EpisodeEvent, Status

CONFIRM_S = 4.0
DROPS = {EpisodeEvent.QUIT: "quit", EpisodeEvent.REDO: "try again"}
"""What drops a running episode although its key may have been meant for something else. DISCARD means just that."""


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
