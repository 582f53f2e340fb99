"""Encoders run at ordinary priority, not before the arm's safety filter.

SVT-AV1 gives each of its threads, dozens for one camera, the highest real-time priority of all (SCHED_FIFO 99) where
the process may, as root may. A video would then come before the nodes that move and stop the arm, and before everything
else on the machine.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from robolearn.core.machine import HIGHEST, make_ordinary, own_schedule, set_schedule


@contextlib.contextmanager
def ordinary_priority() -> Iterator[None]:
    """For opening an encoder: no thread has the highest priority afterwards, and this one keeps what it had.

    SVT-AV1 raises its caller's too. A thread of a program that moves an arm has one for a reason: with none, one that
    holds the interpreter's lock may not run, and then the thread that moves the arm does not either. Nodes that ask for
    real-time priority ask for less than the highest, and keep it.
    """
    own = own_schedule()
    try:
        yield
    finally:
        make_ordinary(HIGHEST)
        if own is not None:
            with contextlib.suppress(OSError):
                set_schedule(threading.get_native_id(), own)
