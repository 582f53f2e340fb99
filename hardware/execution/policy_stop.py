"""Stops that the policy's side asks for at once, so that the arm does not go on until its chunk has run out.

A policy that has failed does not act again in its turn: that is a stop, also before its first chunk. What it is to see
may be wrong in a single message, a picture that waited somewhere or one bad stamp, which is none; it is one after
`LASTS_S`. An input that is silent has been so for long enough; one look may come before what has arrived is read, two
do not. Before the first chunk the arm is at rest and inputs are waited for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

LASTS_S = 0.06  # a problem: longer than from one picture to the next at 20 Hz, as long as a chunk may be late
LOOKS = 2  # in a row that find an input silent
AGAIN_S = 0.05  # between two times that a stop is said: the streamer may not have learned yet that the arm is armed


class PolicyStop:
    """When a policy asks for a stop, and why. `clock` is the steady time [s]."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin(None)

    def begin(self, turn: object) -> None:
        """The policy's turn `turn` begins; one that is false: it is nobody's, and nothing is a stop."""
        self._on, self._acted, self._reason = bool(turn), False, ""
        self._since, self._said, self._silent = math.inf, -math.inf, 0

    def acted(self) -> None:
        """A chunk was sent in this turn."""
        self._acted = True

    def failed(self, reason: str) -> None:
        """The policy failed because of `reason`; empty: it did not."""
        if reason and self._on and not self._reason:
            self._reason = reason

    def refused(self, reason: str) -> None:
        """The policy does not act on what it sees because of `reason`, whatever comes later."""
        if self._acted:
            self.failed(reason)

    def look(self, problem: str, *, silent: bool = False) -> None:
        """`problem` of what the policy is to see now, or nothing; called often. `silent`: an input has sent nothing new
        for longer than is allowed."""
        now = self._clock()
        self._since = min(self._since, now) if problem and self._acted else math.inf
        self._silent = self._silent + 1 if silent and self._acted else 0
        if now - self._since >= LASTS_S or self._silent >= LOOKS:
            self.failed(problem)

    def due(self) -> str:
        """The reason of a stop that is to be said now, for the first time or again; or nothing."""
        if not self._reason or self._clock() - self._said < AGAIN_S:
            return ""
        self._said = self._clock()
        return self._reason
