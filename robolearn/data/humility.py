"""Encoders do not run before the arm's safety filter.

SVT-AV1 gives each of its threads, dozens for one camera, the highest real-time priority of all (SCHED_FIFO 99) where
the process may, as root may. A video would then come before the nodes that move and stop the arm, and before everything
else on the machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

HIGHEST = 99


@contextlib.contextmanager
def humbly() -> Iterator[None]:
    """For opening an encoder: `humble` afterwards, but this thread keeps the priority that it had.

    SVT-AV1 raises its caller's too. A thread of a program that moves an arm has one for a reason: with none, one that
    holds the interpreter's lock may not run, and then the thread that moves the arm does not either.
    """
    own = (os.sched_getscheduler(0), os.sched_getparam(0)) if hasattr(os, "sched_getparam") else None
    try:
        yield
    finally:
        humble()
        if own is not None:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, *own)


def humble() -> None:
    """Make ordinary threads of those of this process that have the highest real-time priority.

    Nodes that ask for real-time priority ask for less, and keep it.
    """
    if not hasattr(os, "sched_getparam"):  # only Linux has it, and only there encoders take it
        return
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            if os.sched_getparam(int(thread)).sched_priority == HIGHEST:
                os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))
