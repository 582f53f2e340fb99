"""SIGTERM and Ctrl-C as a question that a loop asks: whether to stop.

A program that was started by another one of ours stops with it: `ROBOLEARN_PARENT` in its environment is the process
that it depends on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LOOK_S = 0.5


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Within, the first SIGTERM or Ctrl-C only turns the yielded function true; a second one raises."""
    asked = threading.Event()

    def note(signum: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    parent = os.environ.get("ROBOLEARN_PARENT", "")
    if parent.isdecimal():
        threading.Thread(target=_watch, args=(int(parent),), daemon=True).start()
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
