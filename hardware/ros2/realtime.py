"""Real-time priority for the threads of a process that drives an arm, and less of it for those that do not."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection
from contextlib import suppress

from robolearn.core.machine import own_schedule, set_schedule, threads

log = logging.getLogger(__name__)


def realtime(priority: int, other_threads: Collection[int] = ()) -> bool:
    """Request SCHED_FIFO at `priority` (1 to 99; 0: nothing) for all threads; whether it was granted.

    Args:
      priority: SCHED_FIFO's.
      other_threads: ids of threads that get what `step_back` leaves.
    """
    if priority <= 0:
        return False
    found = threads()  # those of the middleware too
    try:
        for thread in found:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                set_schedule(thread, (os.SCHED_FIFO, _background(priority) if thread in other_threads else priority))
    except OSError:
        found = []
    if not found:
        log.warning("no real-time priority %d: allow it with `ulimit -r`, or run as a user who may", priority)
    return bool(found)


def step_back() -> None:
    """This thread, and those that it starts, do not drive the arm: half the real-time priority that it has inherited.

    Not none: a thread that holds the interpreter's lock could be kept from running, and with it the one that drives the
    arm, for half a second.
    """
    own = own_schedule()
    if own is not None and own[0] == os.SCHED_FIFO:
        with suppress(OSError):
            set_schedule(threading.get_native_id(), (os.SCHED_FIFO, _background(own[1])))


def _background(priority: int) -> int:
    return max(1, priority // 2)
