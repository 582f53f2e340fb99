"""Python's search for dead cycles, done before what must not be held up.

A search through all that a program has loaded holds the interpreter for half a second: longer than a leader arm may be
silent, or the safety filter lets a joint state be old. What was there before need not be searched again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def searched_before() -> Iterator[None]:
    """Search now; whatever lives by now is left alone until the end.

    Not longer: the interpreter cannot take down what is frozen, and native modules complain of leaks.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
