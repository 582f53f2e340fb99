"""Handshakes of TLS that failed, as refusals: gRPC's C core writes a line for each to the process's stderr.

That is the only sign of a stranger who speaks plain text at a TLS port, or shows no certificate: no call of Python is
reached. So what native code writes to stderr is read here: these lines become refusals, all others pass.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FAILED = re.compile(rb"Handshake failed.*?:([A-Z_]{4,})\b(?!.*:[A-Z_]{4,}\b)")


@contextmanager
def heard(refuse: Callable[[str, str], None]) -> Iterator[None]:
    """Within, failed handshakes are handed to `refuse` (who, why) instead of being written to stderr."""
    reading, writing = os.pipe()
    stderr = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    reader = threading.Thread(target=_pass_on, args=(reading, stderr, refuse), name="hil-stderr", daemon=True)
    reader.start()
    try:
        yield
    finally:
        os.dup2(stderr, 2)  # the last end of the pipe to write to: the reader comes to its end
        reader.join(1.0)
        os.close(stderr)


def _pass_on(reading: int, stderr: int, refuse: Callable[[str, str], None]) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            failed = _FAILED.search(line)
            if failed is None:
                os.write(stderr, line)
            else:
                refuse("a caller", f"TLS: {failed[1].decode().lower().replace('_', ' ')}")
