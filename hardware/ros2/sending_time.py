"""When a message was sent, on this machine's steady clock: the time of reading depends on how busy the reader is."""

from __future__ import annotations

import time
from typing import Any

LONGEST_S = 5.0  # messages do not wait for longer; the time of day jumped
EXACT_NS = 200_000
TRIES = 20


def sent_at(info: Any) -> float:
    """Steady time [s] at which the middleware sent a message with this `MessageInfo`.

    The stamp is the sender's time of day, on the same machine or one whose clock is disciplined to it.
    """
    wall, steady = _now()
    since = 1e-9 * (wall - int(info["source_timestamp"]))
    return 1e-9 * steady - min(max(since, 0.0), LONGEST_S)


def _now() -> tuple[int, int]:
    """Time of day and steady time of one moment [ns].

    A process that is held up between the two readings would take that for the sender's delay.
    """
    best: tuple[int, int, int] | None = None
    for _ in range(TRIES):
        before = time.monotonic_ns()
        wall = time.time_ns()
        took = time.monotonic_ns() - before
        if best is None or took < best[0]:
            best = took, wall, before + took // 2
        if took < EXACT_NS:
            break
    assert best is not None
    return best[1:]
