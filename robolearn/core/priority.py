"""Real-time priority of this process's threads: SCHED_FIFO, 1 to 99, where the system is Linux and permits it.

The C library remembers what a thread was given by `pthread_setschedparam`; what the kernel is told about a thread by
its id (`sched_setscheduler`) does not reach that memory. Threads inherit it, and Fast DDS, whose threads ask for their
own priority and set it again, then runs at what the memory says. So the calling thread's is set through the C library.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from contextlib import suppress

HIGHEST = 99
Schedule = tuple[int, int]  # scheduling policy of the kernel, real-time priority


def threads() -> list[int]:
    """Ids of this process's threads; none where threads have no such priority."""
    return [int(name) for name in os.listdir("/proc/self/task")] if sys.platform == "linux" else []


def own_schedule() -> Schedule | None:
    """What the calling thread has; None where threads have no such priority."""
    return (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority) if sys.platform == "linux" else None


def set_schedule(thread: int, schedule: Schedule) -> None:
    """Give a thread of this process another policy and priority.

    Raises:
      OSError: it is not permitted, or the thread has ended.
    """
    policy, priority = schedule
    if thread != threading.get_native_id():
        os.sched_setscheduler(thread, policy, os.sched_param(priority))
        return
    own, given = ctypes.c_ulong(threading.get_ident()), (ctypes.c_int * 16)(priority)  # struct sched_param, and room
    code = ctypes.CDLL(None).pthread_setschedparam(own, policy, given)
    if code:
        raise OSError(code, os.strerror(code))


def make_ordinary(at_least: int = 1) -> None:
    """Take the SCHED_FIFO priority from all threads that have `at_least` this much."""
    for thread in threads():
        with suppress(OSError):  # it has ended meanwhile
            if os.sched_getscheduler(thread) == os.SCHED_FIFO and os.sched_getparam(thread).sched_priority >= at_least:
                set_schedule(thread, (os.SCHED_OTHER, 0))
