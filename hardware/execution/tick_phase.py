"""The phase of a periodic tick, led to where what arrives once in a while waits least for it.

Targets of a new observation come at a steady phase of the tick's period T, because the driver that observes has a
clock, too. Sent at t, one waits for the next tick by

    w = t_tick − t,   in [0, T) whatever that phase is, T / 2 in the mean

Ticks that take the i-th of the newest `KEPT` targets just in time, which is `AHEAD_S` after it was sent, as long as a
message takes, let the j-th wait for

    AHEAD_S + (w_j − w_i) mod T

and those are chosen whose mean over j is the least. The slowest targets then come too late for their tick, and wait for
the next: so few that all others together gain more than they lose.

A filter moves its set-point by one period a tick. Ticks that come sooner make a motion that much faster than it was
judged, and later ones slower: while the arm moves, ticks are led to later times at a rate of `SLOWER`, and to earlier
ones at `FASTER`, far below the noise of their own times.
"""

from __future__ import annotations

from collections import deque

import numpy as np

AHEAD_S = 5e-4
KEPT = 32
SLOWER, FASTER = 0.02, 0.002  # of a period, a tick
STALE = 1.5  # periods; what waited longer was held up: no phase


class TickPhase:
    """The phase of ticks one `period` [s] apart."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._waits: deque[float] = deque(maxlen=KEPT)
        self._owed = 0.0  # by which ticks are still to be later [s]

    def waited(self, seconds: float) -> None:
        """A target that was sent `seconds` ago is taken by this tick, the first that it could be."""
        if not 0.0 <= seconds <= STALE * self._period:
            return
        self._waits.append(seconds)
        waits = np.array(self._waits)
        mean = ((waits - waits[:, None]) % self._period).mean(axis=1)
        self._owed = self._nearest(AHEAD_S - float(waits[np.argmin(mean)]))

    def shift(self, *, at_rest: bool) -> float:
        """By which the next tick is later [s]; while the arm is `at_rest` it may be much earlier, too."""
        earliest = SLOWER if at_rest else FASTER
        moved = min(max(self._owed, -earliest * self._period), SLOWER * self._period)
        if moved:
            self._owed -= moved
            self._waits = deque((wait + moved for wait in self._waits), KEPT)
        return moved

    def _nearest(self, seconds: float) -> float:
        """Of all times that are whole periods from `seconds` the least, in [−T/2, T/2)."""
        half = 0.5 * self._period
        return (seconds + half) % self._period - half
