"""SIGTERM and Ctrl-C as a question that a loop asks: whether to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
