"""Encoders do not run before the arm's safety filter.

SVT-AV1 gives each of its threads, dozens for one camera, the highest real-time priority of all (SCHED_FIFO 99) where
the process may, as root may. A video would then come before the nodes that move and stop the arm, and before everything
else on the machine.
"""

from __future__ import annotations

import contextlib
import os

HIGHEST = 99


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
